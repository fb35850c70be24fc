//! The terminal: keys, redrawing, and restoring its state at the end.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::frame;
use super::watch::PartHistory;
use crate::commands::flash::survey::PartSurvey;
use crate::commands::top::screen::{KEY_WAIT, watch};
use crate::failure::{Failure, Outcome};
use crate::flash_place::FlashPlace;

fn cannot(error: io::Error) -> Failure {
    Failure::host(&error, "use the terminal", Path::new("/dev/tty"))
}

/// Shows the part until the user quits.
///
/// # Errors
/// The part cannot be read any more, or the terminal cannot be used.
pub fn run(place: FlashPlace, mut history: PartHistory, every: Duration) -> Outcome {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, ended.clone()).map_err(cannot)?;
    }
    let news = watch(every, move || PartSurvey::take(&place)).map_err(cannot)?;
    // This restores the terminal even after a panic.
    let mut terminal = ratatui::try_init().map_err(cannot)?;
    let result = show(&mut terminal, &mut history, &news, &ended);
    ratatui::restore();
    result
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    history: &mut PartHistory,
    news: &Receiver<Outcome<PartSurvey>>,
    ended: &AtomicBool,
) -> Outcome {
    let (mut paused, mut stale) = (false, true);
    while !ended.load(Ordering::Acquire) {
        match news.try_recv() {
            Ok(survey) => {
                let survey = survey?;
                if !paused {
                    history.push(survey, Instant::now());
                    stale = true;
                }
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
        if stale {
            let draw = |target: &mut ratatui::Frame<'_>| {
                frame::draw(target.buffer_mut(), history, paused, true)
            };
            terminal.draw(draw).map_err(cannot)?;
            stale = false;
        }
        if !event::poll(KEY_WAIT).map_err(cannot)? {
            continue;
        }
        stale = true;
        let Event::Key(key) = event::read().map_err(cannot)? else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
            KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Ok(());
            }
            KeyCode::Char('p' | ' ') => paused = !paused,
            KeyCode::Char('r') => history.reset(),
            _ => {}
        }
    }
    Ok(())
}
