//! Latencies of requests since the last look, from the daemon's histograms.

use std::collections::HashMap;

pub(super) const BUCKETS: &str = "memlane_request_seconds_bucket{";

/// Requests of a kind, and the names of its series.
const KINDS: &[(&str, [&str; 2])] = &[
    ("read", ["read_latency_p50_us", "read_latency_p99_us"]),
    ("write", ["write_latency_p50_us", "write_latency_p99_us"]),
    ("flush", ["flush_latency_p50_us", "flush_latency_p99_us"]),
];

const SHARES: [f64; 2] = [0.5, 0.99];

/// Bounds in seconds, rising, each with how many requests took no longer.
type Buckets = Vec<(f64, f64)>;

/// Counts of the histograms at the last look.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    before: HashMap<&'static str, Buckets>,
}

impl Latencies {
    /// Microseconds of kinds that had requests since the last look, all classes of durability
    /// together.
    pub(super) fn figures(&mut self, samples: &HashMap<&str, f64>) -> Vec<(String, f64)> {
        let figures = self.passed(None, samples);
        figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect()
    }

    /// The same of one class.
    pub(super) fn of_class(
        &mut self,
        class: &str,
        samples: &HashMap<&str, f64>,
    ) -> Vec<(&'static str, f64)> {
        self.passed(Some(class), samples)
    }

    fn passed(
        &mut self,
        class: Option<&str>,
        samples: &HashMap<&str, f64>,
    ) -> Vec<(&'static str, f64)> {
        let mut figures = Vec::new();
        for (kind, series) in KINDS {
            let now = buckets_of(kind, class, samples);
            let before = self.before.insert(kind, now.clone());
            let Some(passed) = before.and_then(|before| difference(&now, &before)) else {
                continue;
            };
            for (share, name) in SHARES.iter().zip(series) {
                let seconds = quantile(&passed, *share);
                figures.extend(seconds.map(|it| (*name, it * 1e6)));
            }
        }
        figures
    }
}

fn buckets_of(kind: &str, class: Option<&str>, samples: &HashMap<&str, f64>) -> Buckets {
    let mut buckets = Buckets::new();
    for (name, count) in samples {
        let Some(labels) = name.strip_prefix(BUCKETS) else { continue };
        let bound = label(labels, "le").and_then(|it| match it {
            "+Inf" => Some(f64::INFINITY),
            number => number.parse().ok(),
        });
        let is_it = label(labels, "kind") == Some(kind)
            && class.is_none_or(|class| label(labels, "durability") == Some(class));
        let Some(bound) = bound.filter(|_| is_it) else { continue };
        match buckets.iter_mut().find(|it| it.0 == bound) {
            Some((_, sum)) => *sum += count,
            None => buckets.push((bound, *count)),
        }
    }
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    buckets
}

/// The daemon's values of these labels have neither commas nor quotes.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let pairs = labels.trim_end_matches('}').split(',').filter_map(|it| it.split_once('='));
    let mut values = pairs.filter(|(it, _)| *it == name).map(|(_, value)| value);
    values.next().map(|it| it.trim_matches('"'))
}

/// `None`: the daemon counts anew.
fn difference(now: &Buckets, before: &Buckets) -> Option<Buckets> {
    let is_same = now.len() == before.len()
        && now.iter().zip(before).all(|(now, before)| now.0 == before.0 && now.1 >= before.1);
    is_same.then(|| now.iter().zip(before).map(|(now, it)| (now.0, now.1 - it.1)).collect())
}

/// Within a bucket requests are taken to lie evenly; beyond the last bound, at it.
fn quantile(buckets: &Buckets, share: f64) -> Option<f64> {
    let total = buckets.last().map(|it| it.1).filter(|total| *total > 0.0)?;
    let wanted = share * total;
    let (mut bound_below, mut count_below) = (0.0, 0.0);
    for (bound, count) in buckets {
        if *count >= wanted {
            let inside = (wanted - count_below) / (count - count_below);
            let is_last = bound.is_infinite();
            return Some(if is_last {
                bound_below
            } else {
                bound_below + (bound - bound_below) * inside
            });
        }
        (bound_below, count_below) = (*bound, *count);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(text: &str) -> HashMap<&str, f64> {
        let pairs = text.lines().filter_map(|line| line.rsplit_once(' '));
        pairs.map(|(name, figure)| (name, figure.parse().expect("a number"))).collect()
    }

    fn page(counts: [u32; 3], class: &str) -> String {
        let line = |(bound, count): (&str, u32)| {
            format!("{BUCKETS}durability=\"{class}\",kind=\"read\",le=\"{bound}\"}} {count}\n")
        };
        ["0.000001", "0.000003", "+Inf"].into_iter().zip(counts).map(line).collect()
    }

    #[test]
    fn percentiles_are_of_what_came_since_the_last_look() {
        let mut latencies = Latencies::default();
        let both = |ram, journal| page(ram, "ram") + &page(journal, "journal");
        assert!(latencies.figures(&samples(&both([5, 5, 5], [0, 0, 0]))).is_empty());
        assert!(latencies.figures(&samples(&both([5, 5, 5], [0, 0, 0]))).is_empty(), "no request");
        // 10 requests below 1 µs, 30 between 1 and 3.
        let figures = latencies.figures(&samples(&both([10, 20, 20], [5, 25, 25])));
        let (names, micros): (Vec<_>, Vec<_>) = figures.into_iter().unzip();
        assert_eq!(names, ["read_latency_p50_us", "read_latency_p99_us"]);
        let expected = [1.0 + 2.0 * 10.0 / 30.0, 1.0 + 2.0 * 29.6 / 30.0];
        assert!((micros[0] - expected[0]).abs() < 1e-6, "{micros:?}");
        assert!((micros[1] - expected[1]).abs() < 1e-6, "{micros:?}");
    }

    #[test]
    fn a_class_has_percentiles_of_its_own() {
        let both = |ram, journal| page(ram, "ram") + &page(journal, "journal");
        let (before, now) = (both([0, 0, 0], [0, 0, 0]), both([8, 8, 8], [0, 9, 9]));
        let p99_of = |class| {
            let mut latencies = Latencies::default();
            latencies.of_class(class, &samples(&before));
            latencies.of_class(class, &samples(&now)).get(1).map(|it| it.1)
        };
        assert!(p99_of("ram").is_some_and(|it| it <= 1.0), "{:?}", p99_of("ram"));
        assert!(p99_of("journal").is_some_and(|it| it > 2.0), "{:?}", p99_of("journal"));
        assert_eq!(p99_of("image"), None);
    }

    #[test]
    fn what_lies_beyond_the_last_bound_is_at_it_and_a_daemon_that_counts_anew_gives_nothing() {
        let mut latencies = Latencies::default();
        latencies.figures(&samples(&page([0, 0, 0], "ram")));
        let figures = latencies.figures(&samples(&page([0, 0, 9], "ram")));
        assert_eq!(figures.len(), 2);
        assert!(figures.iter().all(|(_, micros)| (micros - 3.0).abs() < 1e-6), "{figures:?}");
        assert!(latencies.figures(&samples(&page([0, 0, 3], "ram"))).is_empty());
        assert_eq!(latencies.figures(&samples(&page([1, 1, 4], "ram"))).len(), 2);
    }
}
