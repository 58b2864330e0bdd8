//! The maintenance thread and its loop.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use volumes::{Engine, PoolUsage, Work};

use crate::host::Host;
use crate::idle::{IdleCompression, IdleWork};
use crate::pace::{Pace, Pacer};
use crate::taker::{self, Taker};

/// Interval between checks of an idle engine.
const IDLE_INTERVAL: Duration = Duration::from_millis(500);

/// Pause between two steps of work, which gives clients priority.
const BUSY_INTERVAL: Duration = Duration::from_millis(1);

/// Interval between checks of the traffic while pages wait for compression.
const WAITING_INTERVAL: Duration = Duration::from_millis(50);

/// The maintenance thread, and the helpers that take the pool's memory. When this is dropped, they
/// end after their current step, which is short.
#[derive(Debug)]
pub struct Maintenance {
    running: Vec<Running>,
}

/// A thread that ends when its sender is dropped.
#[derive(Debug)]
struct Running {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Running {
    fn start(name: &str, work: impl FnOnce(Receiver<()>) + Send + 'static) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(|| work(stopped))?;
        Ok(Self { stop, thread })
    }
}

impl Maintenance {
    /// Starts the thread, which holds the engine. `after_step` is called after each step of work,
    /// and twice a second while there is none. It must return quickly.
    pub fn start(
        engine: Arc<Engine>,
        after_step: impl FnMut(&PoolUsage) + Send + 'static,
    ) -> io::Result<Self> {
        Self::start_with(engine, None, after_step)
    }

    /// Starts the thread like [`Maintenance::start`], optionally with idle compression.
    pub fn start_with(
        engine: Arc<Engine>,
        idle: Option<IdleCompression>,
        mut after_step: impl FnMut(&PoolUsage) + Send + 'static,
    ) -> io::Result<Self> {
        let mut maintenance = Self { running: Vec::new() };
        let helpers = if engine.untaken_bytes() > 0 { taker::helper_count() } else { 0 };
        for _ in 0..helpers {
            let taker = Taker::new(Arc::clone(&engine));
            maintenance.running.push(Running::start("memory", |stopped| help(taker, &stopped))?);
        }
        let mut maintenance_loop = MaintenanceLoop::new(engine, idle);
        let work = move |stopped| maintenance_loop.work_until(&stopped, &mut after_step);
        maintenance.running.push(Running::start("maintenance", work)?);
        Ok(maintenance)
    }
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        let (stops, threads): (Vec<_>, Vec<_>) =
            self.running.drain(..).map(|running| (running.stop, running.thread)).unzip();
        drop(stops);
        for thread in threads {
            // The thread itself reported its panic, and the owner is ending anyway.
            let _ended = thread.join();
        }
    }
}

/// Takes memory until the pool has its full size.
fn help(mut taker: Taker, stopped: &Receiver<()>) {
    let mut pause = Duration::ZERO;
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let Some(next) = taker.step() else { return };
        pause = next;
    }
}

/// Background work of one engine, performed in steps.
struct MaintenanceLoop {
    engine: Arc<Engine>,
    pacer: Pacer,
    host: Host,
    taker: Taker,
    /// `None`: no idle compression.
    idle: Option<IdleWork>,
    /// Offset of the next piece of the pool's memory to populate, and the size of the pool then.
    unready: Option<u64>,
    ready_bytes: u64,
}

impl MaintenanceLoop {
    fn new(engine: Arc<Engine>, idle: Option<IdleCompression>) -> Self {
        let idle = idle.map(|settings| IdleWork::new(settings, Instant::now()));
        let pacer = Pacer::new(Instant::now(), engine.activity_of_others());
        let taker = Taker::new(Arc::clone(&engine));
        let host = Host::default();
        Self { engine, pacer, host, taker, idle, unready: None, ready_bytes: 0 }
    }

    fn work_until(&mut self, stopped: &Receiver<()>, after_step: &mut impl FnMut(&PoolUsage)) {
        let mut interval = Duration::ZERO;
        while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
            interval = self.step();
            let pauses = [self.make_ready(), self.taker.step(), self.compress_idle()];
            interval = pauses.into_iter().flatten().fold(interval, Duration::min);
            after_step(&self.engine.usage());
        }
    }

    /// Performs a step. Returns the time until the next.
    fn step(&mut self) -> Duration {
        let begun = Instant::now();
        let pace = self.pace(begun);
        let work = if pace == Pace::Rest { Work::ButCompression } else { Work::All };
        let has_idle_reads = self.engine.has_idle_reads();
        let is_busy = self.engine.maintain_only(work);
        let is_waiting = self.is_waiting();
        match (is_busy, is_waiting) {
            (true, true) if work == Work::All => pace.pause_after(begun.elapsed()),
            // Readers of much idle data have priority over restoring the pages that they read.
            (true, _) if has_idle_reads => BUSY_INTERVAL.max(pace.pause_after(begun.elapsed())),
            (true, _) => BUSY_INTERVAL,
            (false, true) if work == Work::ButCompression => WAITING_INTERVAL,
            (false, _) => IDLE_INTERVAL,
        }
    }

    fn pace(&mut self, now: Instant) -> Pace {
        self.pacer.observe(now, self.engine.activity_of_others());
        // If nothing waits for compression, idle processors are irrelevant.
        let is_waiting = self.is_waiting() || self.idle.is_some();
        let host = &mut self.host;
        let idle_cores = || if is_waiting { host.idle_cores(now) } else { 0.0 };
        self.pacer.pace(&self.engine.usage(), idle_cores)
    }

    /// Performs a step of idle compression, if it is due. Returns the time until the next, if there
    /// is more.
    fn compress_idle(&mut self) -> Option<Duration> {
        let Self { engine, pacer, host, idle, .. } = self;
        idle.as_mut()?.step(engine, |now| pacer.pace(&engine.usage(), || host.idle_cores(now)))
    }

    fn is_waiting(&self) -> bool {
        self.engine.pending_bytes() > 0
    }

    /// Populates a piece of the pool's memory before requests use it. Returns the time until the
    /// next piece, if there is more.
    fn make_ready(&mut self) -> Option<Duration> {
        let begun = Instant::now();
        let size_bytes = self.engine.size_bytes();
        if size_bytes > self.ready_bytes {
            // Memory that is already populated takes no time.
            self.unready = Some(0);
        }
        self.ready_bytes = size_bytes;
        // If this fails, memory is populated when it is first used.
        let next = |offset| self.engine.populate(offset).unwrap_or(None);
        self.unready = self.unready.and_then(next);
        self.unready?;
        let took = begun.elapsed();
        Some(self.pace(begun).pause_after(took).max(BUSY_INTERVAL))
    }
}
