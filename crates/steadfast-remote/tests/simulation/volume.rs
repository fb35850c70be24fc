//! A volume of the file system on an array: after a client crash, and with servers lost, it is at
//! its last transaction point.

use std::sync::Arc;

use steadfast::fs::FileOptions;
use steadfast::{FormatOptions, OpenOptions, TransactionMask, Volume};
use steadfast_host::HostPlatform;
use steadfast_media::Random;
use steadfast_remote::array::{Array, CreateOptions, Policy};

use crate::fleet::{Notebook, SimFleet};
use crate::world::options;

#[test]
fn a_volume_survives_its_client_and_a_server() {
    for seed in 0..6 {
        let (policy, servers) =
            [(Policy::Mirror, 2), (Policy::Parity, 3), (Policy::Erasure { data: 2, parity: 2 }, 4)]
                [seed as usize % 3];
        let fleet = Arc::new(SimFleet::new(servers, 8 << 20, seed));
        let notebook = Arc::new(Notebook::default());
        let create = CreateOptions { policy, uuid: [2; 16], spares: 0 };
        let array = Array::create(fleet.clone(), &create, options(&notebook)).unwrap();
        let platform = HostPlatform::new();
        let format = FormatOptions { mask: TransactionMask::MANUAL, ..FormatOptions::default() };
        Volume::format(&array, &format, &platform).unwrap();
        drop(array);
        fleet.revive_client();
        let mut random = Random::new(seed + 50);
        let mut version = 0_u64;
        for _ in 0..12 {
            let array = Array::open(fleet.clone(), options(&notebook)).unwrap();
            let volume = Volume::open(array, OpenOptions::default(), platform.clone()).unwrap();
            let all = FileOptions::new().read(true).write(true).create(true);
            // Two files change together or not at all.
            let read = |name: &str| volume.open_file(name, &all).unwrap().read_all().unwrap();
            let found = (read("a"), read("b"));
            assert_eq!(found.0, found.1, "seed {seed}");
            let number = found.0.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            assert!(
                number == version || number == version + 1,
                "seed {seed}: {number}, not {version}"
            );
            version = number;
            fleet.arm_death(2 + random.below(120));
            loop {
                let text = (version + 1).to_le_bytes().repeat(1000 + (version % 7) as usize * 300);
                let changed = ["a", "b"].iter().try_for_each(|name| {
                    let file = volume.open_file(name, &all.truncate(true))?;
                    file.write_at(0, &text)?;
                    file.close()
                });
                if changed.and_then(|()| volume.transact()).is_err() {
                    break;
                }
                version += 1;
            }
            assert!(fleet.is_dead(), "seed {seed}: refused without a reason");
            drop(volume);
            fleet.revive_client();
            // A server restarts empty between two clients; it is rebuilt before the next one opens
            // the volume.
            let array = Array::open(fleet.clone(), options(&notebook)).unwrap();
            for member in array.lost() {
                let mut rebuild = array.begin_rebuild(member, member).unwrap();
                while array.rebuild_step(&mut rebuild).unwrap()
                    != steadfast_remote::array::Progress::Done
                {}
            }
            drop(array);
            fleet.revive_client();
            fleet.restart_empty(random.below(servers as u64) as usize);
        }
    }
}
