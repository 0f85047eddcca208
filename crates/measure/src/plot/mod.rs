//! Plots of one or more panels, as SVG. Everything is on logarithmic axes; bands and bars go from
//! the 5th to the 95th percentile. Whoever shows a picture has the font: widths of texts are estimates.

mod draw;
mod panel;

use plotters::backend::SVGBackend;

pub use draw::PlotError;
pub use panel::{Axis, Gains, Panel, Plot, Point, Reference, Series, gain_position, size_position};

/// The plot as SVG.
pub fn svg(plot: &Plot) -> Result<String, PlotError> {
    let mut text = String::new();
    draw::draw(plot, SVGBackend::with_string(&mut text, draw::size(plot)))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plots::plots;
    use crate::results::tests::example;

    #[test]
    fn svg_is_well_formed_and_names_every_target() {
        for plot in plots(&example()) {
            let text = svg(&plot).unwrap();
            assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"), "{}", &text[..80]);
            for word in ["native", "server", "pageable to the device", "16 MiB"] {
                assert!(text.contains(word), "{} does not say {word}", plot.name);
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
    fn a_plot_without_points_is_drawn() {
        let (x, y) = (Axis::sizes(core::iter::empty()), Axis::quantity("us", core::iter::empty()));
        let panel = Panel::of_lines("nothing".into(), x, y, Vec::new());
        let (name, title) = ("none".into(), "none".into());
        let plot =
            Plot { name, title, caption: Vec::new(), legend: vec!["alone".into()], panels: vec![panel] };
        let text = svg(&plot).unwrap();
        assert!(text.contains("nothing") && !text.contains("alone"), "one series needs no legend");
    }
}
