//! Processor activity per second, in one lane per measurement, with a rate as a line.

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

/// Number of stacked kinds of time. The rest is idle.
pub(crate) const PARTS: usize = 4;

pub(crate) struct Seconds {
    pub(crate) title: String,
    pub(crate) part_names: [&'static str; PARTS],
    pub(crate) lanes: Vec<SecondsLane>,
}

pub(crate) struct SecondsLane {
    pub(crate) name: String,
    /// Second line of the lane's label, such as the target.
    pub(crate) detail: String,
    pub(crate) seconds: Vec<Second>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Second {
    pub(crate) shares: [f64; PARTS],
    pub(crate) rate: Option<f64>,
}

impl Seconds {
    pub(crate) fn show(&self) -> Markup {
        let names = self.lanes.iter().flat_map(|lane| [&*lane.name, &*lane.detail]);
        let left = name_width(names) + LABELS;
        let height = TOP + self.lanes.len() as f64 * DISTANCE + 10.0;
        let rates = self.lanes.iter().flat_map(|lane| &lane.seconds);
        let rate_max = rates.filter_map(|second| second.rate).fold(0.0, f64::max);
        html! {
            figure.chart.wide {
                figcaption { (self.title) span.hint { "% of all cores" } }
                svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label=(self.title) {
                    @for (index, lane) in self.lanes.iter().enumerate() {
                        (lane.show(TOP + index as f64 * DISTANCE, left, rate_max))
                    }
                }
                p.key {
                    @for (index, name) in self.part_names.iter().enumerate() {
                        span class={ "s" (index) } { span.swatch {} } (name) "  "
                    }
                    "Line: the rate, from zero to the best second of all lanes."
                }
            }
        }
    }
}

impl SecondsLane {
    fn show(&self, top: f64, left: f64, rate_max: f64) -> Markup {
        let upright = Axis::linear(1.0, Format::Percent, (top + LANE, top));
        let rates = Axis::linear(rate_max, Format::Count, (top + LANE, top));
        html! {
            (upright.draw_upright((left, RIGHT), Format::Percent))
            text.barname x=(left - LABELS - 4.0) y=(top + LANE / 2.0) text-anchor="end" {
                (short_name(&self.name, left - LABELS))
            }
            text.tick x=(left - LABELS - 4.0) y=(top + LANE / 2.0 + 14.0) text-anchor="end" {
                (short_name(&self.detail, left - LABELS))
            }
            @for part in 0..PARTS {
                g class={ "s" (part) } { path.area d=(self.area(part, left, &upright)) {} }
            }
            path.rate d=(self.rate_line(left, &rates)) {}
        }
    }

    fn place(&self, left: f64, second: usize) -> f64 {
        let share = second as f64 / self.seconds.len().max(1) as f64;
        round(left + share * (RIGHT - left))
    }

    /// Returns the area of a part, with one block per second on top of the previous parts.
    fn area(&self, part: usize, left: f64, upright: &Axis) -> String {
        let mut path = String::new();
        for (index, second) in self.seconds.iter().enumerate() {
            let below: f64 = second.shares[..part].iter().sum();
            let above = below + second.shares[part];
            let (from, to) = (self.place(left, index), self.place(left, index + 1));
            let (low, high) = (upright.place(below), upright.place(above));
            if high < low {
                // Writing to a string cannot fail.
                let _ = write!(path, "M{from} {low}H{to}V{high}H{from}z");
            }
        }
        path
    }

    fn rate_line(&self, left: f64, rates: &Axis) -> String {
        let mut path = String::new();
        for (index, second) in self.seconds.iter().enumerate() {
            let Some(rate) = second.rate else { continue };
            let command = if path.is_empty() { 'M' } else { 'L' };
            let middle = f64::midpoint(self.place(left, index), self.place(left, index + 1));
            // Writing to a string cannot fail.
            let _ = write!(path, "{command}{} {}", round(middle), rates.place(rate));
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stand_upon_each_other_and_the_rate_is_a_line() {
        let second = |rate| Second { shares: [0.5, 0.25, 0.0, 0.0], rate: Some(rate) };
        let lane = SecondsLane {
            name: "logs only".to_owned(),
            detail: "zram".to_owned(),
            seconds: vec![second(60.0), second(120.0)],
        };
        let upright = Axis::linear(1.0, Format::Percent, (100.0, 0.0));
        assert!(lane.area(0, 140.0, &upright).starts_with("M140 100H440V50H140z"));
        assert!(lane.area(1, 140.0, &upright).starts_with("M140 50H440V25H140z"));
        assert_eq!(lane.area(2, 140.0, &upright), "");
        let rates = Axis::linear(120.0, Format::Count, (100.0, 0.0));
        assert_eq!(lane.rate_line(140.0, &rates).matches('L').count(), 1);
    }
}
