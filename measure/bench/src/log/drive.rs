//! Load on a log: one writer and its readers, as fast as possible or at a given rate.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use system::Interruption;

use super::due::Schedule;
use super::medium::Medium;
use super::message::{BATCH_BYTES, Batches, verify};
use super::meter::{Meter, Moments, Spent, Window};
use super::mix::{Mix, Tokens};
use super::positions::Positions;
use super::stop::Stop;
use crate::aligned::Aligned;
use crate::clock::Random;
use crate::contents::Data;

/// Number of consecutive batches that a reader replays: 64 MiB.
const REPLAY_BATCHES: u64 = 1024;

/// Assignment of operations to threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// One writer thread, and one thread per reader.
    Apart,
    /// One thread alternates between both.
    One,
}

/// Start condition of operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Loop {
    /// Each starts when the previous one has completed.
    Closed,
    /// At a constant rate, whether or not the medium keeps up.
    Open { operations_per_s: f64 },
}

/// Durability of appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    Never,
    EachAppend,
}

/// Parameters of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) mix: Mix,
    pub(crate) threads: Threads,
    pub(crate) readers: usize,
    pub(crate) data: Data,
    pub(crate) sync: Sync,
    pub(crate) pacing: Loop,
    pub(crate) seed: u64,
    /// Warm-up time, not measured.
    pub(crate) ramp: Duration,
    pub(crate) duration: Duration,
}

impl Load {
    /// Returns the number of busy threads.
    pub(crate) fn thread_count(&self) -> usize {
        match self.threads {
            Threads::Apart if self.mix.has_reads() => 1 + self.readers,
            _ => 1,
        }
    }
}

/// Results of a measurement.
pub(crate) struct Measured {
    pub(crate) reads: Meter,
    pub(crate) appends: Meter,
    /// Maximum number of outstanding operations per thread.
    pub(crate) in_flight: usize,
}

impl Measured {
    /// Returns a combined meter of both kinds.
    pub(crate) fn all(&self) -> Meter {
        let mut all = self.reads.clone();
        all.add(&self.appends);
        all
    }
}

/// A log that was written once from beginning to end.
pub(crate) struct Log {
    name: String,
    medium: Box<dyn Medium>,
    positions: Positions,
}

impl Log {
    /// Writes the whole log, so that every read finds written data.
    pub(crate) fn fill(
        (name, medium): (&str, Box<dyn Medium>),
        size_bytes: u64,
        readers: usize,
        mut batches: Batches,
    ) -> Result<Self> {
        let slots = size_bytes / BATCH_BYTES as u64;
        for batch in 0..slots {
            if Interruption::is_asked_for() {
                bail!("interrupted while the log was filled");
            }
            let offset_bytes = batch * BATCH_BYTES as u64;
            medium
                .append(offset_bytes, batches.make(batch))
                .with_context(|| failed("append", batch, offset_bytes, name))?;
        }
        medium.sync().with_context(|| format!("cannot sync {name}"))?;
        Ok(Self { name: name.to_owned(), medium, positions: Positions::full(slots, readers) })
    }

    /// Runs the load. Fails if a message differs from what was written.
    pub(crate) fn measure(&self, load: &Load) -> Result<Measured> {
        let window = Window { begin: Instant::now() + load.ramp, length: load.duration };
        let scene = Scene { log: self, load, window, stop: Stop::default() };
        let tokens = Tokens::new(load.mix);
        match load.threads {
            Threads::One => scene.with_one_thread(&tokens),
            Threads::Apart => scene.with_threads(&tokens),
        }
    }

    /// Returns remarks on its measurements.
    pub(crate) fn flags(&self) -> Vec<String> {
        self.medium.flags()
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.positions.slots() * BATCH_BYTES as u64
    }

    fn offset_bytes(&self, batch: u64) -> u64 {
        self.positions.slot(batch) * BATCH_BYTES as u64
    }
}

/// Shared state of the threads of a measurement.
struct Scene<'a> {
    log: &'a Log,
    load: &'a Load,
    window: Window,
    stop: Stop,
}

impl Scene<'_> {
    fn with_one_thread(&self, tokens: &Tokens) -> Result<Measured> {
        let (mut writer, mut reader) = (Writer::new(self), Reader::new(self, 0));
        let mut gate = match self.load.pacing {
            Loop::Closed => Gate::Open,
            Loop::Open { operations_per_s } => Gate::Paced(Schedule::new(operations_per_s)),
        };
        thread::scope(|scope| {
            let (ended, all_ended) = mpsc::channel();
            let work = || {
                while !self.stop.is_asked_for() {
                    match tokens.next_is_read() {
                        true => reader.read(&mut gate)?,
                        false => writer.append(&mut gate)?,
                    }
                }
                Ok(())
            };
            let thread = scope.spawn(move || self.stop.ask_after(ended, work));
            self.stop.wait_for_end(self.window, &all_ended);
            thread.join().expect("a thread of the load does not panic")
        })?;
        self.not_interrupted()?;
        Ok(Measured { reads: reader.meter, appends: writer.meter, in_flight: 1 })
    }

    fn with_threads(&self, tokens: &Tokens) -> Result<Measured> {
        let readers = if self.load.mix.has_reads() { self.load.readers } else { 0 };
        let mut writer = Writer::new(self);
        let mut readers: Vec<Reader> = (0..readers).map(|it| Reader::new(self, it)).collect();
        thread::scope(|scope| {
            let (ended, all_ended) = mpsc::channel();
            let reader_count = readers.len() as f64;
            let mut threads = Vec::new();
            for reader in &mut readers {
                let mut gate = match self.load.pacing {
                    Loop::Closed => Gate::Reads(tokens),
                    Loop::Open { operations_per_s } => {
                        let share = self.load.mix.read_share() / reader_count;
                        Gate::Paced(Schedule::new(operations_per_s * share))
                    }
                };
                let ended = ended.clone();
                let mut work = move || reader.read(&mut gate);
                threads.push(scope.spawn(move || {
                    let work = || self.repeat(&mut work);
                    self.stop.ask_after(ended, work)
                }));
            }
            let mut gate = match self.load.pacing {
                Loop::Closed => Gate::Appends(tokens),
                Loop::Open { operations_per_s } => {
                    let share = 1.0 - self.load.mix.read_share();
                    Gate::Paced(Schedule::new(operations_per_s * share))
                }
            };
            let writer = &mut writer;
            let mut work = move || writer.append(&mut gate);
            threads
                .push(scope.spawn(move || self.stop.ask_after(ended, || self.repeat(&mut work))));
            self.stop.wait_for_end(self.window, &all_ended);
            let join = |it: thread::ScopedJoinHandle<'_, Result<()>>| {
                it.join().expect("a thread of the load does not panic")
            };
            // Joins all threads before returning the first error.
            let ends: Vec<Result<()>> = threads.into_iter().map(join).collect();
            ends.into_iter().collect::<Result<()>>()
        })?;
        self.not_interrupted()?;
        let mut reads = Meter::new(self.window);
        for reader in &readers {
            reads.add(&reader.meter);
        }
        Ok(Measured { reads, appends: writer.meter, in_flight: 1 })
    }

    fn repeat(&self, work: &mut impl FnMut() -> Result<()>) -> Result<()> {
        while !self.stop.is_asked_for() {
            work()?;
        }
        Ok(())
    }

    fn not_interrupted(&self) -> Result<()> {
        if Interruption::is_asked_for() {
            bail!("interrupted during a measurement");
        }
        Ok(())
    }
}

/// Condition for starting an operation.
pub(crate) enum Gate<'a> {
    Open,
    Reads(&'a Tokens),
    Appends(&'a Tokens),
    Paced(Schedule),
}

/// Start of an operation, and when it was due.
pub(crate) struct Start {
    pub(crate) due: Option<Instant>,
}

impl Gate<'_> {
    /// Waits until the next operation may start. Returns `None` at the end of the measurement.
    pub(crate) fn pass(&mut self, stop: &Stop) -> Option<Start> {
        let is_open = match self {
            Self::Open => true,
            Self::Reads(tokens) => tokens.take_read(stop),
            Self::Appends(tokens) => tokens.take_append(stop),
            Self::Paced(schedule) => {
                let due = schedule.wait_unless(|| stop.is_asked_for())?;
                return Some(Start { due: Some(due) });
            }
        };
        is_open.then_some(Start { due: None })
    }
}

struct Writer<'a> {
    scene: &'a Scene<'a>,
    batches: Batches,
    meter: Meter,
}

impl<'a> Writer<'a> {
    fn new(scene: &'a Scene<'a>) -> Self {
        let load = scene.load;
        Self { scene, batches: Batches::new(load.data, load.seed), meter: Meter::new(scene.window) }
    }

    fn append(&mut self, gate: &mut Gate<'_>) -> Result<()> {
        let Scene { log, stop, .. } = self.scene;
        let begun = Instant::now();
        let batch = log.positions.next_batch();
        let bytes = self.batches.make(batch);
        let made = Instant::now();
        let Some(start) = gate.pass(stop) else { return Ok(()) };
        if !log.positions.begin_append(stop) {
            return Ok(());
        }
        let offset_bytes = log.offset_bytes(batch);
        let sent = Instant::now();
        log.medium
            .append(offset_bytes, bytes)
            .with_context(|| failed("append", batch, offset_bytes, &log.name))?;
        if self.scene.load.sync == Sync::EachAppend {
            let failed = || failed("sync", batch, offset_bytes, &log.name);
            log.medium.sync().with_context(failed)?;
        }
        let answered = Instant::now();
        log.positions.end_append();
        self.meter.record(Moments { due: start.due, sent, answered });
        self.meter.spend(Spent::Generating, begun, made);
        self.meter.spend(Spent::Waiting, made, sent);
        Ok(())
    }
}

struct Reader<'a> {
    scene: &'a Scene<'a>,
    index: usize,
    random: Random,
    /// Next batch of the replay, and the number of remaining ones.
    next: u64,
    left: u64,
    buffer: Aligned,
    meter: Meter,
}

impl<'a> Reader<'a> {
    fn new(scene: &'a Scene<'a>, index: usize) -> Self {
        Self {
            scene,
            index,
            random: Random::new(scene.load.seed.wrapping_add(1 + index as u64)),
            next: 0,
            left: 0,
            buffer: Aligned::new(BATCH_BYTES),
            meter: Meter::new(scene.window),
        }
    }

    fn read(&mut self, gate: &mut Gate<'_>) -> Result<()> {
        let Scene { log, stop, .. } = self.scene;
        let begun = Instant::now();
        let Some(start) = gate.pass(stop) else { return Ok(()) };
        let batch = self.claim();
        let offset_bytes = log.offset_bytes(batch);
        let sent = Instant::now();
        let read = log.medium.read(offset_bytes, self.buffer.bytes_mut());
        let answered = Instant::now();
        log.positions.end_read(self.index);
        read.with_context(|| failed("read", batch, offset_bytes, &log.name))?;
        verify(self.buffer.bytes(), batch)
            .with_context(|| failed("read", batch, offset_bytes, &log.name))?;
        self.meter.record(Moments { due: start.due, sent, answered });
        self.meter.spend(Spent::Waiting, begun, sent);
        self.meter.spend(Spent::Generating, answered, Instant::now());
        Ok(())
    }

    /// Claims the next batch of this replay, or the first of another one at a random position.
    fn claim(&mut self) -> u64 {
        let positions = &self.scene.log.positions;
        while self.left == 0 || !positions.begin_read(self.index, self.next) {
            self.next = positions.random_place(&mut self.random);
            self.left = REPLAY_BATCHES;
        }
        let batch = self.next;
        self.next += 1;
        self.left -= 1;
        batch
    }
}

fn failed(operation: &str, batch: u64, offset_bytes: u64, name: &str) -> String {
    format!("cannot {operation} batch {batch} at byte {offset_bytes} of {name}")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::latency::count_from;

    const SLOTS: usize = 12;

    /// Memory with injectable failures and corruption.
    struct Memory {
        slots: Vec<Mutex<Vec<u8>>>,
        fail_at: Option<(&'static str, usize)>,
        flip_at: Option<usize>,
        syncs: AtomicU64,
    }

    fn memory() -> Memory {
        let slots = (0..SLOTS).map(|_| Mutex::new(vec![0; BATCH_BYTES])).collect();
        Memory { slots, fail_at: None, flip_at: None, syncs: AtomicU64::new(0) }
    }

    impl Memory {
        fn slot(&self, operation: &str, offset_bytes: u64) -> Result<usize> {
            let slot = usize::try_from(offset_bytes).expect("small") / BATCH_BYTES;
            if self.fail_at == Some((operation, slot)) {
                bail!("out of order");
            }
            Ok(slot)
        }
    }

    impl Medium for Arc<Memory> {
        fn append(&self, offset_bytes: u64, batch: &[u8]) -> Result<()> {
            let slot = self.slot("append", offset_bytes)?;
            self.slots[slot].lock().expect("no thread panics").copy_from_slice(batch);
            Ok(())
        }

        fn read(&self, offset_bytes: u64, batch: &mut [u8]) -> Result<()> {
            let slot = self.slot("read", offset_bytes)?;
            batch.copy_from_slice(&self.slots[slot].lock().expect("no thread panics"));
            if self.flip_at == Some(slot) {
                batch[1000] ^= 1;
            }
            Ok(())
        }

        fn sync(&self) -> Result<()> {
            self.syncs.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    fn load() -> Load {
        Load {
            mix: Mix::READS_80,
            threads: Threads::Apart,
            readers: 2,
            data: Data::Random,
            sync: Sync::Never,
            pacing: Loop::Closed,
            seed: 1,
            ramp: Duration::ZERO,
            duration: Duration::from_millis(200),
        }
    }

    fn measure(memory: Memory, load: Load) -> (Arc<Memory>, Result<Measured>) {
        let memory = Arc::new(memory);
        let medium = Box::new(Arc::clone(&memory));
        let size_bytes = (SLOTS * BATCH_BYTES) as u64;
        let batches = Batches::new(load.data, 7);
        let log = Log::fill(("memory", medium), size_bytes, load.readers, batches);
        let measured = log.and_then(|log| log.measure(&load));
        (memory, measured)
    }

    const LONGEST: Duration = Duration::from_secs(10);

    #[track_caller]
    fn check_mix(mut load: Load) {
        // On a busy host, the threads may get no processor in a short time.
        let (reads, appends) = loop {
            let measured = measure(memory(), load).1.expect("memory does not fail");
            let (reads, appends) = (measured.reads.operations(), measured.appends.operations());
            if appends > SLOTS as u64 || load.duration > LONGEST {
                break (reads, appends);
            }
            load.duration *= 2;
        };
        assert!(appends > SLOTS as u64, "the log did not wrap around: {appends} appends");
        // One side may lead by a few operations, independent of the total.
        let percent = load.mix.reads_percent();
        let difference = (reads * (100 - percent)).abs_diff(appends * percent);
        assert!(difference <= 5000, "{reads} reads, {appends} appends");
    }

    #[test]
    fn threads_keep_to_the_mix_while_the_log_wraps_around() {
        check_mix(load());
        check_mix(Load { mix: Mix::APPENDS, ..load() });
    }

    #[test]
    fn one_thread_keeps_to_the_mix_while_the_log_wraps_around() {
        check_mix(Load { threads: Threads::One, ..load() });
        check_mix(Load { threads: Threads::One, mix: Mix::APPENDS, ..load() });
    }

    /// Duration of the stalled append, a tenth of a second, and its index.
    const STALLS_PER_S: u32 = 10;
    const STALL: Duration = Duration::from_millis(100);
    const STALLED: u64 = SLOTS as u64 + 10;
    /// Total number of appends, including those due during the stall, and their rate.
    const APPENDS: u64 = STALLED + 40;
    const OPERATIONS_PER_S: u32 = 1000;

    /// Memory in which one append stalls.
    struct Stalling {
        memory: Arc<Memory>,
        appends: Arc<AtomicU64>,
    }

    impl Medium for Stalling {
        fn append(&self, offset_bytes: u64, batch: &[u8]) -> Result<()> {
            if self.appends.fetch_add(1, Ordering::Relaxed) == STALLED {
                thread::sleep(STALL);
            }
            self.memory.append(offset_bytes, batch)
        }

        fn read(&self, offset_bytes: u64, batch: &mut [u8]) -> Result<()> {
            self.memory.read(offset_bytes, batch)
        }

        fn sync(&self) -> Result<()> {
            self.memory.sync()
        }
    }

    /// Measures until all appends due during the stall have completed, independent of the host's
    /// speed.
    fn measure_a_stall(threads: Threads) -> Measured {
        let pacing = Loop::Open { operations_per_s: OPERATIONS_PER_S.into() };
        let load = Load { threads, pacing, duration: Duration::from_secs(60), ..load() };
        let appends = Arc::new(AtomicU64::new(0));
        let memory = Arc::new(memory());
        let medium = Box::new(Stalling { memory, appends: Arc::clone(&appends) });
        let (size_bytes, batches) =
            ((SLOTS * BATCH_BYTES) as u64, Batches::new(load.data, load.seed));
        let log = Log::fill(("memory", medium), size_bytes, load.readers, batches);
        let log = log.expect("memory does not fail");
        let tokens = Tokens::new(load.mix);
        let begin = Instant::now();
        let window = Window { begin, length: load.duration };
        let scene = Scene { log: &log, load: &load, window, stop: Stop::default() };
        let measured = thread::scope(|scope| {
            let running = scope.spawn(|| match threads {
                Threads::One => scene.with_one_thread(&tokens),
                Threads::Apart => scene.with_threads(&tokens),
            });
            let are_made = || Ok(appends.load(Ordering::Relaxed) >= APPENDS);
            system::wait_for("the appends", load.duration, are_made).expect("they are made");
            scene.stop.ask();
            running.join().expect("no thread panics").expect("memory does not fail")
        });
        let due = begin.elapsed().as_secs_f64() * f64::from(OPERATIONS_PER_S);
        let made = measured.all().operations() as f64;
        // Each thread starts its first operation immediately.
        assert!(made <= due + 4.0, "{made} operations, and {due} were due");
        measured
    }

    #[test]
    fn a_steady_rate_is_kept_and_measured_from_when_operations_were_due() {
        for threads in [Threads::One, Threads::Apart] {
            let measured = measure_a_stall(threads);
            let (meter, per_s) = match threads {
                Threads::One => (measured.all(), OPERATIONS_PER_S),
                Threads::Apart => (measured.appends, OPERATIONS_PER_S / 5),
            };
            let [intended, service] =
                [meter.intended(), meter.service()].map(|it| it.expect("there were operations"));
            // Operations due during the stall waited for the rest of it.
            let interval = Duration::from_secs(1) / per_s;
            for late in 1..per_s / STALLS_PER_S {
                let count = count_from(&intended, STALL - interval * late);
                assert!(count > u64::from(late), "{late} are late: {intended:?}");
            }
            // Measured from when they were sent, hardly any took as long.
            assert!(count_from(&service, STALL) >= 1 && intended.mean > service.mean);
        }
    }

    #[test]
    fn each_append_is_made_durable_when_that_is_asked_for() {
        let load = Load { sync: Sync::EachAppend, threads: Threads::One, ..load() };
        let (memory, measured) = measure(memory(), load);
        let appends = measured.expect("memory does not fail").appends.operations();
        assert!(memory.syncs.load(Ordering::Relaxed) > appends, "the fill ends with one");
    }

    #[track_caller]
    fn check_failure(memory: Memory, expected: &[&str]) {
        for threads in [Threads::One, Threads::Apart] {
            let (_, measured) = measure(
                Memory { slots: memory_slots(), syncs: AtomicU64::new(0), ..memory },
                Load { threads, duration: Duration::from_secs(60), ..load() },
            );
            let error = measured.err().expect("the medium fails");
            let text = format!("{error:#}");
            assert!(expected.iter().all(|it| text.contains(it)), "{text}");
        }
    }

    fn memory_slots() -> Vec<Mutex<Vec<u8>>> {
        memory().slots
    }

    #[test]
    fn a_medium_that_fails_ends_the_run_with_the_operation_and_its_place() {
        let fail_at = Some(("append", 5));
        let expected = ["cannot append batch 5 at byte 327680 of memory", "out of order"];
        check_failure(Memory { fail_at, ..memory() }, &expected);
        let fail_at = Some(("read", 3));
        let expected = ["cannot read batch", "at byte 196608 of memory", "out of order"];
        check_failure(Memory { fail_at, ..memory() }, &expected);
    }

    #[test]
    fn a_message_that_changed_ends_the_run() {
        let memory = Memory { flip_at: Some(9), ..memory() };
        check_failure(memory, &["at byte 589824 of memory", "checksum mismatch of message"]);
    }
}
