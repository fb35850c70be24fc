//! A drawing as PNG, at twice its size, for documents that cannot show SVG.

use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::svg::Drawing;
use super::theme::Use;

/// The fonts of the pictures, the same as in the page.
pub const FONTS: [(&str, &[u8]); 2] = [
    ("normal", include_bytes!("../../../assets/fonts/Roboto-Regular.ttf")),
    ("bold", include_bytes!("../../../assets/fonts/Roboto-Bold.ttf")),
];

/// Pixels of the file per pixel of the drawing.
const SCALE: f64 = 2.0;
/// Maximum side of a picture. It bounds the memory, whatever was measured.
const LONGEST: f64 = 12_000.0;

static DATABASE: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut database = fontdb::Database::new();
    for (_, font) in FONTS {
        database.load_font_data(font.to_vec());
    }
    database.set_sans_serif_family("Roboto");
    Arc::new(database)
});

/// Renders a drawing.
///
/// # Errors
/// A sentence about what the renderer could not do.
pub fn render(drawing: &Drawing) -> Result<Vec<u8>, String> {
    let options = Options {
        font_family: "Roboto".to_owned(),
        fontdb: Arc::clone(&DATABASE),
        ..Options::default()
    };
    let tree = Tree::from_str(&drawing.file("", Use::Raster), &options)
        .map_err(|error| error.to_string())?;
    let longest = drawing.width.max(drawing.height).max(1.0);
    let scale = SCALE.min(LONGEST / longest);
    let side = |length: f64| (length * scale).ceil().clamp(1.0, LONGEST) as u32;
    let mut pixels =
        Pixmap::new(side(drawing.width), side(drawing.height)).ok_or("the picture has no size")?;
    resvg::render(&tree, Transform::from_scale(scale as f32, scale as f32), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::svg::Anchor;
    use super::*;

    #[test]
    fn a_picture_has_text_and_colours() {
        let mut drawing = Drawing::new(60.0, 30.0);
        drawing.text("strong", (5.0, 20.0), Anchor::Start, "ext4");
        let with_text = render(&drawing).unwrap();
        assert!(with_text.starts_with(b"\x89PNG"));
        let tree = Pixmap::decode_png(&with_text).unwrap();
        assert_eq!((tree.width(), tree.height()), (120, 60));
        let dark = tree.pixels().iter().filter(|pixel| pixel.red() < 100).count();
        assert!(dark > 100, "the text is missing: {dark} dark pixels");
    }

    #[test]
    fn a_huge_picture_is_made_smaller() {
        let png = render(&Drawing::new(10.0, 50_000.0)).unwrap();
        assert!(Pixmap::decode_png(&png).unwrap().height() <= 12_000);
    }
}
