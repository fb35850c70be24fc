//! Numbers in a few columns.

/// A latency in at most six columns: `870ns`, `12.3µs`, `4.56ms`, `1.2s`.
pub fn latency(nanoseconds: Option<u64>) -> String {
    let Some(nanoseconds) = nanoseconds else { return "-".into() };
    let value = nanoseconds as f64;
    match nanoseconds {
        0..1_000 => format!("{nanoseconds}ns"),
        1_000..999_500 => format!("{}µs", three_digits(value / 1e3)),
        1_000_000_000.. if value >= 999.5e9 => format!("{:.0}s", value / 1e9),
        999_500_000.. => format!("{}s", three_digits(value / 1e9)),
        _ => format!("{}ms", three_digits(value / 1e6)),
    }
}

/// A rate or count in at most five columns: `0`, `0.3`, `12`, `9999`, `12.3k`, `4.5M`.
pub fn count(value: f64) -> String {
    let value = value.max(0.0);
    if value < 0.05 {
        return "0".into();
    }
    if value < 9.95 && (value - value.round()).abs() > 0.05 {
        return format!("{value:.1}");
    }
    if value < 9_999.5 {
        return format!("{value:.0}");
    }
    scaled(value, 1000.0, &["k", "M", "G", "T", "P", "E"])
}

/// Bytes in at most six columns: `0B`, `812B`, `1.2K`, `34M`, in powers of 1024.
pub fn bytes(value: f64) -> String {
    let value = value.max(0.0);
    if value < 1023.5 {
        format!("{value:.0}B")
    } else {
        scaled(value, 1024.0, &["K", "M", "G", "T", "P", "E"])
    }
}

/// A time since the mount: `12s`, `3m04s`, `5h06m`, `7d08h`.
pub fn uptime(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A share of a whole: `0%`, `<1%`, `47%`, `100%`.
pub fn percent(part: f64, whole: f64) -> String {
    if whole <= 0.0 || part <= 0.0 {
        return "0%".into();
    }
    let percent = part / whole * 100.0;
    match percent {
        ..1.0 => "<1%".into(),
        99.0..100.0 => "99%".into(),
        _ => format!("{percent:.0}%"),
    }
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value / step;
    let mut unit = 0;
    while value >= step * 0.9995 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    format!("{}{}", three_digits(value), units[unit])
}

fn three_digits(value: f64) -> String {
    match value {
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_columns_whatever_the_number() {
        let latencies =
            [0, 999, 1000, 12_345, 999_499, 999_500, 4_560_000, 999_499_999, 999_500_000, 1 << 40];
        let texts = latencies.map(|value| latency(Some(value)));
        assert_eq!(
            texts,
            [
                "0ns", "999ns", "1.00µs", "12.3µs", "999µs", "1.00ms", "4.56ms", "999ms", "1.00s",
                "1100s"
            ]
        );
        assert_eq!(latency(None), "-");
        assert_eq!(
            [0.0, 0.3, 2.0, 12.4, 9999.0, 12_345.0, 4.5e6, -3.0].map(count),
            ["0", "0.3", "2", "12", "9999", "12.3k", "4.50M", "0"]
        );
        assert_eq!(
            [0.0, 812.0, 1024.0, 1e9, 1.8e19].map(bytes),
            ["0B", "812B", "1.00K", "954M", "15.6E"]
        );
        assert_eq!([3, 184, 18_360, 633_600].map(uptime), ["3s", "3m04s", "5h06m", "7d08h"]);
        assert_eq!(percent(1.0, 1000.0), "<1%");
        assert_eq!(percent(999.0, 1000.0), "99%");
        assert_eq!(percent(1000.0, 1000.0), "100%");
        assert_eq!(percent(1.0, 0.0), "0%");
        let mut exponent = 1.0;
        while exponent < 1e19 {
            for value in [exponent, exponent * 9.996, exponent * 1.02399] {
                assert!(count(value).len() <= 5, "{} for {value}", count(value));
                assert!(bytes(value).len() <= 5, "{} for {value}", bytes(value));
                assert!(latency(Some(value as u64)).chars().count() <= 12);
            }
            exponent *= 3.7;
        }
    }
}
