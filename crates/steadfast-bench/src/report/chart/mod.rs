//! Pictures: small panels that are drawn once and shown as HTML, SVG and PNG.
//!
//! A panel draws into a [`Drawing`], in pixels, at a width that a phone shows without scaling; a
//! [`sheet`] puts several beside each other. Elements carry classes and no colours: [`theme`] says
//! what the classes look like by day, by night and on paper, so one drawing serves all. What holds
//! for every panel:
//!
//! - no value that is not finite reaches a coordinate: such a point is left out, never drawn
//!   elsewhere;
//! - linear axes of quantities begin at zero, logarithmic ones are marked by their ticks;
//! - lines are labelled at their end, not in a legend that one has to look up;
//! - colours differ in lightness as well as in hue, and nothing is told by colour alone;
//! - every text is escaped, and shortened with its full form as a tooltip where it does not fit.

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

/// Width of a panel in pixels: what a phone has beside its margins.
pub const PANEL_WIDTH: f64 = 350.0;
