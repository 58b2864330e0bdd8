//! A disk with a volatile cache, and its state after a power failure.
//!
//! The strength of a test with a power cut depends on the guest's disk:
//!
//! - [`Disk::File`](crate::Disk::File) keeps every write that QEMU acknowledged, flushed or not. It
//!   verifies that nothing acknowledged was only in the guest's memory: in its page cache, in the
//!   pool, in buffers of the daemon.
//! - [`Disk::Volatile`](crate::Disk::Volatile) keeps flushed writes, and of the others the part
//!   that [`Cut`] determines. It also verifies that flushes reach the disk, in the right order,
//!   before anything is acknowledged.
//!
//! The model of the second kind: a write may survive from the moment it arrives, and must survive
//! from the end of the first flush that began after it was acknowledged. Unflushed writes survive
//! by sectors of 512 bytes, each completely or not at all, and of several writes to a sector any
//! one. The disk does not lie about flushes, does not damage its data, and does not misdirect
//! writes. `proof/powercut` models those faults.
//!
//! ```text
//! write ──▶ seen (a file)         reads come from here
//!      └──▶ waiting (a list)  ──flush──▶ stable (a file)
//!                             ──cut────▶ some of it to stable; seen becomes what stable is
//! ```

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use block_device::{
    Action, BlockDevice, ByteRange, DeviceError, DeviceErrorKind, Extent, ExtentKind, Geometry,
    SectorSize, Zeroes,
};
use system::Random;

/// Size of a sector, which survives completely or not at all.
const SECTOR_BYTES: usize = 512;

/// Size of the disk's cache. Beyond it, the oldest writes are written back without a flush.
const WAITING_BYTES_MAX: usize = 64 << 20;

const ZEROS_BYTES: usize = 1 << 20;

/// Fate of unflushed writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// None survives.
    LosesAll,
    /// All survive, as on a disk with a battery-backed cache.
    KeepsAll,
    /// The first ones survive.
    KeepsFirst,
    /// Each write survives or not.
    KeepsSome,
    /// Each sector of each write survives or not.
    Tears,
}

const CUTS: [Cut; 5] = [Cut::LosesAll, Cut::KeepsAll, Cut::KeepsFirst, Cut::KeepsSome, Cut::Tears];

impl Cut {
    pub fn draw(random: &mut Random) -> Self {
        CUTS[random.index(CUTS.len())]
    }
}

/// An unflushed write.
struct Waiting {
    offset: u64,
    bytes: Vec<u8>,
}

/// Power state of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    On,
    /// Nothing changes any more, and no request is answered, because clients may still be running.
    Failing,
    /// No client is left to receive an answer.
    Off,
}

struct State {
    power: Power,
    seen: File,
    stable: File,
    waiting: Vec<Waiting>,
    waiting_bytes: usize,
    /// Number of writes that became stable since the disk was created.
    stable_count: usize,
}

/// A disk that loses unflushed writes when its power is cut.
pub struct VolatileDisk {
    size_bytes: u64,
    flush_time: Duration,
    state: Mutex<State>,
    power_changed: Condvar,
}

impl VolatileDisk {
    /// Creates a disk with a copy of the file at `path`. Flushes take `flush_time`, so that there
    /// is something to lose.
    pub fn holding(path: &Path, flush_time: Duration) -> Result<Self> {
        let copy = || -> Result<File> {
            let folder = tempfile::tempdir().context("cannot make a folder for a disk")?;
            let copied = folder.path().join("disk");
            system::Tool::new("cp --sparse=always").arg(path).arg(&copied).check()?;
            let file = File::options().read(true).write(true).open(copied);
            file.context("cannot open the copy of a disk")
        };
        let (seen, stable) = (copy()?, copy()?);
        let size_bytes = seen.metadata().context("cannot look at the copy of a disk")?.len();
        let is_whole = size_bytes % SECTOR_BYTES as u64 == 0;
        ensure!(is_whole, "a disk of {size_bytes} bytes has no whole sectors");
        let state = State {
            power: Power::On,
            seen,
            stable,
            waiting: Vec::new(),
            waiting_bytes: 0,
            stable_count: 0,
        };
        let (state, power_changed) = (Mutex::new(state), Condvar::new());
        Ok(Self { size_bytes, flush_time, state, power_changed })
    }

    /// Freezes the contents and answers no more requests until [`Self::fall_silent`].
    pub(crate) fn fail(&self) {
        self.set_power(Power::Failing);
    }

    /// Ends waiting requests, after all clients that could receive an answer have ended.
    pub(crate) fn fall_silent(&self) {
        self.set_power(Power::Off);
    }

    /// Determines the state after a power cut: unflushed writes survive according to `cut`. Returns
    /// the number of unflushed bytes. The disk can be used again afterwards, but not meanwhile.
    pub fn cut_power(&self, cut: Cut, random: &mut Random) -> Result<usize> {
        let mut state = self.state();
        state.power = Power::On;
        let waiting = std::mem::take(&mut state.waiting);
        let at_stake = std::mem::take(&mut state.waiting_bytes);
        let kept_count = random.index(waiting.len() + 1);
        for (index, write) in waiting.iter().enumerate() {
            let mut keep = |_: usize| match cut {
                Cut::LosesAll => false,
                Cut::KeepsAll => true,
                Cut::KeepsFirst => index < kept_count,
                Cut::KeepsSome | Cut::Tears => random.below(2) == 0,
            };
            let unit = if cut == Cut::Tears { SECTOR_BYTES } else { write.bytes.len().max(1) };
            for (number, part) in write.bytes.chunks(unit).enumerate() {
                if keep(number) {
                    let offset = write.offset + (number * unit) as u64;
                    state.stable.write_all_at(part, offset).context("cannot write to a disk")?;
                }
            }
        }
        for write in &waiting {
            let mut bytes = vec![0; write.bytes.len()];
            state.stable.read_exact_at(&mut bytes, write.offset).context("cannot read a disk")?;
            state.seen.write_all_at(&bytes, write.offset).context("cannot write to a disk")?;
        }
        Ok(at_stake)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_power(&self, power: Power) {
        self.state().power = power;
        self.power_changed.notify_all();
    }

    /// Locks the state, while there is power to change it.
    fn powered(&self) -> io::Result<MutexGuard<'_, State>> {
        let is_failing = |state: &mut State| state.power == Power::Failing;
        let waited = self.power_changed.wait_while(self.state(), is_failing);
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        match state.power {
            Power::Off => Err(io::Error::other("the disk has no power")),
            _ => Ok(state),
        }
    }

    fn checked(&self, action: Action, range: ByteRange) -> Result<(), DeviceError> {
        match range.fits(self.size_bytes) {
            true => Ok(()),
            false => Err(DeviceError::new(DeviceErrorKind::OutOfRange, action, range)),
        }
    }
}

impl State {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.seen.write_all_at(bytes, offset)?;
        self.waiting.push(Waiting { offset, bytes: bytes.to_vec() });
        self.waiting_bytes += bytes.len();
        match self.waiting_bytes > WAITING_BYTES_MAX {
            true => self.write_back(self.waiting.len() / 2),
            false => Ok(()),
        }
    }

    /// Makes the `count` oldest writes stable.
    fn write_back(&mut self, count: usize) -> io::Result<()> {
        for write in &self.waiting[..count] {
            self.stable.write_all_at(&write.bytes, write.offset)?;
        }
        let written = self.waiting.drain(..count).map(|write| write.bytes.len());
        self.waiting_bytes -= written.sum::<usize>();
        self.stable_count += count;
        Ok(())
    }
}

impl BlockDevice for VolatileDisk {
    fn geometry(&self) -> Geometry {
        Geometry { size_bytes: self.size_bytes, sector: SectorSize::Bytes512 }
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset_bytes, into.len() as u64);
        self.checked(Action::Read, range)?;
        let read = self.state().seen.read_exact_at(into, offset_bytes);
        read.map_err(|error| failed(Action::Read, range, error))
    }

    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        let length = usize::try_from(range.length).expect("as long as the scratch space");
        self.read(range.start, &mut scratch[..length])?;
        visit(&[IoSlice::new(&scratch[..length])]);
        Ok(())
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset_bytes, from.len() as u64);
        self.checked(Action::Write, range)?;
        let written = self.powered().and_then(|mut state| state.write(offset_bytes, from));
        written.map_err(|error| failed(Action::Write, range, error))
    }

    fn write_zeroes(&self, range: ByteRange, _zeroes: Zeroes) -> Result<(), DeviceError> {
        self.checked(Action::WriteZeroes, range)?;
        let zeros = vec![0; ZEROS_BYTES];
        let end = range.start + range.length;
        let mut offset = range.start;
        while offset < end {
            let length = (end - offset).min(zeros.len() as u64);
            let part = &zeros[..usize::try_from(length).expect("as long as the zeros")];
            let written = self.powered().and_then(|mut state| state.write(offset, part));
            written.map_err(|error| failed(Action::WriteZeroes, range, error))?;
            offset += length;
        }
        Ok(())
    }

    fn discard(&self, range: ByteRange) -> Result<(), DeviceError> {
        let start = range.start.next_multiple_of(block_device::BLOCK_BYTES as u64);
        let end = range.start.saturating_add(range.length);
        let end = end - end % block_device::BLOCK_BYTES as u64;
        self.checked(Action::Discard, range)?;
        let whole = ByteRange::new(start, end.saturating_sub(start));
        self.write_zeroes(whole, Zeroes::Unmap)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let target = {
            let state = self.state();
            state.stable_count + state.waiting.len()
        };
        // Others write meanwhile, and their writes may be lost.
        std::thread::sleep(self.flush_time);
        let flushed = self.powered().and_then(|mut state| {
            let count = target.saturating_sub(state.stable_count);
            state.write_back(count)
        });
        flushed.map_err(|error| failed(Action::Flush, ByteRange::new(0, self.size_bytes), error))
    }

    fn extents(&self, range: ByteRange, _: usize) -> Result<Vec<Extent>, DeviceError> {
        self.checked(Action::ListExtents, range)?;
        let is_empty = range.length == 0;
        Ok(if is_empty { Vec::new() } else { vec![Extent { range, kind: ExtentKind::Data }] })
    }
}

fn failed(action: Action, range: ByteRange, error: io::Error) -> DeviceError {
    let source = Some(error.into());
    DeviceError { source, ..DeviceError::new(DeviceErrorKind::Corrupt, action, range) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const SIZE: usize = 64 << 10;

    fn disk() -> VolatileDisk {
        let mut file = tempfile::NamedTempFile::new().expect("there is room for a file");
        file.write_all(&[1; SIZE]).expect("there is room for a disk");
        VolatileDisk::holding(file.path(), Duration::ZERO).expect("the file has whole sectors")
    }

    /// Returns the first byte of each sector, after checking that all bytes of a sector are equal.
    fn sectors(disk: &VolatileDisk) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        disk.read(0, &mut bytes).expect("all of it is there");
        let sectors = bytes.chunks(SECTOR_BYTES);
        sectors
            .map(|sector| {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is torn");
                sector[0]
            })
            .collect()
    }

    #[test]
    fn what_was_flushed_survives_every_cut() {
        for (seed, cut) in (0..).zip(CUTS) {
            let disk = disk();
            disk.write(0, &[2; SIZE / 2]).expect("it fits");
            disk.flush().expect("files can be written");
            disk.write(SIZE as u64 / 2, &[3; SIZE / 2]).expect("it fits");
            disk.cut_power(cut, &mut Random::new(seed)).expect("files can be written");
            let sectors = sectors(&disk);
            assert!(sectors[..sectors.len() / 2].iter().all(|it| *it == 2), "{cut:?}");
        }
    }

    #[test]
    fn what_was_not_flushed_is_seen_until_the_cut_and_lost_by_it() {
        let disk = disk();
        disk.write(4096, &[2; 4096]).expect("it fits");
        assert_eq!(sectors(&disk)[8], 2);
        let at_stake = disk.cut_power(Cut::LosesAll, &mut Random::new(1));
        assert_eq!(at_stake.expect("files can be written"), 4096);
        assert!(sectors(&disk).iter().all(|it| *it == 1));
    }

    #[test]
    fn torn_writes_survive_by_sectors() {
        let disk = disk();
        disk.write(0, &[2; SIZE]).expect("it fits");
        disk.cut_power(Cut::Tears, &mut Random::new(1)).expect("files can be written");
        let sectors = sectors(&disk);
        assert!(sectors.contains(&1) && sectors.contains(&2), "{sectors:?}");
    }

    #[test]
    fn a_cut_may_keep_a_write_that_a_later_one_replaced() {
        let old_survived = (0..100).any(|seed| {
            let disk = disk();
            disk.write(0, &[2; 512]).expect("it fits");
            disk.write(0, &[3; 512]).expect("it fits");
            disk.cut_power(Cut::KeepsFirst, &mut Random::new(seed)).expect("it can be written");
            sectors(&disk)[0] == 2
        });
        assert!(old_survived);
    }

    #[test]
    fn a_flush_is_not_answered_once_the_power_fails() {
        let disk = disk();
        disk.write(0, &[2; 4096]).expect("it fits");
        disk.fail();
        std::thread::scope(|scope| {
            let flushing = scope.spawn(|| disk.flush());
            disk.fall_silent();
            flushing.join().expect("it does not panic").expect_err("nobody may count on it");
        });
        disk.cut_power(Cut::LosesAll, &mut Random::new(1)).expect("files can be written");
        assert_eq!(sectors(&disk)[0], 1);
    }

    #[test]
    fn a_full_cache_is_written_back_from_its_oldest_writes() {
        let disk = disk();
        for _ in 0..=WAITING_BYTES_MAX / SIZE {
            disk.write(0, &[2; SIZE]).expect("it fits");
        }
        assert!(disk.state().waiting_bytes <= WAITING_BYTES_MAX);
        disk.cut_power(Cut::LosesAll, &mut Random::new(1)).expect("files can be written");
        assert_eq!(sectors(&disk)[0], 2);
    }
}
