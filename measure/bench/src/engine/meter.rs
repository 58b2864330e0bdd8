//! Work and measurements of one thread.

use std::time::Duration;

use anyhow::Result;
use block_device::{BlockDevice, ByteRange};

use super::setup::EngineSetup;
use crate::case::{Case, Op, Pattern};
use crate::clock::nanoseconds;
use crate::contents::{Contents, Data};
use crate::floor::{self, Encoded, Places};
use crate::latency::Latencies;

/// Number of requests per clock reading.
const BATCH: u64 = 64;

/// Total time of a number of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) ns: u64,
    pub(crate) count: u64,
}

impl Spent {
    pub(crate) fn add(&mut self, ns: u64, count: u64) {
        self.ns += ns;
        self.count += count;
    }

    pub(crate) fn sum(all: impl IntoIterator<Item = Self>) -> Self {
        all.into_iter().fold(Self::default(), |mut sum, it| {
            sum.add(it.ns, it.count);
            sum
        })
    }

    /// Returns the mean, or `None` without measurements.
    pub(crate) fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.ns as f64 / self.count as f64)
    }
}

/// Kind of floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Floor {
    Alone,
    /// Concurrently with the other threads.
    Together,
    /// Alone, with decoding of one page per 4 KiB.
    Decode,
}

/// Timing method for engine requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// In batches.
    Mean,
    /// In batches, with one active thread.
    MeanAlone,
    /// Individually.
    Each,
}

pub(crate) struct Meter {
    case: Case,
    /// Range of the volume for this thread: all of it, if requests do not consume it.
    start: u64,
    size_bytes: u64,
    places: Places,
    floor_places: Places,
    contents: Contents,
    encoded: Option<Encoded>,
    buffer: Vec<u8>,
    /// Bytes of the range that were first written or discarded since it was renewed.
    used_bytes: u64,
    pub(crate) floor: Spent,
    pub(crate) floor_together: Spent,
    pub(crate) floor_decode: Spent,
    pub(crate) engine: Spent,
    pub(crate) engine_alone: Spent,
    pub(crate) latencies: Latencies,
}

impl Meter {
    /// Creates the meter of thread `index`, from 0.
    pub(crate) fn new(case: &Case, setup: &EngineSetup, index: usize) -> Self {
        let takes = matches!(case.op, Op::Write | Op::Discard);
        let threads = case.threads as u64;
        let unit = case.block_bytes as u64;
        let share = setup.working_bytes / threads / unit * unit;
        let (start, size_bytes) =
            if takes { (share * index as u64, share) } else { (0, setup.working_bytes) };
        let seed = 100 + index as u64;
        let places = match case.pattern {
            Pattern::Seq => Places::sequential(size_bytes, case.block_bytes),
            Pattern::Rand if takes => Places::each(size_bytes, case.block_bytes),
            Pattern::Rand => Places::random(size_bytes, case.block_bytes, seed),
        };
        let floor_places = match case.pattern {
            Pattern::Seq => Places::sequential(share, case.block_bytes),
            Pattern::Rand => Places::random(share, case.block_bytes, seed),
        };
        let contents = setup.contents(case.block_bytes, seed);
        let is_decoded = case.op == Op::Read && case.data == Data::Compressible;
        let encoded = is_decoded.then(|| Encoded::new(contents.ready_blocks())).flatten();
        Self {
            case: *case,
            start,
            size_bytes,
            places,
            floor_places,
            contents,
            encoded,
            buffer: vec![0; case.block_bytes],
            used_bytes: 0,
            floor: Spent::default(),
            floor_together: Spent::default(),
            floor_decode: Spent::default(),
            engine: Spent::default(),
            engine_alone: Spent::default(),
            latencies: Latencies::new(),
        }
    }

    /// Measures the floor on this thread's share of bare memory.
    pub(crate) fn floor_for(&mut self, memory: &mut [u8], time: Duration, floor: Floor) {
        let mut spent = Spent::default();
        while Duration::from_nanos(spent.ns) < time {
            let (places, buffer) = (&mut self.floor_places, &mut self.buffer[..]);
            let ns = match (floor, &mut self.encoded, self.case.op) {
                (Floor::Decode, Some(encoded), _) => {
                    encoded.copy_out_and_decode(memory, places, buffer, BATCH)
                }
                (Floor::Decode, None, _) => return,
                (_, _, Op::Read) => floor::copy_out(memory, places, buffer, BATCH),
                _ => floor::copy_in(memory, places, &mut self.contents, BATCH),
            };
            spent.add(ns, BATCH);
        }
        let sum = match floor {
            Floor::Alone => &mut self.floor,
            Floor::Together => &mut self.floor_together,
            Floor::Decode => &mut self.floor_decode,
        };
        sum.add(spent.ns, spent.count);
    }

    /// Measures the engine. Returns the duration of this round's requests.
    pub(crate) fn engine_for(
        &mut self,
        setup: &EngineSetup,
        time: Duration,
        watch: Watch,
    ) -> Result<Spent> {
        let mut spent = Spent::default();
        while Duration::from_nanos(spent.ns) < time {
            self.renew(setup, BATCH)?;
            let mut result = Ok(());
            let ns = match watch {
                Watch::Each => self.timed_batch(setup)?,
                _ => nanoseconds(|| result = (0..BATCH).try_for_each(|_| self.request(setup))),
            };
            result?;
            spent.add(ns, BATCH);
        }
        match watch {
            Watch::Mean => self.engine.add(spent.ns, spent.count),
            Watch::MeanAlone => self.engine_alone.add(spent.ns, spent.count),
            Watch::Each => {}
        }
        Ok(spent)
    }

    fn timed_batch(&mut self, setup: &EngineSetup) -> Result<u64> {
        let mut sum = 0;
        for _ in 0..BATCH {
            let mut once = Ok(());
            let ns = nanoseconds(|| once = self.request(setup));
            once?;
            self.latencies.record(ns);
            sum += ns;
        }
        Ok(sum)
    }

    /// Renews the range, outside the measured time, before first writes or discards have consumed
    /// half of it.
    pub(crate) fn renew(&mut self, setup: &EngineSetup, request_count: u64) -> Result<()> {
        let wanted = request_count * self.case.block_bytes as u64;
        if self.used_bytes + wanted <= self.size_bytes / 2 {
            return Ok(());
        }
        match self.case.op {
            Op::Read | Op::Overwrite => {}
            Op::Write => setup.volume.discard(ByteRange::new(self.start, self.size_bytes))?,
            Op::Discard => setup.fill(self.start, self.size_bytes)?,
        }
        self.used_bytes = 0;
        Ok(())
    }

    /// Performs one request.
    #[inline]
    pub(crate) fn request(&mut self, setup: &EngineSetup) -> Result<()> {
        let at = self.start + self.places.next();
        let block_bytes = self.case.block_bytes as u64;
        match self.case.op {
            Op::Read => setup.volume.read(at, &mut self.buffer)?,
            Op::Overwrite => setup.volume.write(at, self.contents.next())?,
            Op::Write => {
                self.used_bytes += block_bytes;
                setup.volume.write(at, self.contents.next())?;
            }
            Op::Discard => {
                self.used_bytes += block_bytes;
                setup.volume.discard(ByteRange::new(at, block_bytes))?;
            }
        }
        Ok(())
    }
}

/// Returns the combined latencies of all meters.
pub(crate) fn latencies(meters: &[Meter]) -> Latencies {
    let mut sum = Latencies::new();
    meters.iter().for_each(|meter| sum.add(&meter.latencies));
    sum
}
