//! Volumes with request counters, and with latency histograms for each volume and each durability
//! class.
//!
//! Counters on the request path are per thread, so they cause no contention. One read or write in
//! [`TIMED_ONE_IN`] is timed, and every flush.

use std::cell::Cell;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use block_device::{
    BlockDevice, ByteRange, ChangeExtent, DeviceError, Extent, Geometry, SnapshotId, SnapshotInfo,
    WriteCache, Zeroes,
};
use sync::atomic::{AtomicU64, Ordering};
use sync::{Padded, thread_number};
use volumes::{Durability, Volume};

/// Sampling rate of the timing of reads and writes. Flushes are so slow that every one is timed.
pub(crate) const TIMED_ONE_IN: u32 = 32;

/// Number of counter slots. All but the last belong to one thread each; other threads share the
/// last.
const PART_COUNT: usize = 16;

/// Upper bounds of the histogram's buckets, in microseconds.
pub(crate) const BOUNDS_US: [u64; 16] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000, 100_000, 1_000_000];

pub(crate) const BUCKET_COUNT: usize = BOUNDS_US.len() + 1;

/// Operations that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    Read,
    Write,
    Flush,
}

impl Timed {
    pub(crate) const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Flush];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
        }
    }
}

/// Latency histogram: the number of requests in each bucket, the sum and the maximum.
#[derive(Debug, Default)]
struct Times {
    counts: [AtomicU64; BUCKET_COUNT],
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// Snapshot of a latency histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimesSeen {
    pub(crate) counts: [u64; BUCKET_COUNT],
    pub(crate) sum_ns: u64,
    pub(crate) max_ns: u64,
}

impl Times {
    fn note(&self, ns: u64) {
        let bucket = BOUNDS_US.partition_point(|bound_us| bound_us * 1_000 < ns);
        // Relaxed: these are statistics.
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
        // New maxima are rare, so most calls only read it.
        if self.max_ns.load(Ordering::Relaxed) < ns {
            self.max_ns.fetch_max(ns, Ordering::Relaxed);
        }
    }

    fn seen(&self) -> TimesSeen {
        let counts = self.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        let sum_ns = self.sum_ns.load(Ordering::Relaxed);
        TimesSeen { counts, sum_ns, max_ns: self.max_ns.load(Ordering::Relaxed) }
    }
}

/// Latency histograms of all volumes, by durability class and operation.
#[derive(Debug, Default)]
pub(crate) struct Latencies([[Times; Timed::ALL.len()]; Durability::ALL.len()]);

impl Latencies {
    pub(crate) fn seen(&self, class: Durability, timed: Timed) -> TimesSeen {
        self.of(class, timed).seen()
    }

    fn of(&self, class: Durability, timed: Timed) -> &Times {
        &self.0[class as usize][timed as usize]
    }
}

/// Request counters of one slot.
#[derive(Debug, Default)]
struct Part {
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

/// Request counts of one volume since the daemon started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeTraffic {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
    /// Discards and writes of zeros.
    pub(crate) discards: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
}

/// A volume that counts requests.
pub(crate) struct MeteredVolume {
    volume: Arc<Volume>,
    latencies: Arc<Latencies>,
    /// Allocated at the first request, because most snapshots have none.
    parts: OnceLock<Box<[Padded<Part>; PART_COUNT]>>,
    /// Allocated when the first request is timed; about 450 bytes.
    times: OnceLock<Box<[Times; Timed::ALL.len()]>>,
    /// Changes by operations other than requests.
    other_changes: AtomicU64,
    modified: Mutex<Modified>,
}

/// Time at which the last change was noticed.
#[derive(Debug)]
struct Modified {
    at: SystemTime,
    changes: u64,
    size_bytes: u64,
}

thread_local! {
    /// Number of this thread's requests until the next one is timed. Reads and writes have separate
    /// counters: with one counter, strictly alternating requests would always time the same
    /// operation.
    static UNTIMED_LEFT: [Cell<u32>; 2] = const { [const { Cell::new(0) }; 2] };
}

impl MeteredVolume {
    pub(crate) fn new(volume: Arc<Volume>, latencies: Arc<Latencies>) -> Self {
        let at = match volume.created_unix_seconds() {
            seconds @ 1.. if volume.is_snapshot() => UNIX_EPOCH + Duration::from_secs(seconds),
            // The volume may have changed until now.
            _ => SystemTime::now(),
        };
        let size_bytes = volume.geometry().size_bytes;
        let modified = Mutex::new(Modified { at, changes: 0, size_bytes });
        let other_changes = AtomicU64::default();
        let (parts, times) = (OnceLock::new(), OnceLock::new());
        Self { volume, latencies, parts, times, other_changes, modified }
    }

    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    pub(crate) fn traffic(&self) -> VolumeTraffic {
        let parts = self.parts.get().map_or(&[][..], |parts| &parts[..]);
        let sum = |count: fn(&Part) -> &AtomicU64| {
            parts.iter().map(|part| count(part).load(Ordering::Relaxed)).sum()
        };
        VolumeTraffic {
            reads: sum(|it| &it.reads),
            writes: sum(|it| &it.writes),
            flushes: sum(|it| &it.flushes),
            discards: sum(|it| &it.discards),
            read_bytes: sum(|it| &it.read_bytes),
            written_bytes: sum(|it| &it.written_bytes),
        }
    }

    /// Latencies since the daemon started, by operation. `None`: no request was timed.
    pub(crate) fn times(&self) -> Option<[TimesSeen; Timed::ALL.len()]> {
        self.times.get().map(|times| times.each_ref().map(Times::seen))
    }

    /// Number of content changes since the daemon started. While it is unchanged, the contents are
    /// too, except for changes that are about to be counted.
    pub(crate) fn changes(&self) -> u64 {
        let VolumeTraffic { writes, discards, .. } = self.traffic();
        writes + discards + self.other_changes.load(Ordering::Relaxed)
    }

    /// Counts a change that was not made by a request.
    pub(crate) fn note_changed(&self) {
        self.other_changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Modification time of contents or size. It is the time at which the change was noticed here,
    /// which may be a little later. It increases with each noticed change, even if the clock is set
    /// back.
    pub(crate) fn modified(&self) -> SystemTime {
        let mut modified = self.modified.lock().expect("no thread panics with this lock");
        let (changes, size_bytes) = (self.changes(), self.volume.geometry().size_bytes);
        if (modified.changes, modified.size_bytes) != (changes, size_bytes) {
            let at = SystemTime::now().max(modified.at + Duration::from_nanos(1));
            *modified = Modified { at, changes, size_bytes };
        }
        modified.at
    }

    /// Increments two counters of this thread's slot. Changes are counted after they are made, so
    /// that a reader never attributes old contents to the new count.
    fn count(&self, raised: impl FnOnce(&Part) -> [(&AtomicU64, u64); 2]) {
        let parts = self.parts.get_or_init(Box::default);
        let number = thread_number().unwrap_or(PART_COUNT).min(PART_COUNT - 1);
        for (count, by) in raised(&parts[number]) {
            // Relaxed: these are statistics. An atomic read-modify-write after a copy would wait
            // for the copy's stores, so only the shared slot uses one.
            match number < PART_COUNT - 1 {
                true => count.store(count.load(Ordering::Relaxed) + by, Ordering::Relaxed),
                false => drop(count.fetch_add(by, Ordering::Relaxed)),
            }
        }
    }

    fn time<T>(&self, timed: Timed, request: impl FnOnce() -> T) -> T {
        let is_turn = match timed {
            Timed::Read => is_turn(0),
            Timed::Write => is_turn(1),
            Timed::Flush => true,
        };
        if !is_turn {
            return request();
        }
        let start = Instant::now();
        let answer = request();
        let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.latencies.of(self.volume.durability(), timed).note(ns);
        self.times.get_or_init(Box::default)[timed as usize].note(ns);
        answer
    }
}

/// Returns whether to time this request. `kind` is the index of the counter.
fn is_turn(kind: usize) -> bool {
    UNTIMED_LEFT.with(|left| {
        let left = &left[kind];
        let is_turn = left.get() == 0;
        left.set(if is_turn { TIMED_ONE_IN - 1 } else { left.get() - 1 });
        is_turn
    })
}

impl BlockDevice for MeteredVolume {
    fn geometry(&self) -> Geometry {
        self.volume.geometry()
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.count(|part| [(&part.reads, 1), (&part.read_bytes, into.len() as u64)]);
        self.time(Timed::Read, || self.volume.read(offset_bytes, into))
    }

    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        self.count(|part| [(&part.reads, 1), (&part.read_bytes, range.length)]);
        self.time(Timed::Read, || self.volume.read_in_place(range, scratch, visit))
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let done = self.time(Timed::Write, || self.volume.write(offset_bytes, from));
        self.count(|part| [(&part.writes, 1), (&part.written_bytes, from.len() as u64)]);
        done
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError> {
        let done = self.volume.write_zeroes(range, zeroes);
        self.count(|part| [(&part.discards, 1), (&part.written_bytes, 0)]);
        done
    }

    fn discard(&self, range: ByteRange) -> Result<(), DeviceError> {
        let done = self.volume.discard(range);
        self.count(|part| [(&part.discards, 1), (&part.written_bytes, 0)]);
        done
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.count(|part| [(&part.flushes, 1), (&part.written_bytes, 0)]);
        self.time(Timed::Flush, || self.volume.flush())
    }

    fn write_back(&self) {
        self.volume.write_back();
    }

    fn write_cache(&self) -> WriteCache {
        self.volume.write_cache()
    }

    fn data_may_be_away(&self) -> bool {
        self.volume.data_may_be_away()
    }

    fn is_read_only(&self) -> bool {
        self.volume.is_read_only()
    }

    fn extents(&self, range: ByteRange, count_max: usize) -> Result<Vec<Extent>, DeviceError> {
        self.volume.extents(range, count_max)
    }

    fn snapshots(&self) -> Vec<SnapshotInfo> {
        self.volume.snapshots()
    }

    fn changed_extents(
        &self,
        since: SnapshotId,
        range: ByteRange,
        count_max: usize,
    ) -> Result<Vec<ChangeExtent>, DeviceError> {
        self.volume.changed_extents(since, range, count_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_up_to_its_bound() {
        let times = Times::default();
        [1, 1_000, 1_001, 2_000_000_000].into_iter().for_each(|ns| times.note(ns));
        let seen = times.seen();
        assert_eq!((seen.counts[0], seen.counts[1], seen.counts[BUCKET_COUNT - 1]), (2, 1, 1));
        assert_eq!((seen.sum_ns, seen.max_ns), (2_000_002_002, 2_000_000_000));
        times.note(5);
        assert_eq!(times.seen().max_ns, 2_000_000_000, "the longest stays");
    }

    #[test]
    fn one_in_so_many_requests_is_timed() {
        let rounds = 10;
        let timed = (0..TIMED_ONE_IN * rounds).filter(|_| is_turn(0)).count();
        assert_eq!(timed, rounds as usize);
    }

    #[test]
    fn both_kinds_are_timed_where_they_alternate() {
        let mut timed = [0; 2];
        for number in 0..TIMED_ONE_IN as usize * 20 {
            timed[number % 2] += usize::from(is_turn(number % 2));
        }
        assert_eq!(timed, [10, 10]);
    }
}
