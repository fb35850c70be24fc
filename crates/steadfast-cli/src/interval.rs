//! Intervals in text form: `5s`, `500ms`, `2min`; a bare number is in seconds.

/// Milliseconds in the interval that `text` names.
///
/// # Errors
/// A message for the user: the text is no interval, is zero, or is longer than 49 days (32 bits of
/// milliseconds).
pub fn parse_ms(text: &str) -> Result<u32, String> {
    let wrong = || format!("'{text}' is not an interval: write a form such as 5s, 500ms or 2min");
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let factor: u64 = match unit.trim_start() {
        "ms" => 1,
        "" | "s" | "sec" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    if number.is_empty() {
        return Err(wrong());
    }
    let ms = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    if ms == Some(0) {
        return Err(format!("'{text}' is too short an interval: use at least 1ms"));
    }
    ms.and_then(|ms| u32::try_from(ms).ok())
        .ok_or_else(|| format!("'{text}' is too long an interval"))
}

/// The interval as text.
pub fn human_ms(ms: u32) -> String {
    match ms {
        0 => "0 s".into(),
        _ if ms.is_multiple_of(1000) => format!("{} s", ms / 1000),
        _ => format!("{ms} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::{human_ms, parse_ms};

    #[test]
    fn forms() {
        for (text, ms) in
            [("5", 5000), ("5s", 5000), ("500ms", 500), ("2 min", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(parse_ms(text), Ok(ms), "{text}");
        }
        for text in ["", "s", "-1s", "1.5s", "5 fortnights", "0", "99999h", "99999999999999999999s"]
        {
            assert!(parse_ms(text).is_err(), "{text}");
        }
        assert_eq!(human_ms(5000), "5 s");
        assert_eq!(human_ms(250), "250 ms");
    }
}
