//! A simulated volume with crashes and power losses, and batches for it.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod keyed;
pub(crate) mod records;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use block_device::{
    Action, BLOCK_BYTES, BlockDevice, ByteRange, DeviceError, DeviceErrorKind, Extent, Geometry,
    SectorSize, Zeroes,
};
use model::Random;
use record_batch::HEADER_BYTES;
use record_log::{Batch, NewTopic, Partition, Topic, TopicOptions};

pub(crate) const TOPIC: [u8; 16] = *b"a topic for test";
pub(crate) const SIZE_BYTES: u64 = 64 << 40;

/// Small segments, so that short histories have many.
pub(crate) const OPTIONS: TopicOptions = TopicOptions { segment_bytes: 8 << 10 };

pub(crate) const PROPERTIES: &[u8] = b"name=first";

pub(crate) fn new_topic(partition_count: u32) -> NewTopic<'static> {
    NewTopic { id: TOPIC, partition_count, options: OPTIONS, properties: PROPERTIES }
}

type Block = Box<[u8; BLOCK_BYTES]>;

/// Blocks in memory. Unflushed blocks may be lost individually.
#[derive(Default)]
pub(crate) struct Disk {
    state: Mutex<State>,
    stirred: Condvar,
}

#[derive(Default)]
struct State {
    now: BTreeMap<u64, Block>,
    stable: BTreeMap<u64, Block>,
    /// Changes since the last flush, in order; `None` is a discard.
    pending: Vec<(u64, Option<Block>)>,
    /// Number of stores and discards of blocks so far.
    stores: u64,
    /// Number of requests to discard so far.
    discards: u64,
    /// Number of bytes read so far.
    read_bytes: u64,
    /// Number of stores after which the disk fails.
    dies_after: Option<u64>,
    /// Number of blocks after which each write fails for lack of memory.
    full_after: Option<u64>,
    /// Writes to empty blocks fail for lack of memory, but others can be overwritten.
    is_full: bool,
    /// Writes that begin in this range fail.
    broken: Option<Range<u64>>,
    /// Flushes block.
    is_hung: bool,
    /// Number of blocked flushes.
    waiting: usize,
}

impl Disk {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn stores(&self) -> u64 {
        self.lock().stores
    }

    pub(crate) fn discards(&self) -> u64 {
        self.lock().discards
    }

    pub(crate) fn read_bytes(&self) -> u64 {
        self.lock().read_bytes
    }

    pub(crate) fn block_count(&self) -> usize {
        self.lock().now.len()
    }

    pub(crate) fn die_after(&self, stores: u64) {
        self.lock().dies_after = Some(stores);
    }

    /// Makes writes fail after this number of blocks; `None` makes them succeed again.
    pub(crate) fn set_full_after(&self, blocks: Option<u64>) {
        self.lock().full_after = blocks;
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        self.lock().is_full = is_full;
    }

    /// Makes writes that begin in this range of bytes fail; `None` makes them succeed again.
    pub(crate) fn set_broken(&self, bytes: Option<Range<u64>>) {
        self.lock().broken = bytes;
    }

    /// Makes flushes block, or releases them.
    pub(crate) fn set_hung(&self, is_hung: bool) {
        self.lock().is_hung = is_hung;
        self.stirred.notify_all();
    }

    /// Waits until a flush is blocked.
    pub(crate) fn await_waiting(&self) {
        let state = self.stirred.wait_while(self.lock(), |state| state.waiting == 0);
        drop(state.expect("no test panics with it locked"));
    }

    /// Returns the number of slots of 2 GiB that begin with a stored block.
    pub(crate) fn segment_count(&self) -> usize {
        let slot_blocks = (2 << 30) / BLOCK_BYTES as u64;
        self.lock().now.keys().filter(|block| **block > 0 && **block % slot_blocks == 0).count()
    }

    /// Returns the base offsets of a partition's segments, in order, from the headers at the start
    /// of slots.
    pub(crate) fn segment_bases(&self, partition: u32) -> Vec<i64> {
        let slot_blocks = (2 << 30) / BLOCK_BYTES as u64;
        let state = self.lock();
        let is_header = |block: u64, bytes: &Block| {
            block.is_multiple_of(slot_blocks)
                && bytes.starts_with(b"MLNsegm1")
                && bytes[32..36] == partition.to_le_bytes()
        };
        let headers = state.now.iter().filter(|(block, bytes)| is_header(**block, bytes));
        let base = |bytes: &Block| i64::from_le_bytes(bytes[36..44].try_into().expect("eight"));
        let mut bases: Vec<i64> = headers.map(|(_, bytes)| base(bytes)).collect();
        bases.sort_unstable();
        bases
    }

    /// Returns the addresses of stored blocks within a part of each slot of 2 GiB, except slot 0.
    pub(crate) fn stored_between(&self, from: u64, until: u64) -> Vec<u64> {
        let starts =
            self.lock().now.keys().map(|block| block * BLOCK_BYTES as u64).collect::<Vec<_>>();
        let is_in = |at: &u64| *at >= 2 << 30 && (from..until).contains(&(at % (2 << 30)));
        starts.into_iter().filter(is_in).collect()
    }

    /// Returns whether the block at this address is stored.
    pub(crate) fn holds(&self, at: u64) -> bool {
        self.lock().now.contains_key(&(at / BLOCK_BYTES as u64))
    }

    /// Returns the disk after a kill of the process.
    pub(crate) fn after_kill(&self) -> Arc<Self> {
        let state = self.lock();
        let (now, stable) = (state.now.clone(), state.stable.clone());
        let pending = state.pending.clone();
        Self::with(State { now, stable, pending, ..State::default() })
    }

    /// Returns the disk after a power loss: any prefix of each block's stores since the last flush.
    pub(crate) fn after_power_loss(&self, random: &mut Random) -> Arc<Self> {
        let state = self.lock();
        let mut left = state.stable.clone();
        let mut by_block: BTreeMap<u64, Vec<&Option<Block>>> = BTreeMap::new();
        for (block, contents) in &state.pending {
            by_block.entry(*block).or_default().push(contents);
        }
        for (block, stores) in by_block {
            let kept = random.index(stores.len() + 1);
            if let Some(last) = kept.checked_sub(1) {
                match stores[last] {
                    Some(contents) => left.insert(block, contents.clone()),
                    None => left.remove(&block),
                };
            }
        }
        let (now, stable) = (left.clone(), left);
        Self::with(State { now, stable, ..State::default() })
    }

    /// Flips one bit of a stored block.
    pub(crate) fn flip(&self, at: u64) {
        let mut state = self.lock();
        let bytes = state.now.get_mut(&(at / BLOCK_BYTES as u64)).expect("a stored block");
        bytes[usize::try_from(at % BLOCK_BYTES as u64).expect("small")] ^= 1;
    }

    fn with(state: State) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(state), stirred: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it locked")
    }
}

impl State {
    fn store(&mut self, block: u64, contents: Option<Block>) -> bool {
        if self.dies_after.is_some_and(|limit| self.stores >= limit) {
            return false;
        }
        self.stores += 1;
        match &contents {
            Some(contents) => self.now.insert(block, contents.clone()),
            None => self.now.remove(&block),
        };
        self.pending.push((block, contents));
        true
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        Geometry { size_bytes: SIZE_BYTES, sector: SectorSize::Bytes512 }
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let mut state = self.lock();
        state.read_bytes += into.len() as u64;
        let mut at = offset_bytes;
        let mut rest = into;
        while !rest.is_empty() {
            let within = usize::try_from(at % BLOCK_BYTES as u64).expect("small");
            let length = rest.len().min(BLOCK_BYTES - within);
            let (part, after) = rest.split_at_mut(length);
            match state.now.get(&(at / BLOCK_BYTES as u64)) {
                Some(block) => part.copy_from_slice(&block[within..within + length]),
                None => part.fill(0),
            }
            at += length as u64;
            rest = after;
        }
        Ok(())
    }

    fn read_in_place(
        &self,
        _range: ByteRange,
        _scratch: &mut [u8],
        _visit: &mut dyn FnMut(&[std::io::IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        unreachable!("logs read into memory of their own")
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset_bytes, from.len() as u64);
        let failed = |kind| Err(DeviceError::new(kind, Action::Write, range));
        assert_eq!(offset_bytes % BLOCK_BYTES as u64, 0, "logs write whole blocks");
        let (blocks, rest) = from.as_chunks::<BLOCK_BYTES>();
        assert!(rest.is_empty(), "logs write whole blocks");
        let mut state = self.lock();
        if state.broken.as_ref().is_some_and(|broken| broken.contains(&offset_bytes)) {
            return failed(DeviceErrorKind::Corrupt);
        }
        for (index, contents) in blocks.iter().enumerate() {
            let index = index as u64;
            if state.full_after.is_some_and(|limit| index >= limit) {
                return failed(DeviceErrorKind::NoSpace);
            }
            let block = offset_bytes / BLOCK_BYTES as u64 + index;
            if state.is_full && !state.now.contains_key(&block) {
                return failed(DeviceErrorKind::NoSpace);
            }
            if !state.store(block, Some(Box::new(*contents))) {
                return failed(DeviceErrorKind::Gone);
            }
        }
        Ok(())
    }

    fn write_zeroes(&self, _range: ByteRange, _zeroes: Zeroes) -> Result<(), DeviceError> {
        unreachable!("logs discard")
    }

    fn discard(&self, range: ByteRange) -> Result<(), DeviceError> {
        let end = range.end().expect("on the device");
        let blocks: Range<u64> = range.start.div_ceil(BLOCK_BYTES as u64)..end / BLOCK_BYTES as u64;
        let mut state = self.lock();
        state.discards += 1;
        let stored: Vec<u64> = state.now.range(blocks).map(|(block, _)| *block).collect();
        for block in stored {
            if !state.store(block, None) {
                return Err(DeviceError::new(DeviceErrorKind::Gone, Action::Discard, range));
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let mut state = self.lock();
        state.waiting += 1;
        self.stirred.notify_all();
        state = self.stirred.wait_while(state, |it| it.is_hung).expect("nothing panics with it");
        state.waiting -= 1;
        if state.dies_after.is_some_and(|limit| state.stores >= limit) {
            let range = ByteRange::new(0, 0);
            return Err(DeviceError::new(DeviceErrorKind::Gone, Action::Flush, range));
        }
        let pending = std::mem::take(&mut state.pending);
        for (block, contents) in pending {
            match contents {
                Some(contents) => state.stable.insert(block, contents),
                None => state.stable.remove(&block),
            };
        }
        Ok(())
    }

    fn extents(&self, _range: ByteRange, _max: usize) -> Result<Vec<Extent>, DeviceError> {
        unreachable!("logs ask for no extents")
    }
}

/// Producer fields of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct From {
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    pub(crate) sequence: i32,
    pub(crate) is_transactional: bool,
}

pub(crate) const NO_PRODUCER: From =
    From { producer_id: -1, epoch: -1, sequence: -1, is_transactional: false };

/// Builds a valid batch with meaningless records: the log only examines the header.
pub(crate) fn batch(from: From, record_count: i32, unix_ms: i64, contents: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes.extend(contents);
    let length = i32::try_from(bytes.len() - 12).expect("short");
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[16] = 2;
    let attributes: i16 = if from.is_transactional { 1 << 4 } else { 0 };
    bytes[21..23].copy_from_slice(&attributes.to_be_bytes());
    bytes[23..27].copy_from_slice(&(record_count - 1).to_be_bytes());
    bytes[27..35].copy_from_slice(&unix_ms.to_be_bytes());
    bytes[35..43].copy_from_slice(&unix_ms.to_be_bytes());
    bytes[43..51].copy_from_slice(&from.producer_id.to_be_bytes());
    bytes[51..53].copy_from_slice(&from.epoch.to_be_bytes());
    bytes[53..57].copy_from_slice(&from.sequence.to_be_bytes());
    bytes[57..61].copy_from_slice(&record_count.to_be_bytes());
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[21..]);
    bytes[17..21].copy_from_slice(&u32::try_from(crc).expect("32 bits").to_be_bytes());
    bytes
}

/// Replaces the attributes of a batch.
pub(crate) fn change_attributes(bytes: &mut [u8], attributes: i16) {
    bytes[21..23].copy_from_slice(&attributes.to_be_bytes());
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[21..]);
    bytes[17..21].copy_from_slice(&u32::try_from(crc).expect("32 bits").to_be_bytes());
}

pub(crate) fn contents(random: &mut Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| u8::try_from(random.below(256)).expect("a byte")).collect()
}

pub(crate) fn open(disk: &Arc<Disk>) -> Topic {
    let device: Arc<dyn BlockDevice> = Arc::clone(disk) as _;
    Topic::open(device, OPTIONS).expect("it opens").expect("there is a topic")
}

/// Appends a batch. Its bytes become those stored in the log.
pub(crate) fn append(partition: &Partition, bytes: &mut [u8]) -> Result<i64, record_log::LogError> {
    let (mut batch, rest) = Batch::split_first(bytes).expect("a good batch");
    assert!(rest.is_empty(), "one batch");
    partition.append(&mut batch, 0).map(|appended| appended.base_offset)
}

/// Reads all stable batches from an offset on, in pieces of random sizes. Without compaction, they
/// must extend to the end.
pub(crate) fn read_all(partition: &Partition, from: i64, random: &mut Random) -> Vec<Vec<u8>> {
    let found = read_left(partition, from, random);
    let end = found.last().map_or(from, |last| {
        record_batch::headers(last).next().expect("a whole batch").next_offset()
    });
    assert_eq!(end, partition.stable_offset(), "the end is the only empty place");
    found
}

/// Same for a partition in which the records of the last offsets may have been removed.
pub(crate) fn read_left(partition: &Partition, from: i64, random: &mut Random) -> Vec<Vec<u8>> {
    let (mut offset, mut buffer, mut found) = (from, Vec::new(), Vec::new());
    loop {
        let bytes_max = random.index(20_000);
        let range = partition.read(offset, bytes_max, &mut buffer).expect("it reads");
        let bytes = &buffer[range];
        if bytes.is_empty() {
            return found;
        }
        let mut at = 0;
        for header in record_batch::headers(bytes) {
            found.push(bytes[at..at + header.size_bytes].to_vec());
            at += header.size_bytes;
            offset = header.next_offset();
        }
        assert_eq!(at, bytes.len(), "whole batches");
    }
}
