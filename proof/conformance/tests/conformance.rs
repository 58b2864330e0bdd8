//! The suite passes for a correct device, and detects the fault of each device with one fault.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use block_device::{BlockDevice, ByteRange, Geometry, SectorSize, Zeroes};
use conformance::{Abilities, Direct, Refusal, Subject};
use model::ModelVolume;

const SIZE: u64 = conformance::SIZE_BYTES_MIN;

/// Offset at which the suite's threads race.
const RACED_AT: u64 = 6 << 20;

#[test]
fn a_right_device_passes_every_case() {
    for seed in 0..3 {
        let subject = Direct(ModelVolume::new(SIZE, SectorSize::Bytes512));
        assert_eq!(conformance::check(&subject, seed), conformance::case_count());
    }
}

/// Fault of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    LosesLastByte,
    TouchesNextByte,
    CutsLongWrites,
    TakesCrossingWrites,
    WrapsPastTheEnd,
    RoundsZeroesOut,
    ForgetsKeptZeroes,
    DiscardsCutBlocks,
    IgnoresDiscards,
    FlushLosesWrites,
    AcknowledgesEarly,
    TearsBlocks,
    LosesNeighbours,
}

struct Wrong {
    device: ModelVolume,
    fault: Fault,
    late: Mutex<Option<(u64, Vec<u8>)>>,
    reads: AtomicU64,
    writes_in_flight: AtomicU64,
}

impl Wrong {
    fn new(fault: Fault) -> Self {
        let device = ModelVolume::new(SIZE, SectorSize::Bytes512);
        let (reads, writes_in_flight) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { device, fault, late: Mutex::default(), reads, writes_in_flight }
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn put(&self, offset: u64, from: &[u8]) -> Result<(), Refusal> {
        self.device.write(offset, from).map_err(Refusal::of)
    }

    /// Waits until `is_so`, up to the maximum delay of a fault.
    fn wait_until(is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_millis(5);
        while !is_so() && Instant::now() < deadline {
            thread::yield_now();
        }
    }

    /// Waits until a read that begins now has ended.
    fn wait_for_reads(&self) {
        let reads = self.reads.load(Ordering::Acquire);
        Self::wait_until(|| self.reads.load(Ordering::Acquire) > reads + 1);
    }

    /// Writes in two halves, with a read between them if a thread reads.
    fn tear(&self, offset: u64, from: &[u8]) -> Result<(), Refusal> {
        let (one, other) = from.split_at(from.len().min(4096) / 2);
        self.put(offset, one)?;
        if offset == RACED_AT {
            self.wait_for_reads();
        }
        self.put(offset + one.len() as u64, other)
    }

    /// Writes a part of a block, and restores an earlier state of the rest of the block.
    fn write_through_a_copy(&self, offset: u64, from: &[u8]) -> Result<(), Refusal> {
        let start = offset / 4096 * 4096;
        let end = (offset + from.len() as u64).next_multiple_of(4096);
        if end > SIZE || from.len() >= 4096 {
            return self.put(offset, from);
        }
        self.writes_in_flight.fetch_add(1, Ordering::AcqRel);
        let mut copy = vec![0; usize::try_from(end - start).expect("it is short")];
        self.device.read(start, &mut copy).map_err(Refusal::of)?;
        Self::wait_until(|| self.writes_in_flight.load(Ordering::Acquire) > 1);
        let place = usize::try_from(offset - start).expect("it is short");
        copy[place..place + from.len()].copy_from_slice(from);
        let answer = self.put(start, &copy);
        self.writes_in_flight.fetch_sub(1, Ordering::AcqRel);
        answer
    }
}

impl Subject for Wrong {
    fn abilities(&self) -> Abilities {
        Abilities::ALL
    }

    fn size_bytes(&self) -> u64 {
        self.geometry().size_bytes
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), Refusal> {
        let wraps = self.fault == Fault::WrapsPastTheEnd && offset_bytes >= SIZE;
        let offset_bytes = if wraps { 0 } else { offset_bytes };
        let answer = self.device.read(offset_bytes, into).map_err(Refusal::of);
        self.reads.fetch_add(1, Ordering::AcqRel);
        answer
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), Refusal> {
        let end = offset.saturating_add(from.len() as u64);
        match self.fault {
            Fault::LosesLastByte => self.put(offset, &from[..from.len() - 1]),
            Fault::TouchesNextByte => {
                self.put(offset, from)?;
                if end < SIZE { self.put(end, &[0xEE]) } else { Ok(()) }
            }
            Fault::CutsLongWrites => self.put(offset, &from[..from.len().min(1 << 20)]),
            Fault::TakesCrossingWrites if end > SIZE && offset < SIZE => {
                let rest = usize::try_from(SIZE - offset).expect("it is short");
                self.put(offset, &from[..rest])?;
                Err(Refusal("there is no space past the end".into()))
            }
            Fault::AcknowledgesEarly if end <= SIZE => {
                if offset == RACED_AT {
                    self.wait_for_reads();
                }
                let mut late = self.late.lock().expect("nothing panics with it");
                let earlier = late.replace((offset, from.to_vec()));
                earlier.map_or(Ok(()), |(offset, bytes)| self.put(offset, &bytes))
            }
            Fault::TearsBlocks => self.tear(offset, from),
            Fault::LosesNeighbours => self.write_through_a_copy(offset, from),
            _ => self.put(offset, from),
        }
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), Refusal> {
        let mut range = range;
        if self.fault == Fault::RoundsZeroesOut && range.fits(SIZE) {
            let end = (range.start + range.length).next_multiple_of(4096);
            range.start = range.start / 4096 * 4096;
            range.length = end - range.start;
        }
        if self.fault == Fault::ForgetsKeptZeroes && zeroes == Zeroes::KeepAllocated {
            return if range.fits(SIZE) { Ok(()) } else { Err(Refusal("past the end".into())) };
        }
        self.device.write_zeroes(range, zeroes).map_err(Refusal::of)
    }

    fn discard(&self, range: ByteRange) -> Result<(), Refusal> {
        match self.fault {
            Fault::DiscardsCutBlocks => {
                self.device.write_zeroes(range, Zeroes::Unmap).map_err(Refusal::of)
            }
            Fault::IgnoresDiscards if range.fits(SIZE) => Ok(()),
            _ => self.device.discard(range).map_err(Refusal::of),
        }
    }

    fn flush(&self) -> Result<(), Refusal> {
        match self.fault {
            Fault::FlushLosesWrites => self.put(RACED_AT, &[0; 512]),
            _ => Ok(()),
        }
    }
}

#[track_caller]
fn check(fault: Fault, case: &str) {
    let (_, failed) = conformance::run(&Wrong::new(fault), 7);
    assert!(failed.contains(&case), "{fault:?} failed {failed:?}, not {case:?}");
}

#[test]
fn wrong_ranges_are_found() {
    check(Fault::LosesLastByte, "what is written is read back");
    check(Fault::TouchesNextByte, "neighbours of a write stay");
    check(Fault::CutsLongWrites, "long requests are whole");
    check(Fault::TakesCrossingWrites, "a crossing write is refused whole");
    check(Fault::WrapsPastTheEnd, "past the end is refused");
}

#[test]
fn wrong_zeroes_are_found() {
    check(Fault::RoundsZeroesOut, "zeroes read as zeros");
    check(Fault::ForgetsKeptZeroes, "zeroes read as zeros");
    check(Fault::DiscardsCutBlocks, "discarded blocks read as zeros");
    check(Fault::IgnoresDiscards, "discarded blocks read as zeros");
}

#[test]
fn wrong_orders_are_found() {
    check(Fault::FlushLosesWrites, "a flush changes nothing");
    check(Fault::AcknowledgesEarly, "an acknowledged write is seen");
    check(Fault::TearsBlocks, "blocks are never torn");
    check(Fault::LosesNeighbours, "neighbours write at once");
}
