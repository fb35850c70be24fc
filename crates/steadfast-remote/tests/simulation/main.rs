//! Arrays on simulated servers and a simulated network, checked against a model of the medium.
//!
//! The model: a read returns the last write to a block. After a client crash a block has its last
//! flushed contents or any later write, and then keeps that value. No byte is ever wrong, and no
//! error occurs while no more servers have a fault than the policy survives.
//!
//! `STEADFAST_SEEDS=0..2000 cargo test -p steadfast-remote --test simulation` runs more worlds.

mod behind;
mod fleet;
mod found;
mod full;
mod late;
mod refusals;
mod sabotage;
mod volume;
mod world;

use world::World;

fn seeds(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("STEADFAST_SEEDS") else { return default };
    let (first, end) = text.split_once("..").expect("STEADFAST_SEEDS is a range such as 0..100");
    first.parse().unwrap()..end.parse().unwrap()
}

#[test]
fn nothing_flushed_is_lost_and_nothing_wrong_is_read() {
    let mut tally = world::Tally::default();
    let mut failed = Vec::new();
    for seed in seeds(0..27) {
        let mut world = World::new(seed);
        if let Err(what) = world.run(250) {
            println!("seed {seed}: {what}\n  {}", world.history());
            failed.push(seed);
        }
        tally.add(&world.tally);
    }
    println!("{tally:?}");
    assert!(failed.is_empty(), "seeds {failed:?}");
    // The test is useful only if all of these events occur.
    assert!(
        tally.crashes > 50 && tally.losses > 50 && tally.rebuilt > 10 && tally.cleaned > 50,
        "{tally:?}"
    );
    assert!(tally.looks > 20 && tally.outages > 3, "{tally:?}");
    assert!(tally.reconstructed > 100 && tally.packed > 100, "{tally:?}");
}

#[test]
fn one_seed_is_one_world() {
    for seed in [3, 8] {
        let history = |seed| {
            let mut world = World::new(seed);
            world.run(100).map(|()| world.history())
        };
        assert_eq!(history(seed), history(seed));
    }
}
