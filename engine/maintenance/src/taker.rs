//! Takes the pool's memory ahead of writers, in several threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use volumes::{Engine, PoolUsage};

use crate::host::Host;
use crate::pace::Pacer;

/// Amount of free memory beyond which taking more yields the processors to others.
const AHEAD_BYTES: u64 = 256 << 20;

/// Interval between checks while other threads take the rest.
const OTHERS_INTERVAL: Duration = Duration::from_millis(1);

/// Interval between attempts to take memory that the host lacks.
const SHORTAGE_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of threads that take memory, besides the maintenance thread.
const HELPERS_MAX: usize = 7;

/// Number of helper threads. Half of the processors are left to others.
pub(crate) fn helper_count() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).clamp(1, HELPERS_MAX)
}

/// State of one thread that takes memory.
pub(crate) struct Taker {
    engine: Arc<Engine>,
    pacer: Pacer,
    host: Host,
}

impl Taker {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let pacer = Pacer::new(Instant::now(), engine.activity_of_others());
        Self { engine, pacer, host: Host::default() }
    }

    /// Takes a piece of memory. Returns the time until the next piece, or `None` when the pool has
    /// all of its memory.
    pub(crate) fn step(&mut self) -> Option<Duration> {
        if self.engine.untaken_bytes() == 0 {
            return None;
        }
        let begun = Instant::now();
        Some(match self.engine.take_memory() {
            Ok(true) if self.engine.ready_bytes() < AHEAD_BYTES => Duration::ZERO,
            Ok(true) => self.pause_after(begun),
            Ok(false) => OTHERS_INTERVAL,
            // The engine keeps the reason: see `Engine::memory_shortage`.
            Err(_) => SHORTAGE_INTERVAL,
        })
    }

    fn pause_after(&mut self, begun: Instant) -> Duration {
        let took = begun.elapsed();
        self.pacer.observe(begun, self.engine.activity_of_others());
        let pace = self.pacer.pace(&PoolUsage::default(), || self.host.idle_cores(begun));
        pace.pause_after(took)
    }
}
