//! Request rates and latencies of each volume over the last hour.
//!
//! Kept in memory only, for the volumes with the most recent requests: at most some 20 MiB. Volumes
//! without requests in that hour take no memory. If values were dropped for lack of space, that
//! period is not reported, so that it is not mistaken for idleness.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::VolumeLatencies;
use axum::body::Bytes;
use serde::Serialize;

use crate::watch::latencies::{NO_LATENCIES, OF_KIND, OfVolume, SERIES, VolumeTimes};
use crate::watch::told::Told;

/// Sampling interval.
const STEP: Duration = Duration::from_secs(5);
/// Number of samples kept: one hour.
const STEPS_KEPT: usize = 720;
/// Maximum number of volumes with values.
const VOLUMES_KEPT: usize = 256;
/// Number of samples in the minute over which volumes are compared.
const STEPS_COMPARED: usize = 12;
/// Maximum length of the list of slow volumes.
const SLOWEST_MAX: usize = 10;

/// Counters of a volume, and the series of their rates.
const COUNTERS: [(&str, &str, &str); 6] = [
    ("memlane_volume_requests_total{", "kind=\"read\"", "read_iops"),
    ("memlane_volume_requests_total{", "kind=\"write\"", "write_iops"),
    ("memlane_volume_requests_total{", "kind=\"flush\"", "flush_iops"),
    ("memlane_volume_requests_total{", "kind=\"discard\"", "discard_iops"),
    ("memlane_volume_read_bytes_total{", "", "read_bytes_per_second"),
    ("memlane_volume_write_bytes_total{", "", "write_bytes_per_second"),
];
const VOLUME: &str = "volume=\"";

type Figures = [f64; COUNTERS.len()];

/// A series in a response. Times are Unix seconds.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Shown {
    series: &'static str,
    step_seconds: u64,
    points: Vec<(u64, f64)>,
}

/// A volume, with its slowest kind of requests in the last minute.
#[derive(Debug, PartialEq, Serialize)]
struct SlowVolume {
    volume: String,
    kind: &'static str,
    /// 99th percentile in the slowest sample.
    p99_us: f32,
}

/// Values of a volume in one sample.
#[derive(Clone, Copy, Debug)]
struct Step {
    time: u64,
    rates: Figures,
    latencies: OfVolume,
}

#[derive(Debug, Default)]
struct State {
    before: Option<(Instant, HashMap<String, Figures>)>,
    times: VolumeTimes,
    /// Times of the samples.
    steps: VecDeque<u64>,
    /// Samples in which a volume had requests.
    volumes: HashMap<String, VecDeque<Step>>,
    /// Time of the newest sample from which values were dropped for lack of space.
    dropped: u64,
}

/// The last hour of all volumes.
#[derive(Debug, Default)]
pub(crate) struct VolumeHistory {
    state: Mutex<State>,
    slowest: Told,
}

impl VolumeHistory {
    /// Returns whether the sampling interval has passed.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let state = self.lock();
        state.before.as_ref().is_none_or(|(at, _)| now.duration_since(*at) >= STEP)
    }

    /// Adds a sample: the daemon's metrics and latencies.
    pub(super) fn look(
        &self,
        time: u64,
        samples: &HashMap<&str, f64>,
        told: Vec<VolumeLatencies>,
        now: Instant,
    ) {
        let mut state = self.lock();
        let passed = state.before.as_ref().map(|(at, _)| now.duration_since(*at));
        let counts = counts_of(samples);
        let rates = state.rates(&counts, passed);
        state.before = Some((now, counts));
        let latencies = state.times.passed(told);
        if let Some(rates) = rates {
            state.add(time, rates, &latencies);
            self.slowest.tell(&state.slowest());
        }
    }

    /// Restarts after an interruption, because a restarted daemon starts counting anew.
    pub(super) fn interrupt(&self) {
        let mut state = self.lock();
        state.before = None;
        state.times = VolumeTimes::default();
    }

    /// Returns the JSON list of the slowest volumes in the last minute, slowest first. While the
    /// daemon is down, it stays unchanged.
    pub(crate) fn slowest(&self) -> Bytes {
        self.slowest.written()
    }

    /// Returns rates of a volume, and latencies where requests were timed, over the last `seconds`.
    pub(crate) fn shown(&self, volume: &str, seconds: u64) -> Vec<Shown> {
        let state = self.lock();
        let newest = state.steps.back().copied().unwrap_or(0);
        let from = newest.saturating_sub(seconds);
        let steps = state.steps.iter().copied().filter(|it| *it > from);
        let known = state.volumes.get(volume);
        let first = known.and_then(|it| it.front()).map_or(u64::MAX, |it| it.time);
        let by_time: HashMap<u64, &Step> =
            known.into_iter().flatten().map(|it| (it.time, it)).collect();
        let figures = steps.filter_map(|time| match by_time.get(&time) {
            Some(step) => Some((time, step.rates)),
            None if time > state.dropped || time > first => Some((time, Figures::default())),
            None => None,
        });
        let figures: Vec<_> = figures.collect();
        let rates = COUNTERS.iter().enumerate().map(|(index, (_, _, series))| {
            let points = figures.iter().map(|(time, it)| (*time, it[index])).collect();
            Shown { series, step_seconds: STEP.as_secs(), points }
        });
        let inside = || known.into_iter().flatten().filter(move |it| it.time > from);
        let latencies = SERIES.iter().enumerate().map(|(index, series)| {
            let points = inside().map(|it| (it.time, f64::from(it.latencies[index])));
            let points = points.filter(|it| !it.1.is_nan()).collect();
            Shown { series, step_seconds: STEP.as_secs(), points }
        });
        rates.chain(latencies.filter(|it| !it.points.is_empty())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the rates since the previous sample, or `None` if they are unknown.
    fn rates(
        &self,
        counts: &HashMap<String, Figures>,
        passed: Option<Duration>,
    ) -> Option<HashMap<String, Figures>> {
        let (_, before) = self.before.as_ref()?;
        let seconds = passed.filter(|it| !it.is_zero())?.as_secs_f64();
        let mut rates = HashMap::new();
        for (volume, now) in counts {
            // New volumes have no rate yet.
            let Some(before) = before.get(volume) else { continue };
            if now.iter().zip(before).any(|(now, before)| now < before) {
                return None;
            }
            let figures = std::array::from_fn(|index| (now[index] - before[index]) / seconds);
            rates.insert(volume.clone(), figures);
        }
        Some(rates)
    }

    fn add(
        &mut self,
        time: u64,
        rates: HashMap<String, Figures>,
        latencies: &HashMap<String, OfVolume>,
    ) {
        // The clock may have been set back.
        self.steps.retain(|it| *it < time);
        self.steps.push_back(time);
        if self.steps.len() > STEPS_KEPT {
            self.steps.pop_front();
        }
        let oldest = self.steps.front().copied().unwrap_or(time);
        // A deleted or renamed volume leaves no history to a later one with its name.
        self.volumes.retain(|volume, kept| {
            kept.retain(|it| it.time >= oldest && it.time < time);
            rates.contains_key(volume) && !kept.is_empty()
        });
        for (volume, rates) in rates {
            let latencies = latencies.get(&volume).copied();
            if latencies.is_some() || rates.iter().any(|it| *it > 0.0) {
                self.make_room_for(&volume);
                let step = Step { time, rates, latencies: latencies.unwrap_or(NO_LATENCIES) };
                self.volumes.entry(volume).or_default().push_back(step);
            }
        }
    }

    /// Returns volumes with timed requests in the last minute, slowest first.
    fn slowest(&self) -> Vec<SlowVolume> {
        let before = self.steps.len().saturating_sub(STEPS_COMPARED);
        let first = self.steps.get(before).copied().unwrap_or(0);
        let slowest_of = |(volume, kept): (&String, &VecDeque<Step>)| {
            let steps = kept.iter().rev().take_while(|it| it.time >= first);
            let p99s = steps.flat_map(|it| {
                OF_KIND
                    .into_iter()
                    .enumerate()
                    .map(move |(at, kind)| (kind, it.latencies[2 * at + 1]))
            });
            let timed = p99s.filter(|it| !it.1.is_nan());
            let (kind, p99_us) = timed.max_by(|a, b| a.1.total_cmp(&b.1))?;
            Some(SlowVolume { volume: volume.clone(), kind, p99_us })
        };
        let mut slowest: Vec<_> = self.volumes.iter().filter_map(slowest_of).collect();
        slowest.sort_by(|a, b| b.p99_us.total_cmp(&a.p99_us).then_with(|| a.volume.cmp(&b.volume)));
        slowest.truncate(SLOWEST_MAX);
        slowest
    }

    /// Drops the volume whose latest requests are the oldest.
    fn make_room_for(&mut self, volume: &str) {
        if self.volumes.len() < VOLUMES_KEPT || self.volumes.contains_key(volume) {
            return;
        }
        let last = |kept: &VecDeque<Step>| kept.back().map_or(0, |it| it.time);
        let dropped = self.volumes.iter().min_by_key(|it| last(it.1)).map(|it| it.0.clone());
        let dropped = dropped.and_then(|it| self.volumes.remove(&it));
        self.dropped = self.dropped.max(dropped.map_or(0, |kept| last(&kept)));
    }
}

fn counts_of(samples: &HashMap<&str, f64>) -> HashMap<String, Figures> {
    let mut counts: HashMap<String, Figures> = HashMap::new();
    for (name, count) in samples {
        let is_it = |it: &&(&str, &str, &str)| {
            name.strip_prefix(it.0).is_some_and(|labels| labels.contains(it.1))
        };
        let Some(index) = COUNTERS.iter().position(|it| is_it(&it)) else { continue };
        // Names contain neither quotes nor commas.
        let volume = name.split_once(VOLUME).and_then(|(_, rest)| rest.split_once('"'));
        let Some((volume, _)) = volume else { continue };
        match counts.get_mut(volume) {
            Some(figures) => figures[index] = *count,
            None => {
                let mut figures = Figures::default();
                figures[index] = *count;
                counts.insert(volume.to_owned(), figures);
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const HOUR: u64 = 3_600;

    /// Feeds samples with given numbers of 4 KiB reads, one interval apart.
    struct Looks {
        history: VolumeHistory,
        start: Instant,
        count: u32,
    }

    impl Looks {
        fn begin() -> Self {
            Self { history: VolumeHistory::default(), start: Instant::now(), count: 0 }
        }

        fn look(&mut self, reads: &[(&str, f64)]) {
            self.look_at(reads, Vec::new());
        }

        fn look_at(&mut self, reads: &[(&str, f64)], told: Vec<VolumeLatencies>) {
            let lines = reads.iter().flat_map(|(volume, count)| {
                [
                    (format!("{}volume=\"{volume}\",kind=\"read\"}}", COUNTERS[0].0), *count),
                    (format!("{}volume=\"{volume}\"}}", COUNTERS[4].0), *count * 4096.0),
                ]
            });
            let lines: Vec<_> = lines.collect();
            let samples = lines.iter().map(|(name, count)| (name.as_str(), *count)).collect();
            let time = NOW + u64::from(self.count) * STEP.as_secs();
            self.history.look(time, &samples, told, self.start + STEP * self.count);
            self.count += 1;
        }

        fn reads(&self, volume: &str) -> Vec<f64> {
            let shown = self.history.shown(volume, HOUR);
            assert_eq!(shown[0].series, "read_iops");
            shown[0].points.iter().map(|it| it.1).collect()
        }
    }

    #[test]
    fn counts_become_rates_of_each_volume_and_idle_steps_are_told() {
        let mut looks = Looks::begin();
        looks.look(&[("a", 100.0), ("b", 0.0)]);
        looks.look(&[("a", 150.0), ("b", 0.0)]);
        looks.look(&[("a", 150.0), ("b", 5.0)]);
        assert_eq!((looks.reads("a"), looks.reads("b")), (vec![10.0, 0.0], vec![0.0, 1.0]));
        let bytes = &looks.history.shown("a", HOUR)[4];
        assert_eq!((bytes.series, bytes.points[0]), ("read_bytes_per_second", (NOW + 5, 40_960.0)));
        assert_eq!(looks.history.shown("a", 5)[0].points, [(NOW + 10, 0.0)]);
    }

    /// A volume with `reads` of 1 to 10 us, and `flushes` of 10 us to 1 ms.
    fn timed(volume: &str, id: u64, reads: u64, flushes: u64) -> VolumeLatencies {
        let bounds_us = vec![1, 10, 1_000];
        let of = |counts: [u64; 4]| api::Latency::of(&bounds_us, &counts, 0, 1_000_000);
        let (reads, flushes) = (of([0, reads, 0, 0]), of([0, 0, flushes, 0]));
        let (volume, writes) = (volume.to_owned(), of([0; 4]));
        VolumeLatencies { volume, id, bounds_us, reads, writes, flushes }
    }

    #[test]
    fn latencies_of_each_volume_are_told_where_requests_were_timed() {
        let mut looks = Looks::begin();
        let look = |looks: &mut Looks, a: u64, b: u64| {
            let told = vec![timed("a", 1, a, 0), timed("b", 2, 0, b)];
            looks.look_at(&[("a", a as f64), ("b", 0.0)], told);
        };
        look(&mut looks, 5, 1);
        look(&mut looks, 5, 1);
        look(&mut looks, 15, 1);
        look(&mut looks, 15, 2);
        let latencies = |volume: &str| -> Vec<_> {
            let shown = looks.history.shown(volume, HOUR);
            let shown = shown.into_iter().skip(COUNTERS.len());
            shown.map(|it| (it.series, it.points)).collect()
        };
        let of_a = latencies("a");
        let [(p50, of_p50), (p99, of_p99)] = &of_a[..] else { panic!("no two series") };
        assert_eq!((*p50, *p99), ("read_latency_p50_us", "read_latency_p99_us"));
        assert_eq!((of_p50.len(), of_p99.len()), (1, 1), "no request in the first step");
        assert_eq!((of_p50[0], of_p99[0].0), ((NOW + 10, 5.5), NOW + 10));
        assert_eq!(latencies("b")[1].0, "flush_latency_p99_us");
        assert_eq!(latencies("b")[1].1[0].0, NOW + 15);
    }

    #[test]
    fn the_slowest_volumes_of_the_last_minute_come_first_with_the_kind_that_is_slow() {
        let mut looks = Looks::begin();
        assert_eq!(looks.history.slowest(), "[]");
        let look = |looks: &mut Looks, reads: u64, flushes: u64| {
            let told = vec![timed("fast", 1, reads, 0), timed("slow", 2, reads, flushes)];
            looks.look_at(&[("fast", reads as f64), ("slow", reads as f64), ("idle", 0.0)], told);
        };
        look(&mut looks, 0, 0);
        look(&mut looks, 5, 5);
        let slowest = |looks: &Looks| -> Vec<(String, String, f64)> {
            let told = serde_json::from_slice::<serde_json::Value>(&looks.history.slowest());
            let told = told.expect("JSON").as_array().expect("a list").clone();
            let of = |it: &serde_json::Value, field: &str| {
                it[field].as_str().expect("a text").to_owned()
            };
            let p99 = |it: &serde_json::Value| it["p99_us"].as_f64().expect("a number");
            told.iter().map(|it| (of(it, "volume"), of(it, "kind"), p99(it))).collect()
        };
        let told = slowest(&looks);
        assert_eq!((told.len(), &told[0].0[..], &told[0].1[..]), (2, "slow", "flush"));
        assert_eq!((&told[1].0[..], &told[1].1[..]), ("fast", "read"));
        assert!(told[0].2 > 10.0 && told[1].2 <= 10.0, "{told:?}");
        looks.history.interrupt();
        assert_eq!(slowest(&looks), told, "it stays while the daemon is away");
        for _ in 0..=STEPS_COMPARED {
            look(&mut looks, 5, 5);
        }
        assert!(slowest(&looks).is_empty(), "what was slow more than a minute ago is not");
    }

    #[test]
    fn a_daemon_that_counts_anew_and_one_that_was_away_leave_a_gap() {
        let mut looks = Looks::begin();
        looks.look(&[("a", 100.0)]);
        looks.look(&[("a", 5.0)]);
        looks.look(&[("a", 10.0)]);
        looks.history.interrupt();
        looks.look(&[("a", 20.0)]);
        looks.look(&[("a", 25.0)]);
        assert_eq!(looks.reads("a"), [1.0, 1.0]);
    }

    #[test]
    fn a_volume_of_the_same_name_has_nothing_of_the_one_before() {
        let mut looks = Looks::begin();
        looks.look(&[("a", 0.0)]);
        looks.look(&[("a", 50.0)]);
        looks.look(&[]);
        looks.look(&[("a", 1.0)]);
        assert!(looks.reads("a").iter().all(|it| *it == 0.0));
    }

    #[test]
    fn memory_is_bounded_and_what_was_dropped_is_not_told_as_idle() {
        let mut looks = Looks::begin();
        let names: Vec<String> = (0..=VOLUMES_KEPT).map(|it| format!("v{it}")).collect();
        let all = |counts: &dyn Fn(usize) -> f64| -> Vec<(&str, f64)> {
            names.iter().enumerate().map(|(index, it)| (it.as_str(), counts(index))).collect()
        };
        looks.look(&all(&|_| 0.0));
        looks.look(&all(&|index| if index == 0 { 5.0 } else { 0.0 }));
        looks.look(&all(&|_| 5.0));
        assert_eq!(looks.history.lock().volumes.len(), VOLUMES_KEPT);
        assert_eq!(looks.reads("v0"), [0.0], "the step that was dropped is not told");
        for _ in 0..STEPS_KEPT {
            looks.look(&all(&|_| 5.0));
        }
        let state = looks.history.lock();
        assert_eq!((state.steps.len(), state.volumes.len()), (STEPS_KEPT, 0));
    }
}
