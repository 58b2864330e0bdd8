//! Latency over time, in one lane per measurement on a common logarithmic axis.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::axis::{Axis, name_width, round, short_name};
use crate::figure::Format;

const WIDTH: f64 = 760.0;
/// Width of the labels of a vertical axis.
const LABELS: f64 = 40.0;
const RIGHT: f64 = 740.0;
const LANE: f64 = 64.0;
const DISTANCE: f64 = 84.0;
const TOP: f64 = 8.0;

pub(crate) struct Timeline {
    pub(crate) title: String,
    pub(crate) hint: &'static str,
    pub(crate) format: Format,
    pub(crate) lanes: Vec<Lane>,
}

/// Time slices of one measurement, in order.
pub(crate) struct Lane {
    pub(crate) name: String,
    /// Second line of the lane's label.
    pub(crate) detail: String,
    pub(crate) series: usize,
    /// Median and maximum of each slice in which a request ended.
    pub(crate) slices: Vec<Option<(f64, f64)>>,
}

impl Timeline {
    pub(crate) fn show(&self) -> Markup {
        let values = || {
            let slices = self.lanes.iter().flat_map(|lane| lane.slices.iter().flatten());
            slices.flat_map(|&(median, max)| [median, max])
        };
        let names = self.lanes.iter().flat_map(|lane| [&*lane.name, &*lane.detail]);
        let left = name_width(names) + LABELS;
        let height = TOP + self.lanes.len() as f64 * DISTANCE + 10.0;
        html! {
            figure.chart.wide {
                figcaption { (self.title) span.hint { (self.format.hint(self.hint)) } }
                svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label=(self.title) {
                    @for (index, lane) in self.lanes.iter().enumerate() {
                        (self.lane(lane, (index, left), values()))
                    }
                }
                p.key { "Band: from the median to the maximum of each slice of the run. "
                    "Every lane has the same scale." }
            }
        }
    }

    fn lane(
        &self,
        lane: &Lane,
        (index, left): (usize, f64),
        values: impl Iterator<Item = f64>,
    ) -> Markup {
        let top = TOP + index as f64 * DISTANCE;
        let upright = Axis::log(values, (top + LANE, top));
        html! {
            (upright.draw_upright((left, RIGHT), self.format))
            text.barname x=(left - LABELS - 4.0) y=(top + LANE / 2.0) text-anchor="end" {
                (short_name(&lane.name, left - LABELS))
            }
            text.tick x=(left - LABELS - 4.0) y=(top + LANE / 2.0 + 14.0) text-anchor="end" {
                (short_name(&lane.detail, left - LABELS))
            }
            g class={ "s" (lane.series % 8) } {
                path.band d=(band(lane, left, &upright)) {}
                path.line d=(medians(lane, left, &upright)) {}
            }
        }
    }
}

fn place(lane: &Lane, left: f64, slice: usize) -> f64 {
    let share = slice as f64 / lane.slices.len().max(1) as f64;
    round(left + share * (RIGHT - left))
}

/// Returns a path with one bar per slice.
fn band(lane: &Lane, left: f64, upright: &Axis) -> String {
    let mut path = String::new();
    for (index, slice) in lane.slices.iter().enumerate() {
        if let Some((median, max)) = slice {
            let (from, to) = (place(lane, left, index), place(lane, left, index + 1));
            let (low, high) = (upright.place(*median), upright.place(*max));
            // Writing to a string cannot fail.
            let _ = write!(path, "M{from} {low}H{to}V{high}H{from}z");
        }
    }
    path
}

fn medians(lane: &Lane, left: f64, upright: &Axis) -> String {
    let mut path = String::new();
    let mut is_broken = true;
    for (index, slice) in lane.slices.iter().enumerate() {
        let Some((median, _)) = slice else {
            is_broken = true;
            continue;
        };
        let command = if is_broken { 'M' } else { 'L' };
        // Writing to a string cannot fail.
        let _ = write!(path, "{command}{} {}", place(lane, left, index), upright.place(*median));
        is_broken = false;
    }
    path
}
