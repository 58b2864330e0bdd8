//! Latency quantiles since the previous sample, from the daemon's histograms: of all volumes
//! together, and of each volume.

use std::collections::HashMap;

use api::{VolumeLatencies, quantile, reached};

const BUCKETS: &str = "memlane_request_seconds_bucket{";

/// Kinds of requests, and the names of their series.
const KINDS: &[(&str, [&str; 2])] = &[
    ("read", ["read_latency_p50_us", "read_latency_p99_us"]),
    ("write", ["write_latency_p50_us", "write_latency_p99_us"]),
    ("flush", ["flush_latency_p50_us", "flush_latency_p99_us"]),
];

const SHARES: [f64; 2] = [0.5, 0.99];

/// Cumulative histogram: ascending bounds in seconds, with the number of requests at or below each.
type Buckets = Vec<(f64, f64)>;

/// Histograms of the previous sample.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    before: HashMap<&'static str, Buckets>,
}

impl Latencies {
    /// Returns latencies in microseconds of all kinds with requests since the previous sample, over
    /// all durability classes.
    pub(super) fn figures(&mut self, samples: &HashMap<&str, f64>) -> Vec<(String, f64)> {
        let mut figures = Vec::new();
        for (kind, series) in KINDS {
            let now = buckets_of(kind, samples);
            let before = self.before.insert(kind, now.clone());
            let Some(passed) = before.and_then(|before| difference(&now, &before)) else {
                continue;
            };
            for (share, name) in SHARES.iter().zip(series) {
                let seconds = quantile(&passed, *share);
                figures.extend(seconds.map(|it| ((*name).to_owned(), it * 1e6)));
            }
        }
        figures
    }
}

fn buckets_of(kind: &str, samples: &HashMap<&str, f64>) -> Buckets {
    let mut buckets = Buckets::new();
    for (name, count) in samples {
        let Some(labels) = name.strip_prefix(BUCKETS) else { continue };
        let bound = label(labels, "le").and_then(|it| match it {
            "+Inf" => Some(f64::INFINITY),
            number => number.parse().ok(),
        });
        let is_it = label(labels, "kind") == Some(kind);
        let Some(bound) = bound.filter(|_| is_it) else { continue };
        match buckets.iter_mut().find(|it| it.0 == bound) {
            Some((_, sum)) => *sum += count,
            None => buckets.push((bound, *count)),
        }
    }
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    buckets
}

/// Returns the value of a label. The daemon's values contain neither commas nor quotes.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let pairs = labels.trim_end_matches('}').split(',').filter_map(|it| it.split_once('='));
    let mut values = pairs.filter(|(it, _)| *it == name).map(|(_, value)| value);
    values.next().map(|it| it.trim_matches('"'))
}

/// Returns the difference of two histograms, or `None` if the daemon has restarted.
fn difference(now: &Buckets, before: &Buckets) -> Option<Buckets> {
    let is_same = now.len() == before.len()
        && now.iter().zip(before).all(|(now, before)| now.0 == before.0 && now.1 >= before.1);
    is_same.then(|| now.iter().zip(before).map(|(now, it)| (now.0, now.1 - it.1)).collect())
}

/// Latencies of a volume in microseconds, in the order of [`SERIES`]. NaN without timed requests.
pub(super) type OfVolume = [f32; SERIES.len()];

pub(super) const NO_LATENCIES: OfVolume = [f32::NAN; SERIES.len()];

/// Series of a volume: p50 and p99 of each kind.
pub(super) const SERIES: [&str; 6] = [
    "read_latency_p50_us",
    "read_latency_p99_us",
    "write_latency_p50_us",
    "write_latency_p99_us",
    "flush_latency_p50_us",
    "flush_latency_p99_us",
];

/// Kinds of requests, with two series each.
pub(super) const OF_KIND: [&str; 3] = ["read", "write", "flush"];

/// Histograms of each volume in the previous sample.
#[derive(Debug, Default)]
pub(super) struct VolumeTimes {
    before: Option<HashMap<u64, VolumeLatencies>>,
}

impl VolumeTimes {
    /// Returns latencies since the previous sample by volume name, for volumes with timed requests.
    /// Empty for the first sample. `told` is the current sample.
    pub(super) fn passed(&mut self, told: Vec<VolumeLatencies>) -> HashMap<String, OfVolume> {
        let now: HashMap<_, _> = told.into_iter().map(|it| (it.id, it)).collect();
        let Some(before) = self.before.replace(now) else { return HashMap::new() };
        let now = self.before.iter().flatten();
        let passed = now.filter_map(|(id, now)| {
            let of = of_volume(now, before.get(id));
            of.iter().any(|it| !it.is_nan()).then(|| (now.volume.clone(), of))
        });
        passed.collect()
    }
}

/// Stored as `f32`, because there are many values and they are estimates.
#[expect(clippy::cast_possible_truncation, reason = "the bounds are far within an f32")]
fn kept(us: f64) -> f32 {
    us as f32
}

/// Returns the latencies of a volume. Without a previous histogram, all counts are recent.
fn of_volume(now: &VolumeLatencies, before: Option<&VolumeLatencies>) -> OfVolume {
    let kinds = |it: &VolumeLatencies| {
        [it.reads.counts.clone(), it.writes.counts.clone(), it.flushes.counts.clone()]
    };
    let before = before.filter(|it| it.bounds_us == now.bounds_us).map(kinds).unwrap_or_default();
    let mut figures = NO_LATENCIES;
    for (index, (now_counts, before)) in kinds(now).iter().zip(&before).enumerate() {
        let since =
            |(at, count): (usize, &u64)| count.saturating_sub(before.get(at).copied().unwrap_or(0));
        let passed = now_counts.iter().enumerate().map(since);
        let reached = reached(&now.bounds_us, passed);
        for (at, share) in SHARES.iter().enumerate() {
            if let Some(us) = quantile(&reached, *share) {
                figures[index * SHARES.len() + at] = kept(us);
            }
        }
    }
    figures
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

    fn of_volume(volume: &str, id: u64, reads: [u64; 3], flushes: [u64; 3]) -> VolumeLatencies {
        let bounds_us = vec![1, 3];
        let of = |counts: [u64; 3]| api::Latency::of(&bounds_us, &counts, 0, 9_000);
        let (reads, writes, flushes) = (of(reads), of([0; 3]), of(flushes));
        VolumeLatencies { volume: volume.to_owned(), id, bounds_us, reads, writes, flushes }
    }

    #[test]
    fn each_volume_has_percentiles_of_its_own_since_the_last_look() {
        let mut times = VolumeTimes::default();
        let at = |reads, flushes| of_volume("a", 1, reads, flushes);
        assert!(times.passed(vec![at([9, 9, 9], [5, 0, 0])]).is_empty(), "the first look");
        let b = || of_volume("b", 2, [4, 0, 0], [0; 3]);
        let passed = times.passed(vec![at([9, 19, 9], [5, 0, 0]), b()]);
        assert_eq!(&passed["a"][..2], [2.0, 2.98], "ten reads of 1 to 3 us");
        assert!(passed["a"][2..].iter().all(|it| it.is_nan()), "no other kind: {passed:?}");
        assert_eq!(passed["b"][..2], [0.5, 0.99], "its first requests");
        assert!(times.passed(vec![at([9, 19, 9], [5, 0, 0]), b()]).is_empty(), "no request");
        let passed = times.passed(vec![of_volume("a", 3, [0; 3], [0, 0, 1])]);
        assert_eq!(passed["a"][4..], [3.0, 3.0], "one of its name has nothing of the one before");
        assert!(passed["a"][..4].iter().all(|it| it.is_nan()));
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
