//! Bar charts as SVG. Labels are text of the picture: the plotting crate escapes them.

use plotters::prelude::*;

use super::failure::Failure;

use kubemoor_declare::model::text::is_unprintable;

/// The most bars.
const MOST: usize = 10;

/// The most characters of a label; the table beside the chart has it whole.
const LABEL: usize = 38;

/// The colour of bars: readable on paper, and beside red and green.
const COLOUR: RGBColor = RGBColor(0x2f, 0x5d, 0x8a);

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

/// A horizontal bar for each of the first counts; `None` where there is nothing to draw.
pub fn bars(counts: &[(String, u64)]) -> Result<Option<String>, Failure> {
    let bars: Vec<_> = counts.iter().take(MOST).map(|(label, count)| (shortened(label), *count)).collect();
    if bars.iter().all(|(_, count)| *count == 0) {
        return Ok(None);
    }
    let mut picture = String::new();
    draw_bars(&mut picture, &bars)
        .map_err(|error| Failure::Named(format!("cannot draw a chart: {error}")))?;
    Ok(Some(picture))
}

fn draw_bars(picture: &mut String, bars: &[(String, u64)]) -> Result<(), Box<dyn std::error::Error>> {
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

/// A bar above the line for what gets worse on each day, and one below it for what gets better; `None` where there is
/// nothing to draw.
pub fn days(days: &[DayCounts]) -> Result<Option<String>, Failure> {
    if days.iter().all(|day| day.worse == 0 && day.better == 0) {
        return Ok(None);
    }
    let mut picture = String::new();
    draw_days(&mut picture, days).map_err(|error| Failure::Named(format!("cannot draw a chart: {error}")))?;
    Ok(Some(picture))
}

fn draw_days(picture: &mut String, days: &[DayCounts]) -> Result<(), Box<dyn std::error::Error>> {
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
