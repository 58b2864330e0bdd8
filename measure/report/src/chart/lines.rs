//! Line chart over a doubling parameter, such as jobs or queue depth, with intervals at the points.

use maud::{Markup, html};

use super::axis::{Axis, round};
use crate::figure::{Estimated, Format};

const WIDTH: f64 = 500.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 376.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 228.0;

/// Minimum distance between labels at the lines' ends.
const LABEL_DISTANCE: f64 = 14.0;

pub(crate) struct Lines {
    pub(crate) title: String,
    /// Remark on the scale: `lower is better`.
    pub(crate) hint: &'static str,
    pub(crate) level_name: &'static str,
    pub(crate) format: Format,
    pub(crate) lines: Vec<Line>,
}

pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(u64, Estimated)>,
}

impl Lines {
    pub(crate) fn show(&self) -> Markup {
        let mut steps: Vec<u64> =
            self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
        steps.sort_unstable();
        steps.dedup();
        let max = self.points().map(|(_, estimate)| estimate.ends().1).fold(0.0, f64::max);
        let upright = Axis::linear(max, self.format, (BOTTOM, TOP));
        let level = |step: u64| {
            let index = steps.iter().position(|&it| it == step).unwrap_or(0) as f64;
            round(LEFT + 14.0 + index / (steps.len().max(2) - 1) as f64 * (RIGHT - LEFT - 28.0))
        };
        let labels = self.label_places(&upright);
        html! {
            figure.chart {
                figcaption { (self.title) span.hint { (self.format.hint(self.hint)) } }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(self.title) {
                    (upright.draw_upright((LEFT, RIGHT), self.format))
                    @for &step in &steps {
                        text.tick x=(level(step)) y=(BOTTOM + 16.0) text-anchor="middle" { (step) }
                    }
                    text.name x=(f64::midpoint(LEFT, RIGHT)) y=(BOTTOM + 34.0)
                        text-anchor="middle" { (self.level_name) }
                    @for (index, line) in self.lines.iter().enumerate() {
                        g class={ "s" (index % 8) } {
                            polyline.line points=(path(line, &upright, level)) {}
                            @for (step, estimate) in &line.points {
                                @let place = (level(*step), *step);
                                (self.mark((line, index), place, (estimate, &upright)))
                            }
                            text.label x=(RIGHT + 8.0) y=(labels[index] + 4.0) { (line.name) }
                        }
                    }
                }
            }
        }
    }

    fn points(&self) -> impl Iterator<Item = &(u64, Estimated)> {
        self.lines.iter().flat_map(|line| &line.points)
    }

    fn mark(
        &self,
        (line, index): (&Line, usize),
        (x, step): (f64, u64),
        (estimate, upright): (&Estimated, &Axis),
    ) -> Markup {
        let (low, high) = estimate.ends();
        let y = upright.place(estimate.value());
        let says = format!(
            "{}, {} {step}: {}",
            line.name,
            self.level_name,
            estimate.sentence(self.format)
        );
        html! {
            @if estimate.interval.is_some() {
                line.whisker x1=(x) x2=(x) y1=(upright.place(low)) y2=(upright.place(high)) {}
            }
            path.mark d=(shape(index, x, y)) tabindex="0" aria-label=(says)
                data-v=(estimate.value()) data-p=(estimate.median.pointer) { title { (says) } }
        }
    }

    /// Returns the positions of line labels: at the ends, separated if they would overlap.
    fn label_places(&self, upright: &Axis) -> Vec<f64> {
        let end = |line: &Line| line.points.last().map_or(0.0, |point| point.1.value());
        let mut order: Vec<(f64, usize)> = self
            .lines
            .iter()
            .enumerate()
            .map(|(index, line)| (upright.place(end(line)), index))
            .collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut places = vec![0.0; self.lines.len()];
        let mut free_from = TOP;
        for (index, (place, line)) in order.iter().enumerate() {
            // Leaves space for the labels below.
            let below = (order.len() - 1 - index) as f64 * LABEL_DISTANCE;
            let place = place.max(free_from).min(BOTTOM - below);
            places[*line] = round(place);
            free_from = place + LABEL_DISTANCE;
        }
        places
    }
}

fn path(line: &Line, upright: &Axis, level: impl Fn(u64) -> f64) -> String {
    let points = line
        .points
        .iter()
        .map(|(step, estimate)| format!("{},{}", level(*step), upright.place(estimate.value())));
    points.collect::<Vec<_>>().join(" ")
}

/// Returns a marker shape, so that series are distinguishable without colours.
fn shape(index: usize, x: f64, y: f64) -> String {
    match index % 4 {
        0 => format!("M{} {y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", round(x - 4.0)),
        1 => format!("M{} {}h7v7h-7z", round(x - 3.5), round(y - 3.5)),
        2 => format!("M{x} {}l5 9h-10z", round(y - 5.0)),
        _ => format!("M{x} {}l5 5l-5 5l-5 -5z", round(y - 5.0)),
    }
}
