//! Formatting of request latencies of a volume.

use api::{Latency, VolumeLatencies};

use crate::table::{Cell, Table};

/// An operation and its latency.
type Kind<'a> = (&'a str, &'a Latency);

/// Formats one line for each operation.
pub(super) fn text(latencies: &VolumeLatencies) -> String {
    let kinds = [
        ("reads", &latencies.reads),
        ("writes", &latencies.writes),
        ("flushes", &latencies.flushes),
    ];
    let time = |us: Option<f64>| Cell::figure(us.map_or_else(|| "-".to_owned(), time_text), us);
    let table = Table::of(
        &kinds,
        &[
            ("LATENCY", &|it: &Kind<'_>| Cell::text(it.0)),
            ("P50", &|it| time(it.1.p50_us)),
            ("P99", &|it| time(it.1.p99_us)),
            ("MAX", &|it| time(it.1.max_us)),
            ("TIMED", &|it| Cell::number(it.1.timed)),
        ],
    );
    table.to_text()
}

/// Formats a time with three digits, in the largest suitable unit.
fn time_text(us: f64) -> String {
    let (value, unit) = match us {
        us if us >= 1e6 => (us / 1e6, "s"),
        us if us >= 1e3 => (us / 1e3, "ms"),
        us => (us, "us"),
    };
    let decimals = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_in_the_largest_unit_that_fits() {
        let texts = [0.25, 3.614, 14.36, 250.4, 1_000.0, 12_345.6, 2_500_000.0].map(time_text);
        assert_eq!(
            texts,
            ["0.25 us", "3.61 us", "14.4 us", "250 us", "1.00 ms", "12.3 ms", "2.50 s"]
        );
    }
}
