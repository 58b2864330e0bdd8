//! Axes: mapping of values to positions, and ticks.

use maud::{Markup, html};

use crate::figure::Format;

/// Approximate width of a letter in the widest of the page's typefaces.
const LETTER: f64 = 7.0;
/// Distance between a name and its mark.
const NAME_DISTANCE: f64 = 16.0;
const NAME_WIDTH_MIN: f64 = 110.0;
const NAME_WIDTH_MAX: f64 = 330.0;

/// A value range mapped to pixels. `from` may be greater than `to`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    /// Tick distance of a linear axis.
    step: f64,
    from: f64,
    to: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Linear,
    Log,
}

impl Axis {
    /// Creates an axis from zero to a round number above `max`, in the format's unit.
    pub(crate) fn linear(max: f64, format: Format, (from, to): (f64, f64)) -> Self {
        let max = if max > 0.0 { max } else { 1.0 };
        let step = step(max / format.unit()) * format.unit();
        let high = (max / step).ceil() * step;
        Self { scale: Scale::Linear, low: 0.0, high, step, from, to }
    }

    /// Creates a logarithmic axis of whole decades around the positive values.
    pub(crate) fn log(values: impl Iterator<Item = f64>, (from, to): (f64, f64)) -> Self {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| *value > 0.0) {
            (low, high) = (low.min(value), high.max(value));
        }
        if !low.is_finite() {
            (low, high) = (1.0, 10.0);
        }
        let low = 10_f64.powf(low.log10().floor());
        let high = 10_f64.powf(high.log10().ceil()).max(low * 10.0);
        Self { scale: Scale::Log, low, high, step: 0.0, from, to }
    }

    pub(crate) fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(self.low) / self.low).log10() / (self.high / self.low).log10(),
        };
        round(self.from + share.clamp(0.0, 1.0) * (self.to - self.from))
    }

    pub(crate) fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let mut ticks = Vec::new();
                let mut value = 0.0;
                while value <= self.high * 1.0001 {
                    ticks.push(value);
                    value += self.step;
                }
                ticks
            }
            Scale::Log => {
                let mut ticks = Vec::new();
                let mut value = self.low;
                while value <= self.high * 1.0001 {
                    ticks.push(value);
                    value *= 10.0;
                }
                ticks
            }
        }
    }

    /// Draws horizontal grid lines at the ticks of a vertical axis, with labels left of `left`.
    pub(crate) fn draw_upright(&self, (left, right): (f64, f64), format: Format) -> Markup {
        html! {
            @for tick in self.ticks() {
                line.grid x1=(left) x2=(right) y1=(self.place(tick)) y2=(self.place(tick)) {}
                text.tick x=(left - 6.0) y=(self.place(tick) + 3.5) text-anchor="end" {
                    (tick_text(tick, format))
                }
            }
        }
    }

    /// Draws vertical grid lines at the ticks of a horizontal axis, with labels below `bottom`.
    pub(crate) fn draw_level(&self, (top, bottom): (f64, f64), format: Format) -> Markup {
        html! {
            @for tick in self.ticks() {
                line.grid x1=(self.place(tick)) x2=(self.place(tick)) y1=(top) y2=(bottom) {}
                text.tick x=(self.place(tick)) y=(bottom + 14.0) text-anchor="middle" {
                    (tick_text(tick, format))
                }
            }
        }
    }
}

/// Formats a tick label, with no more digits than the step needs.
pub(crate) fn tick_text(value: f64, format: Format) -> String {
    let shown = value / format.unit();
    let (shown, suffix) = match shown.abs() {
        1e6.. => (shown / 1e6, "M"),
        1e4.. => (shown / 1e3, "k"),
        _ => (shown, ""),
    };
    let text = format!("{shown:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{suffix}")
}

/// Returns the width for names beside a chart: that of the longest, within limits.
pub(crate) fn name_width<'name>(names: impl Iterator<Item = &'name str>) -> f64 {
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    (longest as f64 * LETTER + NAME_DISTANCE).clamp(NAME_WIDTH_MIN, NAME_WIDTH_MAX)
}

/// Truncates a name to fit. The mark's tooltip has the full name.
pub(crate) fn short_name(name: &str, width: f64) -> String {
    let fits = |count: usize| count as f64 * LETTER + NAME_DISTANCE <= width;
    if fits(name.chars().count()) {
        return name.to_owned();
    }
    let cut: String =
        name.chars().enumerate().take_while(|(index, _)| fits(index + 2)).map(|it| it.1).collect();
    cut.trim_end().to_owned() + "…"
}

/// Rounds a position to a tenth of a pixel.
pub(crate) fn round(place: f64) -> f64 {
    (place * 10.0).round() / 10.0
}

/// Returns a round step that results in four to eight ticks.
fn step(max: f64) -> f64 {
    let rough = max / 5.0;
    let decade = 10_f64.powf(rough.log10().floor());
    let factor = match rough / decade {
        0.0..1.5 => 1.0,
        0.0..3.5 => 2.0,
        0.0..7.5 => 5.0,
        _ => 10.0,
    };
    factor * decade
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_axes_begin_at_zero_and_end_at_a_round_number() {
        let axis = Axis::linear(41_446.0, Format::Count, (0.0, 100.0));
        assert_eq!(axis.ticks(), [0.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0, 50_000.0]);
        assert_eq!(axis.place(25_000.0), 50.0);
    }

    #[test]
    fn ticks_are_round_in_the_unit_that_is_shown() {
        let mib = f64::from(1 << 20);
        let axis = Axis::linear(779.0 * mib, Format::Mebibytes, (0.0, 1.0));
        assert_eq!(axis.ticks()[1] / mib, 200.0);
    }

    #[test]
    fn long_names_are_cut_and_short_ones_are_not() {
        assert_eq!(name_width(["zram"].into_iter()), 110.0);
        assert_eq!(short_name("zram lz4", 200.0), "zram lz4");
        let cut = short_name(&"volume ".repeat(20), 200.0);
        assert!(cut.ends_with('…') && cut.chars().count() < 40, "{cut}");
    }

    #[test]
    fn log_axes_are_whole_decades() {
        let axis = Axis::log([56.0, 5_000.0].into_iter(), (0.0, 300.0));
        assert_eq!(axis.ticks(), [10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(axis.place(100.0), 100.0);
        assert_eq!(axis.place(0.0), 0.0);
    }

    #[test]
    fn axes_of_nothing_stay_finite() {
        assert!(Axis::linear(0.0, Format::Count, (0.0, 1.0)).place(0.0).is_finite());
        assert!(Axis::log(std::iter::empty(), (0.0, 1.0)).place(5.0).is_finite());
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(tick_text(2_500_000.0, Format::Count), "2.5M");
        assert_eq!(tick_text(20_000.0, Format::Count), "20k");
        assert_eq!(tick_text(500.0, Format::Micros), "0.5");
    }
}
