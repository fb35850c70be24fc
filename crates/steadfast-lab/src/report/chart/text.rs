//! The width of texts, and how to make them fit: drawings are laid out without a browser.

/// Advance widths of Roboto Regular for the printable ASCII characters, in 1/2048 of the font size.
/// All digits have the same width.
const ADVANCES: [u16; 95] = [
    508, 528, 656, 1261, 1151, 1500, 1274, 358, 701, 713, 882, 1162, 403, 566, 540, 845, 1151,
    1151, 1151, 1151, 1151, 1151, 1151, 1151, 1151, 1151, 496, 433, 1041, 1124, 1071, 968, 1839,
    1336, 1276, 1333, 1344, 1164, 1132, 1395, 1461, 557, 1130, 1285, 1103, 1788, 1461, 1409, 1292,
    1409, 1262, 1216, 1222, 1328, 1304, 1817, 1284, 1230, 1227, 543, 841, 543, 856, 924, 633, 1114,
    1150, 1072, 1155, 1086, 712, 1150, 1128, 498, 490, 1038, 498, 1796, 1131, 1168, 1150, 1164,
    694, 1057, 670, 1129, 992, 1539, 1016, 969, 1016, 693, 500, 693, 1393,
];

/// Width of a text at a font size, in pixels. Characters beyond ASCII count as a wide letter. That
/// is right for Latin and Greek, and close enough for others.
pub fn width(text: &str, size: f64) -> f64 {
    let units: f64 = text
        .chars()
        .map(|c| {
            let index = (c as usize).wrapping_sub(32);
            match ADVANCES.get(index) {
                Some(advance) => f64::from(*advance),
                None if (c as u32) < 0x2e80 => 1200.0,
                None => 2048.0,
            }
        })
        .sum();
    units * size / 2048.0
}

/// The text, or as much of its beginning and end as fits, with an ellipsis between: names of
/// directories and tests differ at either end.
pub fn fit(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let all: Vec<char> = text.chars().collect();
    let mut kept = all.len();
    while kept > 0 {
        kept -= 1;
        let front = kept.div_ceil(2);
        let mut short: String = all.iter().take(front).collect();
        short.push('…');
        short.extend(all.iter().skip(all.len() - (kept - front)));
        if width(&short, size) <= room {
            return short;
        }
    }
    String::new()
}

/// The text in lines that fit, broken between words; a word that is too long stays whole.
pub fn wrap(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(" ", size) + width(word, size) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_one_width() {
        assert_eq!(width("1111", 12.0), width("0489", 12.0));
        assert!(width("ext4", 12.0) > 20.0 && width("ext4", 12.0) < 24.0);
    }

    #[test]
    fn long_names_keep_both_ends() {
        let name = "a-directory-with-a-very-long-name/and-another/mounted";
        let short = fit(name, 11.0, 100.0);
        assert!(short.starts_with("a-d") && short.ends_with("ted") && short.contains('…'));
        assert!(width(&short, 11.0) <= 100.0);
        assert_eq!(fit("ext4", 11.0, 100.0), "ext4");
        assert_eq!(fit("ext4", 11.0, 1.0), "");
    }

    #[test]
    fn sentences_are_broken_between_words() {
        let lines = wrap("one two three four five six", 12.0, 60.0);
        assert!(lines.len() > 2 && lines.iter().all(|line| width(line, 12.0) <= 60.0), "{lines:?}");
        assert_eq!(lines.join(" "), "one two three four five six");
        assert!(wrap("", 12.0, 60.0).is_empty());
    }
}
