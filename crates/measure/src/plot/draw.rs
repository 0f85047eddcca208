//! How is a figure drawn?

use core::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::PlotError;
use super::figure::{Axis, Figure, Panel, Series, value_text};

/// Pixels of a panel of lines.
const PANEL: (u32, u32) = (620, 400);
/// Pixels of a panel of rows, and of each row in it.
const ROWS: (u32, u32) = (960, 64);
/// Pixels above the panels, for title and legend.
const HEAD: u32 = 84;

/// Colours that people with colour blindness tell apart, by M. Okabe and K. Ito.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 0, 0),
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(240, 228, 66),
];

type Drawing<T> = Result<T, PlotError>;

fn failed<E: core::fmt::Display>(error: E) -> PlotError {
    PlotError(error.to_string())
}

fn colour(target: usize) -> RGBColor {
    COLOURS[target % COLOURS.len()]
}

fn columns(figure: &Figure) -> u32 {
    if figure.panels.len() > 1 { 2 } else { 1 }
}

/// Width and height in pixels.
pub fn size(figure: &Figure) -> (u32, u32) {
    if let [panel] = figure.panels.as_slice()
        && panel.rows > 0
    {
        return (ROWS.0, HEAD + 90 + ROWS.1 * panel.rows as u32);
    }
    let rows = (figure.panels.len() as u32).div_ceil(columns(figure));
    // One panel alone is wide enough for the title.
    let width = PANEL.0 * columns(figure) + if columns(figure) == 1 { 260 } else { 0 };
    (width, HEAD + PANEL.1 * rows)
}

/// Draws everything.
pub fn draw<B: DrawingBackend>(figure: &Figure, backend: B) -> Drawing<()> {
    let root = backend.into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    let (head, body) = root.split_vertically(HEAD);
    draw_head(figure, &head)?;
    let columns = columns(figure) as usize;
    let areas = body.split_evenly((figure.panels.len().div_ceil(columns), columns));
    for (panel, area) in figure.panels.iter().zip(&areas) {
        if panel.rows == 0 { draw_lines(panel, area) } else { draw_rows(panel, area) }?;
    }
    root.present().map_err(failed)
}

fn text(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&BLACK)
}

fn draw_head<B: DrawingBackend>(figure: &Figure, area: &DrawingArea<B, Shift>) -> Drawing<()> {
    area.draw(&Text::new(figure.title.clone(), (16, 12), text(18))).map_err(failed)?;
    let mut left = 16;
    for (target, name) in figure.legend.iter().enumerate() {
        let square = Rectangle::new([(left, 48), (left + 22, 60)], colour(target).filled());
        area.draw(&square).map_err(failed)?;
        area.draw(&Text::new(name.clone(), (left + 30, 46), text(16))).map_err(failed)?;
        let (width, _) = text(16).font.box_size(name).map_err(failed)?;
        left += 30 + width as i32 + 32;
    }
    Ok(())
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (place - self.from) / (self.to - self.from);
        first + (share * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Those for lines without labels are wanted in addition; there are none.
        let count = if hint.bold_points() == 0 { 0 } else { self.labels.len() };
        self.labels.iter().take(count).map(|(place, _)| *place).collect()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, place: &f64) -> String {
        let found = self.labels.iter().find(|(of_label, _)| (of_label - place).abs() < 1e-9);
        found.map(|(_, text)| text.clone()).unwrap_or_default()
    }
}

type Chart<'a, B> = ChartContext<'a, B, Cartesian2d<Axis, Axis>>;

/// A panel's chart, with so many pixels for the labels of its rows or of its vertical axis.
fn chart<'a, B: DrawingBackend>(
    panel: &Panel,
    area: &'a DrawingArea<B, Shift>,
    label_pixels: u32,
) -> Drawing<Chart<'a, B>> {
    // A second axis has its labels where the margin is otherwise.
    let (margin, second_axis) = if panel.gains.is_some() { (12, 72) } else { (36, 0) };
    ChartBuilder::on(area)
        .caption(panel.title.clone(), text(17))
        .margin(12)
        .margin_right(margin)
        .x_label_area_size(44)
        .y_label_area_size(label_pixels)
        .right_y_label_area_size(second_axis)
        .build_cartesian_2d(panel.x.clone(), panel.y.clone())
        .map_err(failed)
}

/// Draws the axes of a panel and the grid.
fn draw_axes<B: DrawingBackend>(panel: &Panel, chart: &mut Chart<'_, B>) -> Drawing<()> {
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .label_style(text(14))
        .x_desc(&panel.x.title);
    // Rows say themselves what they are.
    if panel.rows == 0 {
        mesh.y_desc(&panel.y.title);
    }
    mesh.draw().map_err(failed)
}

fn draw_lines<B: DrawingBackend>(panel: &Panel, area: &DrawingArea<B, Shift>) -> Drawing<()> {
    let mut chart = chart(panel, area, 64)?;
    let Some(gains) = &panel.gains else { return draw_series(panel, &mut chart) };
    // Before anything is drawn: the space to the right is the second axis's from here on.
    let mut chart = chart.set_secondary_coord(panel.x.clone(), gains.axis.clone());
    draw_series(panel, &mut chart)?;
    chart
        .configure_secondary_axes()
        .label_style(text(14))
        .y_desc(&gains.axis.title)
        .draw()
        .map_err(failed)?;
    for (target, points) in &gains.lines {
        let line = DashedLineSeries::new(points.iter().copied(), 4, 4, colour(*target).stroke_width(1));
        chart.draw_secondary_series(line).map_err(failed)?;
    }
    Ok(())
}

/// Draws axes and lines with their bands.
fn draw_series<B: DrawingBackend>(panel: &Panel, chart: &mut Chart<'_, B>) -> Drawing<()> {
    draw_axes(panel, chart)?;
    for Series { target, points } in &panel.series {
        let colour = colour(*target);
        let upper = points.iter().map(|point| (point.x, point.high));
        let lower = points.iter().rev().map(|point| (point.x, point.low));
        let band: Vec<_> = upper.chain(lower).collect();
        chart.draw_series([Polygon::new(band, colour.mix(0.18))]).map_err(failed)?;
        let middle = points.iter().map(|point| (point.x, point.middle));
        chart.draw_series(LineSeries::new(middle.clone(), colour.stroke_width(2))).map_err(failed)?;
        chart.draw_series(middle.map(|place| Circle::new(place, 2, colour.filled()))).map_err(failed)?;
    }
    Ok(())
}

fn draw_rows<B: DrawingBackend>(panel: &Panel, area: &DrawingArea<B, Shift>) -> Drawing<()> {
    let mut chart = chart(panel, area, 230)?;
    draw_axes(panel, &mut chart)?;
    // The targets of a row lie below each other.
    let step = 0.6 / panel.series.len().max(1) as f64;
    for (order, Series { target, points }) in panel.series.iter().enumerate() {
        let colour = colour(*target);
        let shift = (order as f64 - (panel.series.len() as f64 - 1.0) / 2.0) * step;
        for point in points {
            let row = point.x - shift;
            let bar = PathElement::new([(point.low, row), (point.high, row)], colour.stroke_width(3));
            chart.draw_series([bar]).map_err(failed)?;
            chart.draw_series([Circle::new((point.middle, row), 5, colour.filled())]).map_err(failed)?;
            let value = value_text(point.middle);
            let anchor = Pos::new(HPos::Left, VPos::Center);
            let beside =
                EmptyElement::at((point.high, row)) + Text::new(value, (10, 0), text(13).pos(anchor));
            chart.draw_series([beside]).map_err(failed)?;
        }
    }
    Ok(())
}
