//! What the thread that keeps the engine's house does for the daemon: it watches the pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use api::ByteSize;
use upkeep::Upkeep;
use volume::{Engine, PoolUsage};

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

/// Keeps the engine's house, watches the pool and calls `now_and_then` every few seconds.
pub(crate) fn start(
    engine: &Arc<Engine>,
    watch: Arc<PoolWatch>,
    now_and_then: impl Fn() + Send + 'static,
) -> anyhow::Result<Upkeep> {
    let mut last = Instant::now();
    let after_turn = move |usage: &PoolUsage| {
        watch.observe(usage);
        if last.elapsed() >= NOW_AND_THEN {
            now_and_then();
            last = Instant::now();
        }
    };
    Upkeep::start(Arc::clone(engine), after_turn).context("cannot start the maintenance thread")
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
