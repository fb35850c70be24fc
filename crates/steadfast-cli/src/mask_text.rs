//! Transaction masks as text.
//!
//! A mask is a list of events separated by commas, or by colons where a comma has another meaning,
//! as in mount options. `default`, `all` and `manual` stand for sets. A list made only of `+event`
//! and `no-event` changes the mask in force; any other list replaces it.

use steadfast::TransactionMask;

/// The mask that `words` describe, starting from `current`.
///
/// # Errors
/// A message for the user that names the unknown event and lists the known ones.
pub fn parse<S: AsRef<str>>(
    words: &[S],
    current: TransactionMask,
) -> Result<TransactionMask, String> {
    let tokens: Vec<&str> = words
        .iter()
        .flat_map(|word| word.as_ref().split([',', ':', ' ']))
        .filter(|token| !token.is_empty())
        .collect();
    if tokens.is_empty() {
        return Err(format!("no event given: write some of {}", known()));
    }
    let relative = tokens.iter().all(|token| token.starts_with('+') || token.starts_with("no-"));
    let mut mask = if relative { current } else { TransactionMask::MANUAL };
    for token in tokens {
        let (removes, name) = match token.strip_prefix("no-") {
            Some(name) => (true, name),
            None => (false, token.strip_prefix('+').unwrap_or(token)),
        };
        let events = events(name)?;
        mask = TransactionMask(if removes { mask.0 & !events.0 } else { mask.0 | events.0 });
    }
    Ok(mask)
}

fn events(name: &str) -> Result<TransactionMask, String> {
    match name {
        "default" => Ok(TransactionMask::DEFAULT),
        "all" => Ok(TransactionMask::ALL),
        "manual" => Ok(TransactionMask::MANUAL),
        _ => TransactionMask::from_name(&name.replace('_', "-"))
            .ok_or_else(|| format!("unknown event '{name}': write some of {}", known())),
    }
}

fn known() -> String {
    let names: Vec<&str> = TransactionMask::NAMES.iter().map(|(name, _)| *name).collect();
    format!("{}, or default, all, manual", names.join(", "))
}

/// The events of a mask in the order of their bits.
pub fn names(mask: TransactionMask) -> Vec<&'static str> {
    TransactionMask::NAMES
        .iter()
        .filter(|(_, event)| mask.contains(*event))
        .map(|(name, _)| *name)
        .collect()
}

/// The mask as text; [`parse`] accepts the output.
pub fn human(mask: TransactionMask) -> String {
    match mask {
        TransactionMask::MANUAL => "manual".into(),
        _ => names(mask).join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::{human, parse};
    use steadfast::TransactionMask;

    #[test]
    fn lists_replace_and_signs_change() {
        let now = TransactionMask::DEFAULT;
        assert_eq!(
            parse(&["fsync,sync"], now),
            Ok(TransactionMask::FSYNC.union(TransactionMask::SYNC))
        );
        assert_eq!(parse(&["fsync:sync"], now), parse(&["fsync", "sync"], now));
        assert_eq!(parse(&["+close"], now), Ok(now.union(TransactionMask::CLOSE)));
        assert_eq!(
            parse(&["no-timer", "+close"], now).map(|m| m.contains(TransactionMask::TIMER)),
            Ok(false)
        );
        assert_eq!(
            parse(&["all,no-write"], now),
            Ok(TransactionMask(TransactionMask::ALL.0 & !TransactionMask::WRITE.0))
        );
        assert_eq!(parse(&["manual"], now), Ok(TransactionMask::MANUAL));
        assert_eq!(parse(&["sync_write"], now), Ok(TransactionMask::SYNC_WRITE));
    }

    #[test]
    fn unknown_events_are_named() {
        let line = parse(&["fsink"], TransactionMask::MANUAL).unwrap_err();
        assert!(line.contains("'fsink'") && line.contains("volume-full"), "{line}");
        assert!(parse::<&str>(&[], TransactionMask::MANUAL).is_err());
        assert!(parse(&[","], TransactionMask::MANUAL).is_err());
    }

    #[test]
    fn every_mask_reads_back() {
        for bits in (0..=TransactionMask::ALL.0).step_by(97) {
            let mask = TransactionMask(bits);
            assert_eq!(parse(&[human(mask)], TransactionMask::DEFAULT), Ok(mask));
        }
    }
}
