//! Workers that wait for the medium, and the workers that stand by for them.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use steadfast::FormatOptions;
use steadfast_media::{Geometry, Medium, MediumError, MemoryMedium, WaitHook};

use crate::support::{Gate, Own, can_mount};

const BLOCK: usize = 4096;
const READERS: usize = 10;

/// Reads wait at the gate while it is shut.
struct Slow {
    memory: MemoryMedium,
    gate: Arc<Gate>,
    hook: OnceLock<WaitHook>,
}

impl Medium for Slow {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        if self.gate.is_shut() {
            self.hook.get().expect("a mount asks to be told")();
            self.gate.pass();
        }
        self.memory.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.memory.write(offset, data)
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.memory.flush()
    }

    fn before_waits(&self, hook: WaitHook) {
        let _ = self.hook.set(hook);
    }
}

/// Two workers listen, but ten reads of file data are at the medium at the same time. Requests that
/// need no file data are answered meanwhile.
#[test]
fn reads_that_wait_for_the_medium_are_under_way_together() {
    if !can_mount() {
        return;
    }
    let gate = Arc::new(Gate::default());
    let memory = MemoryMedium::new(64 << 20, 512).unwrap();
    let medium = Slow { memory, gate: gate.clone(), hook: OnceLock::new() };
    let own = Own::mount(medium, &FormatOptions::default());

    let block = |number: usize| [number as u8 + 1; BLOCK];
    let path = own.path("file");
    let file = File::create(&path).unwrap();
    for number in 0..READERS {
        file.write_all_at(&block(number), (number * BLOCK) as u64).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    // Bypasses the page cache of the mount.
    let file =
        Arc::new(OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap());
    gate.shut(true);
    let readers: Vec<_> = (0..READERS)
        .map(|number| {
            let file = file.clone();
            thread::spawn(move || {
                let mut data = [0; BLOCK];
                file.read_exact_at(&mut data, (number * BLOCK) as u64).map(|()| data)
            })
        })
        .collect();
    let late = Instant::now() + Duration::from_secs(20);
    while gate.waiting() < READERS && Instant::now() < late {
        thread::sleep(Duration::from_millis(5));
    }
    let together = gate.waiting();
    let other = (together == READERS).then(|| fs::create_dir(own.path("d")));
    // Before any assertion can fail: a hanging mount cannot be unmounted.
    gate.shut(false);
    for (number, reader) in readers.into_iter().enumerate() {
        assert_eq!(reader.join().unwrap().unwrap(), block(number));
    }
    assert_eq!(together, READERS, "reads at the medium");
    other.unwrap().unwrap();
    drop(file);
    own.unmount();
}
