//! Lines over logarithmic axes, as SVG: one version for light pages, one for dark ones, each with a title and
//! a description for screen readers.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::format;

/// Width and height in pixels.
const SIZE: (u32, u32) = (760, 440);
const FONT: &str = "sans-serif";

/// A chart.
pub(super) struct Chart {
    /// File name without extension.
    pub(super) file: &'static str,
    pub(super) title: &'static str,
    pub(super) along: Axis,
    pub(super) across: Axis,
    pub(super) lines: Vec<Line>,
}

pub(super) struct Axis {
    pub(super) label: &'static str,
    /// Formats a value.
    pub(super) text: Box<dyn Fn(f64) -> String>,
}

pub(super) struct Line {
    pub(super) name: String,
    pub(super) owner: Owner,
    /// Points from left to right.
    pub(super) points: Vec<(f64, f64)>,
}

impl Line {
    pub(super) fn new(name: impl Into<String>, owner: Owner, mut points: Vec<(f64, f64)>) -> Self {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        // Several rows, with different peers, contain the same value of ours.
        points.dedup_by_key(|(at, _)| *at);
        let name = name.into();
        Self { name, owner, points }
    }
}

/// The owner of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Ours,
    /// The peer's index.
    Peer(usize),
    Floor,
}

/// The colours of a page.
pub(super) struct Theme {
    /// Suffix of the file name.
    suffix: &'static str,
    ground: RGBColor,
    ink: RGBColor,
    grid: RGBColor,
    ours: RGBColor,
    peers: [RGBColor; 3],
    floor: RGBColor,
}

/// For light pages.
pub(super) const LIGHT: Theme = Theme {
    suffix: "",
    ground: RGBColor(255, 255, 255),
    ink: RGBColor(31, 35, 40),
    grid: RGBColor(222, 226, 230),
    ours: RGBColor(0, 92, 197),
    peers: [
        RGBColor(200, 80, 0),
        RGBColor(20, 120, 80),
        RGBColor(130, 60, 170),
    ],
    floor: RGBColor(125, 132, 140),
};

/// For dark pages.
pub(super) const DARK: Theme = Theme {
    suffix: "-dark",
    ground: RGBColor(13, 17, 23),
    ink: RGBColor(230, 237, 243),
    grid: RGBColor(48, 54, 61),
    ours: RGBColor(88, 166, 255),
    peers: [
        RGBColor(255, 155, 80),
        RGBColor(86, 211, 140),
        RGBColor(200, 150, 255),
    ],
    floor: RGBColor(139, 148, 158),
};

impl Chart {
    /// `latency-shm.svg`
    pub(super) fn file(&self, theme: &Theme) -> String {
        format!("{}{}.svg", self.file, theme.suffix)
    }

    /// A description for screen readers: the first and last point of each line.
    pub(super) fn description(&self) -> String {
        let lines = self.lines.iter().filter_map(|line| {
            let text = |&(at, value): &(f64, f64)| {
                format!("{} at {}", (self.across.text)(value), (self.along.text)(at))
            };
            let (first, last) = (line.points.first()?, line.points.last()?);
            Some(format!("{}: {} to {}", line.name, text(first), text(last)))
        });
        lines.collect::<Vec<_>>().join("; ")
    }

    /// The SVG.
    pub(super) fn draw(&self, theme: &Theme) -> Result<String> {
        let mut svg = String::new();
        self.draw_into(&mut svg, theme)
            .map_err(|error| anyhow!("drawing {}: {error}", self.file))?;
        let (open, rest) = svg
            .split_once(">\n")
            .ok_or_else(|| anyhow!("{} has no first element", self.file))?;
        let (title, description) = (escaped(self.title), escaped(&self.description()));
        Ok(format!(
            "{open} role=\"img\" aria-labelledby=\"title description\">\n\
             <title id=\"title\">{title}</title>\n<desc id=\"description\">{description}</desc>\n{rest}"
        ))
    }

    fn draw_into(&self, svg: &mut String, theme: &Theme) -> Result<(), Box<dyn std::error::Error>> {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&theme.ground)?;
        let text = |size: i32| (FONT, size).into_font().color(&theme.ink);
        let mut ats: Vec<f64> = self.points().map(|(at, _)| at).collect();
        ats.sort_by(f64::total_cmp);
        ats.dedup();
        let (left, right) = bounds(self.points().map(|(at, _)| at));
        let (low, high) = bounds(self.points().map(|(_, value)| value));
        // Margins for marks at the edges, and for the names of the lines at the top.
        let (left, right, low, high) = (left / 1.15, right * 1.15, low / 1.3, high * 1.6);
        let mut context = ChartBuilder::on(&area)
            .margin(14)
            .caption(self.title, text(19))
            .x_label_area_size(46)
            .y_label_area_size(84)
            .build_cartesian_2d(
                (left..right).log_scale().with_key_points(ticks(&ats)),
                (low..high).log_scale().with_key_points(steps(low, high)),
            )?;
        context
            .configure_mesh()
            .bold_line_style(theme.grid)
            .light_line_style(TRANSPARENT)
            .axis_style(theme.grid)
            .label_style(text(13))
            .axis_desc_style(text(14))
            .x_desc(self.along.label)
            .y_desc(self.across.label)
            .x_label_formatter(&|at| (self.along.text)(*at))
            .y_label_formatter(&|value| format::without_zeros(&(self.across.text)(*value)))
            .draw()?;
        for line in &self.lines {
            let (colour, width) = theme.of(line.owner);
            let style = colour.stroke_width(width);
            let points = || line.points.iter().copied();
            let drawn = match line.owner {
                Owner::Floor => context.draw_series(DashedLineSeries::new(points(), 5, 4, style))?,
                Owner::Ours | Owner::Peer(_) => context.draw_series(LineSeries::new(points(), style))?,
            };
            drawn
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
            // Lines also differ by their marks.
            match line.owner {
                Owner::Ours => {
                    context.draw_series(points().map(|at| Circle::new(at, 4, colour.filled())))?;
                }
                Owner::Peer(nth) if nth % 2 == 0 => {
                    context.draw_series(points().map(|at| TriangleMarker::new(at, 5, colour.filled())))?;
                }
                Owner::Peer(_) => {
                    context.draw_series(points().map(|at| Cross::new(at, 4, style)))?;
                }
                Owner::Floor => {}
            }
        }
        context
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(theme.ground.mix(0.85))
            .border_style(theme.grid)
            .label_font(text(14))
            .margin(8)
            .draw()?;
        area.present()?;
        Ok(())
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.lines.iter().flat_map(|line| line.points.iter().copied())
    }
}

impl Theme {
    fn of(&self, owner: Owner) -> (RGBColor, u32) {
        match owner {
            Owner::Ours => (self.ours, 3),
            Owner::Peer(nth) => (self.peers[nth % self.peers.len()], 2),
            Owner::Floor => (self.floor, 1),
        }
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(low, high), value| {
        (value.min(low), value.max(high))
    })
}

/// Positions of labels: measured values, spaced so that labels do not overlap.
fn ticks(ats: &[f64]) -> Vec<f64> {
    const MAX_LABELS: usize = 11;
    let each = ats.len().div_ceil(MAX_LABELS).max(1);
    ats.iter().copied().step_by(each).collect()
}

/// Powers of ten; with 2 and 5 between them if there are few.
fn steps(low: f64, high: f64) -> Vec<f64> {
    let factors: &[f64] = match (high / low).log10() {
        decades if decades < 2.5 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    (low.log10().floor() as i32..=high.log10().ceil() as i32)
        .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
        .filter(|value| (low..=high).contains(value))
        .collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
