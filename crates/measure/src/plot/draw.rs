//! Drawing of a plot as SVG. Its axes, and what is on them, are in `panel`.

use core::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use thiserror::Error;

use super::panel::{Axis, Panel, Plot, Series, value_text};

/// Pixels of a panel of lines.
const PANEL: (u32, u32) = (620, 400);
/// Pixels of a panel of rows, and of each row in it.
const ROWS: (u32, u32) = (960, 64);
/// Pixels of the title, of a line of small print, and of the legend.
const TITLE: u32 = 40;
const SMALL_PRINT: u32 = 17;
const LEGEND: u32 = 30;
/// The share of a panel's height that ratios take.
const RATIOS: f64 = 0.36;

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

/// Why a plot is not drawn: the library that draws has failed.
#[derive(Debug, Error)]
#[error("cannot draw a plot: {0}")]
pub struct PlotError(String);

type Drawing<T> = Result<T, PlotError>;

fn failed<E: core::fmt::Display>(error: E) -> PlotError {
    PlotError(error.to_string())
}

fn colour(target: usize) -> RGBColor {
    COLOURS[target % COLOURS.len()]
}

fn columns(plot: &Plot) -> u32 {
    if plot.panels.len() > 1 { 2 } else { 1 }
}

/// Width and height in pixels.
pub fn size(plot: &Plot) -> (u32, u32) {
    if let [panel] = plot.panels.as_slice()
        && panel.rows > 0
    {
        return (ROWS.0, head_pixels(plot) + 90 + ROWS.1 * panel.rows as u32);
    }
    let with_ratios = plot.panels.iter().any(|panel| !panel.ratios().is_empty());
    let height = if with_ratios { (f64::from(PANEL.1) / (1.0 - RATIOS)) as u32 } else { PANEL.1 };
    let rows = (plot.panels.len() as u32).div_ceil(columns(plot));
    // One panel alone is wide enough for the title.
    let width = PANEL.0 * columns(plot) + if columns(plot) == 1 { 260 } else { 0 };
    (width, head_pixels(plot) + height * rows)
}

/// Pixels above the panels.
fn head_pixels(plot: &Plot) -> u32 {
    TITLE + SMALL_PRINT * plot.caption.len() as u32 + if has_legend(plot) { LEGEND } else { 8 }
}

/// Whether there is anything to tell apart.
fn has_legend(plot: &Plot) -> bool {
    plot.legend.len() > 1
}

/// Draws everything.
pub fn draw<B: DrawingBackend>(plot: &Plot, backend: B) -> Drawing<()> {
    let root = backend.into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    let (head, body) = root.split_vertically(head_pixels(plot));
    draw_head(plot, &head)?;
    let columns = columns(plot) as usize;
    let areas = body.split_evenly((plot.panels.len().div_ceil(columns), columns));
    let ratios = plot.ratio_axis();
    for (panel, area) in plot.panels.iter().zip(&areas) {
        if panel.rows == 0 { draw_lines(panel, &ratios, area) } else { draw_rows(panel, area) }?;
    }
    root.present().map_err(failed)
}

fn text(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&BLACK)
}

fn draw_head<B: DrawingBackend>(plot: &Plot, area: &DrawingArea<B, Shift>) -> Drawing<()> {
    area.draw(&Text::new(plot.title.clone(), (16, 12), text(18))).map_err(failed)?;
    let mut top = TITLE as i32;
    for line in &plot.caption {
        area.draw(&Text::new(line.clone(), (16, top), text(13).color(&BLACK.mix(0.7)))).map_err(failed)?;
        top += SMALL_PRINT as i32;
    }
    let mut left = 16;
    for (target, name) in plot.legend.iter().enumerate().filter(|_| has_legend(plot)) {
        let square = Rectangle::new([(left, top + 9), (left + 22, top + 21)], colour(target).filled());
        area.draw(&square).map_err(failed)?;
        area.draw(&Text::new(name.clone(), (left + 30, top + 7), text(16))).map_err(failed)?;
        let (width, _) = text(16).font.box_size(name).map_err(failed)?;
        left += 30 + width as i32 + 32;
    }
    Ok(())
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, position: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (position - self.from) / (self.to - self.from);
        first + (share * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Those for lines without labels are wanted in addition; there are none.
        let count = if hint.bold_points() == 0 { 0 } else { self.labels.len() };
        self.labels.iter().take(count).map(|(position, _)| *position).collect()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, position: &f64) -> String {
        let found = self.labels.iter().find(|(of_label, _)| (of_label - position).abs() < 1e-9);
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
    let (margin, second_axis) = match panel.gains {
        Some(_) => (12, 72),
        // Values stand behind the bars of rows, with their ratios.
        None if panel.rows > 0 => (150, 0),
        None => (36, 0),
    };
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

fn draw_lines<B: DrawingBackend>(
    panel: &Panel,
    of_ratios: &Axis,
    area: &DrawingArea<B, Shift>,
) -> Drawing<()> {
    let ratios = panel.ratios();
    if ratios.is_empty() {
        return draw_values(panel, area);
    }
    let (above, below) = area.split_vertically(((1.0 - RATIOS) * f64::from(area.dim_in_pixel().1)) as u32);
    draw_values(panel, &above)?;
    let mut chart = ChartBuilder::on(&below)
        .margin(12)
        .margin_right(36)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(panel.x.clone(), of_ratios.clone())
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .label_style(text(14))
        .x_desc(&panel.x.title)
        .y_desc(&of_ratios.title)
        .draw()
        .map_err(failed)?;
    let (from, to) = (panel.x.from, panel.x.to);
    let reference = panel.compared_with.map(colour).unwrap_or(BLACK);
    chart
        .draw_series([PathElement::new([(from, 0.0), (to, 0.0)], reference.stroke_width(2))])
        .map_err(failed)?;
    for (target, points) in ratios {
        let colour = colour(target);
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2))).map_err(failed)?;
        chart
            .draw_series(points.into_iter().map(|position| Circle::new(position, 2, colour.filled())))
            .map_err(failed)?;
    }
    Ok(())
}

/// Draws the values of a panel of lines.
fn draw_values<B: DrawingBackend>(panel: &Panel, area: &DrawingArea<B, Shift>) -> Drawing<()> {
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
    for reference in &panel.references {
        let (from, to) = (panel.x.from, panel.x.to);
        let ends = [(from, reference.position), (to, reference.position)];
        chart
            .draw_series(DashedLineSeries::new(ends, 7, 5, BLACK.mix(0.5).stroke_width(1)))
            .map_err(failed)?;
        let grey = BLACK.mix(0.6);
        let style = text(12).color(&grey).pos(Pos::new(HPos::Left, VPos::Bottom));
        let label =
            EmptyElement::at((from, reference.position)) + Text::new(reference.label.clone(), (4, -3), style);
        chart.draw_series([label]).map_err(failed)?;
    }
    for Series { target, points } in &panel.series {
        let colour = colour(*target);
        let upper = points.iter().map(|point| (point.x, point.high));
        let lower = points.iter().rev().map(|point| (point.x, point.low));
        let band: Vec<_> = upper.chain(lower).collect();
        chart.draw_series([Polygon::new(band, colour.mix(0.18))]).map_err(failed)?;
        let middle = points.iter().map(|point| (point.x, point.middle));
        chart.draw_series(LineSeries::new(middle.clone(), colour.stroke_width(2))).map_err(failed)?;
        chart
            .draw_series(middle.map(|position| Circle::new(position, 2, colour.filled())))
            .map_err(failed)?;
    }
    Ok(())
}

fn draw_rows<B: DrawingBackend>(panel: &Panel, area: &DrawingArea<B, Shift>) -> Drawing<()> {
    let mut chart = chart(panel, area, 230)?;
    draw_axes(panel, &mut chart)?;
    // The targets of a row lie below each other.
    let step = 0.6 / panel.series.len().max(1) as f64;
    let ratios = panel.ratios();
    let ratio = |target: usize, x: f64| {
        let of_target = ratios.iter().find(|(other, _)| *other == target)?;
        of_target.1.iter().find(|(position, _)| *position == x).map(|(_, position)| *position)
    };
    for (order, Series { target, points }) in panel.series.iter().enumerate() {
        let colour = colour(*target);
        let shift = (order as f64 - (panel.series.len() as f64 - 1.0) / 2.0) * step;
        for point in points {
            let row = point.x - shift;
            let bar = PathElement::new([(point.low, row), (point.high, row)], colour.stroke_width(3));
            chart.draw_series([bar]).map_err(failed)?;
            chart.draw_series([Circle::new((point.middle, row), 5, colour.filled())]).map_err(failed)?;
            let times = ratio(*target, point.x).map(|position| format!(", {} times", value_text(position)));
            let value = format!("{}{}", value_text(point.middle), times.unwrap_or_default());
            let anchor = Pos::new(HPos::Left, VPos::Center);
            let beside =
                EmptyElement::at((point.high, row)) + Text::new(value, (10, 0), text(13).pos(anchor));
            chart.draw_series([beside]).map_err(failed)?;
        }
    }
    Ok(())
}
