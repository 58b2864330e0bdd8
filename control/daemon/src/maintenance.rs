//! The thread that does what nobody waits for: it keeps the engine's house and watches the pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use api::ByteSize;
use volume::{Engine, PoolUsage, Work};

use crate::pace::{Pace, Pacer};

/// How often an idle daemon looks for work.
const IDLE_INTERVAL: Duration = Duration::from_millis(500);

/// Between two pieces of work, so that clients get the processor first.
const BUSY_INTERVAL: Duration = Duration::from_millis(1);

/// How often it looks for a quiet moment while something waits to be compressed.
const WAITING_INTERVAL: Duration = Duration::from_millis(50);

/// How often everything else is looked after.
const NOW_AND_THEN: Duration = Duration::from_secs(10);

/// How full the pool is when somebody should know, in percent.
const WATERMARKS_PERCENT: [u64; 3] = [80, 90, 95];

/// How far below a watermark the pool must fall before the warning is taken back, in percent.
const HYSTERESIS_PERCENT: u64 = 2;

/// How full the pool is, in steps that stay put while the usage wavers.
#[derive(Debug, Default)]
pub(crate) struct PoolWatch {
    /// How many watermarks are passed.
    level: AtomicUsize,
}

impl PoolWatch {
    /// The highest watermark that is passed, in percent.
    pub(crate) fn passed_percent(&self) -> Option<u64> {
        // Relaxed: the level says nothing about other memory.
        let level = self.level.load(Ordering::Relaxed);
        level.checked_sub(1).and_then(|index| WATERMARKS_PERCENT.get(index).copied())
    }

    /// Takes note of the usage, and logs when it passes a watermark or falls clearly below one.
    /// Called by one thread.
    fn observe(&self, usage: &PoolUsage) {
        let level_before = self.level.load(Ordering::Relaxed);
        let level = level_after(level_before, used_percent(usage));
        self.level.store(level, Ordering::Relaxed);
        let used = ByteSize(usage.used_bytes).rounded();
        let size = ByteSize(usage.size_bytes).rounded();
        let percent = used_percent(usage);
        if level > level_before {
            tracing::warn!(%used, %size, percent, "the pool fills; delete or discard data");
        } else if level < level_before {
            tracing::info!(%used, %size, percent, "the pool has room again");
        }
    }
}

/// Does a piece of the engine's work. Returns how long to wait before the next.
fn do_some_work(engine: &Engine, pace: Pace) -> Duration {
    let work = if pace == Pace::Rest { Work::ButCompression } else { Work::All };
    let begun = Instant::now();
    let is_busy = engine.maintain_only(work);
    let is_waiting = engine.usage().pending_bytes > 0;
    match (is_busy, is_waiting) {
        (true, true) if work == Work::All => pace.pause_after(begun.elapsed()),
        (true, _) => BUSY_INTERVAL,
        (false, true) if work == Work::ButCompression => WAITING_INTERVAL,
        (false, _) => IDLE_INTERVAL,
    }
}

/// Touches a piece of the pool's memory before requests do. Returns where the next one begins.
fn make_ready(engine: &Engine, offset: u64) -> Option<u64> {
    engine.populate(offset).unwrap_or_else(|error| {
        tracing::debug!(%error, "the pool's memory is made ready as it is used");
        None
    })
}

fn used_percent(usage: &PoolUsage) -> u64 {
    let percent = u128::from(usage.used_bytes) * 100 / u128::from(usage.size_bytes.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

fn level_after(level: usize, percent: u64) -> usize {
    let passed = |margin| {
        WATERMARKS_PERCENT.iter().filter(|&&watermark| percent + margin >= watermark).count()
    };
    level.clamp(passed(0), passed(HYSTERESIS_PERCENT))
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct Maintenance {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Maintenance {
    /// Does the engine's work and calls `now_and_then` every few seconds. `request_count` tells how
    /// many requests there have been: compression waits while there are many.
    pub(crate) fn start(
        engine: Arc<Engine>,
        watch: Arc<PoolWatch>,
        request_count: impl Fn() -> u64 + Send + 'static,
        now_and_then: impl Fn() + Send + 'static,
    ) -> anyhow::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let work = move || {
            let mut interval = Duration::ZERO;
            let mut last = Instant::now();
            let mut unready = Some(0);
            let mut pacer = Pacer::new(last, request_count());
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                pacer.observe(Instant::now(), request_count());
                interval = do_some_work(&engine, pacer.pace(&engine.usage()));
                unready = unready.and_then(|offset| make_ready(&engine, offset));
                if unready.is_some() {
                    interval = interval.min(BUSY_INTERVAL);
                }
                watch.observe(&engine.usage());
                if last.elapsed() >= NOW_AND_THEN {
                    now_and_then();
                    last = Instant::now();
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("maintenance".to_owned())
            .spawn(work)
            .context("cannot start the maintenance thread")?;
        Ok(Self { stop, thread })
    }

    /// Waits for the piece of work in hand, which is short.
    pub(crate) fn stop(self) {
        drop(self.stop);
        self.thread.join().expect("the maintenance thread does not panic");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(percents: &[u64], expected: &[usize]) {
        let mut level = 0;
        let levels = percents.iter().map(|&percent| {
            level = level_after(level, percent);
            level
        });
        assert_eq!(levels.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn each_watermark_that_is_passed_raises_the_level() {
        check(&[0, 79, 80, 89, 90, 94, 95, 100], &[0, 0, 1, 1, 2, 2, 3, 3]);
        check(&[100], &[3]);
    }

    #[test]
    fn the_level_falls_only_when_the_usage_is_clearly_lower() {
        check(&[80, 79, 78, 77, 79], &[1, 1, 1, 0, 0]);
        check(&[95, 93, 92, 89, 88, 87], &[3, 3, 2, 2, 2, 1]);
        check(&[100, 0], &[3, 0]);
    }

    #[test]
    fn the_watch_tells_the_highest_watermark_that_is_passed() {
        let watch = PoolWatch::default();
        assert_eq!(watch.passed_percent(), None);
        watch.observe(&PoolUsage { size_bytes: 100, used_bytes: 91, ..PoolUsage::default() });
        assert_eq!(watch.passed_percent(), Some(90));
    }
}
