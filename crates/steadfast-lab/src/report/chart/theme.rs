//! The style of a drawing's classes: light, dark, and in a PNG.
//!
//! Colours have roles. In the page they are variables, so that the reader's setting selects them.
//! In a separate file they are written out, because renderers other than browsers do not support
//! variables.
//!
//! The hues are blue, orange, green, magenta, ochre, cyan, grey and brown. People with any of the
//! common colour deficiencies can tell them apart, and each was checked against its background.

use std::fmt::Write;

/// Number of colours for file systems; further file systems repeat them with dashes.
pub const SERIES: usize = 8;
/// Steps of the ramp for ordered series, such as record sizes.
pub const RAMP: usize = 16;
/// Steps of the scale from worse to better; the middle one is "the same".
pub const HEAT: usize = 13;

/// The use of a style sheet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Inside the page: variables that follow the reader's setting; paper is always light.
    Page,
    /// In an SVG file: light, and dark if the viewer asks for it.
    File,
    /// For the renderer of PNG files: light only, plain selectors.
    Raster,
}

/// Role, light colour, dark colour.
const ROLES: [(&str, u32, u32); 8] = [
    ("ground", 0xfbfbf9, 0x14181a),
    ("card", 0xffffff, 0x1b2124),
    ("ink", 0x1c2326, 0xe4e9ea),
    ("quiet", 0x55626a, 0xa3b0b5),
    ("rule", 0xdfe3e2, 0x323b3f),
    ("axis", 0x9aa5aa, 0x66747a),
    ("noise", 0xeceeed, 0x283034),
    ("accent", 0x0b66a8, 0x6cc0f2),
];

/// Colours of file systems, light and dark.
const HUES: [(u32, u32); SERIES] = [
    (0x0b6fb8, 0x5ab4f5),
    (0xcc4e0c, 0xff9358),
    (0x07875f, 0x3ccb9b),
    (0xa8408a, 0xe893cd),
    (0x9a7200, 0xe3bb45),
    (0x3d9cc4, 0x9fdcf2),
    (0x5b6670, 0xb4bfc5),
    (0x7d4028, 0xcf9f8a),
];

/// The ramp from small to large, light and dark.
const RAMP_DAY: [u32; 4] = [0x7db33c, 0x1f9e89, 0x2a6f9e, 0x44197a];
const RAMP_NIGHT: [u32; 4] = [0xf5e663, 0x5fd08a, 0x4fb0d8, 0xa08cf0];
/// From worse over equal to better, light and dark.
const HEAT_DAY: [u32; 5] = [0xb5480d, 0xf0b68c, 0xf1f2f0, 0x9cc8ea, 0x0b5c9e];
const HEAT_NIGHT: [u32; 5] = [0xf08a4b, 0x7a4a2c, 0x2a3236, 0x2c5878, 0x63b9f7];

/// A colour between those of a list, at `share` of the distance.
fn between(stops: &[u32], share: f64) -> u32 {
    let last = stops.len().saturating_sub(1);
    let place = share.clamp(0.0, 1.0) * last as f64;
    let index = (place as usize).min(last.saturating_sub(1));
    let part = place - index as f64;
    let from = stops.get(index).copied().unwrap_or(0);
    let to = stops.get(index + 1).copied().unwrap_or(from);
    [16, 8, 0].iter().fold(0, |colour, shift| {
        let (a, b) = (f64::from(from >> shift & 0xff), f64::from(to >> shift & 0xff));
        colour | ((a + (b - a) * part).round() as u32) << shift
    })
}

/// Black or white ink, whichever has more contrast on a colour.
fn ink_on(colour: u32) -> u32 {
    let linear = |shift: u32| {
        let part = f64::from(colour >> shift & 0xff) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    };
    let luminance = 0.2126 * linear(16) + 0.7152 * linear(8) + 0.0722 * linear(0);
    // At this luminance, black and white have the same contrast.
    if luminance > 0.179 { 0x00_0000 } else { 0xff_ffff }
}

/// Every role with its light and dark colours.
fn roles() -> Vec<(String, u32, u32)> {
    let mut all: Vec<_> =
        ROLES.iter().map(|(name, day, night)| ((*name).to_owned(), *day, *night)).collect();
    all.extend(
        HUES.iter().enumerate().map(|(index, (day, night))| (format!("s{index}"), *day, *night)),
    );
    let share = |index: usize, count: usize| index as f64 / (count - 1) as f64;
    all.extend((0..RAMP).map(|index| {
        let share = share(index, RAMP);
        (format!("r{index}"), between(&RAMP_DAY, share), between(&RAMP_NIGHT, share))
    }));
    for index in 0..HEAT {
        let share = share(index, HEAT);
        let (day, night) = (between(&HEAT_DAY, share), between(&HEAT_NIGHT, share));
        all.push((format!("h{index}"), day, night));
        all.push((format!("t{index}"), ink_on(day), ink_on(night)));
    }
    all
}

/// Selectors and declarations; `$role` stands for the colour of a role.
fn rules() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = [
        (".bg", "fill:$card"),
        (
            "text",
            // The fonts before system-ui are as wide as Roboto, by which the texts are laid out.
            "fill:$quiet;font-family:Roboto,Arial,Helvetica,Liberation Sans,DejaVu Sans Condensed,\
             system-ui,sans-serif;font-size:11px",
        ),
        (".name", "fill:$ink;font-size:13px;font-weight:bold"),
        (".head", "fill:$ink;font-size:20px;font-weight:bold"),
        (".sub", "fill:$quiet;font-size:13px"),
        (".small", "font-size:9.5px"),
        // A name on top of lines: they are interrupted around its letters.
        (".clear", "paint-order:stroke;stroke:$card;stroke-width:3px;stroke-linejoin:round"),
        (".strong", "fill:$ink;font-weight:bold"),
        (".value", "fill:$ink"),
        (".grid", "stroke:$rule;stroke-width:1"),
        (".axis", "stroke:$axis;stroke-width:1"),
        (".one", "stroke:$ink;stroke-width:1.2"),
        (".noise", "fill:$noise"),
        (".none", "fill:$card;stroke:$rule"),
        (".leader", "stroke:$axis;stroke-width:.6"),
        (".spread", "stroke:$ink;stroke-width:1.2"),
        (".line", "fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round"),
        (".thick", "stroke-width:2.6"),
        (".dash", "stroke-dasharray:5 3"),
        (".whisker", "fill:none;stroke-width:1.4"),
        (".up", "fill:$h12"),
        (".down", "fill:$h0"),
        (".hollow", "fill:$card;stroke-width:1.6"),
    ]
    .into_iter()
    .map(|(selector, style)| (selector.to_owned(), style.to_owned()))
    .collect();
    for (kind, count) in [("s", SERIES), ("r", RAMP)] {
        for index in 0..count {
            // The stroke of a line, and the fill of an area.
            all.push((format!(".l{kind}{index}"), format!("stroke:${kind}{index}")));
            all.push((format!(".f{kind}{index}"), format!("fill:${kind}{index}")));
        }
    }
    for index in 0..HEAT {
        all.push((format!(".h{index}"), format!("fill:$h{index}")));
        all.push((format!(".t{index}"), format!("fill:$t{index};font-size:9.5px")));
    }
    all
}

/// Replaces the names of roles by colours or variables.
fn resolve(style: &str, colour: &dyn Fn(&str) -> String) -> String {
    let mut text = String::new();
    for (index, part) in style.split('$').enumerate() {
        if index == 0 {
            text.push_str(part);
            continue;
        }
        let end = part.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(part.len());
        let (role, rest) = part.split_at(end);
        text.push_str(&colour(role));
        text.push_str(rest);
    }
    text
}

/// The style sheet for a use.
#[must_use]
pub fn sheet(for_use: Use) -> String {
    let roles = roles();
    let mut text = String::new();
    let plain = |night: bool| {
        let colours = &roles;
        move |role: &str| {
            let found = colours.iter().find(|(name, ..)| name == role);
            found.map_or_else(String::new, |(_, day, dark)| {
                format!("#{:06x}", if night { dark } else { day })
            })
        }
    };
    let written =
        |text: &mut String, prefix: &str, colour: &dyn Fn(&str) -> String, colours_only: bool| {
            for (selector, style) in rules() {
                if !colours_only || style.contains('$') {
                    // Writing to a string does not fail.
                    let _ = write!(text, "{prefix}{selector}{{{}}}", resolve(&style, colour));
                }
            }
        };
    match for_use {
        Use::Page => {
            let variables = |night: bool| -> String {
                roles
                    .iter()
                    .map(|(name, day, dark)| {
                        format!("--{name}:#{:06x};", if night { dark } else { day })
                    })
                    .collect()
            };
            let (day, night) = (variables(false), variables(true));
            let _ = write!(
                text,
                ":root{{{day}}}@media screen and (prefers-color-scheme:dark){{:root{{{night}}}}}"
            );
            written(&mut text, ".fig ", &|role| format!("var(--{role})"), false);
        }
        Use::File => {
            written(&mut text, "", &plain(false), false);
            text.push_str("@media (prefers-color-scheme:dark){");
            written(&mut text, "", &plain(true), true);
            text.push('}');
        }
        Use::Raster => written(&mut text, "", &plain(false), false),
    }
    text
}

/// The meaning of a line or mark, as a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hue {
    /// One of several objects of a kind, such as file systems, in the order of the run.
    Series(usize),
    /// A step of an ordered series, as (index, count), such as record sizes.
    Step(usize, usize),
}

impl Hue {
    /// Name of the colour: `s3`, `r15`.
    #[must_use]
    pub fn role(self) -> String {
        match self {
            Self::Series(index) => format!("s{}", index % SERIES),
            Self::Step(index, count) => {
                let last = count.saturating_sub(1).max(1);
                format!("r{}", (index.min(last) * (RAMP - 1)).div_euclid(last))
            }
        }
    }

    /// Classes of a line in this colour; dashed if the colours are used up.
    #[must_use]
    pub fn line(self) -> String {
        let dash =
            if matches!(self, Self::Series(index) if index >= SERIES) { " dash" } else { "" };
        format!("l{}{dash}", self.role())
    }

    /// Class of an area in this colour.
    #[must_use]
    pub fn fill(self) -> String {
        format!("f{}", self.role())
    }
}

/// The step of the scale from worse (0) to better for a ratio, where more than 1 is better. The
/// strongest colours stand for eight times or an eighth.
#[must_use]
pub fn heat(ratio: f64) -> usize {
    let middle = (HEAT / 2) as f64;
    let place = (ratio.log2() / 3.0).clamp(-1.0, 1.0);
    if place.is_nan() { HEAT / 2 } else { (middle + place * middle).round() as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_have_colours_on_both_sides_of_equal() {
        assert_eq!(heat(1.0), 6);
        assert_eq!(heat(8.0), 12);
        assert_eq!(heat(1e300), 12);
        assert_eq!(heat(0.0), 0);
        assert_eq!(heat(f64::NAN), 6);
        assert_eq!(heat(0.5) + heat(2.0), 12);
    }

    #[test]
    fn every_role_is_resolved() {
        for for_use in [Use::Page, Use::File, Use::Raster] {
            let sheet = sheet(for_use);
            assert!(!sheet.contains('$'));
            assert!(!sheet.contains("fill:;") && !sheet.contains("fill:}"), "a colour is missing");
            assert_eq!(sheet.matches('{').count(), sheet.matches('}').count());
        }
        assert!(!sheet(Use::Raster).contains("var("));
    }

    #[test]
    fn a_step_never_leaves_the_ramp() {
        for count in 0..40 {
            for index in 0..count + 2 {
                let role = Hue::Step(index, count).role();
                let step: usize = role[1..].parse().unwrap();
                assert!(step < RAMP, "{index} of {count} is {role}");
            }
        }
    }

    #[test]
    fn colours_stand_out_from_their_ground() {
        let luminance = |colour: u32| {
            let linear = |shift: u32| {
                let part = f64::from(colour >> shift & 0xff) / 255.0;
                if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * linear(16) + 0.7152 * linear(8) + 0.0722 * linear(0)
        };
        let contrast = |a: u32, b: u32| {
            let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
            a.max(b) / a.min(b)
        };
        // WCAG requires 3 : 1 for visible parts of a picture, and 4.5 : 1 for text.
        for (day, night) in HUES {
            assert!(contrast(day, 0xffffff) >= 3.0, "{day:06x} on white");
            assert!(contrast(night, 0x1b2124) >= 3.0, "{night:06x} on the dark card");
        }
        for index in 0..HEAT {
            let share = index as f64 / (HEAT - 1) as f64;
            for stops in [HEAT_DAY, HEAT_NIGHT] {
                let colour = between(&stops, share);
                assert!(contrast(colour, ink_on(colour)) >= 4.5, "text on {colour:06x}");
            }
        }
        assert!(contrast(0x55626a, 0xffffff) >= 4.5 && contrast(0xa3b0b5, 0x1b2124) >= 4.5);
    }
}
