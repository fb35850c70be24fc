//! Drawing three pages into a buffer of any size. 80 columns and 24 rows show everything important.
//!
//! Below 80 columns the panels of the overview are stacked, each as wide as the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Paragraph, Sparkline, Widget};
use steadfast_fuse::metrics::{Histogram, Kind, Sharing, bucket_limit};
use steadfast_fuse::watch::Readings;

use super::format::{bytes, count, latency, percent, uptime};
use super::history::{VolumeHistory, medium, operations, operations_all};

/// Smallest screen on which a frame is drawn.
pub const SIZE_MIN: (u16, u16) = (40, 10);
/// Columns of the panel on the right.
const SIDE: u16 = 27;
/// Number of columns from which the volume panel is placed beside the operations.
const WIDE: u16 = 80;
/// Columns inside the panel of operations that a row with all its figures takes.
const OPERATION_COLUMNS: u16 = 49;
/// Rows of the volume panel if it is below the operations.
const VOLUME_ROWS: u16 = 7;
/// Minimum rows of the panel of operations: frame, heading, one kind, all.
const OPERATION_ROWS: u16 = 5;
/// The keys, shown after the names of the pages.
const KEYS: &str = " tab  w window  p pause  r reset  q quit";
/// The same for a narrow terminal; it fits the smallest screen.
const KEYS_SHORT: &str = "1-3 page w window p pause r reset q quit";
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// A page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TopPage {
    /// Operations, volume and space.
    #[default]
    Overview,
    /// The distribution of the latencies of one kind.
    Latency,
    /// The last few minutes.
    VolumeHistory,
}

impl TopPage {
    /// The page after it.
    pub fn next(self) -> TopPage {
        match self {
            TopPage::Overview => TopPage::Latency,
            TopPage::Latency => TopPage::VolumeHistory,
            TopPage::VolumeHistory => TopPage::Overview,
        }
    }
}

/// The operations that latencies are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Window {
    /// Operations of the last ten intervals.
    #[default]
    Recent,
    /// Operations since `r`, or since the mount.
    SinceMount,
}

/// The display settings.
#[derive(Debug, Clone)]
pub struct View {
    /// The page.
    pub page: TopPage,
    /// The display is paused.
    pub paused: bool,
    /// Seconds since the daemon's last answer, if it does not answer.
    pub silent: Option<u64>,
    /// The operations that latencies are taken from.
    pub window: Window,
    /// Index of the kind on the page of latencies.
    pub choice: usize,
    /// Show the list of keys.
    pub keys: bool,
}

impl Default for View {
    fn default() -> View {
        View {
            page: TopPage::default(),
            paused: false,
            silent: None,
            window: Window::default(),
            choice: Kind::Write as usize,
            keys: true,
        }
    }
}

impl View {
    /// Moves the choice of the kind down by `by`.
    pub fn move_choice(&mut self, by: isize) {
        self.choice = (self.choice as isize + by).rem_euclid(Kind::COUNT as isize) as usize;
    }

    fn latencies(&self, history: &VolumeHistory, kind: Kind) -> (Histogram, u64) {
        match self.window {
            Window::Recent => history.recent(kind),
            Window::SinceMount => history.all(kind),
        }
    }

    fn window_name(&self, history: &VolumeHistory) -> &'static str {
        match self.window {
            Window::Recent => "of the last 10 looks",
            Window::SinceMount if history.was_reset() => "since r",
            Window::SinceMount => "since the mount",
        }
    }
}

/// Draws a frame over the whole buffer.
pub fn draw(buffer: &mut Buffer, history: &VolumeHistory, view: &View) {
    let area = buffer.area;
    let Some(sample) = history.newest() else { return };
    if area.width < SIZE_MIN.0 || area.height < SIZE_MIN.1 {
        Paragraph::new("enlarge the terminal").render(area, buffer);
        return;
    }
    let foot = u16::from(view.keys);
    let nodes = u16::from(sample.readings.status.sharing.is_some());
    let [head, cluster, body, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(nodes),
        Constraint::Min(0),
        Constraint::Length(foot),
    ])
    .areas(area);
    draw_cluster(buffer, cluster, history, &sample.readings);
    draw_head(buffer, head, history, &sample.readings, view);
    match view.page {
        TopPage::Overview => draw_overview(buffer, body, history, &sample.readings, view),
        TopPage::Latency => draw_latency(buffer, body, history, view),
        TopPage::VolumeHistory => draw_history(buffer, body, history),
    }
    if view.keys {
        draw_keys(buffer, keys, view);
    }
}

fn draw_head(
    buffer: &mut Buffer,
    area: Rect,
    history: &VolumeHistory,
    readings: &Readings,
    view: &View,
) {
    let status = &readings.status;
    let mut right = format!("up {}", uptime(status.uptime.as_secs()));
    let mut style = DIM;
    if status.activity.poisoned {
        (right, style) = ("READ-ONLY AFTER A FAILURE".into(), BOLD.fg(Color::Red));
    } else if let Some(seconds) = view.silent {
        (right, style) = (format!("no answer for {seconds} s"), BOLD.fg(Color::Red));
    } else if view.paused {
        (right, style) = ("PAUSED".into(), BOLD.fg(Color::Yellow));
    }
    let width = right.chars().count() as u16 + 1;
    let [left, end] =
        Layout::horizontal([Constraint::Min(0), Constraint::Length(width)]).areas(area);
    Line::from(vec![Span::styled("steadfast top ", BOLD), Span::raw(history.title.as_str())])
        .render(left, buffer);
    Line::styled(right, style).alignment(Alignment::Right).render(end, buffer);
}

/// One line about the nodes that share the volume, if they do. What does not fit is left out.
fn draw_cluster(buffer: &mut Buffer, area: Rect, history: &VolumeHistory, readings: &Readings) {
    let Some(sharing) = readings.status.sharing else { return };
    let rate = |counter: fn(&Sharing) -> u64| {
        let of = |readings: &Readings| readings.status.sharing.as_ref().map_or(0, counter);
        format!("{}/s", count(history.rate(of)))
    };
    let mut line = format!("cluster: {} peers, term {}", sharing.peers, sharing.epoch);
    let of_share = |share| latency(readings.round_trips.quantile(share));
    let round_trips = (readings.round_trips.count() > 0)
        .then(|| format!("round trip p50 {} p99 {}", of_share(0.5), of_share(0.99)));
    for piece in round_trips.into_iter().chain([
        format!("forwarded {}", rate(|sharing| sharing.forwarded)),
        format!("recalls {}", rate(|sharing| sharing.recalls)),
        format!("silent {}", sharing.silent),
        format!("delegated {}", rate(|sharing| sharing.delegated)),
    ]) {
        if line.len() + 2 + piece.len() > usize::from(area.width) {
            break;
        }
        line.push_str(", ");
        line.push_str(&piece);
    }
    Line::raw(line).render(area, buffer);
}

fn draw_keys(buffer: &mut Buffer, area: Rect, view: &View) {
    let mut spans = Vec::new();
    for (page, name) in [
        (TopPage::Overview, "1 overview"),
        (TopPage::Latency, "2 latency"),
        (TopPage::VolumeHistory, "3 history"),
    ] {
        let style =
            if view.page == page { BOLD.add_modifier(Modifier::REVERSED) } else { Style::new() };
        spans.extend([Span::styled(format!(" {name} "), style), Span::raw(" ")]);
    }
    spans.push(Span::styled(KEYS, DIM));
    let line = Line::from(spans);
    if line.width() <= usize::from(area.width) {
        line.render(area, buffer);
    } else {
        // The key to quit must stay visible.
        Line::styled(KEYS_SHORT, DIM).render(area, buffer);
    }
}

fn panel(title: &str) -> Block<'_> {
    Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(DIM)
        .title(Span::styled(format!(" {title} "), BOLD))
}

fn draw_overview(
    buffer: &mut Buffer,
    area: Rect,
    history: &VolumeHistory,
    readings: &Readings,
    view: &View,
) {
    let space_rows = space_lines(readings, area.width.saturating_sub(2)).len() as u16 + 2;
    let [upper, space] =
        Layout::vertical([Constraint::Min(OPERATION_ROWS), Constraint::Length(space_rows)])
            .areas(area);
    let [left, right] = if area.width >= WIDE {
        Layout::horizontal([Constraint::Min(0), Constraint::Length(SIDE)]).areas(upper)
    } else {
        let rows = VOLUME_ROWS.min(upper.height.saturating_sub(OPERATION_ROWS));
        // A frame of less than three rows has no room inside.
        let rows = if rows < 3 { 0 } else { rows };
        Layout::vertical([Constraint::Min(0), Constraint::Length(rows)]).areas(upper)
    };
    draw_operations(buffer, left, history, readings, view);
    draw_volume(buffer, right, history, readings);
    draw_space(buffer, space, readings);
}

/// Draws one row per kind; kinds without operations are left out.
fn draw_operations(
    buffer: &mut Buffer,
    area: Rect,
    history: &VolumeHistory,
    readings: &Readings,
    view: &View,
) {
    let title = format!("operations, latencies {}", view.window_name(history));
    let block = panel(&title);
    let inner = block.inner(area);
    block.render(area, buffer);
    let row = |name: &str, rate: String, latencies: [String; 4], errors: String| {
        let [p50, p99, p999, longest] = latencies;
        if inner.width < OPERATION_COLUMNS {
            return format!("{name:<9}{rate:>5} {p50:>7}{p99:>7} {errors:>7}");
        }
        format!("{name:<9}{rate:>5} {p50:>7}{p99:>7}{p999:>7}{longest:>7} {errors:>5}")
    };
    let heading = ["p50", "p99", "p99.9", "max"].map(String::from);
    let mut lines = vec![Line::styled(row("", "/s".into(), heading, "errors".into()), DIM)];
    let mut all = Histogram::default();
    let mut errors_all = 0;
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        if operations(readings, kind) == 0 {
            continue;
        }
        let (histogram, errors) = view.latencies(history, kind);
        let rate = history.rate(|readings| operations(readings, kind));
        all.add(&histogram);
        errors_all += errors;
        let text = row(kind.name(), count(rate), quantiles(&histogram), errors_text(errors));
        rows.push(Line::styled(text, style_of(rate, errors)));
    }
    let total = history.rate(operations_all);
    let total = row("all", count(total), quantiles(&all), errors_text(errors_all));
    let room = usize::from(inner.height).saturating_sub(2);
    let hidden = rows.len().saturating_sub(room);
    if hidden > 0 {
        rows.truncate(room.saturating_sub(1));
        rows.push(Line::styled(format!("{} more: enlarge the terminal", hidden + 1), DIM));
    }
    lines.extend(rows);
    lines.push(Line::styled(total, BOLD));
    Paragraph::new(lines).render(inner, buffer);
}

fn quantiles(histogram: &Histogram) -> [String; 4] {
    let longest = (histogram.count() > 0).then_some(histogram.longest);
    [histogram.quantile(0.5), histogram.quantile(0.99), histogram.quantile(0.999), longest]
        .map(latency)
}

fn errors_text(errors: u64) -> String {
    if errors == 0 { "-".into() } else { count(errors as f64) }
}

fn style_of(rate: f64, errors: u64) -> Style {
    match (rate > 0.0, errors > 0) {
        (_, true) => Style::new().fg(Color::Red),
        (true, false) => Style::new(),
        (false, false) => DIM,
    }
}

/// The volume and its medium: rates and fills.
fn draw_volume(buffer: &mut Buffer, area: Rect, history: &VolumeHistory, readings: &Readings) {
    let block = panel("volume");
    let inner = block.inner(area);
    block.render(area, buffer);
    let status = &readings.status;
    let activity = &status.activity;
    let cache = &activity.cache;
    let rate = |counter: fn(&Readings) -> u64| history.rate(counter);
    let hits = rate(|readings| readings.status.activity.cache.hits);
    let misses = rate(|readings| readings.status.activity.cache.misses);
    let hit = if hits + misses > 0.0 { percent(hits, hits + misses) } else { "-".into() };
    let per_second = |text: String| format!("{text}/s");
    let mut rows: Vec<(&str, String)> = vec![
        ("read", per_second(bytes(rate(|readings| readings.status.read_bytes)))),
        ("written", per_second(bytes(rate(|readings| readings.status.written_bytes)))),
        ("points", per_second(count(rate(|readings| readings.status.activity.transaction_points)))),
        ("checkpoints", per_second(count(rate(|readings| readings.status.activity.checkpoints)))),
        ("log", gauge(activity.log_used as f64, activity.log_size as f64)),
        ("dirty", bytes(activity.dirty_bytes() as f64)),
        (
            "next record",
            if activity.pending_overflow {
                "checkpoint".into()
            } else {
                bytes(activity.pending_bytes as f64)
            },
        ),
        ("cache", gauge(cache.nodes as f64, cache.capacity as f64)),
        ("cache hits", hit),
    ];
    if status.medium.is_some() {
        let of = |requests: fn(&Readings) -> u64, sizes: fn(&Readings) -> u64| {
            format!("{}/s {:>6}/s", count(rate(requests)), bytes(rate(sizes)))
        };
        let reads = of(|s| medium(s, |m| m.reads), |s| medium(s, |m| m.read_bytes));
        let writes = of(|s| medium(s, |m| m.writes), |s| medium(s, |m| m.written_bytes));
        let flushes = per_second(count(rate(|s| medium(s, |m| m.flushes))));
        rows.extend([("device rd", reads), ("device wr", writes), ("flushes", flushes)]);
    }
    rows.push(("inodes", count(activity.inodes as f64)));
    let lines = rows.into_iter().map(|(name, value)| {
        let room = usize::from(inner.width).saturating_sub(name.len());
        Line::from(vec![Span::styled(name, DIM), Span::raw(format!("{value:>room$}"))])
    });
    Paragraph::new(lines.collect::<Vec<_>>()).render(inner, buffer);
}

/// A gauge such as `▕███▏  ▏ 37%`.
fn gauge(part: f64, whole: f64) -> String {
    const CELLS: usize = 8;
    let share = if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 };
    format!("▕{}▏{:>4}", bar(share, CELLS), percent(share, 1.0))
}

/// A bar of this many cells, filled in eighths of a cell.
fn bar(share: f64, cells: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share.clamp(0.0, 1.0) * (cells * 8) as f64).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    if eighths / 8 < cells {
        text.push(EIGHTHS[eighths % 8]);
        text.push_str(&" ".repeat(cells - eighths / 8 - 1));
    }
    text
}

fn draw_space(buffer: &mut Buffer, area: Rect, readings: &Readings) {
    let activity = &readings.status.activity;
    let total = activity.space.total() as f64 * f64::from(activity.block_size);
    let title = format!("space, {}", bytes(total));
    let block = panel(&title);
    let inner = block.inner(area);
    block.render(area, buffer);
    Paragraph::new(space_lines(readings, inner.width)).render(inner, buffer);
}

/// The bar of the space, and as many lines of its legend as fit the width.
fn space_lines(readings: &Readings, columns: u16) -> Vec<Line<'static>> {
    let activity = &readings.status.activity;
    let space = &activity.space;
    let size = |blocks: u64| blocks as f64 * f64::from(activity.block_size);
    let states = [
        ("data", space.data, Color::Blue, '█'),
        ("metadata", space.metadata, Color::Magenta, '▓'),
        ("snapshots", space.snapshots, Color::Cyan, '▒'),
        ("almost free", space.almost_free, Color::Yellow, '░'),
        ("in flight", space.unpublished, Color::Red, '▚'),
        ("log", space.log, Color::Green, '≡'),
        ("fixed", space.fixed, Color::Gray, '■'),
        ("free", space.free, Color::DarkGray, '·'),
    ];
    let widths = share_out(&states.map(|state| state.1), usize::from(columns));
    let bar = states.iter().zip(widths).map(|((_, _, color, mark), width)| {
        Span::styled(mark.to_string().repeat(width), Style::new().fg(*color))
    });
    let mut lines = vec![Line::from(bar.collect::<Vec<_>>()), Line::default()];
    let mut used = 0;
    for (name, blocks, color, mark) in states {
        let text = format!("{name} {}", bytes(size(blocks)));
        let width = text.len() + 4;
        if used + width > usize::from(columns) + 2 {
            lines.push(Line::default());
            used = 0;
        }
        used += width;
        if let Some(line) = lines.last_mut() {
            line.push_span(Span::styled(mark.to_string(), Style::new().fg(color)));
            line.push_span(format!(" {text}  "));
        }
    }
    lines
}

/// Divides `cells` in proportion to the weights. Each weight above 0 gets at least one cell. The
/// sum is `cells`.
fn share_out<const N: usize>(weights: &[u64; N], cells: usize) -> [usize; N] {
    let total = weights.iter().map(|weight| u128::from(*weight)).sum::<u128>().max(1);
    let mut shares = weights.map(|weight| {
        let share = (u128::from(weight) * cells as u128 / total) as usize;
        share.max(usize::from(weight > 0))
    });
    // The largest share absorbs the rounding difference.
    if let Some(largest) = (0..N).max_by_key(|index| weights[*index]) {
        let others: usize = shares.iter().sum::<usize>() - shares[largest];
        shares[largest] = cells.saturating_sub(others);
    }
    shares
}

/// Draws bars for the latencies of one kind, one per power of two.
fn draw_latency(buffer: &mut Buffer, area: Rect, history: &VolumeHistory, view: &View) {
    let [side, main] = Layout::horizontal([Constraint::Length(13), Constraint::Min(0)]).areas(area);
    let block = panel("kind");
    let list = block.inner(side);
    block.render(side, buffer);
    let lines = Kind::ALL.into_iter().enumerate().map(|(number, kind)| {
        let chosen = number == view.choice;
        let style = if chosen { BOLD.add_modifier(Modifier::REVERSED) } else { Style::new() };
        Line::styled(format!(" {:<9} ", kind.name()), style)
    });
    // The chosen row must stay visible.
    let scroll = (view.choice as u16 + 1).saturating_sub(list.height);
    Paragraph::new(lines.collect::<Vec<_>>()).scroll((scroll, 0)).render(list, buffer);

    let Some(kind) = Kind::ALL.get(view.choice).copied() else { return };
    let (histogram, _) = view.latencies(history, kind);
    let title = format!("{} {}", kind.name(), view.window_name(history));
    let block = panel(&title);
    let inner = block.inner(main);
    block.render(main, buffer);
    let total = histogram.count();
    let [p50, p99, p999, longest] = quantiles(&histogram);
    let summary = [
        format!("{} operations", count(total as f64)),
        format!("p50 {p50}"),
        format!("p99 {p99}"),
        format!("p99.9 {p999}"),
        format!("max {longest}"),
    ];
    let mut lines: Vec<Line<'_>> = in_lines(&summary, usize::from(inner.width))
        .into_iter()
        .map(|line| Line::styled(line, BOLD))
        .collect();
    lines.push(Line::default());
    let rows = octaves(&histogram);
    let most = rows.iter().map(|row| row.1).max().unwrap_or(0).max(1);
    let room = usize::from(inner.height).saturating_sub(lines.len()).max(1);
    let cells = usize::from(inner.width).saturating_sub(24);
    let skipped = rows.len().saturating_sub(room);
    for (limit, operations) in rows.into_iter().skip(skipped) {
        let name =
            if limit == u64::MAX { "more".into() } else { format!("≤ {}", latency(Some(limit))) };
        let bar = bar(operations as f64 / most as f64, cells);
        lines.push(Line::from(vec![
            Span::raw(format!("{name:>9} ")),
            Span::styled(bar, Style::new().fg(Color::Cyan)),
            Span::raw(format!(
                " {:>5} {:>5}",
                percent(operations as f64, total as f64),
                count(operations as f64)
            )),
        ]));
    }
    Paragraph::new(lines).render(inner, buffer);
}

/// Pieces side by side, in as few lines of this width as they need. No piece is divided.
fn in_lines(pieces: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + piece.chars().count() <= width => {
                line.push_str("  ");
                line.push_str(piece);
            }
            _ => lines.push(piece.clone()),
        }
    }
    lines
}

/// Counts by powers of two, from the first non-empty one to the last.
fn octaves(histogram: &Histogram) -> Vec<(u64, u64)> {
    let mut rows: Vec<(u64, u64)> = Vec::new();
    for (bucket, operations) in histogram.buckets.iter().enumerate() {
        let limit = bucket_limit(bucket).checked_next_power_of_two().unwrap_or(u64::MAX);
        match rows.last_mut() {
            Some(row) if row.0 == limit => row.1 += operations,
            _ => rows.push((limit, *operations)),
        }
    }
    let first = rows.iter().position(|row| row.1 > 0).unwrap_or(0);
    let last = rows.iter().rposition(|row| row.1 > 0).map_or(0, |last| last + 1);
    rows.get(first..last).unwrap_or_default().to_vec()
}

/// Draws one line per figure over the last few minutes.
fn draw_history(buffer: &mut Buffer, area: Rect, history: &VolumeHistory) {
    let per_second = |text: fn(f64) -> String| move |value: f64| format!("{}/s", text(value));
    let fill = |value: f64| percent(value, 1.0);
    type Text = Box<dyn Fn(f64) -> String>;
    let rows: [(&str, Vec<f64>, Color, Text); 8] = [
        ("operations", history.rates(operations_all), Color::Cyan, Box::new(per_second(count))),
        ("read", history.rates(|s| s.status.read_bytes), Color::Green, Box::new(per_second(bytes))),
        (
            "written",
            history.rates(|s| s.status.written_bytes),
            Color::Blue,
            Box::new(per_second(bytes)),
        ),
        (
            "transaction points",
            history.rates(|s| s.status.activity.transaction_points),
            Color::Magenta,
            Box::new(per_second(count)),
        ),
        (
            "device flushes",
            history.rates(|s| medium(s, |m| m.flushes)),
            Color::Yellow,
            Box::new(per_second(count)),
        ),
        (
            "device writes",
            history.rates(|s| medium(s, |m| m.written_bytes)),
            Color::Blue,
            Box::new(per_second(bytes)),
        ),
        (
            "log",
            history.values(|status| {
                status.activity.log_used as f64 / (status.activity.log_size as f64).max(1.0)
            }),
            Color::Green,
            Box::new(fill),
        ),
        (
            "dirty",
            history.values(|status| status.activity.dirty_bytes() as f64),
            Color::Red,
            Box::new(bytes),
        ),
    ];
    let areas = Layout::vertical(rows.iter().map(|_| Constraint::Fill(1))).split(area);
    for ((name, values, color, text), area) in rows.into_iter().zip(areas.iter()) {
        let [head, line] =
            Layout::horizontal([Constraint::Length(30), Constraint::Min(0)]).areas(*area);
        let now = values.last().copied().unwrap_or(0.0);
        let most = values.iter().copied().fold(0.0, f64::max);
        let label = vec![
            Line::from(vec![
                Span::styled(format!("{name:<19}"), BOLD),
                Span::raw(format!("{:>9}", text(now))),
            ]),
            Line::styled(format!("{:>28}", format!("most {}", text(most))), DIM),
        ];
        Paragraph::new(label).render(head, buffer);
        // The newest value is on the right.
        let skipped = values.len().saturating_sub(usize::from(line.width));
        let scale = if most > 0.0 { 1000.0 / most } else { 0.0 };
        let mut data = vec![0; usize::from(line.width).saturating_sub(values.len())];
        data.extend(values.iter().skip(skipped).map(|value| (value * scale).ceil() as u64));
        let height = area.height.clamp(1, 2);
        let line = Rect { height, ..line };
        Sparkline::default()
            .data(data)
            .max(1000)
            .style(Style::new().fg(color))
            .render(line, buffer);
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
