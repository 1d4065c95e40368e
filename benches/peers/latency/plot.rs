//! The distributions as a picture: how long so many of the round trips took at most.

use std::path::Path;

use nnhal_bench::report::duration;
use nnhal_bench::{Error, Report, Result};
use plotters::coord::combinators::IntoLogRange as _;
use plotters::prelude::{
    ChartBuilder, Color as _, IntoDrawingArea as _, IntoFont as _, LineSeries, Palette, Palette99,
    PathElement, SVGBackend, SeriesLabelPosition, ShapeStyle, WHITE,
};

const SIZE: (u32, u32) = (1200, 700);
/// One in so many round trips is the right edge: 99.99 %.
const RAREST: f64 = 10_000.0;
/// Points of a line.
const STEPS: u32 = 400;

/// Writes an SVG with a line for each row of the smallest payload: to the right ever rarer round trips,
/// upwards longer ones.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(report: &Report, path: &Path) -> Result<()> {
    draw(report, path).map_err(Error::row(format!("plot {}", path.display())))
}

fn draw(report: &Report, path: &Path) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let lowest = report.rows.iter().map(|row| row.p50_ns).fold(f64::MAX, f64::min) / 2.0;
    let highest = report.rows.iter().map(|row| row.p999_ns).fold(0.0, f64::max) * 4.0;
    let title = format!(
        "Round trips between two processes, {} ({})",
        report.conditions.cpu, report.conditions.scheduling
    );
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18).into_font())
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(80)
        .build_cartesian_2d(
            (1.0..RAREST).log_scale(),
            (lowest.max(1.0)..highest.max(2.0)).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("round trips that took no longer")
        .x_label_formatter(&|one_in| format!("{:.4} %", 100.0 * (1.0 - 1.0 / one_in)))
        .y_label_formatter(&|nanos| duration(*nanos))
        .draw()?;
    let rows = report.rows.iter().zip(&report.histograms);
    for (index, (row, histogram)) in rows.enumerate() {
        // Others of the same name are further down the table.
        if report.rows[..index]
            .iter()
            .any(|earlier| earlier.name == row.name)
        {
            continue;
        }
        let style = ShapeStyle::from(Palette99::pick(index).to_rgba()).stroke_width(2);
        let points = (0..=STEPS).map(|step| {
            let one_in = RAREST.powf(f64::from(step) / f64::from(STEPS));
            (one_in, histogram.value_at_quantile(1.0 - 1.0 / one_in) as f64)
        });
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(format!("{}, {} B", row.name, row.payload_bytes))
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    area.present()?;
    Ok(())
}
