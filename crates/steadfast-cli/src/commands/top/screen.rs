//! The terminal: keys, redrawing, and restoring its state at the end.
//!
//! A separate thread takes the samples, so that keys work while the daemon does not answer.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::frame::{self, TopPage, View, Window};
use super::history::{Sample, VolumeHistory};
use crate::failure::{Failure, Outcome};
use crate::live::Live;

/// Longest wait for a key.
pub const KEY_WAIT: Duration = Duration::from_millis(100);
/// Silence after which the first line says that the daemon does not answer.
const SILENCE: Duration = Duration::from_secs(3);

/// Shows the mount until the user quits.
///
/// # Errors
/// The daemon ended, or the terminal cannot be used.
pub fn run(live: Live, every: Duration) -> Outcome {
    let cannot =
        |error: io::Error| Failure::host(&error, "use the terminal", Path::new("/dev/tty"));
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, ended.clone()).map_err(cannot)?;
    }
    let mut history = VolumeHistory::new(super::title(&live));
    // A mount that never answers is reported before the screen is taken over.
    history.push(Sample { at: Instant::now(), readings: live.readings()? });
    let look = move || live.readings().map(|readings| Sample { at: Instant::now(), readings });
    let news = watch(every, look).map_err(cannot)?;
    // This restores the terminal even after a panic.
    let mut terminal = ratatui::try_init().map_err(cannot)?;
    let result = show(&mut terminal, &mut history, &news, every, &ended);
    ratatui::restore();
    result
}

/// Takes a sample once per interval in a separate thread, until the receiver is dropped or a sample
/// fails.
///
/// # Errors
/// The thread cannot be started.
pub fn watch<T: Send + 'static>(
    every: Duration,
    mut look: impl FnMut() -> Outcome<T> + Send + 'static,
) -> io::Result<Receiver<Outcome<T>>> {
    let (sender, receiver) = mpsc::channel();
    let run = move || {
        loop {
            std::thread::sleep(every);
            let seen = look();
            let failed = seen.is_err();
            if sender.send(seen).is_err() || failed {
                return;
            }
        }
    };
    std::thread::Builder::new().name("watch".into()).spawn(run)?;
    Ok(receiver)
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    history: &mut VolumeHistory,
    news: &Receiver<Outcome<Sample>>,
    every: Duration,
    ended: &AtomicBool,
) -> Outcome {
    let cannot =
        |error: io::Error| Failure::host(&error, "use the terminal", Path::new("/dev/tty"));
    let mut view = View::default();
    let mut heard = Instant::now();
    let mut stale = true;
    while !ended.load(Ordering::Acquire) {
        match news.try_recv() {
            Ok(Err(failure)) => return Err(failure),
            Ok(Ok(sample)) => {
                heard = Instant::now();
                if !view.paused {
                    history.push(sample);
                    stale = true;
                }
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
        let silent = Some(heard.elapsed()).filter(|silence| *silence > SILENCE + every);
        stale |= silent.map(|silence| silence.as_secs()) != view.silent;
        view.silent = silent.map(|silence| silence.as_secs());
        if stale {
            let draw =
                |target: &mut ratatui::Frame<'_>| frame::draw(target.buffer_mut(), history, &view);
            terminal.draw(draw).map_err(cannot)?;
            stale = false;
        }
        if event::poll(KEY_WAIT).map_err(cannot)? {
            match event::read().map_err(cannot)? {
                Event::Key(key)
                    if key.kind != KeyEventKind::Release
                        && !press(key.code, key.modifiers, &mut view, history) =>
                {
                    return Ok(());
                }
                // Other keys have taken effect already; a new size is drawn at once.
                _ => {}
            }
            stale = true;
        }
    }
    Ok(())
}

/// Acts on a key. Returns `false` to quit.
fn press(
    code: KeyCode,
    modifiers: KeyModifiers,
    view: &mut View,
    history: &mut VolumeHistory,
) -> bool {
    match code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('p' | ' ') => view.paused = !view.paused,
        KeyCode::Char('r') => history.reset(),
        KeyCode::Char('w') => {
            view.window =
                if view.window == Window::Recent { Window::SinceMount } else { Window::Recent };
        }
        KeyCode::Tab | KeyCode::Right => view.page = view.page.next(),
        KeyCode::BackTab | KeyCode::Left => view.page = view.page.next().next(),
        KeyCode::Char('1') => view.page = TopPage::Overview,
        KeyCode::Char('2') => view.page = TopPage::Latency,
        KeyCode::Char('3') => view.page = TopPage::VolumeHistory,
        KeyCode::Up | KeyCode::Char('k') => view.move_choice(-1),
        KeyCode::Down | KeyCode::Char('j') => view.move_choice(1),
        _ => {}
    }
    true
}
