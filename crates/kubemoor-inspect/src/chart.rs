//! Bar charts as SVG.
//!
//! Entry points: [`bars`], [`days()`]. Invariant: labels are text of the picture; the plotting crate escapes them.

mod days;

use plotters::prelude::*;

pub use self::days::{DayCounts, days};
use super::failure::Failure;

use kubemoor_declare::model::text::is_unprintable;

/// The most bars.
const MOST: usize = 10;

/// The most characters of a label; the table beside the chart has it whole.
const LABEL: usize = 38;

/// The colour of bars: readable on paper, and beside red and green.
const COLOUR: RGBColor = RGBColor(0x2f, 0x5d, 0x8a);

/// A horizontal bar for each of the first counts; `None` where there is nothing to draw.
pub fn bars(counts: &[(String, u64)]) -> Result<Option<String>, Failure> {
    let bars: Vec<_> = counts.iter().take(MOST).map(|(label, count)| (shortened(label), *count)).collect();
    if bars.iter().all(|(_, count)| *count == 0) {
        return Ok(None);
    }
    let mut picture = String::new();
    draw(&mut picture, &bars).map_err(|error| Failure::Named(format!("cannot draw a chart: {error}")))?;
    Ok(Some(picture))
}

fn draw(picture: &mut String, bars: &[(String, u64)]) -> Result<(), Box<dyn std::error::Error>> {
    let rows = u32::try_from(bars.len())?;
    let most = bars.iter().map(|(_, count)| *count).max().unwrap_or_default();
    let area = SVGBackend::with_string(picture, (720, 26 * rows + 16)).into_drawing_area();
    // A little room for the number behind the longest bar.
    let width = most + most.div_ceil(8);
    let mut chart = ChartBuilder::on(&area)
        .margin(4)
        .y_label_area_size(290)
        .build_cartesian_2d(0..width, (0..rows).into_segmented())?;
    let label = |place: &SegmentValue<u32>| match place {
        // The first bar is the topmost.
        SegmentValue::CenterOf(place) => {
            let bar = bars.iter().rev().nth(usize::try_from(*place).unwrap_or(usize::MAX));
            bar.map(|(label, _)| label.clone()).unwrap_or_default()
        }
        SegmentValue::Exact(_) | SegmentValue::Last => String::new(),
    };
    chart
        .configure_mesh()
        .disable_mesh()
        .disable_x_axis()
        .axis_style(TRANSPARENT)
        .y_labels(bars.len())
        .y_label_style(("sans-serif", 13))
        .y_label_formatter(&label)
        .draw()?;
    let places = || (0..rows).zip(bars.iter().rev());
    chart.draw_series(places().map(|(place, (_, count))| {
        let corners = [(0, SegmentValue::Exact(place)), (*count, SegmentValue::Exact(place + 1))];
        let mut bar = Rectangle::new(corners, COLOUR.filled());
        bar.set_margin(4, 4, 0, 0);
        bar
    }))?;
    chart.draw_series(places().map(|(place, (_, count))| {
        let place = (*count, SegmentValue::CenterOf(place));
        EmptyElement::at(place) + Text::new(format!("{count}"), (5, -6), ("sans-serif", 13))
    }))?;
    area.present()?;
    Ok(())
}

/// The end of a label tells more than its beginning: the field of a path, the name of a service account.
fn shortened(label: &str) -> String {
    let length = label.chars().count();
    let plain = |letter: char| if is_unprintable(letter) { ' ' } else { letter };
    if length <= LABEL {
        return label.chars().map(plain).collect();
    }
    std::iter::once('…').chain(label.chars().skip(length - LABEL + 1)).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(label: &str, worse: u64, better: u64) -> DayCounts {
        DayCounts { label: label.to_owned(), worse, better }
    }

    #[test]
    fn each_day_with_changes_has_its_bars() {
        let picture = days(&[day("11-21", 3, 0), day("11-22", 0, 0), day("11-23", 1, 2)]).unwrap().unwrap();
        for (colour, bars) in [("#A31621", 2), ("#116329", 1)] {
            let drawn =
                picture.split("<rect").filter(|it| it.contains(colour) && !it.contains("height=\"0\""));
            assert_eq!(drawn.count(), bars, "{colour}: {picture}");
        }
        assert!(picture.contains("11-21") && picture.contains("11-23"), "{picture}");
        assert_eq!(days(&[day("11-21", 0, 0)]).unwrap(), None);
    }

    #[test]
    fn labels_are_text_of_the_picture() {
        for picture in [
            days(&[day("<script>", 1, 0)]).unwrap().unwrap(),
            bars(&[("<script>".to_owned(), 1)]).unwrap().unwrap(),
        ] {
            assert!(!picture.contains("<script>") && picture.contains("&lt;script&gt;"), "{picture}");
        }
    }
}
