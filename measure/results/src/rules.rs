//! Rules for valid measurements, applied uniformly to all rows.
//!
//! | source of error | rule |
//! |---|---|
//! | the load generator is the bottleneck | [`generator_share`] above 0.1 is flagged |
//! | caches instead of memory | a working set below eight last-level caches is flagged |
//! | reads of unwritten blocks | a read without `preconditioned: true` is invalid |
//! | compressible data | anything but `data: random` is flagged; headlines are incompressible |
//! | warm-up | rounds that are not steady are flagged |
//! | other guests on the host | steal above 2 % is flagged, above 5 % invalid |
//! | resolution of 10 ms ticks | below 20 s no processor time for each request |
//! | oversubscribed cores | more jobs than cores are flagged |
//!
//! Coordinated omission is avoided by pacing, not by rules on rows: an open loop records latencies
//! from the intended start, and its record has both kinds of latency.

use serde_json::Value;

use crate::row::{Row, Validity};
use crate::statistics::SteadyState;

const GENERATOR_SHARE_MAX: f64 = 0.1;
const CACHES_MIN: u64 = 8;
const STEAL_FLAGGED: f64 = 0.02;
const STEAL_INVALID: f64 = 0.05;
const CPU_CLAIM_SECONDS_MIN: f64 = 20.0;

/// Processor time per request. Short measurements do not have this figure.
pub const CPU_FOR_EACH_IO: &str = "cpu_ns_per_io";

/// State of the machine during a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Circumstances {
    pub cores: u64,
    pub last_level_cache_bytes: Option<u64>,
    /// Share of all processor time stolen by other guests, 0 to 1.
    pub steal_share: f64,
}

/// Returns the share of its time that a load generator spent outside its requests. By Little's law
/// the number of requests in flight is rate times latency. The difference to `in_flight_max` (jobs
/// times depth) was spent on preparing requests.
pub fn generator_share(requests_per_s: f64, latency_ns_mean: f64, in_flight_max: u64) -> f64 {
    let in_flight = requests_per_s * latency_ns_mean / 1e9;
    (1.0 - in_flight / in_flight_max.max(1) as f64).clamp(0.0, 1.0)
}

/// Adds flags for readers and marks rows invalid that must not count. Uses the parameters `op` or
/// `rw`, `data`, `working_bytes`, `preconditioned`, and `jobs` or `threads`.
pub fn apply(row: &mut Row, circumstances: &Circumstances) {
    if !row.is_valid() {
        return;
    }
    flag_load(row, circumstances);
    flag_data(row, circumstances);
    if let Some(steady) = SteadyState::new(&row.rounds).filter(|steady| !steady.is_steady) {
        let (range, slope) = (percent(steady.range), percent(steady.slope));
        row.flag(format!("not steady: range {range}, slope {slope}"));
    }
    if row.time.duration_s < CPU_CLAIM_SECONDS_MIN && row.figures.remove(CPU_FOR_EACH_IO).is_some()
    {
        row.flag("too short for processor time of each request");
    }
    let steal = circumstances.steal_share;
    if steal > STEAL_INVALID {
        let reason = format!("other guests took {} of the processor time", percent(steal));
        row.validity = Validity::Invalid(reason);
    } else if steal > STEAL_FLAGGED {
        row.flag(format!("steal {}", percent(steal)));
    }
    if reads(row) && row.params.get("preconditioned") != Some(&Value::Bool(true)) {
        let reason = "it reads what was perhaps never written: the row does not say that the \
                      whole working set was filled first";
        row.validity = Validity::Invalid(reason.to_owned());
    }
}

fn flag_load(row: &mut Row, circumstances: &Circumstances) {
    if row.generator_share.is_some_and(|share| share > GENERATOR_SHARE_MAX) {
        row.flag("generator bound");
    }
    let jobs = ["jobs", "threads"].iter().find_map(|name| row.params.get(*name)?.as_u64());
    if jobs.is_some_and(|jobs| jobs > circumstances.cores) {
        row.flag("more jobs than cores");
    }
}

fn flag_data(row: &mut Row, circumstances: &Circumstances) {
    if let Some(data) = data_of(row).filter(|&data| data != "random") {
        let text = format!("{data} data: no headline");
        row.flag(text);
    }
    let working = row.params.get("working_bytes").and_then(Value::as_u64);
    let cache = circumstances.last_level_cache_bytes;
    if let (Some(working), Some(cache)) = (working, cache)
        && working < cache.saturating_mul(CACHES_MIN)
    {
        row.flag("the working set is below eight last-level caches");
    }
}

fn data_of(row: &Row) -> Option<&str> {
    row.params.get("data")?.as_str()
}

fn reads(row: &Row) -> bool {
    let what = ["op", "rw"].iter().find_map(|name| row.params.get(*name)?.as_str());
    what.is_some_and(|what| what.contains("read") || ["rw", "randrw"].contains(&what))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::row::Suite;

    const MIB: u64 = 1 << 20;

    fn row(params: &[(&str, Value)]) -> Row {
        let mut row = Row::new(Suite::Peers, "case", "volume");
        row.params = params.iter().map(|(name, it)| ((*name).to_owned(), it.clone())).collect();
        row.time.duration_s = 60.0;
        row
    }

    fn judged(mut row: Row, steal_share: f64) -> Row {
        let last_level_cache_bytes = Some(32 * MIB);
        apply(&mut row, &Circumstances { cores: 2, last_level_cache_bytes, steal_share });
        row
    }

    #[track_caller]
    fn check_flag(row: Row, expected: Option<&str>) {
        let row = judged(row, 0.0);
        assert!(row.is_valid(), "{:?}", row.validity);
        assert_eq!(row.flags.first().map(String::as_str), expected);
    }

    #[test]
    fn a_generator_that_is_busy_with_itself_is_flagged() {
        let mut busy = row(&[]);
        busy.generator_share = Some(generator_share(500_000.0, 1_000.0, 1));
        check_flag(busy, Some("generator bound"));
        let mut waiting = row(&[]);
        waiting.generator_share = Some(generator_share(950_000.0, 1_000.0, 1));
        check_flag(waiting, None);
    }

    #[test]
    fn a_working_set_that_caches_hold_is_flagged() {
        check_flag(row(&[("working_bytes", json!(256 * MIB))]), None);
        let small = row(&[("working_bytes", json!(255 * MIB))]);
        check_flag(small, Some("the working set is below eight last-level caches"));
    }

    #[test]
    fn reads_count_only_after_everything_was_written() {
        for (name, value) in [("op", "read"), ("rw", "randread"), ("rw", "randrw")] {
            let unwritten = judged(row(&[(name, json!(value))]), 0.0);
            assert!(!unwritten.is_valid(), "{name} {value}");
            let written = row(&[(name, json!(value)), ("preconditioned", json!(true))]);
            assert!(judged(written, 0.0).is_valid(), "{name} {value}");
        }
        for (name, value) in [("rw", "randwrite"), ("op", "overwrite")] {
            assert!(judged(row(&[(name, json!(value))]), 0.0).is_valid(), "{name} {value}");
        }
    }

    #[test]
    fn only_incompressible_data_is_without_a_flag() {
        let compressible = judged(row(&[("data", json!("compressible"))]), 0.0);
        assert_eq!(compressible.flags, ["compressible data: no headline"]);
        let random = judged(row(&[("data", json!("random"))]), 0.0);
        assert!(random.flags.is_empty(), "{random:?}");
    }

    #[test]
    fn rounds_that_rise_are_flagged() {
        let mut rising = row(&[]);
        rising.rounds = vec![100.0, 110.0, 120.0, 130.0, 140.0];
        check_flag(rising, Some("not steady: range 33.3 %, slope 33.3 %"));
    }

    #[test]
    fn other_guests_are_flagged_and_then_spoil_the_row() {
        assert_eq!(judged(row(&[]), 0.02).flags, Vec::<String>::new());
        assert_eq!(judged(row(&[]), 0.03).flags, ["steal 3.0 %"]);
        assert!(!judged(row(&[]), 0.06).is_valid());
    }

    #[test]
    fn short_measurements_claim_no_processor_time_for_each_request() {
        let mut short = row(&[]);
        short.figures.insert(CPU_FOR_EACH_IO.to_owned(), 1.0);
        let mut long = short.clone();
        short.time.duration_s = 19.0;
        long.time.duration_s = 20.0;
        assert!(!judged(short, 0.0).figures.contains_key(CPU_FOR_EACH_IO));
        assert!(judged(long, 0.0).figures.contains_key(CPU_FOR_EACH_IO));
    }

    #[test]
    fn jobs_that_must_share_a_core_are_flagged() {
        check_flag(row(&[("jobs", json!(2))]), None);
        check_flag(row(&[("jobs", json!(4))]), Some("more jobs than cores"));
    }
}
