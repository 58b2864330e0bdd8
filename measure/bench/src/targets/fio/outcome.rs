//! Parsing of fio's results from its JSON (`--output-format=json+`).
//!
//! Every field that fio may omit is optional here. A missing required field is an error that names
//! it, never a panic or a zero.

use std::collections::BTreeMap;
use std::fmt;

use results::{Io, Latency, LatencyKind};
use serde::Deserialize;

/// Results of one run of fio.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub version: String,
    pub io: Io,
    pub latency: Latency,
    pub duration_s: f64,
    /// Processor time of the generator's threads relative to their running time, summed. 1 means
    /// one core.
    pub generator_user_cores: f64,
    pub generator_system_cores: f64,
}

/// Error in fio's JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    what: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fio's report cannot be used: {}", self.what)
    }
}

impl std::error::Error for Malformed {}

fn malformed(what: impl Into<String>) -> Malformed {
    Malformed { what: what.into() }
}

#[derive(Deserialize)]
struct Report {
    #[serde(rename = "fio version")]
    version: Option<String>,
    jobs: Option<Vec<JobReport>>,
}

#[derive(Deserialize)]
struct JobReport {
    error: Option<i64>,
    read: Option<Direction>,
    write: Option<Direction>,
    usr_cpu: Option<f64>,
    sys_cpu: Option<f64>,
}

#[derive(Deserialize)]
struct Direction {
    io_bytes: Option<u64>,
    bw_bytes: Option<f64>,
    iops: Option<f64>,
    /// In milliseconds.
    runtime: Option<u64>,
    total_ios: Option<u64>,
    slat_ns: Option<Spread>,
    clat_ns: Option<Spread>,
    lat_ns: Option<Spread>,
}

#[derive(Deserialize)]
struct Spread {
    max: Option<u64>,
    mean: Option<f64>,
    #[serde(rename = "N")]
    count: Option<u64>,
    percentile: Option<BTreeMap<String, u64>>,
    bins: Option<BTreeMap<String, u64>>,
}

/// Parses fio's report, which may be preceded by remarks. All jobs form one group. The direction
/// that transferred more counts.
pub fn parse(text: &str) -> Result<Outcome, Malformed> {
    let start = text.lines().position(|line| line.starts_with('{'));
    let start = start.ok_or_else(|| malformed(format!("it holds no JSON: {}", shortened(text))))?;
    let json = text.lines().skip(start).collect::<Vec<_>>().join("\n");
    let report: Report =
        serde_json::from_str(&json).map_err(|error| malformed(format!("no JSON: {error}")))?;
    let version = report.version.ok_or_else(|| malformed("no `fio version`"))?;
    let mut jobs = report.jobs.unwrap_or_default();
    if jobs.len() != 1 {
        return Err(malformed(format!("{} job groups instead of one", jobs.len())));
    }
    let job = jobs.remove(0);
    match job.error {
        Some(0) => {}
        Some(code) => return Err(malformed(format!("the job failed with error {code}"))),
        None => return Err(malformed("no `error`")),
    }
    let ops = |direction: &Direction| direction.total_ios.unwrap_or(0);
    let direction = job.read.into_iter().chain(job.write).max_by_key(ops);
    let direction = direction.ok_or_else(|| malformed("neither `read` nor `write`"))?;
    let io = io_of(&direction)?;
    let runtime_ms = direction.runtime.ok_or_else(|| malformed("no `runtime`"))?;
    Ok(Outcome {
        version,
        io,
        latency: latency_of(&direction)?,
        duration_s: seconds(runtime_ms),
        generator_user_cores: job.usr_cpu.ok_or_else(|| malformed("no `usr_cpu`"))? / 100.0,
        generator_system_cores: job.sys_cpu.ok_or_else(|| malformed("no `sys_cpu`"))? / 100.0,
    })
}

fn io_of(direction: &Direction) -> Result<Io, Malformed> {
    let missing = |name: &'static str| move || malformed(format!("no `{name}`"));
    let io = Io {
        ops: direction.total_ios.ok_or_else(missing("total_ios"))?,
        bytes: direction.io_bytes.ok_or_else(missing("io_bytes"))?,
        iops: direction.iops.ok_or_else(missing("iops"))?,
        bytes_per_s: direction.bw_bytes.ok_or_else(missing("bw_bytes"))?,
    };
    if io.ops == 0 {
        return Err(malformed("no request was made"));
    }
    Ok(io)
}

fn latency_of(direction: &Direction) -> Result<Latency, Malformed> {
    let total = direction.lat_ns.as_ref().ok_or_else(|| malformed("no `lat_ns`"))?;
    let percentile = |name: &str| {
        let found = total.percentile.as_ref().and_then(|percentiles| percentiles.get(name));
        found.copied().ok_or_else(|| malformed(format!("no percentile {name} of `lat_ns`")))
    };
    // Engines that block in the submission do not report the two parts.
    let mean_of = |part: &Option<Spread>| {
        part.as_ref().filter(|part| part.count.unwrap_or(0) > 0).and_then(|part| part.mean)
    };
    let submission_mean = mean_of(&direction.slat_ns);
    Ok(Latency {
        kind: LatencyKind::Service,
        mean: total.mean.ok_or_else(|| malformed("no mean of `lat_ns`"))?,
        p50: percentile("50.000000")?,
        p90: percentile("90.000000")?,
        p99: percentile("99.000000")?,
        p999: percentile("99.900000")?,
        p9999: percentile("99.990000")?,
        max: total.max.ok_or_else(|| malformed("no max of `lat_ns`"))?,
        submission_mean,
        completion_mean: submission_mean.and_then(|_| mean_of(&direction.clat_ns)),
        histogram: histogram_of(total)?,
    })
}

fn histogram_of(spread: &Spread) -> Result<Vec<(u64, u64)>, Malformed> {
    let mut histogram = Vec::new();
    for (middle, count) in spread.bins.iter().flatten() {
        let middle = middle.parse().map_err(|_| malformed(format!("a bin of {middle:?}")))?;
        histogram.push((upper_bound(middle), *count));
    }
    histogram.sort_unstable();
    Ok(histogram)
}

/// Returns the upper bound of a bin, which fio identifies by its middle. Below 128 each value has
/// its own bin. Above, each power of two has 64.
fn upper_bound(middle: u64) -> u64 {
    if middle < 128 {
        return middle;
    }
    let width = 1 << (middle.ilog2() - 6);
    middle + width / 2
}

#[expect(clippy::cast_precision_loss, reason = "a runtime in milliseconds is far below 2^53")]
fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1000.0
}

fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 300;
    text.trim().chars().take(CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const LIBAIO: &str = include_str!("../../../tests/golden/fio-3.33-libaio-randwrite.json");
    const NBD: &str = include_str!("../../../tests/golden/fio-3.33-nbd-randwrite.json");

    #[test]
    fn a_report_of_two_jobs_of_libaio_is_read() {
        let outcome = parse(LIBAIO).expect("it is whole");
        assert_eq!(outcome.version, "fio-3.33");
        assert_eq!((outcome.io.ops, outcome.io.bytes), (75_416, 308_903_936));
        assert_eq!((outcome.latency.p50, outcome.latency.p9999), (12_608, 12_124_160));
        assert_eq!(outcome.latency.max, 16_099_398);
        let halves = outcome.latency.submission_mean.zip(outcome.latency.completion_mean);
        let (submission, completion) = halves.expect("libaio tells both");
        assert!((submission + completion - outcome.latency.mean).abs() < 1.0);
    }

    #[test]
    fn the_histogram_holds_every_request_in_rising_bins() {
        let outcome = parse(LIBAIO).expect("it is whole");
        let count: u64 = outcome.latency.histogram.iter().map(|(_, count)| count).sum();
        assert_eq!(count, outcome.io.ops);
        assert!(outcome.latency.histogram.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn a_report_of_the_nbd_engine_is_read() {
        let outcome = parse(NBD).expect("it is whole");
        assert_eq!(outcome.io.ops, 13_688);
        assert_eq!(outcome.latency.p50, 71_168);
    }

    #[test]
    fn remarks_before_the_report_do_no_harm() {
        assert!(parse(&format!("note: something\nfio: more\n{NBD}")).is_ok());
    }

    #[track_caller]
    fn check_without(pointer: &str, field: &str) {
        let mut report: Value = serde_json::from_str(LIBAIO).expect("it is JSON");
        let place = report.pointer_mut(pointer).and_then(Value::as_object_mut);
        place.expect("the place is there").remove(field).expect("the field is there");
        let error = parse(&report.to_string()).expect_err("something is missing");
        assert!(error.to_string().contains("cannot be used"), "{error}");
    }

    #[test]
    fn whatever_is_missing_is_an_error() {
        for field in ["fio version", "jobs"] {
            check_without("", field);
        }
        for field in ["error", "write", "usr_cpu", "sys_cpu"] {
            check_without("/jobs/0", field);
        }
        for field in ["io_bytes", "bw_bytes", "iops", "runtime", "total_ios", "lat_ns"] {
            check_without("/jobs/0/write", field);
        }
        for field in ["mean", "max", "percentile"] {
            check_without("/jobs/0/write/lat_ns", field);
        }
        for field in ["50.000000", "90.000000", "99.000000", "99.900000", "99.990000"] {
            check_without("/jobs/0/write/lat_ns/percentile", field);
        }
    }

    #[test]
    fn halves_and_bins_may_be_missing() {
        let mut report: Value = serde_json::from_str(LIBAIO).expect("it is JSON");
        for field in ["slat_ns", "clat_ns"] {
            report["jobs"][0]["write"].as_object_mut().expect("an object").remove(field);
        }
        report["jobs"][0]["write"]["lat_ns"].as_object_mut().expect("an object").remove("bins");
        let outcome = parse(&report.to_string()).expect("what is needed is there");
        assert_eq!(outcome.latency.submission_mean, None);
        assert_eq!(outcome.latency.histogram, []);
    }

    #[test]
    fn a_failed_job_is_an_error() {
        let mut report: Value = serde_json::from_str(LIBAIO).expect("it is JSON");
        report["jobs"][0]["error"] = Value::from(5);
        let error = parse(&report.to_string()).expect_err("it failed");
        assert!(error.to_string().contains("error 5"), "{error}");
    }

    #[test]
    fn a_bin_ends_half_its_width_above_its_middle() {
        // 64 bins between 8192 and 16384, each 128 wide.
        assert_eq!(upper_bound(12_608), 12_672);
        assert_eq!(upper_bound(100), 100);
    }
}
