//! Drawing the wear histogram and the use of the blocks into a buffer of any size.

use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Paragraph, Widget};

use super::histogram::{Bar, bars, range};
use super::watch::PartHistory;
use crate::commands::top::format::count;

/// Smallest screen on which a frame is drawn.
pub const SIZE_MIN: (u16, u16) = (50, 14);
/// Columns of the panel on the right.
const SIDE: u16 = 30;
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Draws a frame over the whole buffer.
pub fn draw(buffer: &mut Buffer, history: &PartHistory, paused: bool, keys: bool) {
    let area = buffer.area;
    if area.width < SIZE_MIN.0 || area.height < SIZE_MIN.1 {
        Paragraph::new("enlarge the terminal").render(area, buffer);
        return;
    }
    let [head, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(u16::from(keys)),
    ])
    .areas(area);
    let [left, right] =
        Layout::horizontal([Constraint::Min(0), Constraint::Length(SIDE)]).areas(body);
    draw_head(buffer, head, history, paused);
    draw_wear(buffer, left, history);
    draw_blocks(buffer, right, history);
    if keys {
        Line::styled(" p pause  r count from now on  q quit", DIM).render(foot, buffer);
    }
}

fn draw_head(buffer: &mut Buffer, area: Rect, history: &PartHistory, paused: bool) {
    let survey = &history.newest;
    let (right, style) = match (paused, survey.live, survey.report.counts.recovered) {
        (true, ..) => ("PAUSED", BOLD.fg(Color::Yellow)),
        (_, true, _) => ("in use", DIM),
        (_, _, true) => ("not closed", BOLD.fg(Color::Yellow)),
        _ => ("closed", DIM),
    };
    let [left, end] = Layout::horizontal([Constraint::Min(0), Constraint::Length(12)]).areas(area);
    Line::from(vec![
        Span::styled("steadfast flash top ", BOLD),
        Span::raw(format!("{} ({})", history.title, survey.part)),
    ])
    .render(left, buffer);
    Line::styled(right, style).alignment(Alignment::Right).render(end, buffer);
}

fn panel(title: String) -> Block<'static> {
    Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(DIM)
        .title(Span::styled(format!(" {title} "), BOLD))
}

fn draw_wear(buffer: &mut Buffer, area: Rect, history: &PartHistory) {
    let block = panel("blocks by erasures".to_owned());
    let inner = block.inner(area);
    block.render(area, buffer);
    let found = bars(&history.newest.erases_sorted(), u32::from(inner.height.max(1)));
    let most = found.iter().map(|bar| bar.blocks).max().unwrap_or(0).max(1);
    let label = found.iter().map(|bar| range(bar).len()).max().unwrap_or(0);
    let digits = most.to_string().len();
    let room = usize::from(inner.width).saturating_sub(label + digits + 2);
    let line = |bar: &Bar| {
        let eighths = (u64::from(bar.blocks) * room as u64 * 8).div_ceil(u64::from(most)) as usize;
        let mut drawn = "█".repeat(eighths / 8);
        drawn.extend(['▏', '▎', '▍', '▌', '▋', '▊', '▉'].get((eighths % 8).wrapping_sub(1)));
        Line::from(vec![
            Span::styled(format!("{:>label$} ", range(bar)), DIM),
            Span::styled(drawn, Style::new().fg(Color::Blue)),
            Span::raw(format!(" {}", bar.blocks)),
        ])
    };
    Paragraph::new(found.iter().map(line).collect::<Vec<_>>()).render(inner, buffer);
}

fn draw_blocks(buffer: &mut Buffer, area: Rect, history: &PartHistory) {
    let survey = &history.newest;
    let block = panel(format!("{} erase blocks", survey.report.geometry.blocks));
    let inner = block.inner(area);
    block.render(area, buffer);
    let wear = survey.wear();
    let mut rows: Vec<(String, String)> =
        survey.uses().map(|(name, count)| (name.to_owned(), count.to_string())).collect();
    rows.extend([
        ("erasures fewest".to_owned(), wear.erases_min.to_string()),
        ("median".to_owned(), wear.erases_median.to_string()),
        ("most".to_owned(), wear.erases_max.to_string()),
        ("all".to_owned(), count(wear.erases_total as f64)),
        ("spread of rated".to_owned(), format!("{:.3} %", wear.spread_percent)),
        ("life used".to_owned(), format!("{:.3} %", wear.used_percent)),
        ("erased since start".to_owned(), history.erased().to_string()),
        ("erased a second".to_owned(), count(history.rate())),
    ]);
    let lines = rows.into_iter().map(|(name, value)| {
        let room = usize::from(inner.width).saturating_sub(name.chars().count());
        Line::from(vec![Span::styled(name, DIM), Span::raw(format!("{value:>room$}"))])
    });
    Paragraph::new(lines.collect::<Vec<_>>()).render(inner, buffer);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::commands::flash::survey::tests::example;
    use crate::commands::top::text_of;

    #[test]
    fn the_histogram_fits_every_screen() {
        let start = Instant::now();
        let mut history = PartHistory::new("nand.bin".into(), example(300), start);
        let mut later = example(300);
        later.blocks[1].erases += 40;
        history.push(later, start + Duration::from_secs(2));
        for size in [(20, 5), (50, 14), (80, 24), (200, 60)] {
            let mut buffer = Buffer::empty(Rect::new(0, 0, size.0, size.1));
            draw(&mut buffer, &history, false, true);
            let text = text_of(&buffer).join("\n");
            if size.0 < 50 {
                assert!(text.contains("enlarge"), "{text}");
                continue;
            }
            assert!(text.contains("nand.bin"), "{text}");
            if size.0 >= 80 {
                assert!(text.contains("nand.bin (slc-1gbit)") && text.contains('█'), "{text}");
                assert!(text.contains("erased since start        40"), "{text}");
                assert!(text.contains("erased a second           20"), "{text}");
                assert!(text.contains("bad                      100"), "{text}");
            }
        }
    }
}
