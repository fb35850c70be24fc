//! Pictures: small panels that are drawn once and shown as HTML, SVG and PNG.
//!
//! A panel draws into a [`Drawing`], in pixels, at a width that fits a phone without scaling; a
//! [`sheet`] puts several side by side. Elements carry classes and no colours: [`theme`] defines
//! the classes for light, dark and paper, so one drawing serves all. These rules hold for every
//! panel:
//! - no value that is not finite reaches a coordinate: such a point is left out, never drawn
//!   elsewhere;
//! - linear axes of quantities begin at zero, logarithmic ones are marked by their ticks;
//! - lines are labelled at their end, not in a separate legend;
//! - colours differ in lightness as well as in hue, and no information depends on colour alone;
//! - every text is escaped; a text that does not fit is shortened and has its full form as a
//!   tooltip.

pub mod bars;
pub mod forest;
pub mod heat;
mod labels;
pub mod lines;
pub mod png;
pub mod scale;
pub mod sheet;
pub mod svg;
mod text;
pub mod theme;

pub use svg::Drawing;

/// Width of a panel in pixels: the width of a phone without its margins.
pub const PANEL_WIDTH: f64 = 350.0;
