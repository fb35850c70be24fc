//! One image, hundreds of power cuts in a chain: cut, recover, work, cut again. Each recovery
//! starts from the result of the previous one, so small losses, leaks and leftovers add up. At the
//! end everything is removed, and every block must be free again.
//!
//! Longer: `STEADFAST_LINKS=5000`.

use steadfast_torture::cut::{Cutter, Survival};
use steadfast_torture::ledger::Point;
use steadfast_torture::medium::MediumProfile;
use steadfast_torture::operation::Operation;
use steadfast_torture::platform::Clock;
use steadfast_torture::powercut::Start;
use steadfast_torture::random::Random;
use steadfast_torture::schedule::Scheduler;
use steadfast_torture::session::Session;
use steadfast_torture::subject::{LabVolume, Subject};
use steadfast_torture::tape::Tape;
use steadfast_torture::world::{Profile, World};

/// Cuts on one image.
const LINKS: u64 = 200;
/// Maximum number of operations between two cuts.
const OPERATIONS_MAX: u64 = 14;

fn links() -> u64 {
    std::env::var("STEADFAST_LINKS").ok().and_then(|text| text.parse().ok()).unwrap_or(LINKS)
}

/// Chains cuts in the world of a seed. Returns the number of cuts that left a point in flight.
fn chain(seed: u64, profile: Profile, medium: MediumProfile) -> Result<u64, String> {
    let world = World::new(seed, profile).on(medium).with_extras();
    let Some(start) = Start::format::<LabVolume>(&world)? else { return Ok(0) };
    let clock = Clock::default();
    let mut random = Random::new(seed).fork(11);
    let mut scheduler = Scheduler::new(&world);
    let (mut image, mut tick, mut later) = (start.image.clone(), start.tick, 0);
    let mut allowed: Vec<Point> = vec![start.point.clone()];
    for link in 0..links() {
        let failed = |what: String| format!("{world}\n  link {link}: {what}");
        let tape = Tape::new(image.clone(), world.atomic_unit, world.lie);
        let (mut session, found) =
            Session::<LabVolume>::open(&world, &tape, &clock, tick, &allowed).map_err(failed)?;
        later += u64::from(found > 0);
        let opened = tape.position();
        for _ in 0..random.between(1, OPERATIONS_MAX) {
            let operation = scheduler.next(&session.model);
            session.step(&operation).map_err(failed)?;
        }
        if link % 50 == 49 {
            session.compare_counts().map_err(failed)?;
        }
        tick = session.tick();
        let ledger = session.abandon();
        let events = tape.events();
        let cut = random.index(events.len() + 1);
        let mut cutter = Cutter::new(image, &events, world.atomic_unit).on(world.medium);
        cutter.advance(cut);
        image = cutter.image(Survival::random(&mut random, &world.medium));
        // An interrupted recovery has acknowledged nothing, but has already found its state.
        allowed = if cut < opened {
            allowed[found..=found].to_vec()
        } else {
            ledger.allowed(cut).to_vec()
        };
    }
    let tape = Tape::new(image, world.atomic_unit, world.lie);
    LabVolume::check(&world, &tape, &clock).map_err(|what| format!("{world}\n  check: {what}"))?;
    let (mut session, _) = Session::<LabVolume>::open(&world, &tape, &clock, tick, &allowed)?;
    let snapshots: Vec<String> =
        session.model.state.snapshots().iter().map(|kept| kept.name.clone()).collect();
    for number in 0..3 {
        if snapshots.contains(&steadfast_torture::operation::snapshot_name(number)) {
            session.step(&Operation::SnapshotDelete { name: number })?;
        }
    }
    session.compare_counts()?;
    session
        .drain(Some(start.nodes_when_new))
        .map_err(|what| format!("{world}\n  at the end: {what}"))?;
    drop(session);
    LabVolume::check(&world, &tape, &clock)
        .map_err(|what| format!("{world}\n  check at the end: {what}"))?;
    Ok(later)
}

#[test]
fn hundreds_of_cuts_in_a_row_leave_exact_states_and_leak_nothing() {
    let mut later = 0;
    for (number, medium) in MediumProfile::ALL.into_iter().enumerate() {
        for (_, profile) in Profile::ALL {
            match chain(9_000 + number as u64, profile, medium) {
                Ok(count) => later += count,
                Err(what) => panic!("{what}"),
            }
        }
    }
    assert!(later > 0, "no point in flight survived: the cuts come too late");
    println!("{later} cuts left a point in flight");
}
