//! Percentile strips of several targets on one logarithmic axis: a line from the median to the
//! maximum, with a tick at each percentile.

use maud::{Markup, html};

use super::axis::{Axis, name_width, short_name};
use crate::figure::{Estimated, Format};

const WIDTH: f64 = 760.0;
const RIGHT: f64 = 740.0;
const TOP: f64 = 24.0;
const DISTANCE: f64 = 24.0;

/// Percentiles of a strip, in order.
pub(crate) const PERCENTILES: [&str; 6] = ["p50", "p90", "p99", "p99.9", "p99.99", "max"];

pub(crate) struct Strips {
    pub(crate) title: String,
    pub(crate) hint: &'static str,
    pub(crate) format: Format,
    pub(crate) strips: Vec<Strip>,
}

pub(crate) struct Strip {
    pub(crate) name: String,
    /// In the order of [`PERCENTILES`]. Unknown ones are not drawn.
    pub(crate) percentiles: Vec<Option<Estimated>>,
    pub(crate) series: usize,
}

impl Strips {
    pub(crate) fn show(&self) -> Markup {
        let values = self.strips.iter().flat_map(|strip| strip.percentiles.iter().flatten());
        let left = name_width(self.strips.iter().map(|strip| &*strip.name));
        let axis = Axis::log(values.map(Estimated::value), (left, RIGHT));
        let bottom = TOP + self.strips.len() as f64 * DISTANCE;
        html! {
            figure.chart.wide {
                figcaption { (self.title) span.hint { (self.format.hint(self.hint)) } }
                svg viewBox={ "0 0 " (WIDTH) " " (bottom + 22.0) } role="img"
                    aria-label=(self.title) {
                    (axis.draw_level((TOP - 8.0, bottom), self.format))
                    @for (index, strip) in self.strips.iter().enumerate() {
                        (self.strip(strip, (left, TOP + (index as f64 + 0.5) * DISTANCE), &axis))
                    }
                }
                p.key { "● p50   ┃ p90, p99, p99.9, p99.99 from left to right   ◇ maximum" }
            }
        }
    }

    fn strip(&self, strip: &Strip, (left, y): (f64, f64), axis: &Axis) -> Markup {
        let ends: Vec<f64> = strip.percentiles.iter().flatten().map(Estimated::value).collect();
        let first = ends.first().copied().unwrap_or_default();
        let last = ends.last().copied().unwrap_or_default();
        html! {
            text.barname x=(left - 8.0) y=(y + 4.0) text-anchor="end" {
                (short_name(&strip.name, left))
            }
            g class={ "s" (strip.series % 8) } {
                line.range x1=(axis.place(first)) x2=(axis.place(last)) y1=(y) y2=(y) {}
                @for (index, estimate) in strip.percentiles.iter().enumerate() {
                    @if let Some(estimate) = estimate {
                        @let sentence = estimate.sentence(self.format);
                        @let says = format!("{} {}: {sentence}", strip.name, PERCENTILES[index]);
                        path.mark d=(shape(index, axis.place(estimate.value()), y)) tabindex="0"
                            aria-label=(says)
                            data-v=(estimate.value()) data-p=(estimate.median.pointer) {
                            title { (says) }
                        }
                    }
                }
            }
        }
    }
}

fn shape(index: usize, x: f64, y: f64) -> String {
    match index {
        0 => format!("M{} {y}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z", x - 4.5),
        5 => format!("M{x} {}l5 5l-5 5l-5 -5z", y - 5.0),
        _ => format!("M{} {}h3v12h-3z", x - 1.5, y - 6.0),
    }
}
