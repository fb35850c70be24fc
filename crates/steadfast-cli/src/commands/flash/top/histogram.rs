//! The distribution of erase counts: the number of blocks in each of a few ranges.

use std::fmt::Write;

use serde::Serialize;

use crate::grid::svg::escape;

/// Maximum number of ranges.
pub const BARS_MAX: u32 = 24;

/// A range of erase counts, and the number of blocks in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bar {
    /// Fewest erasures.
    pub erases_min: u32,
    /// Most erasures.
    pub erases_max: u32,
    /// Good blocks in this range.
    pub blocks: u32,
}

/// Ranges of equal width from the fewest to the most erasures, at most `bars` of them. `erases` is
/// in rising order.
pub fn bars(erases: &[u32], bars: u32) -> Vec<Bar> {
    let (Some(least), Some(most)) = (erases.first().copied(), erases.last().copied()) else {
        return Vec::new();
    };
    let width = (most - least + 1).div_ceil(bars.max(1)).max(1);
    let mut found: Vec<Bar> = (0..(most - least + 1).div_ceil(width))
        .map(|bar| {
            let erases_min = least + bar * width;
            Bar { erases_min, erases_max: erases_min + width - 1, blocks: 0 }
        })
        .collect();
    for count in erases {
        if let Some(bar) = found.get_mut(((count - least) / width) as usize) {
            bar.blocks += 1;
        }
    }
    found
}

/// Dimensions of the picture.
const WIDTH: usize = 720;
const MARGIN: usize = 20;
const TOP: usize = 76;
const ROW: usize = 20;
const LABEL: usize = 150;

/// The histogram as a picture file, light or dark as the reader's system is set.
pub fn picture(bars: &[Bar], title: &str, about: &str) -> String {
    let title = escape(title);
    let height = TOP + bars.len() * ROW + MARGIN + 10;
    let most = bars.iter().map(|bar| bar.blocks).max().unwrap_or(0).max(1);
    let room = WIDTH - 2 * MARGIN - LABEL - 60;
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-label=\"Wear of {title}\">\n<title>Wear of {title}</title>\n<style>\n\
         .bg{{fill:#ffffff}}text{{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1a202c}}\
         .h{{font-size:17px;font-weight:600}}.n{{fill:#4a5568}}.e{{text-anchor:end;font-variant-numeric:tabular-nums}}\
         .w{{fill:#2b6cb0}}\n\
         @media (prefers-color-scheme:dark){{.bg{{fill:#161a21}}text{{fill:#edf2f7}}.n{{fill:#a0aec0}}.w{{fill:#63a4e8}}}}\n\
         </style>\n<rect class=\"bg\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"h\" x=\"{MARGIN}\" y=\"34\">{title}</text>\n\
         <text class=\"n\" x=\"{MARGIN}\" y=\"54\">{}</text>\n",
        escape(about),
    );
    for (index, bar) in bars.iter().enumerate() {
        let y = TOP + index * ROW;
        let width = bar.blocks as usize * room / most as usize;
        let width = if bar.blocks > 0 { width.max(1) } else { 0 };
        let (label_x, bar_x) = (MARGIN + LABEL - 10, MARGIN + LABEL);
        let _ = writeln!(
            text,
            "<text class=\"e n\" x=\"{label_x}\" y=\"{}\">{}</text><rect class=\"w\" x=\"{bar_x}\" y=\"{y}\" width=\"{width}\" \
             height=\"14\" rx=\"2\"/><text x=\"{}\" y=\"{}\">{}</text>",
            y + 12,
            range(bar),
            bar_x + width + 8,
            y + 12,
            bar.blocks,
        );
    }
    text.push_str("</svg>\n");
    text
}

/// A range as text: `3`, `10-19`.
pub fn range(bar: &Bar) -> String {
    if bar.erases_min == bar.erases_max {
        bar.erases_min.to_string()
    } else {
        format!("{}-{}", bar.erases_min, bar.erases_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_in_one_range() {
        let erases: Vec<u32> = (0..500_u32).map(|number| 1000 + number / 7).collect();
        for most in [1, 2, 10, 24] {
            let found = bars(&erases, most);
            assert!(found.len() <= most as usize && !found.is_empty());
            assert_eq!(found.iter().map(|bar| bar.blocks).sum::<u32>(), 500);
            assert_eq!(found[0].erases_min, 1000);
            assert!(found.windows(2).all(|pair| pair[0].erases_max + 1 == pair[1].erases_min));
        }
        assert_eq!(bars(&[7, 7], 24), [Bar { erases_min: 7, erases_max: 7, blocks: 2 }]);
        assert_eq!(bars(&[], 24), []);
        assert_eq!(bars(&[0, (1 << 19) - 1], 24).len(), 24);
    }

    #[test]
    fn the_picture_is_self_contained() {
        let text = picture(&bars(&[1, 1, 2, 30], 24), "a<b>.bin", "erasures & blocks");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        assert!(text.contains("a&lt;b&gt;.bin") && text.contains("erasures &amp; blocks"));
        assert_eq!(text.matches("http").count(), 1, "only the name space");
        let opened =
            text.matches('<').count() - text.matches("</").count() - text.matches("/>").count();
        assert_eq!(opened, text.matches("</").count());
    }
}
