//! Time series: one hour per second in memory, two weeks per minute on disk.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use serde::{Deserialize, Serialize};

const FILE_NAME: &str = "history.json";

const SECONDS_KEPT: usize = 60 * 60;
const MINUTES_KEPT: usize = 14 * 24 * 60;
const MINUTE: u64 = 60;

/// Maximum number of points in a response, more than charts show.
const POINTS_MAX: usize = 4_000;

/// Maximum number of series. The console has fewer.
const SERIES_MAX: usize = 64;

/// Maximum number of cached responses. Pages request fewer time ranges.
const WRITTEN_MAX: usize = 8;

/// Time in Unix seconds, and value.
type Point = (u64, f64);

#[derive(Clone, Debug, Default)]
struct Series {
    seconds: VecDeque<Point>,
    minutes: VecDeque<Point>,
    /// Current minute: its number, the sum and count of its values.
    open: (u64, f64, u32),
}

impl Series {
    fn add(&mut self, time: u64, figure: f64) {
        if self.seconds.back().is_some_and(|it| it.0 >= time) {
            // The clock was set back.
            self.seconds.retain(|it| it.0 < time);
        }
        push(&mut self.seconds, (time, figure), SECONDS_KEPT);
        let minute = time / MINUTE;
        let (open, sum, count) = self.open;
        if count > 0 && open != minute {
            self.minutes.retain(|it| it.0 < open * MINUTE);
            push(&mut self.minutes, (open * MINUTE, sum / f64::from(count)), MINUTES_KEPT);
            self.open = (minute, figure, 1);
        } else {
            self.open = (minute, sum + figure, count + 1);
        }
    }

    /// Returns the step and the points of the last `seconds`: per second if these reach back far
    /// enough, otherwise per minute.
    fn points(&self, seconds: u64) -> (u64, Vec<Point>) {
        let newest = self.seconds.back().or(self.minutes.back()).map_or(0, |it| it.0);
        let from = newest.saturating_sub(seconds);
        // After a restart, the points per second reach back less far than those per minute.
        let first = self.seconds.front().map_or(u64::MAX, |it| it.0);
        let has_older = self.minutes.iter().any(|it| it.0 > from && it.0 + MINUTE <= first);
        let is_fine = seconds <= SECONDS_KEPT as u64 && !has_older;
        let (step, points) = if is_fine { (1, &self.seconds) } else { (MINUTE, &self.minutes) };
        let inside: Vec<_> = points.iter().filter(|it| it.0 > from).copied().collect();
        let every = inside.len().div_ceil(POINTS_MAX).max(1);
        let step = step * every as u64;
        (step, inside.into_iter().step_by(every).collect())
    }
}

fn push(points: &mut VecDeque<Point>, point: Point, count_max: usize) {
    if points.len() == count_max {
        points.pop_front();
    }
    points.push_back(point);
}

/// File contents: points per minute.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Stored {
    minutes: BTreeMap<String, VecDeque<Point>>,
}

/// A series in a response.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    series: &'a str,
    step_seconds: u64,
    points: Vec<Point>,
}

#[derive(Debug, Default)]
struct State {
    series: BTreeMap<String, Series>,
    /// Cached responses by time range, until the next values arrive.
    written: BTreeMap<u64, Bytes>,
}

/// All series.
#[derive(Debug)]
pub(crate) struct History {
    path: PathBuf,
    state: Mutex<State>,
}

impl History {
    /// Reads the file. If it is unreadable, starts a new history and logs that.
    pub(crate) fn open(folder: &Path) -> Self {
        let path = folder.join(FILE_NAME);
        let stored = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice::<Stored>(&text).unwrap_or_else(|error| {
                tracing::warn!(
                    path = %path.display(), %error,
                    "cannot read the stored history; starting a new one"
                );
                Stored::default()
            }),
            Err(_) => Stored::default(),
        };
        let series = stored.minutes.into_iter().take(SERIES_MAX).map(|(name, minutes)| {
            let surplus = minutes.len().saturating_sub(MINUTES_KEPT);
            let minutes = minutes.into_iter().skip(surplus).collect();
            (name, Series { minutes, ..Series::default() })
        });
        let state = State { series: series.collect(), written: BTreeMap::new() };
        Self { path, state: Mutex::new(state) }
    }

    /// Adds values of one time.
    pub(crate) fn add(&self, time: u64, figures: &[(String, f64)]) {
        let State { series, written } = &mut *self.lock();
        written.clear();
        for (name, figure) in figures {
            if series.len() < SERIES_MAX || series.contains_key(name) {
                series.entry(name.clone()).or_default().add(time, *figure);
            }
        }
    }

    /// Writes the points per minute to the file. Blocks, so it must not be called on a thread that
    /// serves others.
    pub(crate) fn store(&self) -> std::io::Result<()> {
        let state = self.lock();
        let minutes = state.series.iter().map(|(name, it)| (name.clone(), it.minutes.clone()));
        let stored = Stored { minutes: minutes.collect() };
        drop(state);
        state_file::replace_private_file(&self.path, &serde_json::to_vec(&stored)?)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().series.keys().cloned().collect()
    }

    /// Returns the step and the points of a series in the last `seconds`.
    pub(crate) fn points(&self, name: &str, seconds: u64) -> Option<(u64, Vec<Point>)> {
        self.lock().series.get(name).map(|it| it.points(seconds))
    }

    /// Returns all series of the last `seconds` as JSON. It is cached until the next values arrive.
    pub(crate) fn written(&self, seconds: u64) -> serde_json::Result<Bytes> {
        let State { series, written } = &mut *self.lock();
        if let Some(known) = written.get(&seconds) {
            return Ok(known.clone());
        }
        let shown = series.iter().map(|(name, it)| {
            let (step_seconds, points) = it.points(seconds);
            Shown { series: name, step_seconds, points }
        });
        let text = Bytes::from(serde_json::to_vec(&shown.collect::<Vec<_>>())?);
        if written.len() < WRITTEN_MAX {
            written.insert(seconds, text.clone());
        }
        Ok(text)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn figure(name: &str, figure: f64) -> [(String, f64); 1] {
        [(name.to_owned(), figure)]
    }

    #[test]
    fn minutes_are_means_and_come_back_from_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let history = History::open(folder.path());
        for second in 0..150_u32 {
            history.add(NOW + u64::from(second), &figure("a", f64::from(second)));
        }
        let (step, points) = history.points("a", 10).expect("it is known");
        assert_eq!((step, points.len()), (1, 10));
        assert_eq!(points[9], (NOW + 149, 149.0));
        history.store().expect("there is room");
        let again = History::open(folder.path());
        assert_eq!(again.points("a", 60).expect("it is known").0, MINUTE);
        let (step, points) = again.points("a", 7_200).expect("it is known");
        assert_eq!(step, MINUTE);
        assert_eq!(points, [(NOW, 29.5), (NOW + 60, 89.5)]);
        assert!(again.points("b", 10).is_none());
        assert_eq!(again.names(), ["a"]);
    }

    #[test]
    fn all_series_are_written_once_for_all_until_figures_come() {
        let folder = tempfile::tempdir().expect("a folder");
        let history = History::open(folder.path());
        history.add(NOW, &figure("a", 1.5));
        let written = |seconds| history.written(seconds).expect("it can be written");
        let (one, other) = (written(300), written(300));
        assert_eq!(one.as_ptr(), other.as_ptr());
        let shown = format!("[{{\"series\":\"a\",\"step_seconds\":1,\"points\":[[{NOW},1.5]]}}]");
        assert_eq!(one, shown);
        history.add(NOW + 1, &figure("b", 2.0));
        assert!(written(300).len() > one.len());
        (0..100).for_each(|seconds| assert!(!written(seconds).is_empty()));
        assert_eq!(history.lock().written.len(), WRITTEN_MAX);
    }

    #[test]
    fn memory_is_bounded_and_damage_is_a_new_beginning() {
        let folder = tempfile::tempdir().expect("a folder");
        let history = History::open(folder.path());
        for second in 0..SECONDS_KEPT as u64 + 5 {
            history.add(NOW + second, &figure("a", 1.0));
        }
        let (_, points) = history.points("a", SECONDS_KEPT as u64).expect("it is known");
        assert_eq!(points.len(), SECONDS_KEPT);
        (0..100).for_each(|number| history.add(NOW, &figure(&number.to_string(), 1.0)));
        assert_eq!(history.names().len(), SERIES_MAX);
        std::fs::write(folder.path().join(FILE_NAME), "{").expect("there is room");
        assert!(History::open(folder.path()).names().is_empty());
    }

    #[test]
    fn a_clock_that_is_set_back_leaves_no_later_points() {
        let folder = tempfile::tempdir().expect("a folder");
        let history = History::open(folder.path());
        for time in [NOW, NOW + 60, NOW + 120, NOW + 30, NOW + 200] {
            history.add(time, &figure("a", 1.0));
        }
        let (_, points) = history.points("a", 1_000).expect("it is known");
        let times: Vec<_> = points.iter().map(|it| it.0).collect();
        assert_eq!(times, [NOW, NOW + 30, NOW + 200]);
    }
}
