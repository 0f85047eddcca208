//! How is it drawn? Figures of one or more panels, as SVG and as PNG. Everything is on logarithmic axes; bands and bars go from the
//! 5th to the 95th percentile.

mod draw;
mod figure;

use std::sync::OnceLock;

use plotters::backend::{BitMapBackend, SVGBackend};
use plotters::style::{FontStyle, register_font};
use thiserror::Error;

pub use figure::{Axis, Figure, Gains, Panel, Point, Series, figures, names, size_place};

/// A few characters of Roboto, so that PNG files have text where no font is installed; see `fonts/README.md`.
static FONT: &[u8] = include_bytes!("../../fonts/Roboto-Regular-subset.ttf");

/// Why a plot is not drawn.
#[derive(Debug, Error)]
pub enum PlotError {
    /// The font is damaged.
    #[error("the font for plots cannot be read")]
    Font,
    /// The library that draws has failed.
    #[error("a plot cannot be drawn: {0}")]
    Draw(String),
    /// The picture cannot be packed.
    #[error("a plot cannot be written as PNG: {0}")]
    Encode(#[from] png::EncodingError),
}

/// Makes the font known to the library that draws, once.
fn load_font() -> Result<(), PlotError> {
    static LOADED: OnceLock<bool> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| register_font("sans-serif", FontStyle::Normal, FONT).is_ok());
    if *loaded { Ok(()) } else { Err(PlotError::Font) }
}

/// The figure as SVG.
pub fn svg(figure: &Figure) -> Result<String, PlotError> {
    load_font()?;
    let mut text = String::new();
    draw::draw(figure, SVGBackend::with_string(&mut text, draw::size(figure)))?;
    Ok(text)
}

/// The figure as PNG.
pub fn png(figure: &Figure) -> Result<Vec<u8>, PlotError> {
    load_font()?;
    let (width, height) = draw::size(figure);
    let mut pixels = vec![0; width as usize * height as usize * 3];
    draw::draw(figure, BitMapBackend::with_buffer(&mut pixels, (width, height)))?;
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&pixels)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::example;

    #[test]
    fn svg_is_well_formed_and_names_every_target() {
        for figure in figures(&example()) {
            let text = svg(&figure).unwrap();
            assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"), "{}", &text[..80]);
            for word in ["native", "server", "pageable to the device", "16 MiB"] {
                assert!(text.contains(word), "{} does not say {word}", figure.name);
            }
            let mut open: Vec<&str> = Vec::new();
            for tag in text.split('<').skip(1).map(|piece| piece.split_once('>').expect("each tag ends").0) {
                let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap();
                if tag.starts_with('/') {
                    assert_eq!(open.pop(), Some(name), "a tag that was not open ends");
                } else if !tag.ends_with('/') {
                    open.push(name);
                }
            }
            assert!(open.is_empty(), "{open:?} do not end");
            assert!(!text.contains("NaN") && !text.contains("inf\""), "a point lies nowhere");
        }
    }

    #[test]
    fn png_can_be_decoded_and_shows_something() {
        for figure in figures(&example()) {
            let file = png(&figure).unwrap();
            let mut reader = png::Decoder::new(std::io::Cursor::new(&file)).read_info().unwrap();
            let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
            let info = reader.next_frame(&mut pixels).unwrap();
            assert_eq!((info.width, info.height), draw::size(&figure));
            let pixels = pixels.chunks(3);
            let all = pixels.len();
            let white = pixels.filter(|pixel| *pixel == [255; 3]).count();
            assert!(white > all / 2 && white < all * 99 / 100, "{white} of {all} pixels are white");
        }
    }

    #[test]
    fn the_font_has_every_letter_of_the_plots() {
        load_font().unwrap();
        let text: String = figures(&example()).iter().flat_map(|figure| figure.texts()).collect();
        assert!(
            text.chars().all(|letter| letter.is_ascii() || "\u{b5}\u{d7}\u{2013}".contains(letter)),
            "{text}"
        );
    }

    #[test]
    fn a_figure_without_points_is_drawn() {
        let panel = Panel {
            title: "nothing".into(),
            x: Axis::sizes(core::iter::empty()),
            y: Axis::quantity("us", core::iter::empty()),
            series: Vec::new(),
            gains: None,
            rows: 0,
        };
        let figure =
            Figure { name: "none", title: "none".into(), legend: vec!["a".into()], panels: vec![panel] };
        assert!(svg(&figure).unwrap().contains("nothing"));
    }
}
