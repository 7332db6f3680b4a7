//! A chart of the changes for the worse and for the better on each day.
//!
//! Entry point: [`days`]. Invariant: labels are text of the picture; the plotting crate escapes them.

use plotters::prelude::*;

use super::super::failure::Failure;
use super::COLOUR;

/// The colours of what gets worse and of what gets better.
const WORSE: RGBColor = RGBColor(0xa3, 0x16, 0x21);
const BETTER: RGBColor = RGBColor(0x11, 0x63, 0x29);

/// The most labels below the days.
const DAY_LABELS: usize = 5;

/// What gets worse and what gets better on a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayCounts {
    pub label: String,
    pub worse: u64,
    pub better: u64,
}

/// A bar above the line for what gets worse on each day, and one below it for what gets better; `None` where there is
/// nothing to draw.
pub fn days(days: &[DayCounts]) -> Result<Option<String>, Failure> {
    if days.iter().all(|day| day.worse == 0 && day.better == 0) {
        return Ok(None);
    }
    let mut picture = String::new();
    draw(&mut picture, days).map_err(|error| Failure::Named(format!("cannot draw a chart: {error}")))?;
    Ok(Some(picture))
}

fn draw(picture: &mut String, days: &[DayCounts]) -> Result<(), Box<dyn std::error::Error>> {
    let number = u32::try_from(days.len())?;
    let highest =
        |count: fn(&DayCounts) -> u64| i64::try_from(days.iter().map(count).max().unwrap_or_default());
    let (worse, better) = (highest(|day| day.worse)?, highest(|day| day.better)?);
    let area = SVGBackend::with_string(picture, (420, 190)).into_drawing_area();
    let room = |count: i64| count.saturating_add(count / 10).saturating_add(1);
    let heights = if better == 0 { 0..room(worse) } else { -room(better)..room(worse) };
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .x_label_area_size(24)
        .y_label_area_size(36)
        .build_cartesian_2d((0..number).into_segmented(), heights)?;
    let label = |place: &SegmentValue<u32>| match place {
        SegmentValue::CenterOf(place) => {
            let day = usize::try_from(*place).ok().and_then(|place| days.get(place));
            day.map(|day| day.label.clone()).unwrap_or_default()
        }
        SegmentValue::Exact(_) | SegmentValue::Last => String::new(),
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .axis_style(TRANSPARENT)
        .light_line_style(TRANSPARENT)
        .bold_line_style(COLOUR.mix(0.2))
        .x_labels(days.len().min(DAY_LABELS))
        .x_label_style(("sans-serif", 12))
        .x_label_formatter(&label)
        .y_labels(5)
        .y_label_style(("sans-serif", 12))
        .y_label_formatter(&|count| count.unsigned_abs().to_string())
        .draw()?;
    for (colour, height) in [
        (WORSE, (|day| i64::try_from(day.worse)) as fn(&DayCounts) -> Result<i64, std::num::TryFromIntError>),
        (BETTER, |day| i64::try_from(day.better).map(|count| -count)),
    ] {
        for (place, day) in (0..number).zip(days) {
            let corners = [(SegmentValue::Exact(place), 0), (SegmentValue::Exact(place + 1), height(day)?)];
            let mut bar = Rectangle::new(corners, colour.filled());
            bar.set_margin(0, 0, 2, 2);
            chart.draw_series(std::iter::once(bar))?;
        }
    }
    area.present()?;
    Ok(())
}
