//! Pauses between two looks at something that ends soon, or late.

use std::thread::sleep;
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(1);
const LAST: Duration = Duration::from_millis(100);

/// Each pause is longer than the one before: what ends soon is noticed at once, and a long wait
/// costs little.
pub struct Pause(Duration);

impl Pause {
    /// Before the first pause.
    pub fn new() -> Pause {
        Pause(FIRST)
    }

    /// Sleeps.
    pub fn wait(&mut self) {
        sleep(self.next());
    }

    fn next(&mut self) -> Duration {
        let now = self.0;
        self.0 = (now * 3 / 2).min(LAST);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        let mut pause = Pause::new();
        let pauses: Vec<Duration> = (0..50).map(|_| pause.next()).collect();
        assert!(pauses.is_sorted() && pauses[0] == FIRST && pauses[49] == LAST);
        assert!(pauses.iter().filter(|pause| **pause < LAST).count() < 15);
    }
}
