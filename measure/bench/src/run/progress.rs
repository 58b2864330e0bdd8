//! Progress of a run: a bar on a terminal, otherwise periodic lines.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

const TICK: Duration = Duration::from_millis(200);

/// Interval of lines without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Display state of the running step.
static SHOWN: Mutex<Option<Shown>> = Mutex::new(None);

struct Shown {
    bar: Option<ProgressBar>,
    step: String,
    last_line: Instant,
}

/// Shows the progress within the running step, if there is one.
pub(crate) fn show_part(text: &str) {
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(Shown { bar, step, last_line }) = &mut *shown else { return };
    if let Some(bar) = bar {
        bar.set_message(format!("{step}: {text}"));
    } else if last_line.elapsed() >= LINE_INTERVAL {
        *last_line = Instant::now();
        output::progress(&format!("{step}: {text}"));
    }
}

fn show(shown: Option<Shown>) {
    *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = shown;
}

/// Display of the running step and the remaining time. Planned durations are scaled by those of
/// earlier steps.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    step_count: usize,
    done_count: usize,
    planned_seconds: f64,
    done_seconds: f64,
    begun: Instant,
    last_line: Option<Instant>,
}

impl Progress {
    pub(crate) fn new(step_count: usize, planned_seconds: f64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}")
                .expect("the template is fixed");
            let bar = ProgressBar::new(step_count as u64).with_style(style);
            bar.enable_steady_tick(TICK);
            bar
        });
        let (done_count, done_seconds) = (0, 0.0);
        let (begun, last_line) = (Instant::now(), None);
        Self { bar, step_count, done_count, planned_seconds, done_seconds, begun, last_line }
    }

    pub(crate) fn begin(&mut self, step: &str) {
        let spent = self.begun.elapsed().as_secs_f64();
        let left = time_left_s(self.planned_seconds, self.done_seconds, spent);
        let left = duration_text(left);
        let last_line = Instant::now();
        show(Some(Shown { bar: self.bar.clone(), step: step.to_owned(), last_line }));
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{step}, {left} left"));
            return;
        }
        if self.last_line.is_none_or(|last| last.elapsed() >= LINE_INTERVAL) {
            self.last_line = Some(Instant::now());
            let (number, count) = (self.done_count + 1, self.step_count);
            output::progress(&format!("{number}/{count} {step}, {left} left"));
        }
    }

    pub(crate) fn end(&mut self, planned_seconds: f64) {
        show(None);
        self.done_count += 1;
        self.done_seconds += planned_seconds;
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        show(None);
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Returns the planned rest, scaled by the speed so far.
fn time_left_s(planned: f64, done: f64, spent: f64) -> f64 {
    let pace = if done > 0.0 { spent / done } else { 1.0 };
    (planned - done).max(0.0) * pace
}

/// Formats a duration: `40 s`, `3 min`, `2 h 10 min`.
pub(crate) fn duration_text(seconds: f64) -> String {
    if seconds < 90.0 {
        return format!("{seconds:.0} s");
    }
    let minutes = (seconds / 60.0).round();
    if minutes < 90.0 {
        return format!("{minutes:.0} min");
    }
    format!("{:.0} h {:.0} min", (minutes / 60.0).floor(), minutes % 60.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_the_pace_so_far() {
        assert_eq!(time_left_s(100.0, 0.0, 0.0), 100.0);
        assert_eq!(time_left_s(100.0, 50.0, 100.0), 100.0);
        assert_eq!(time_left_s(100.0, 100.0, 7.0), 0.0);
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(duration_text(40.2), "40 s");
        assert_eq!(duration_text(180.0), "3 min");
        assert_eq!(duration_text(7_800.0), "2 h 10 min");
    }
}
