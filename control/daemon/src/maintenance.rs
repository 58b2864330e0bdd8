//! Monitoring of the pool by the maintenance thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use anyhow::Context;
use api::{ByteSize, counted};
use maintenance::{IdleCompression, Maintenance};
use volumes::{Engine, PoolUsage, steps_after};

use crate::events::EventLog;
use crate::forecast::{Filling, Sample};
use crate::watchdog::Pulse;

/// Interval of periodic work other than the maintenance of the pool.
const NOW_AND_THEN: Duration = Duration::from_secs(10);

/// Fill level of the pool in thresholds, with hysteresis.
#[derive(Debug)]
pub(crate) struct PoolWatch {
    /// Thresholds in ascending order.
    thresholds_percent: RwLock<Vec<u64>>,
    /// Number of thresholds that are exceeded.
    level: AtomicUsize,
    events: Arc<EventLog>,
    /// Heartbeat of the observation.
    pulse: Pulse,
}

impl PoolWatch {
    pub(crate) fn new(mut thresholds_percent: Vec<u64>, events: Arc<EventLog>) -> Self {
        thresholds_percent.sort_unstable();
        let thresholds_percent = RwLock::new(thresholds_percent);
        let (level, pulse) = (AtomicUsize::new(0), Pulse::default());
        Self { thresholds_percent, level, events, pulse }
    }

    pub(crate) fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    pub(crate) fn thresholds_percent(&self) -> Vec<u64> {
        self.thresholds().clone()
    }

    /// Replaces the thresholds. They apply from the next observation on.
    pub(crate) fn set_thresholds(&self, mut thresholds_percent: Vec<u64>) {
        thresholds_percent.sort_unstable();
        *self.thresholds_percent.write().expect(NO_PANIC) = thresholds_percent;
    }

    fn thresholds(&self) -> RwLockReadGuard<'_, Vec<u64>> {
        self.thresholds_percent.read().expect(NO_PANIC)
    }

    /// Highest exceeded threshold, in percent.
    pub(crate) fn passed_percent(&self) -> Option<u64> {
        // Relaxed: the level does not guard other memory.
        let level = self.level.load(Ordering::Relaxed);
        level.checked_sub(1).and_then(|index| self.thresholds().get(index).copied())
    }

    /// Records the usage, and reports when it exceeds a threshold or falls clearly below one.
    /// Called by one thread.
    fn observe(&self, usage: &PoolUsage) {
        let level_before = self.level.load(Ordering::Relaxed);
        let percent = used_percent(usage);
        let begins: Vec<u64> = self.thresholds().iter().map(|percent| percent * 10).collect();
        let level = steps_after(&begins, level_before, usage.used_bytes, usage.size_bytes);
        self.level.store(level, Ordering::Relaxed);
        let used = ByteSize(usage.used_bytes).rounded();
        let size = ByteSize(usage.size_bytes).rounded();
        if level > level_before {
            let message = format!(
                "the pool is {percent} % full: {used} of {size}; delete or discard data, or \
                 enlarge it with memlane pool set max-memory=SIZE"
            );
            self.events.warning("pool_filling", None, message);
        } else if level < level_before {
            let message = format!("pool usage fell below the threshold: {used} of {size}");
            self.events.info("pool_has_room", None, message);
        }
    }

    /// Reports when the host lacks memory for the pool, and when the shortage ends.
    fn observe_shortage(&self, before: Option<&str>, now: Option<&str>) {
        match (before, now) {
            (None, Some(why)) => {
                let message = format!(
                    "the host has too little free memory for the pool; writes that need it fail \
                     with \"no space\", and the pool retries every second. Free memory on the \
                     host, or shrink the pool: {why}"
                );
                self.events.warning("pool_memory_missing", None, message);
            }
            (Some(_), None) => {
                let message = "the host has enough free memory for the pool again".to_owned();
                self.events.info("pool_memory_found", None, message);
            }
            _ => {}
        }
    }

    /// Reports newly found damaged blocks.
    fn observe_damage(&self, before: u64, now: u64) {
        if now > before {
            let message = format!(
                "found {}; reads of the damaged data fail until it is overwritten",
                counted(now - before, "more damaged block")
            );
            self.events.error("pool_damaged", None, message);
        }
    }
}

const NO_PANIC: &str = "no thread panics with this lock";

fn used_percent(usage: &PoolUsage) -> u64 {
    let percent = u128::from(usage.used_bytes) * 100 / u128::from(usage.size_bytes.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

/// Maintains the engine, observes the pool, and calls `now_and_then` every few seconds.
pub(crate) fn start(
    engine: &Arc<Engine>,
    idle: Option<IdleCompression>,
    (watch, filling): (Arc<PoolWatch>, Arc<Filling>),
    now_and_then: impl Fn() + Send + 'static,
) -> anyhow::Result<Maintenance> {
    let mut lookout = Lookout::new(Arc::clone(engine), watch, filling, Instant::now());
    let after_step = move |usage: &PoolUsage| {
        if lookout.look(usage, Instant::now()) {
            now_and_then();
        }
    };
    Maintenance::start_with(Arc::clone(engine), idle, after_step)
        .context("cannot start the maintenance thread")
}

/// Observes the pool after each step of its maintenance.
pub(crate) struct Lookout {
    engine: Arc<Engine>,
    watch: Arc<PoolWatch>,
    filling: Arc<Filling>,
    shortage_before: Option<String>,
    damaged_before: u64,
    /// Time of the last periodic work.
    last: Instant,
}

impl Lookout {
    pub(crate) fn new(
        engine: Arc<Engine>,
        watch: Arc<PoolWatch>,
        filling: Arc<Filling>,
        now: Instant,
    ) -> Self {
        filling.observe(sample(&engine, now));
        Self { engine, watch, filling, shortage_before: None, damaged_before: 0, last: now }
    }

    /// Returns whether periodic work is due.
    pub(crate) fn look(&mut self, usage: &PoolUsage, now: Instant) -> bool {
        self.watch.observe(usage);
        let shortage = self.engine.memory_shortage();
        self.watch.observe_shortage(self.shortage_before.as_deref(), shortage.as_deref());
        self.shortage_before = shortage;
        self.watch.pulse.beat();
        let is_time = now.saturating_duration_since(self.last) >= NOW_AND_THEN;
        if is_time {
            self.filling.observe(sample(&self.engine, now));
            let damaged = self.engine.damaged_entries();
            self.watch.observe_damage(self.damaged_before, damaged);
            self.damaged_before = damaged;
            self.last = now;
        }
        is_time
    }
}

/// Current usage of the pool and its volumes.
pub(crate) fn sample(engine: &Engine, at: Instant) -> Sample {
    let volumes = engine.volumes();
    let mut written_bytes: Vec<_> =
        volumes.iter().map(|volume| (volume.id(), volume.written_bytes())).collect();
    written_bytes.sort_unstable();
    // Claimed memory counts as used.
    let used_bytes = engine.usage().committed_bytes();
    Sample { at, used_bytes, written_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watch_tells_the_highest_threshold_that_is_passed_and_of_damage() {
        let events = Arc::<EventLog>::default();
        let watch = PoolWatch::new(vec![95, 50, 90], Arc::clone(&events));
        assert_eq!(watch.passed_percent(), None);
        watch.observe(&PoolUsage { size_bytes: 100, used_bytes: 91, ..PoolUsage::default() });
        assert_eq!(watch.passed_percent(), Some(90));
        watch.observe(&PoolUsage { size_bytes: 100, used_bytes: 9, ..PoolUsage::default() });
        watch.observe_shortage(None, None);
        watch.observe_shortage(None, Some("why"));
        watch.observe_shortage(Some("why"), Some("another"));
        watch.observe_shortage(Some("another"), None);
        watch.observe_damage(0, 0);
        watch.observe_damage(0, 3);
        let kinds: Vec<_> = events.after(0).into_iter().map(|event| event.kind).collect();
        let of_memory = ["pool_memory_missing", "pool_memory_found"];
        assert_eq!(kinds[..2], ["pool_filling", "pool_has_room"]);
        assert_eq!(
            (&kinds[2..4], kinds[4].as_str()),
            (&of_memory.map(str::to_owned)[..], "pool_damaged")
        );
    }
}
