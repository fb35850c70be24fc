//! Numbers as text: three significant figures, and the unit.

use steadfast_host::civil_from_days;

use crate::result::{Parameter, Test, Unit};

/// Three significant figures: `1.23`, `12.3`, `123`, `12,300`.
fn figures(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "?".to_owned(),
        0.0 => "0".to_owned(),
        _ if size < 0.000_95 => format!("{value:.1e}"),
        _ if size < 0.095 => format!("{value:.3}"),
        _ if size < 9.995 => format!("{value:.2}"),
        _ if size < 99.95 => format!("{value:.1}"),
        _ if size < 999.5 => format!("{value:.0}"),
        _ if size < 1e15 => grouped(value.round()),
        _ => format!("{value:.2e}"),
    }
}

/// A whole number with commas between groups of three.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with commas.
#[must_use]
pub fn count(value: u64) -> String {
    grouped(value as f64)
}

/// A value divided by the largest factor that leaves at least 1, with that factor's name.
fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
    let size = value.abs();
    // 0.9995 is shown as 1.00, so it belongs to the larger unit.
    let step = steps.iter().find(|(factor, _)| size >= factor * 0.9995).or(steps.last());
    let (factor, unit) = step.copied().unwrap_or((1.0, ""));
    let number = if value == 0.0 { "0".to_owned() } else { figures(value / factor) };
    format!("{number} {unit}")
}

/// A time: `1.23 ms`.
#[must_use]
pub fn seconds(value: f64) -> String {
    scaled(value, &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")])
}

/// A longer time: `3 min 20 s`.
#[must_use]
pub fn duration(value: f64) -> String {
    if !value.is_finite() || value < 0.0 {
        return "?".to_owned();
    }
    let whole = value.round() as u64;
    match whole {
        0..=89 => format!("{whole} s"),
        90..=5399 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A throughput, in the decimal units of disks: `158 MB/s`.
#[must_use]
pub fn rate(value: f64) -> String {
    scaled(value, &[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")])
}

/// A size, in the binary units of memory and files: `64 KiB`.
#[must_use]
pub fn bytes(value: f64) -> String {
    const STEPS: [(f64, &str); 5] = [
        (1_099_511_627_776.0, "TiB"),
        (1_073_741_824.0, "GiB"),
        (1_048_576.0, "MiB"),
        (1024.0, "KiB"),
        (1.0, "B"),
    ];
    let step = STEPS.into_iter().find(|(factor, _)| value >= *factor);
    match step {
        Some((factor, unit)) if value % factor == 0.0 && value / factor < 1024.0 => {
            format!("{} {unit}", value / factor)
        }
        _ => scaled(value, &STEPS),
    }
}

/// A size in the short form of an axis: `64K`, as IOzone's options write it.
#[must_use]
pub fn bytes_short(value: f64) -> String {
    let text = bytes(value);
    match text.split_once(' ') {
        Some((number, "B")) => number.to_owned(),
        Some((number, unit)) => format!("{number}{}", unit.get(..1).unwrap_or_default()),
        None => text,
    }
}

/// A number on an axis: `4,096`, `0.2`, `1.5M`. Marks are round, so nothing is lost.
#[must_use]
pub fn mark(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{}M", rounded(value / 1e6)),
        size if size >= 1e3 => grouped(value),
        _ => rounded(value),
    }
}

/// A throughput on an axis: `100 MB/s`.
#[must_use]
pub fn mark_rate(value: f64) -> String {
    marked(&rate(value))
}

/// A time on an axis: `10 µs`.
#[must_use]
pub fn mark_seconds(value: f64) -> String {
    marked(&seconds(value))
}

/// Removes errors of binary fractions.
fn rounded(value: f64) -> String {
    let value = (value * 1e6).round() / 1e6;
    format!("{value}")
}

/// A number with unit, without zeros after its point, because marks are round.
fn marked(text: &str) -> String {
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') && !number.contains('e') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text.to_owned(),
    }
}

/// A share as percent: `5 %`, `0.3 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    match value.abs() {
        _ if !value.is_finite() => "?".to_owned(),
        size if size == 0.0 || size >= 9.95 => format!("{value:.0} %"),
        size if size < 0.095 => format!("{value:.2} %"),
        _ => format!("{value:.1} %"),
    }
}

/// The noise of a machine, a share: `±5.0 %`. From 100 % up a share would promise times below
/// zero, so it is the factor by which equal work differs: `7.37× in either direction`.
#[must_use]
pub fn noise(share: f64) -> String {
    if share >= 1.0 {
        format!("{} in either direction", factor(1.0 + share))
    } else {
        format!("±{}", percent(share))
    }
}

/// A factor: `1.42×`, `12×`, `0.08×`.
#[must_use]
pub fn factor(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "?".to_owned(),
        _ if value >= 1e5 => format!("{value:.0e}×"),
        _ if value >= 99.5 => format!("{}×", grouped(value.round())),
        _ if value >= 9.95 => format!("{value:.1}×"),
        _ if value >= 0.095 || value <= 0.0 => format!("{value:.2}×"),
        _ if value >= 0.009_5 => format!("{value:.3}×"),
        _ if value >= 0.000_095 => format!("{value:.4}×"),
        _ => format!("{value:.0e}×"),
    }
}

/// A value with its unit.
#[must_use]
pub fn value(unit: Unit, value: f64) -> String {
    match unit {
        Unit::BytesPerSecond => rate(value),
        Unit::OperationsPerSecond => format!("{}/s", figures(value)),
        Unit::OperationsPerMinute => format!("{}/min", figures(value)),
        Unit::Seconds | Unit::SecondsPerOperation => seconds(value),
        Unit::CpuSecondsPerGib => format!("{} s/GiB", figures(value)),
        Unit::CpuSecondsPerOperation => format!("{} CPU", seconds(value)),
        Unit::Bytes => bytes(value),
        Unit::Ratio => figures(value),
    }
}

/// The quantity that a unit measures, for the label of an axis.
#[must_use]
pub fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::BytesPerSecond => "throughput",
        Unit::OperationsPerSecond => "operations per second",
        Unit::OperationsPerMinute => "operations per minute",
        Unit::Seconds => "time",
        Unit::SecondsPerOperation => "time per operation",
        Unit::CpuSecondsPerGib => "processor time per GiB",
        Unit::CpuSecondsPerOperation => "processor time per operation",
        Unit::Bytes => "size",
        Unit::Ratio => "ratio",
    }
}

/// A count with its noun: `1 file`, `1,000 files`.
#[must_use]
pub fn plural(number: u64, one: &str, several: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { several })
}

/// A parameter with its name: `file 64 KiB`, `4 threads`, `half full`.
#[must_use]
pub fn parameter(key: &str, value: &Parameter) -> String {
    let name = key.replace('_', " ");
    match (key, value) {
        ("file_size", Parameter::Number(size)) => format!("file {}", bytes(*size as f64)),
        ("record_size", Parameter::Number(size)) => format!("record {}", bytes(*size as f64)),
        ("file_bytes", Parameter::Number(0)) => "empty files".to_owned(),
        ("file_bytes", Parameter::Number(size)) => format!("files of {}", bytes(*size as f64)),
        ("files", Parameter::Number(number)) => plural(*number, "file", "files"),
        ("operations", Parameter::Number(number)) => plural(*number, "operation", "operations"),
        ("memory_limit", Parameter::Number(size)) => format!("{} of memory", bytes(*size as f64)),
        ("threads", Parameter::Number(number)) => plural(*number, "thread", "threads"),
        ("processes", Parameter::Number(number)) => plural(*number, "process", "processes"),
        ("condition", Parameter::Text(text)) => text.clone(),
        (_, Parameter::Flag(true)) => name,
        (_, Parameter::Flag(false)) => format!("no {name}"),
        (_, Parameter::Number(number)) if key.ends_with("_size") || key.ends_with("bytes") => {
            format!("{name} {}", bytes(*number as f64))
        }
        (_, Parameter::Number(number)) => format!("{name} {number}"),
        (_, Parameter::Text(text)) => format!("{name} {text}"),
    }
}

/// The parameters of a test except those named, separated by commas.
#[must_use]
pub fn parameters(test: &Test, without: &[&str]) -> String {
    let kept = test.parameters.iter().filter(|(key, _)| !without.contains(&key.as_str()));
    kept.map(|(key, value)| parameter(key, value)).collect::<Vec<_>>().join(", ")
}

/// A test in a few words: `random write, file 16 MiB, record 4 KiB`.
#[must_use]
pub fn test(test: &Test) -> String {
    let parameters = parameters(test, &["seed"]);
    if parameters.is_empty() { test.title.clone() } else { format!("{}, {parameters}", test.title) }
}

/// Words of a command line, quoted for a shell.
#[must_use]
pub fn command(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    let quoted = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// A time of day: `2026-11-22 03:10 UTC`.
#[must_use]
pub fn time(seconds: u64) -> String {
    let days = (seconds / 86_400).min(100_000_000) as i64;
    let (hour, minute) = (seconds % 86_400 / 3600, seconds % 3600 / 60);
    let (year, month, day) = civil_from_days(days);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// Text without control characters of terminals.
#[must_use]
pub fn one_line(text: &str) -> String {
    let obeyed =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if obeyed(c) { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_figures_and_a_unit() {
        assert_eq!(rate(158_300_000.0), "158 MB/s");
        assert_eq!(rate(2_040_000.0), "2.04 MB/s");
        assert_eq!(rate(999_900_000.0), "1.00 GB/s");
        assert_eq!(rate(0.0), "0 B/s");
        assert_eq!(seconds(0.000_012_3), "12.3 µs");
        assert_eq!(seconds(18.75), "18.8 s");
        assert_eq!(seconds(f64::NAN), "? ns");
        assert_eq!(bytes(65_536.0), "64 KiB");
        assert_eq!(bytes(1_500_000.0), "1.43 MiB");
        assert_eq!(bytes_short(1_048_576.0), "1M");
        assert_eq!(value(Unit::OperationsPerMinute, 139_312.0), "139,312/min");
    }

    #[test]
    fn marks_are_round() {
        assert_eq!(mark(1.200_000_000_000_000_2), "1.2");
        assert_eq!(mark(16_384.0), "16,384");
        assert_eq!(mark_rate(1e7), "10 MB/s");
        assert_eq!(mark_seconds(5e-6), "5 µs");
        assert_eq!(mark_seconds(1e-4), "100 µs");
    }

    #[test]
    fn factors_and_shares() {
        assert_eq!(factor(1.418), "1.42×");
        assert_eq!(factor(0.0812), "0.081×");
        assert_eq!(factor(1234.0), "1,234×");
        assert_eq!(factor(f64::INFINITY), "?");
        assert_eq!(percent(0.05), "5.0 %");
        assert_eq!(percent(0.123), "12 %");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(time(0), "1970-01-01 00:00 UTC");
        assert_eq!(time(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(time(1_760_000_000), "2025-10-09 08:53 UTC");
        // No value in a file causes a panic.
        assert!(!time(u64::MAX).is_empty());
    }

    #[test]
    fn commands_can_be_given_again() {
        let words = ["lab", "--iozone", "-a -e", "it's", ""].map(str::to_owned);
        assert_eq!(command(&words), "lab --iozone '-a -e' 'it'\\''s' ''");
    }

    #[test]
    fn waiting_times_are_whole() {
        assert_eq!(duration(12.3), "12 s");
        assert_eq!(duration(125.0), "2 min 5 s");
        assert_eq!(duration(7300.0), "2 h 1 min");
    }
}
