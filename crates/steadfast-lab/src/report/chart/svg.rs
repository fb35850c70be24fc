//! A drawing: elements of SVG with classes, written to a string.
//!
//! Values that are not finite are not drawn, and every text is escaped. So the drawing is well
//! formed, whatever a result file contains.

use std::fmt::Write;

use super::theme::{self, Use};

/// A drawing of a size in pixels.
#[derive(Debug, Clone, Default)]
pub struct Drawing {
    /// Width in pixels.
    pub width: f64,
    /// Height in pixels.
    pub height: f64,
    body: String,
}

/// The side of a text on which its anchor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// The text begins at the anchor.
    Start,
    /// The text's middle is at the anchor.
    Middle,
    /// The text ends at the anchor.
    End,
}

/// The character, or the replacement character if XML does not allow it, or if it changes the
/// direction of the following text. Such a character could change what a page seems to say.
#[must_use]
pub fn harmless(c: char) -> char {
    match c {
        '\u{0}'..='\u{1f}'
        | '\u{7f}'..='\u{9f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{fffe}'
        | '\u{ffff}' => '\u{fffd}',
        _ => c,
    }
}

/// Text as content or attribute of XML. Characters that XML does not allow become the replacement
/// character.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' => escaped.push(' '),
            _ => escaped.push(harmless(c)),
        }
    }
    escaped
}

/// A coordinate, to a tenth of a pixel, without trailing zeros.
fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

fn finite(values: &[f64]) -> bool {
    values.iter().all(|value| value.is_finite() && value.abs() < 1e6)
}

impl Drawing {
    /// An empty drawing.
    #[must_use]
    pub fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    fn element(&mut self, element: &str, tooltip: &str) {
        let name = element.split([' ', '>']).next().unwrap_or_default();
        // Writing to a string does not fail.
        let _ = if tooltip.is_empty() {
            writeln!(self.body, "<{element}/>")
        } else {
            writeln!(self.body, "<{element}><title>{}</title></{name}>", escape(tooltip))
        };
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        if finite(&[x1, y1, x2, y2]) {
            let (x1, y1, x2, y2) = (short(x1), short(y1), short(x2), short(y2));
            self.element(
                &format!("line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\""),
                "",
            );
        }
    }

    /// A line through points, with a gap at each missing point.
    pub fn path(&mut self, class: &str, points: &[Option<(f64, f64)>], tooltip: &str) {
        let mut data = String::new();
        let mut pen_down = false;
        for point in points {
            match point.filter(|(x, y)| finite(&[*x, *y])) {
                Some((x, y)) => {
                    let _ = write!(
                        data,
                        "{}{} {}",
                        if pen_down { 'L' } else { 'M' },
                        short(x),
                        short(y)
                    );
                    pen_down = true;
                }
                None => pen_down = false,
            }
        }
        if !data.is_empty() {
            self.element(&format!("path class=\"{class}\" d=\"{data}\""), tooltip);
        }
    }

    /// A rectangle, with the radius of its corners.
    pub fn rect(
        &mut self,
        class: &str,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        radius: f64,
        tooltip: &str,
    ) {
        if finite(&[x, y, width, height]) && width >= 0.0 && height >= 0.0 {
            let rounded = if radius > 0.0 {
                format!(" rx=\"{}\"", short(radius.min(width / 2.0)))
            } else {
                String::new()
            };
            let (x, y, width, height) = (short(x), short(y), short(width), short(height));
            self.element(
                &format!(
                    "rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"{rounded}"
                ),
                tooltip,
            );
        }
    }

    /// A dot.
    pub fn dot(&mut self, class: &str, (x, y): (f64, f64), radius: f64, tooltip: &str) {
        if finite(&[x, y, radius]) {
            let (x, y, r) = (short(x), short(y), short(radius));
            self.element(
                &format!("circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{r}\""),
                tooltip,
            );
        }
    }

    /// A triangle that points up (better) or down (worse). It is as high as a letter, and its base
    /// line is at the given position. Fonts often lack such a character.
    pub fn triangle(&mut self, class: &str, (x, y): (f64, f64), up: bool) {
        let (base, tip) = if up { (y, y - 7.5) } else { (y - 7.5, y) };
        if finite(&[x, base, tip]) {
            let (left, right, middle) = (short(x), short(x + 8.0), short(x + 4.0));
            let (base, tip) = (short(base), short(tip));
            self.element(
                &format!(
                    "path class=\"{class}\" d=\"M{left} {base}L{right} {base}L{middle} {tip}Z\""
                ),
                "",
            );
        }
    }

    /// A text whose base line is at the given position.
    pub fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        self.text_with_tooltip(class, (x, y), anchor, text, "");
    }

    /// A text that shows its full form on hover, if it differs.
    pub fn text_with_tooltip(
        &mut self,
        class: &str,
        (x, y): (f64, f64),
        anchor: Anchor,
        text: &str,
        full: &str,
    ) {
        if !finite(&[x, y]) || text.is_empty() {
            return;
        }
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let title = if full.is_empty() || full == text {
            String::new()
        } else {
            format!("<title>{}</title>", escape(full))
        };
        let _ = writeln!(
            self.body,
            "<text{class} x=\"{}\" y=\"{}\"{anchor}>{title}{}</text>",
            short(x),
            short(y),
            escape(text)
        );
    }

    /// Another drawing, with its top left corner at the given position.
    pub fn place(&mut self, (x, y): (f64, f64), other: &Self) {
        if finite(&[x, y]) {
            let _ = writeln!(
                self.body,
                "<g transform=\"translate({} {})\">\n{}</g>",
                short(x),
                short(y),
                other.body
            );
        }
    }

    fn open(&self, name: &str, attributes: &str) -> String {
        let (width, height) = (short(self.width.max(1.0)), short(self.height.max(1.0)));
        format!(
            "<svg{attributes} class=\"fig\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\" aria-label=\"{}\">\n",
            escape(name)
        )
    }

    /// The drawing inside a page that has the style sheet for [`Use::Page`]. Screen readers read
    /// `name`.
    #[must_use]
    pub fn inline(&self, name: &str) -> String {
        format!("{}{}</svg>", self.open(name, ""), self.body)
    }

    /// The drawing as a separate file.
    #[must_use]
    pub fn file(&self, name: &str, for_use: Use) -> String {
        format!(
            "{}<title>{}</title>\n<style>{}</style>\n<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n{}</svg>\n",
            self.open(name, " xmlns=\"http://www.w3.org/2000/svg\""),
            escape(name),
            theme::sheet(for_use),
            self.body
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finite_is_not_drawn() {
        let mut drawing = Drawing::new(10.0, 10.0);
        drawing.line("a", (0.0, f64::NAN), (1.0, 1.0));
        drawing.dot("a", (f64::INFINITY, 0.0), 1.0, "");
        drawing.rect("a", (0.0, 0.0), (-1.0, 5.0), 0.0, "");
        drawing.text("a", (f64::NAN, 0.0), Anchor::Start, "no");
        assert_eq!(drawing.body, "");
        drawing.path(
            "a",
            &[Some((0.0, 0.0)), Some((1.0, f64::NAN)), Some((2.0, 2.0)), Some((3.0, 3.25))],
            "",
        );
        assert_eq!(drawing.body, "<path class=\"a\" d=\"M0 0M2 2L3 3.2\"/>\n");
    }

    #[test]
    fn texts_cannot_leave_their_element() {
        let mut drawing = Drawing::new(10.0, 10.0);
        drawing.text(
            "",
            (1.0, 1.0),
            Anchor::End,
            "</text><script>alert('x')</script>\u{0}\u{202e}",
        );
        drawing.dot("a", (1.0, 1.0), 2.0, "a \"b\" & <c>");
        let file = drawing.file("<&>", Use::File);
        assert!(
            !file.contains("<script>") && !file.contains('\u{0}') && !file.contains('\u{202e}')
        );
        assert!(file.contains("a &quot;b&quot; &amp; &lt;c&gt;</title></circle>"));
    }
}
