//! Device for tests and examples: bytes in memory, without durability or reduction.
#![allow(dead_code, reason = "each program that includes this uses a part of it")]

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::{Arc, RwLock};

use block_device::{
    Action, BLOCK_BYTES, BlockDevice, ByteRange, ChangeExtent, ChangeKind, DeviceError,
    DeviceErrorKind, Extent, ExtentKind, Geometry, SectorSize, SnapshotId, SnapshotInfo, Zeroes,
};
use nbd::{Client, Export, ExportInfo, Exports, Peer};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Sparse device. Blocks that were never written are absent.
pub(crate) struct SparseDevice {
    size_bytes: u64,
    block_count_max: usize,
    is_read_only: bool,
    blocks: RwLock<Blocks>,
    snapshots: RwLock<Vec<(SnapshotInfo, Blocks)>>,
}

type Blocks = BTreeMap<u64, Box<[u8; BLOCK_BYTES]>>;

impl SparseDevice {
    pub(crate) fn new(size_bytes: u64) -> Self {
        Self::with_space(size_bytes, usize::MAX)
    }

    /// Creates a device that runs out of space at `block_count_max` blocks.
    pub(crate) fn with_space(size_bytes: u64, block_count_max: usize) -> Self {
        Self {
            size_bytes,
            block_count_max,
            is_read_only: false,
            blocks: RwLock::default(),
            snapshots: RwLock::default(),
        }
    }

    pub(crate) fn read_only(self) -> Self {
        Self { is_read_only: true, ..self }
    }

    /// Takes a snapshot of the device.
    pub(crate) fn take_snapshot(&self, id: u64, name: &str) {
        let info = SnapshotInfo { id: SnapshotId(id), name: name.to_owned() };
        let blocks = self.blocks.read().expect("nothing panics").clone();
        self.snapshots.write().expect("nothing panics").push((info, blocks));
    }

    pub(crate) fn delete_snapshot(&self, id: u64) {
        let mut snapshots = self.snapshots.write().expect("nothing panics");
        snapshots.retain(|(info, _)| info.id.0 != id);
    }

    fn check(&self, action: Action, range: ByteRange) -> Result<(), DeviceError> {
        let changes = matches!(action, Action::Write | Action::WriteZeroes | Action::Discard);
        let kind = match range.fits(self.size_bytes) {
            true if changes && self.is_read_only => DeviceErrorKind::ReadOnly,
            true => return Ok(()),
            false => DeviceErrorKind::OutOfRange,
        };
        Err(DeviceError::new(kind, action, range))
    }
}

/// Splits `range` at block boundaries: block index, range inside the block, offset inside `range`.
fn pieces(range: ByteRange) -> impl Iterator<Item = (u64, std::ops::Range<usize>, usize)> {
    let end = range.start + range.length;
    let mut next = range.start;
    std::iter::from_fn(move || {
        if next == end {
            return None;
        }
        let start = next;
        let block = start / BLOCK;
        next = end.min((block + 1) * BLOCK);
        let offset = small(start % BLOCK);
        let inside = offset..offset + small(next - start);
        Some((block, inside, small(start - range.start)))
    })
}

fn small(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a part of a request fits memory")
}

impl BlockDevice for SparseDevice {
    fn geometry(&self) -> Geometry {
        Geometry { size_bytes: self.size_bytes, sector: SectorSize::Bytes512 }
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset_bytes, into.len() as u64);
        self.check(Action::Read, range)?;
        let blocks = self.blocks.read().expect("nothing panics");
        for (block, inside, at) in pieces(range) {
            let into = &mut into[at..at + inside.len()];
            match blocks.get(&block) {
                Some(bytes) => into.copy_from_slice(&bytes[inside]),
                None => into.fill(0),
            }
        }
        Ok(())
    }

    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        let into = &mut scratch[..small(range.length)];
        self.read(range.start, into)?;
        visit(&[IoSlice::new(into)]);
        Ok(())
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset_bytes, from.len() as u64);
        self.check(Action::Write, range)?;
        let mut blocks = self.blocks.write().expect("nothing panics");
        for (block, inside, at) in pieces(range) {
            if !blocks.contains_key(&block) && blocks.len() >= self.block_count_max {
                return Err(DeviceError::new(DeviceErrorKind::NoSpace, Action::Write, range));
            }
            let bytes = blocks.entry(block).or_insert_with(|| Box::new([0; BLOCK_BYTES]));
            let length = inside.len();
            bytes[inside].copy_from_slice(&from[at..at + length]);
        }
        Ok(())
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError> {
        self.check(Action::WriteZeroes, range)?;
        let mut blocks = self.blocks.write().expect("nothing panics");
        for (block, inside, _) in pieces(range) {
            if zeroes == Zeroes::Unmap && inside.len() == BLOCK_BYTES {
                blocks.remove(&block);
            } else if let Some(bytes) = blocks.get_mut(&block) {
                bytes[inside].fill(0);
            }
        }
        Ok(())
    }

    fn discard(&self, range: ByteRange) -> Result<(), DeviceError> {
        self.check(Action::Discard, range)?;
        let whole = range.start.div_ceil(BLOCK)..(range.start + range.length) / BLOCK;
        if whole.is_empty() {
            return Ok(());
        }
        let mut blocks = self.blocks.write().expect("nothing panics");
        let mut after = blocks.split_off(&whole.start);
        blocks.append(&mut after.split_off(&whole.end));
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn extents(&self, range: ByteRange, count_max: usize) -> Result<Vec<Extent>, DeviceError> {
        self.check(Action::ListExtents, range)?;
        let blocks = self.blocks.read().expect("nothing panics");
        let end = range.start + range.length;
        let mut extents: Vec<Extent> = Vec::new();
        let mut next = range.start;
        while next < end {
            let full = extents.len() == count_max;
            let block = next / BLOCK;
            let (kind, run_end) = match blocks.get(&block) {
                Some(bytes) if bytes.iter().all(|byte| *byte == 0) => {
                    (ExtentKind::Zero, (block + 1) * BLOCK)
                }
                Some(_) => (ExtentKind::Data, (block + 1) * BLOCK),
                None => {
                    let next_block = blocks.range(block..).next();
                    (ExtentKind::Hole, next_block.map_or(end, |(block, _)| block * BLOCK))
                }
            };
            let length = run_end.min(end) - next;
            match extents.last_mut() {
                Some(last) if last.kind == kind => last.range.length += length,
                _ if full => break,
                _ => extents.push(Extent { range: ByteRange::new(next, length), kind }),
            }
            next += length;
        }
        Ok(extents)
    }

    fn snapshots(&self) -> Vec<SnapshotInfo> {
        let snapshots = self.snapshots.read().expect("nothing panics");
        snapshots.iter().map(|(info, _)| info.clone()).collect()
    }

    fn changed_extents(
        &self,
        since: SnapshotId,
        range: ByteRange,
        count_max: usize,
    ) -> Result<Vec<ChangeExtent>, DeviceError> {
        self.check(Action::ListChanges, range)?;
        let snapshots = self.snapshots.read().expect("nothing panics");
        let Some((_, old)) = snapshots.iter().find(|(info, _)| info.id == since) else {
            return Err(DeviceError::new(DeviceErrorKind::NoSnapshot, Action::ListChanges, range));
        };
        let blocks = self.blocks.read().expect("nothing panics");
        let mut extents: Vec<ChangeExtent> = Vec::new();
        for (block, inside, at) in pieces(range) {
            let kind = match blocks.get(&block) == old.get(&block) {
                true => ChangeKind::Unchanged,
                false => ChangeKind::Changed,
            };
            let is_full = extents.len() == count_max;
            let range = ByteRange::new(range.start + at as u64, inside.len() as u64);
            match extents.last_mut() {
                Some(last) if last.kind == kind => last.range.length += range.length,
                _ if is_full => break,
                _ => extents.push(ChangeExtent { range, kind }),
            }
        }
        Ok(extents)
    }
}

/// A fixed set of exports.
#[derive(Default)]
pub(crate) struct ExportTable {
    exports: BTreeMap<String, Arc<dyn BlockDevice>>,
}

impl ExportTable {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn with(mut self, name: &str, device: Arc<dyn BlockDevice>) -> Self {
        self.exports.insert(name.to_owned(), device);
        self
    }
}

impl Exports for ExportTable {
    fn admits(&self, _peer: &Peer) -> bool {
        true
    }

    fn find(&self, name: &str, _client: &Client) -> Option<Export> {
        let device = self.exports.get(name)?;
        Some(Export {
            name: name.to_owned(),
            description: format!("test device {name}"),
            device: Arc::clone(device),
        })
    }

    fn list(&self, _client: &Client) -> Vec<ExportInfo> {
        let info = |name: &String| ExportInfo { name: name.clone(), description: String::new() };
        self.exports.keys().map(info).collect()
    }
}
