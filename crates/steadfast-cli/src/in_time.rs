//! Questions that may never be answered: to a mount whose daemon hangs, or that waits for its owner.

use std::sync::mpsc;
use std::thread::Builder;
use std::time::Duration;

/// Asks in a thread of its own. `None`: no answer came in time. The thread is left behind then, and
/// ends with the process.
pub fn within<T: Send + 'static>(
    limit: Duration,
    ask: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (give, answer) = mpsc::channel();
    let asks = move || {
        let _ = give.send(ask());
    };
    Builder::new().name("ask".into()).spawn(asks).ok()?;
    answer.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_never_comes_is_none() {
        assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
        let (_keep, never) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(10), move || never.recv()), None);
    }
}
