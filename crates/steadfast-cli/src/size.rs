//! Sizes in text form: `4096`, `4K`, `1MiB`, `1.5G`, `64MB`.
//!
//! `K`, `M`, `G`, `T`, `P`, `E` and their `KiB` forms are powers of 1024, as in mkfs programs.
//! `KB`, `MB`, … are powers of 1000, as for disk sizes. Case does not matter.

/// Bytes in the size that `text` names.
///
/// # Errors
/// A message for the user: the text is no size, is no whole number of bytes, or does not fit 64
/// bits.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("'{text}' is not a size: write bytes or a form such as 4K, 1MiB, 1.5G or 64MB");
    let text_trimmed = text.trim();
    if text_trimmed
        .strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    {
        return Err(format!("'{text}' is below zero: sizes begin at 0"));
    }
    let split =
        text_trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text_trimmed.len());
    let (number, unit) = text_trimmed.split_at(split);
    let factor = unit_factor(unit.trim_start()).ok_or_else(wrong)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 18 || fraction.contains('.') {
        return Err(wrong());
    }
    let too_large = || format!("'{text}' is too large: sizes go up to 2^64 - 1 bytes");
    let whole: u128 = whole.parse().map_err(|_| too_large())?;
    let scale = 10u128.pow(fraction.len() as u32);
    let fraction: u128 = fraction.parse().map_err(|_| wrong())?;
    let scaled = fraction * u128::from(factor);
    if !scaled.is_multiple_of(scale) {
        return Err(format!("'{text}' is not a whole number of bytes"));
    }
    let bytes = whole.checked_mul(u128::from(factor)).ok_or_else(too_large)? + scaled / scale;
    u64::try_from(bytes).map_err(|_| too_large())
}

/// Like [`parse`], for quantities that the format keeps in 32 bits.
///
/// # Errors
/// As [`parse`], and the size does not fit 32 bits.
pub fn parse_u32(text: &str) -> Result<u32, String> {
    u32::try_from(parse(text)?).map_err(|_| format!("'{text}' is too large here"))
}

fn unit_factor(unit: &str) -> Option<u64> {
    if unit.is_empty() || unit.eq_ignore_ascii_case("b") {
        return Some(1);
    }
    let mut letters = unit.chars();
    let power = 1 + "kmgtpe".find(letters.next()?.to_ascii_lowercase())? as u32;
    match letters.as_str().to_ascii_lowercase().as_str() {
        "" | "ib" => Some(1024u64.pow(power)),
        "b" => Some(1000u64.pow(power)),
        _ => None,
    }
}

/// The size as text: about three digits and a binary unit, `1.5 GiB`.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let index = (bytes.ilog2() / 10) as usize - 1;
    let unit = 1u128 << (10 * (index + 1));
    // Tenths, rounded half up; 1023.96 KiB must not print as "1024.0 KiB".
    let tenths = (u128::from(bytes) * 10 + unit / 2) / unit;
    let (tenths, index) = if tenths >= 10_240 { (10, index + 1) } else { (tenths, index) };
    match tenths % 10 {
        0 => format!("{} {}", tenths / 10, UNITS[index]),
        tenth => format!("{}.{tenth} {}", tenths / 10, UNITS[index]),
    }
}

#[cfg(test)]
mod tests {
    use super::{human, parse, parse_u32};

    #[test]
    fn binary_units_are_the_default() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512b", 512),
            ("4K", 4096),
            ("4k", 4096),
            ("4KiB", 4096),
            ("4 kib", 4096),
            ("1M", 1 << 20),
            ("1MiB", 1 << 20),
            ("1G", 1 << 30),
            ("1.5G", 3 << 29),
            ("0.5K", 512),
            ("2T", 2 << 40),
            ("8EiB", 8 << 60),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn decimal_units_end_in_b() {
        assert_eq!(parse("1KB"), Ok(1000));
        assert_eq!(parse("64MB"), Ok(64_000_000));
        assert_eq!(parse("1.5gb"), Ok(1_500_000_000));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "", "K", ".", "1.", ".5", "1..5K", "1.2.3", "-1", "1X", "1KiBs", "1 K B", "0.3",
            "0x10", "١",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in [
            "16E",
            "99999999999999999999",
            "340282366920938463463374607431768211456",
            "18446744073709551616",
        ] {
            assert!(parse(text).is_err_and(|line| line.contains("too large")), "{text}");
        }
        assert_eq!(parse("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_u32("64K"), Ok(65_536));
        assert!(parse_u32("4G").is_err());
    }

    #[test]
    fn sizes_read_well() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1 MiB"),
            (32 << 20, "32 MiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn what_is_printed_can_be_read_back() {
        for bytes in [1u64, 1024, 1 << 20, 5 << 30, 7 << 40] {
            assert_eq!(parse(&human(bytes)), Ok(bytes));
        }
    }
}
