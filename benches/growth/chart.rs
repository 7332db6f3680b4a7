//! A line of costs as a picture.

use std::path::Path;

use plotters::prelude::*;

/// How a cost grows with its cause.
pub(crate) struct GrowthLine {
    pub(crate) cause: &'static str,
    pub(crate) cost: &'static str,
    pub(crate) points: Vec<(u64, f64)>,
}

/// Draws the line as SVG into a file of the folder that is named after the cause. Both axes start at nothing, so
/// that a cost which grows in step with its cause is a straight line.
pub(crate) fn draw(line: &GrowthLine, folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let file = folder.join(line.cause.replace(' ', "-")).with_extension("svg");
    let area = SVGBackend::new(&file, (640, 320)).into_drawing_area();
    area.fill(&WHITE).unwrap();
    let last = line.points.iter().map(|(cause, _)| *cause).max().unwrap();
    let most = line.points.iter().map(|(_, cost)| *cost).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0..last, 0.0..most * 1.1)
        .unwrap();
    let mesh = &mut chart.configure_mesh();
    mesh.x_desc(line.cause).y_desc(line.cost).x_labels(6).y_labels(6).draw().unwrap();
    let colour = RGBColor(0x2f, 0x5d, 0x8a);
    let path = PathElement::new(line.points.clone(), colour.stroke_width(2));
    chart.draw_series(std::iter::once(path)).unwrap();
    chart.draw_series(line.points.iter().map(|point| Circle::new(*point, 3, colour.filled()))).unwrap();
    area.present().unwrap();
}
