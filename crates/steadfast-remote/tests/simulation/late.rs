//! Late writes of a dead client. They arrive while the next client waits, which then finds all of
//! them. Without that wait they arrive after the next client has written.

use steadfast_remote::array::Policy;

use crate::full::{Full, every_death};
use crate::seeds;

const POLICIES: [(Policy, usize); 3] =
    [(Policy::Parity, 3), (Policy::Mirror, 2), (Policy::Erasure { data: 2, parity: 2 }, 4)];

/// The client writes until it dies after this many calls; its remaining requests are kept. Returns
/// whether it died.
fn die(full: &mut Full, calls: u64) -> bool {
    full.fleet.hold(true);
    full.fleet.arm_death(calls);
    let ended = (0..20).all(|_| full.one().is_ok());
    full.fleet.hold(false);
    !ended
}

/// The next client continues. Then the late writes arrive, it continues, and other clients open the
/// array.
fn goes_on(full: &mut Full, more: u64, context: &str) {
    full.check(&format!("{context}, opened"));
    (0..more).for_each(|_| full.one().expect(context));
    full.flush(context);
    full.check(&format!("{context}, written"));
    full.fleet.deliver();
    full.check(&format!("{context}, delivered"));
    if more.is_multiple_of(2) {
        // Without a check of the headers in between.
        (0..12).for_each(|_| full.one().expect(context));
        full.flush(context);
        full.check(&format!("{context}, written again"));
    }
    full.reopen(context);
    full.check(&format!("{context}, opened again"));
    assert!(full.array().lost().is_empty(), "{context}: {:?} are lost", full.array().lost());
}

/// A client dies, and the next one waits. All requests of the first one arrive during the wait or
/// never. Returns whether it died.
pub fn waited(policy: Policy, servers: usize, seed: u64, calls: u64, more: u64) -> bool {
    let context = format!("{policy} on {servers}, seed {seed}, {calls} calls, {more} more");
    let mut full = Full::new(policy, servers, seed);
    let died = die(&mut full, calls);
    full.reopen(&context);
    goes_on(&mut full, more, &context);
    died
}

/// With STEADFAST_DEATHS=all every death, otherwise every eleventh; STEADFAST_SEEDS as for the
/// worlds.
#[test]
fn what_a_dead_client_sent_has_arrived_when_the_next_one_looks() {
    let step = if every_death() { 1 } else { 11 };
    for (policy, servers) in POLICIES {
        for seed in seeds(1..4) {
            let first = seed % step;
            let died =
                |calls: &u64| waited(policy, servers, seed, *calls, calls % 7 + calls % 3 * 10);
            let deaths = (first..).step_by(step as usize).take_while(died).count();
            assert!(deaths > 5, "{policy}, seed {seed}: {deaths}");
        }
    }
}

/// The logs of these servers are the smallest. Without a wait, late writes are harmless while the
/// next client uses less than half of the free segments. Here these are a few, and one flush may
/// take them. So the next client only opens the array.
#[test]
fn what_nobody_has_waited_for_hides_nothing_at_first() {
    let died = |seed, calls| {
        [false, true].into_iter().all(|again| {
            let context = format!("seed {seed}, {calls} calls, again: {again}");
            let mut full = Full::new(Policy::Parity, 3, seed);
            full.late_ms = 0;
            let died = die(&mut full, calls);
            full.reopen(&context);
            full.check(&context);
            full.fleet.deliver();
            full.check(&format!("{context}, delivered"));
            (0..if again { 12 } else { 0 }).for_each(|_| full.one().expect(&context));
            full.reopen(&context);
            full.check(&format!("{context}, opened again"));
            assert!(
                full.array().lost().is_empty(),
                "{context}: {:?} are lost",
                full.array().lost()
            );
            died
        })
    };
    for seed in 1..13 {
        let step = if every_death() || seed == 1 { 1 } else { 11 };
        let deaths = (0..).step_by(step).take_while(|calls| died(seed, *calls)).count();
        assert!(deaths > 10, "seed {seed}: {deaths}");
    }
}

/// An array is closed, or its client dies. The next client also dies, during its open or soon
/// after, and a third one continues. Returns whether the second client died before its end.
pub fn dies_opening(
    policy: Policy,
    servers: usize,
    seed: u64,
    closed: bool,
    calls: u64,
    more: u64,
) -> bool {
    let context =
        format!("{policy} on {servers}, seed {seed}, closed: {closed}, {calls} calls, {more} more");
    let mut full = Full::new(policy, servers, seed);
    match closed {
        true => full.array().close().expect(&context),
        false => assert!(die(&mut full, 10 + (seed * 7 + calls) % 50), "{context}"),
    }
    full.array = None;
    full.fleet.revive_client();
    full.fleet.hold(true);
    let before = full.fleet.pauses().0;
    let opened = full.open_within(calls);
    let died = match opened {
        Ok(array) => {
            full.array = Some(array);
            // The result of these writes is unknown; flushes of this client do not cover them.
            let before = std::mem::take(&mut full.under_way);
            let died = (0..3).any(|_| full.one().is_err());
            let open = before
                .into_iter()
                .filter(|(block, version)| full.flushed[*block as usize] < *version);
            full.under_way = open.chain(std::mem::take(&mut full.under_way)).collect();
            died
        }
        Err(error) => {
            assert!(full.fleet.is_dead(), "{context}: {error}");
            true
        }
    };
    // A client that dies before its first read does not wait either.
    assert!(full.fleet.pauses().0 - before <= u64::from(!closed), "{context}");
    full.fleet.hold(false);
    full.reopen(&context);
    goes_on(&mut full, more, &context);
    died
}

#[test]
fn clients_that_die_while_they_open_an_array_do_no_harm() {
    let step = if every_death() { 1 } else { 11 };
    for (policy, servers) in POLICIES {
        for seed in seeds(1..4) {
            let closed = seed % 3 != 0;
            let died = |calls: &u64| {
                dies_opening(policy, servers, seed, closed, *calls, calls % 5 + calls % 3 * 8)
            };
            let deaths = (seed % step..).step_by(step as usize).take_while(died).count();
            assert!(deaths > 5, "{policy}, seed {seed}: {deaths}");
        }
    }
}

/// The client dies while it closes the array, and its sent requests are kept.
#[test]
fn clients_that_die_while_they_close_an_array_do_no_harm() {
    for (policy, servers) in POLICIES {
        for seed in seeds(1..3) {
            let died = |calls: u64| {
                let context = format!("{policy} on {servers}, seed {seed}, {calls} calls");
                let mut full = Full::new(policy, servers, seed);
                // Some of these blocks wait.
                let under_way = full.write(7, 1 + seed);
                under_way.expect(&context);
                full.fleet.hold(true);
                full.fleet.arm_death(calls);
                let closed = full.array().close().is_ok();
                full.fleet.hold(false);
                full.reopen(&context);
                goes_on(&mut full, calls, &context);
                !closed
            };
            let deaths = (0..).take_while(|calls| died(*calls)).count();
            assert!(deaths >= servers, "{policy}, seed {seed}: {deaths}");
        }
    }
}

#[test]
fn who_opens_a_closed_array_does_not_wait() {
    for (policy, servers) in POLICIES {
        let mut full = Full::new(policy, servers, 1);
        assert_eq!(full.fleet.pauses(), (0, 0), "{policy}");
        full.array().close().unwrap();
        // From then on nothing is written.
        let changes = full.fleet.changes();
        assert!(
            full.one().is_err() && full.array().tidy().is_err() && full.array().drain(0).is_err()
        );
        assert!(full.array().begin_rebuild(0, 0).is_err() && full.array().close().is_err());
        assert_eq!(full.fleet.changes(), changes, "{policy}");
        full.reopen("closed");
        full.check("closed");
        assert_eq!(full.fleet.pauses(), (0, 0), "{policy}");
        full.one().unwrap();
        full.reopen("not closed");
        assert_eq!(full.fleet.pauses(), (1, full.late_ms), "{policy}");
        // A server once did not answer: a request to it may be in flight.
        full.fleet.keep_write(64 << 10, 0);
        let _ = full.one();
        let _ = full.array().close();
        full.reopen("not said to be closed");
        full.check("not said to be closed");
        assert_eq!(full.fleet.pauses().0, 2, "{policy}");
    }
}
