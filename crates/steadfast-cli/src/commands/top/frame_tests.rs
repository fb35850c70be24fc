use std::time::{Duration, Instant};

use super::super::history::Sample;
use super::super::text_of;
use super::*;
use crate::observe::fixture;

fn history() -> VolumeHistory {
    let mut history = VolumeHistory::new("disk.img on /mnt".into());
    let mut later = fixture::readings();
    let start = Instant::now();
    history.push(Sample { at: start, readings: fixture::readings() });
    later.status.uptime += Duration::from_secs(1);
    later.status.read_bytes += 5_000_000;
    later.operations[Kind::Write as usize]
        .latency
        .add(&fixture::operations(&[50_000; 40], 0).latency);
    history.push(Sample { at: start + Duration::from_secs(1), readings: later });
    history
}

fn lines(width: u16, height: u16, view: &View) -> Vec<String> {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw(&mut buffer, &history(), view);
    text_of(&buffer)
}

#[test]
fn the_overview_fits_a_small_terminal() {
    let view = View { window: Window::SinceMount, ..View::default() };
    let text = lines(80, 24, &view);
    assert_eq!(text.len(), 24);
    let all = text.join("\n");
    for expected in [
        "disk.img on /mnt",
        "up 1h02m",
        "p99.9",
        "write",
        "sync",
        "4.77M/s",
        "almost free 308K",
        "device wr",
        "inodes",
        "q quit",
    ] {
        assert!(all.contains(expected), "{expected} in\n{all}");
    }
    let write = text.iter().find(|line| line.contains("write ")).unwrap();
    assert!(write.contains(" 40 ") && write.contains("3.00ms"), "{write}");
    assert!(!all.contains("rename"), "what never happened is left out");
}

#[test]
fn nodes_that_share_the_volume_have_a_line() {
    let mut history = VolumeHistory::new("home on /srv".into());
    let start = Instant::now();
    let mut later = fixture::shared();
    later.status.uptime += Duration::from_secs(1);
    later.status.sharing.as_mut().unwrap().forwarded += 812;
    history.push(Sample { at: start, readings: fixture::shared() });
    history.push(Sample { at: start + Duration::from_secs(1), readings: later });
    let second = |width| {
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, 30));
        draw(&mut buffer, &history, &View::default());
        text_of(&buffer)[1].trim_end().to_owned()
    };
    let all = "cluster: 2 peers, term 3, round trip p50 328µs p99 2.00ms, forwarded 812/s, \
               recalls 0/s, silent 1, delegated 0/s";
    assert_eq!(second(120), all);
    assert_eq!(second(40), "cluster: 2 peers, term 3");
}

#[test]
fn the_overview_cuts_no_panel_on_a_narrow_terminal() {
    for width in [40, 60, 79, 80, 140] {
        let view = View { window: Window::SinceMount, ..View::default() };
        let text = lines(width, 24, &view);
        let all = text.join("\n");
        for expected in ["p50", "p99", "errors", "written", "almost free 308K", "free", "q quit"] {
            assert!(all.contains(expected), "{expected} at {width} in\n{all}");
        }
        assert_eq!(all.contains("p99.9"), width > 50, "what does not fit is left out as a whole");
    }
}

#[test]
fn the_latency_page_cuts_no_figure_on_a_narrow_terminal() {
    for width in [40, 50, 60, 79, 80, 140] {
        let text = lines(width, 24, &View { page: TopPage::Latency, ..View::default() });
        let all = text.join("\n");
        // A figure that is cut off lacks its unit.
        for name in ["p50 ", "p99 ", "p99.9 ", "max "] {
            let found = all.split(name).nth(1).unwrap_or_else(|| panic!("{name} in\n{all}"));
            let figure = found.split(&[' ', '│', '\n'][..]).next().unwrap_or_default();
            assert!(figure.ends_with("µs") || figure.ends_with("ms"), "{name}{figure}\n{all}");
        }
        assert!(all.contains("40 operations") && all.contains('≤'), "{all}");
    }
}

#[test]
fn every_page_in_every_size_without_a_panic() {
    let pages = [TopPage::Overview, TopPage::Latency, TopPage::VolumeHistory];
    for page in pages {
        for (width, height) in
            [(0, 0), (1, 1), (39, 9), (40, 10), (41, 11), (80, 24), (81, 60), (300, 100)]
        {
            for choice in [0, Kind::Read as usize, Kind::COUNT - 1] {
                for silent in [None, Some(5)] {
                    let view = View { page, choice, silent, paused: true, ..View::default() };
                    lines(width, height, &view);
                }
            }
        }
    }
    let latency = lines(80, 24, &View { page: TopPage::Latency, ..View::default() }).join("\n");
    assert!(latency.contains("≤ 65.5µs") && latency.contains("100%"), "{latency}");
    let history =
        lines(80, 24, &View { page: TopPage::VolumeHistory, ..View::default() }).join("\n");
    assert!(history.contains("transaction points") && history.contains('█'), "{history}");
}

#[test]
fn bars_have_their_length() {
    assert_eq!(share_out(&[0, 1, 1_000_000, 5], 10), [0, 1, 8, 1]);
    assert_eq!(share_out(&[0, 0], 10).iter().sum::<usize>(), 10);
    for share in [-1.0, 0.0, 0.01, 0.5, 0.999, 1.0, 7.0] {
        assert_eq!(bar(share, 8).chars().count(), 8, "{share}");
    }
    assert_eq!(bar(0.5, 4), "██  ");
}
