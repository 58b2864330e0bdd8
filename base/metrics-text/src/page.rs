//! A page of metrics: families with HELP and TYPE, and samples. The caller is responsible for using
//! base units.

use std::fmt::{Display, Write};

/// Content type of a page of metrics.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Type of a metric family.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A value that can increase and decrease.
    Gauge,
    /// A value that only increases, until the program restarts.
    Counter,
    /// Numbers of observations in buckets, with the sum of all values.
    Histogram,
}

/// A page of metrics. Each sample belongs to the family that was started last.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    /// Name of the current family.
    name: String,
}

/// Values of a histogram.
#[derive(Clone, Copy, Debug)]
pub struct Histogram<'a> {
    /// Upper bounds of the buckets in the family's unit, ascending.
    pub bounds: &'a [f64],
    /// Number of observations in each bucket, and above the last bound.
    pub counts: &'a [u64],
    /// Sum of all values, in the family's unit.
    pub sum: f64,
}

const CANNOT_FAIL: &str = "text can always grow";

impl Page {
    /// Returns the whole page.
    pub fn into_text(self) -> String {
        self.text
    }

    /// Writes a family of one gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, Kind::Gauge, help);
        self.sample(&[], value);
    }

    /// Writes a family of one counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, Kind::Counter, help);
        self.sample(&[], value);
    }

    /// Starts a family.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
        };
        name.clone_into(&mut self.name);
        writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect(CANNOT_FAIL);
    }

    /// Writes a histogram, with cumulative buckets and the sum. The given counts are not
    /// cumulative; the last one is for values above all bounds.
    pub fn histogram(&mut self, labels: &[(&str, &str)], histogram: &Histogram<'_>) {
        let name = self.name.clone();
        let mut cumulated = 0;
        self.name = format!("{name}_bucket");
        for (index, count) in histogram.counts.iter().enumerate() {
            cumulated += count;
            let bound =
                histogram.bounds.get(index).map_or_else(|| "+Inf".to_owned(), f64::to_string);
            let all = [labels, &[("le", bound.as_str())]].concat();
            self.sample(&all, cumulated);
        }
        self.name = format!("{name}_sum");
        self.sample(labels, histogram.sum);
        self.name = format!("{name}_count");
        self.sample(labels, cumulated);
        self.name = name;
    }

    /// Writes a sample, with the labels that distinguish it within the family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(&self.name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            write!(self.text, "{before}{label}=\"{}\"", escaped(text)).expect(CANNOT_FAIL);
        }
        let after = if labels.is_empty() { "" } else { "}" };
        writeln!(self.text, "{after} {value}").expect(CANNOT_FAIL);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_help_type_and_samples() {
        let mut page = Page::default();
        page.family("memlane_x_bytes", Kind::Gauge, "What it is.");
        page.sample(&[("volume", "a\"b"), ("kind", "k")], 7);
        page.counter("memlane_y_total", "How many.", 8);
        assert_eq!(
            page.into_text(),
            "# HELP memlane_x_bytes What it is.\n\
             # TYPE memlane_x_bytes gauge\n\
             memlane_x_bytes{volume=\"a\\\"b\",kind=\"k\"} 7\n\
             # HELP memlane_y_total How many.\n\
             # TYPE memlane_y_total counter\n\
             memlane_y_total 8\n"
        );
    }

    #[test]
    fn the_buckets_of_a_histogram_are_cumulated() {
        let mut page = Page::default();
        page.family("memlane_z_seconds", Kind::Histogram, "How long.");
        let (bounds, counts) = ([0.001, 0.5], [2, 0, 3]);
        page.histogram(
            &[("request", "fetch")],
            &Histogram { bounds: &bounds, counts: &counts, sum: 4.5 },
        );
        assert_eq!(
            page.into_text(),
            "# HELP memlane_z_seconds How long.\n\
             # TYPE memlane_z_seconds histogram\n\
             memlane_z_seconds_bucket{request=\"fetch\",le=\"0.001\"} 2\n\
             memlane_z_seconds_bucket{request=\"fetch\",le=\"0.5\"} 2\n\
             memlane_z_seconds_bucket{request=\"fetch\",le=\"+Inf\"} 5\n\
             memlane_z_seconds_sum{request=\"fetch\"} 4.5\n\
             memlane_z_seconds_count{request=\"fetch\"} 5\n"
        );
    }
}
