//! Requests to each volume over the last hour, and latencies of each durability class.
//!
//! It is kept in memory alone, for the volumes that had requests last: some 10 MiB at most. Of
//! those that had none for an hour nothing is kept, as they had no requests. Where figures were
//! dropped for want of room nothing is told of that time, so that nobody takes it for idle.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::Durability;
use serde::Serialize;

use crate::watch::latencies::{BUCKETS, Latencies};

/// Seconds between two points.
const STEP: Duration = Duration::from_secs(5);
/// An hour of them.
const STEPS_KEPT: usize = 720;
/// Volumes whose figures are kept.
const VOLUMES_KEPT: usize = 256;

const CLASSES: [(Durability, &str); 3] =
    [(Durability::Ram, "ram"), (Durability::Image, "image"), (Durability::Journal, "journal")];

/// Counters of a volume, and the series of their changes in a second.
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

/// A series as it is shown: times are Unix seconds.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Shown {
    series: &'static str,
    step_seconds: u64,
    points: Vec<(u64, f64)>,
}

/// Latencies at a time, by their series.
type OfClass = (u64, Vec<(&'static str, f64)>);

#[derive(Debug, Default)]
struct State {
    before: Option<(Instant, HashMap<String, Figures>)>,
    latencies: [Latencies; CLASSES.len()],
    /// When there was a look.
    steps: VecDeque<u64>,
    /// Of the steps in which a volume had requests.
    volumes: HashMap<String, VecDeque<(u64, Figures)>>,
    classes: [VecDeque<OfClass>; CLASSES.len()],
    /// The newest step of which figures were dropped for want of room.
    dropped: u64,
}

/// The last hour of all volumes.
#[derive(Debug, Default)]
pub(crate) struct VolumeHistory(Mutex<State>);

impl VolumeHistory {
    /// Takes the daemon's samples of now, where a step has passed.
    pub(super) fn look(&self, time: u64, samples: &HashMap<&str, f64>, now: Instant) {
        let mut state = self.lock();
        let passed = state.before.as_ref().map(|(at, _)| now.duration_since(*at));
        if passed.is_some_and(|it| it < STEP) {
            return;
        }
        let counts = counts_of(samples);
        let rates = state.rates(&counts, passed);
        state.before = Some((now, counts));
        let latencies = state.latencies_of(samples);
        if let Some(rates) = rates {
            state.add(time, rates, latencies);
        }
    }

    /// Begins anew with the next look: a daemon that comes back counts anew.
    pub(super) fn interrupt(&self) {
        let mut state = self.lock();
        state.before = None;
        state.latencies = Default::default();
    }

    /// Requests and bytes of a volume in a second, and latencies of a class, over the last
    /// `seconds`.
    pub(crate) fn shown(
        &self,
        volume: &str,
        class: Option<Durability>,
        seconds: u64,
    ) -> Vec<Shown> {
        let state = self.lock();
        let newest = state.steps.back().copied().unwrap_or(0);
        let from = newest.saturating_sub(seconds);
        let steps = state.steps.iter().copied().filter(|it| *it > from);
        let known = state.volumes.get(volume);
        let first = known.and_then(|it| it.front()).map_or(u64::MAX, |it| it.0);
        let by_step: HashMap<u64, Figures> = known.into_iter().flatten().copied().collect();
        let figures = steps.filter_map(|step| match by_step.get(&step) {
            Some(figures) => Some((step, *figures)),
            None if step > state.dropped || step > first => Some((step, Figures::default())),
            None => None,
        });
        let figures: Vec<_> = figures.collect();
        let of_volume = COUNTERS.iter().enumerate().map(|(index, (_, _, series))| {
            let points = figures.iter().map(|(step, it)| (*step, it[index])).collect();
            Shown { series, step_seconds: STEP.as_secs(), points }
        });
        let class = class.and_then(|class| CLASSES.iter().position(|it| it.0 == class));
        let latencies = class.map(|it| latencies_shown(&state.classes[it], from));
        of_volume.chain(latencies.into_iter().flatten()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What changed in a second since the last look; `None`: that is not known.
    fn rates(
        &self,
        counts: &HashMap<String, Figures>,
        passed: Option<Duration>,
    ) -> Option<HashMap<String, Figures>> {
        let (_, before) = self.before.as_ref()?;
        let seconds = passed.filter(|it| !it.is_zero())?.as_secs_f64();
        let mut rates = HashMap::new();
        for (volume, now) in counts {
            // What has come since has no rate yet.
            let Some(before) = before.get(volume) else { continue };
            if now.iter().zip(before).any(|(now, before)| now < before) {
                return None;
            }
            let figures = std::array::from_fn(|index| (now[index] - before[index]) / seconds);
            rates.insert(volume.clone(), figures);
        }
        Some(rates)
    }

    fn latencies_of(&mut self, samples: &HashMap<&str, f64>) -> [Vec<(&'static str, f64)>; 3] {
        let timed: HashMap<&str, f64> = samples
            .iter()
            .filter(|(name, _)| name.starts_with(BUCKETS))
            .map(|(name, count)| (*name, *count))
            .collect();
        std::array::from_fn(|index| self.latencies[index].of_class(CLASSES[index].1, &timed))
    }

    fn add(
        &mut self,
        time: u64,
        rates: HashMap<String, Figures>,
        latencies: [Vec<(&'static str, f64)>; CLASSES.len()],
    ) {
        // The clock may have been set back.
        self.steps.retain(|it| *it < time);
        self.steps.push_back(time);
        if self.steps.len() > STEPS_KEPT {
            self.steps.pop_front();
        }
        let oldest = self.steps.front().copied().unwrap_or(time);
        // A volume that has gone, or has another name now, leaves nothing to one of its name.
        self.volumes.retain(|volume, kept| {
            kept.retain(|it| it.0 >= oldest && it.0 < time);
            rates.contains_key(volume) && !kept.is_empty()
        });
        for (volume, figures) in rates {
            if figures.iter().any(|it| *it > 0.0) {
                self.make_room_for(&volume);
                self.volumes.entry(volume).or_default().push_back((time, figures));
            }
        }
        for (kept, figures) in self.classes.iter_mut().zip(latencies) {
            kept.retain(|it| it.0 >= oldest && it.0 < time);
            kept.push_back((time, figures));
        }
    }

    /// Drops the volume that had requests longest ago.
    fn make_room_for(&mut self, volume: &str) {
        if self.volumes.len() < VOLUMES_KEPT || self.volumes.contains_key(volume) {
            return;
        }
        let last = |kept: &VecDeque<(u64, Figures)>| kept.back().map_or(0, |it| it.0);
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
        // Names hold neither quotes nor commas.
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

fn latencies_shown(kept: &VecDeque<OfClass>, from: u64) -> Vec<Shown> {
    let mut shown: Vec<Shown> = Vec::new();
    for (step, figures) in kept.iter().filter(|it| it.0 > from) {
        for (series, figure) in figures {
            let point = (*step, *figure);
            match shown.iter_mut().find(|it| it.series == *series) {
                Some(it) => it.points.push(point),
                None => {
                    let points = vec![point];
                    shown.push(Shown { series, step_seconds: STEP.as_secs(), points });
                }
            }
        }
    }
    // They keep their places, and with those their colours, whichever came first.
    shown.sort_by_key(|it| it.series);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const HOUR: u64 = 3_600;

    /// Looks at a daemon whose volumes have had so many reads of 4 KiB, a step apart.
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
            let lines = reads.iter().flat_map(|(volume, count)| {
                [
                    (format!("{}volume=\"{volume}\",kind=\"read\"}}", COUNTERS[0].0), *count),
                    (format!("{}volume=\"{volume}\"}}", COUNTERS[4].0), *count * 4096.0),
                ]
            });
            let lines: Vec<_> = lines.collect();
            let samples = lines.iter().map(|(name, count)| (name.as_str(), *count)).collect();
            let time = NOW + u64::from(self.count) * STEP.as_secs();
            self.history.look(time, &samples, self.start + STEP * self.count);
            self.count += 1;
        }

        fn reads(&self, volume: &str) -> Vec<f64> {
            let shown = self.history.shown(volume, None, HOUR);
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
        let bytes = &looks.history.shown("a", None, HOUR)[4];
        assert_eq!((bytes.series, bytes.points[0]), ("read_bytes_per_second", (NOW + 5, 40_960.0)));
        assert_eq!(looks.history.shown("a", None, 5)[0].points, [(NOW + 10, 0.0)]);
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
        assert!(state.classes.iter().all(|it| it.len() <= STEPS_KEPT));
    }
}
