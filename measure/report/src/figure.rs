//! Numbers on the page: rounded for people, exact and traceable for programs.

use maud::{Markup, html};

/// A number with its location in the page's JSON.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) value: f64,
    /// RFC 6901 pointer into the embedded document.
    pub(crate) pointer: String,
}

/// A median over repeats, with its interval if there are enough of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Estimated {
    /// Number of repeats.
    pub(crate) n: u64,
    pub(crate) median: Figure,
    pub(crate) interval: Option<(Figure, Figure)>,
}

/// Display format of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Nanoseconds, shown as microseconds.
    Micros,
    /// Nanoseconds, shown as milliseconds.
    Millis,
    /// Nanoseconds.
    Nanos,
    /// Bytes per second, shown as MB/s.
    MegabytesPerSecond,
    /// Bytes, shown as MiB.
    Mebibytes,
    /// A count.
    Count,
    /// A multiple.
    Ratio,
    /// A fraction, shown in percent.
    Percent,
    /// Percent.
    Points,
}

impl Format {
    /// Returns the divisor for display.
    pub(crate) fn unit(self) -> f64 {
        match self {
            Self::Micros => 1e3,
            Self::Millis => 1e6,
            Self::MegabytesPerSecond => 1e6,
            Self::Mebibytes => f64::from(1 << 20),
            Self::Percent => 0.01,
            Self::Nanos | Self::Count | Self::Ratio | Self::Points => 1.0,
        }
    }

    /// Returns the unit's name for headings and axes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Micros => "µs",
            Self::Millis => "ms",
            Self::Nanos => "ns",
            Self::MegabytesPerSecond => "MB/s",
            Self::Mebibytes => "MiB",
            Self::Count => "",
            Self::Ratio => "×",
            Self::Percent | Self::Points => "%",
        }
    }

    /// Returns the unit with a remark on the scale: `µs · lower is better`.
    pub(crate) fn hint(self, hint: &str) -> String {
        match self.name() {
            "" => hint.to_owned(),
            name => format!("{name} · {hint}"),
        }
    }

    /// Formats the number without unit, to about three digits.
    pub(crate) fn text(self, value: f64) -> String {
        let shown = value / self.unit();
        match self {
            Self::Ratio if shown.abs() < 0.9995 => format!("{shown:.3}"),
            Self::Ratio => format!("{shown:.2}"),
            Self::Count if shown.fract() == 0.0 => thousands_apart(&format!("{shown:.0}")),
            _ => three_digits(shown),
        }
    }

    /// Formats the number with its unit.
    pub(crate) fn text_with_unit(self, value: f64) -> String {
        self.with_unit(self.text(value))
    }

    /// Formats a chosen number with its unit, without rounding.
    pub(crate) fn chosen_text(self, value: f64) -> String {
        self.with_unit((value / self.unit()).to_string())
    }

    fn with_unit(self, text: String) -> String {
        match self.name() {
            "" => text,
            "×" | "%" => text + self.name(),
            name => format!("{text} {name}"),
        }
    }
}

impl Figure {
    /// Returns the number as traceable text.
    pub(crate) fn show(&self, format: Format) -> Markup {
        html! {
            span.n data-v=(self.value) data-p=(self.pointer) { (format.text(self.value)) }
        }
    }
}

impl Estimated {
    pub(crate) fn value(&self) -> f64 {
        self.median.value
    }

    /// Returns the interval's ends, or the median twice.
    pub(crate) fn ends(&self) -> (f64, f64) {
        let value = self.value();
        self.interval.as_ref().map_or((value, value), |(low, high)| (low.value, high.value))
    }

    /// Returns the interval as traceable text.
    pub(crate) fn show_interval(&self, format: Format) -> Markup {
        html! {
            @match &self.interval {
                Some((low, high)) => span.interval {
                    (low.show(format)) "\u{2009}–\u{2009}" (high.show(format))
                },
                None => span.interval title="too few repeats for an interval" { "one figure" },
            }
        }
    }

    /// Returns the tooltip of a mark.
    pub(crate) fn sentence(&self, format: Format) -> String {
        let median = format.text_with_unit(self.value());
        let (low, high) = self.ends();
        match self.interval {
            Some(_) => format!("{median} (95 %: {} to {})", format.text(low), format.text(high)),
            None => median,
        }
    }
}

/// Formats three digits, or all digits before the point, with thousands separators.
fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        0.0..0.0995 => 4,
        0.0..9.995 => 2,
        0.0..99.95 => 1,
        _ => 0,
    };
    thousands_apart(&format!("{value:.decimals$}"))
}

fn thousands_apart(text: &str) -> String {
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut grouped = String::from(sign);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(format: Format, value: f64, expected: &str) {
        assert_eq!(format.text_with_unit(value), expected);
    }

    #[test]
    fn chosen_numbers_gain_no_digits() {
        assert_eq!(Format::Ratio.chosen_text(0.5), "0.5×");
        assert_eq!(Format::Points.chosen_text(0.5), "0.5%");
    }

    #[test]
    fn numbers_keep_three_digits_and_their_unit() {
        check(Format::Micros, 1_874.0, "1.87 µs");
        check(Format::Micros, 21_130.0, "21.1 µs");
        check(Format::Nanos, 475.2, "475 ns");
        check(Format::MegabytesPerSecond, 41_446_000_000.0, "41,446 MB/s");
        check(Format::Count, 10_121_000.0, "10,121,000");
        check(Format::Ratio, 1.2749, "1.27×");
        check(Format::Ratio, 0.19837, "0.198×");
        check(Format::Percent, 0.051, "5.10%");
        check(Format::Count, 64.0, "64");
        check(Format::Points, 0.42, "0.42%");
        check(Format::Count, 0.0, "0");
        check(Format::Count, -1234.0, "-1,234");
    }
}
