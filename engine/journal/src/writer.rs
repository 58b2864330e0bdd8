//! Work of a group's leader: captures changed blocks of the flushed volumes and appends them to the
//! log.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, OnceLock, Weak};

use sync::atomic::{AtomicU64, Ordering};
use volumes::{Capture, CaptureWalk, Durability, Engine, Volume, VolumeMap};

use crate::error::{JournalError, JournalErrorKind};
use crate::format::{Form, Sizes, TABLE_RECORD_BYTES, VolumeRecord};
use crate::log::Log;
use crate::meter::{Meter, Written};
use crate::options::Clock;
use crate::replay::Position;
use crate::transaction_builder::TransactionBuilder;

const BLOCK_BYTES: u64 = block_device::BLOCK_BYTES as u64;

/// State used by successive commits.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) log: Log,
    engine: Arc<OnceLock<Weak<Engine>>>,
    table: Table,
    /// Edition of the table in the journal.
    written_edition: u64,
    /// The engine's version of the table in the journal, for threads that do not have the writer.
    noted_version: Arc<AtomicU64>,
    meter: Arc<Meter>,
    clock: Arc<dyn Clock>,
}

/// Edition before the first table.
const UNWRITTEN: u64 = 0;

/// Version before the first table.
const NEVER: u64 = u64::MAX;

/// The volumes of class `journal` and `image` at one moment, and their snapshots. Volumes of class
/// `image` are listed so that deletions persist. Their contents and those of snapshots are not
/// journaled.
#[derive(Debug, Default)]
struct Table {
    /// Engine version at which it was read.
    version: Option<u64>,
    /// Number of changes so far.
    edition: u64,
    /// By id.
    volumes: Vec<Member>,
    /// Set if any volume is of class `journal`.
    has_journaled: bool,
    encoded: Vec<u8>,
}

#[derive(Debug)]
struct Member {
    id: u64,
    block_count: u64,
    durability: Durability,
    volume: Weak<Volume>,
}

/// Remaining work of a commit.
struct Commit {
    walks: Vec<CaptureWalk>,
    /// Number of walks whose blocks have all been captured.
    done: usize,
}

impl Writer {
    pub(crate) fn new(
        log: Log,
        engine: Arc<OnceLock<Weak<Engine>>>,
        meter: Arc<Meter>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (table, noted_version) = (Table::default(), Arc::new(AtomicU64::new(NEVER)));
        Self { log, engine, table, written_edition: UNWRITTEN, noted_version, meter, clock }
    }

    /// Returns the shared version of the table that the journal has.
    pub(crate) fn share_noted_version(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.noted_version)
    }

    /// Begins a checkpoint like [`Log::begin_checkpoint`]. Re-reads the table, because earlier
    /// images may have anchored volumes without a new engine version.
    pub(crate) fn begin_checkpoint(&mut self) -> Position {
        self.table.version = None;
        self.log.begin_checkpoint()
    }

    /// Ensures that the journal has the current volume table, and space for the next one. After a
    /// failure a write must succeed first.
    pub(crate) fn prepare_table(&mut self) -> Result<(), JournalError> {
        if self.meter.is_failing() {
            self.written_edition = UNWRITTEN;
        }
        self.commit(&[])?;
        self.log.expect_blocks(self.table.has_journaled);
        self.log.prepare(self.table.next_length(self.log.form()))
    }

    /// Makes the volumes' contents at the time of the call durable, and the volume table.
    pub(crate) fn commit(&mut self, volume_ids: &[u64]) -> Result<(), JournalError> {
        let engine = self.engine()?;
        self.table.refresh(&engine);
        let mut commit = Commit::begin(&self.table, volume_ids);
        loop {
            let blocks_max = self.log.blocks_max(&self.table.encoded)?;
            let captures = commit.capture(blocks_max.min(engine.capture_blocks_max()));
            let is_table_new = self.table.edition != self.written_edition;
            if captures.is_empty() && !is_table_new {
                break;
            }
            if self.table.refresh_for(&engine, &captures) {
                // The captures may concern volumes that the old table described differently. The
                // captured blocks are returned first, so that they are found again.
                drop(captures);
                commit.walks.clear();
                commit = Commit::begin(&self.table, volume_ids);
                continue;
            }
            self.write(captures)?;
        }
        commit.walks.into_iter().for_each(CaptureWalk::end);
        self.noted_version.store(self.table.version.unwrap_or(NEVER), Ordering::Relaxed);
        Ok(())
    }

    /// Writes captured blocks, then marks them as durable in the pool.
    fn write(&mut self, captures: Vec<Capture>) -> Result<(), JournalError> {
        self.append(&captures)?;
        for capture in captures {
            let end = self.table.block_count(capture.map().id());
            capture.settle(end);
        }
        Ok(())
    }

    fn append(&mut self, captures: &[Capture]) -> Result<(), JournalError> {
        self.log.expect_blocks(self.table.has_journaled);
        let mut transaction = TransactionBuilder::new(self.log.form());
        if self.table.edition != self.written_edition {
            transaction.set_table(&self.table.encoded);
        }
        let known = self.log.known();
        for capture in captures {
            let id = capture.map().id();
            let block_count = self.table.block_count(id);
            for (block, contents) in capture.blocks() {
                // Blocks beyond the volume's end no longer exist.
                if block < block_count {
                    transaction.add(&known, id, block, contents);
                }
            }
        }
        drop(known);
        if transaction.is_empty() {
            return Ok(());
        }
        self.meter.note_writing(self.clock.now());
        let bytes = self.log.append(&mut transaction, &self.table.encoded)?;
        let written = Written {
            blocks: transaction.block_count(),
            references: transaction.reference_count(),
            bytes,
            position: self.log.position(),
        };
        if transaction.has_table() {
            self.written_edition = self.table.edition;
        }
        self.meter.note_written(written, self.clock.now());
        Ok(())
    }

    fn engine(&self) -> Result<Arc<Engine>, JournalError> {
        let engine = self.engine.get().and_then(Weak::upgrade);
        engine.ok_or_else(|| {
            JournalError::new(
                JournalErrorKind::Stopped,
                "cannot write to the journal: the pool is closed",
            )
        })
    }
}

impl Table {
    /// Re-reads the engine's table if it has changed. Returns whether it had.
    fn refresh(&mut self, engine: &Engine) -> bool {
        let has_changed = self.version != Some(engine.table_version());
        if has_changed {
            self.read(engine);
        }
        has_changed
    }

    /// Like `refresh`, but also re-reads if a captured volume differs from the table. The engine
    /// changes a volume before it increments its version, and may revert a change without a new
    /// version.
    fn refresh_for(&mut self, engine: &Engine, captures: &[Capture]) -> bool {
        let is_right = captures.iter().all(|capture| self.describes(capture.map()));
        if !is_right {
            self.read(engine);
        }
        self.refresh(engine) || !is_right
    }

    fn describes(&self, volume: &VolumeMap) -> bool {
        let block_count = volume.settled_size_bytes() / BLOCK_BYTES;
        let now = (block_count, volume.durability());
        self.find(volume.id()).is_some_and(|it| (it.block_count, it.durability) == now)
    }

    fn read(&mut self, engine: &Engine) {
        let is_first = self.edition == UNWRITTEN;
        self.version = Some(engine.table_version());
        let volumes = engine.durable_volumes();
        self.volumes.clear();
        let mut snapshots: HashMap<Option<u64>, Vec<Arc<Volume>>> = HashMap::new();
        for snapshot in engine.snapshots() {
            snapshots.entry(snapshot.origin_id()).or_default().push(snapshot);
        }
        let before = mem::take(&mut self.encoded);
        for volume in &volumes {
            let record = VolumeRecord::of(volume);
            record.encode(&mut self.encoded);
            let block_count = record.size_bytes / BLOCK_BYTES;
            let durability = record.durability().expect("it is one of ours");
            let mut snapshots = snapshots.remove(&Some(record.id)).unwrap_or_default();
            snapshots.sort_by_key(|snapshot| snapshot.id());
            snapshots.iter().for_each(|it| VolumeRecord::of(it).encode(&mut self.encoded));
            let volume = Arc::downgrade(volume);
            self.volumes.push(Member { id: record.id, block_count, durability, volume });
        }
        let is_journaled = |member: &Member| member.durability == Durability::Journal;
        self.has_journaled = self.volumes.iter().any(is_journaled);
        self.edition += u64::from(is_first || self.encoded != before);
    }

    /// Returns the length of a transaction with this table and one more volume.
    fn next_length(&self, form: Form) -> usize {
        let count = self.encoded.len() / TABLE_RECORD_BYTES + 1;
        let table_count = Some(u32::try_from(count).expect("a pool has few volumes"));
        let sizes = Sizes { form, table_count, entry_count: 0, packed_bytes: 0, whole_count: 0 };
        sizes.total_bytes()
    }

    /// Returns the number of blocks of a volume, or 0 if it is not in the table.
    fn block_count(&self, id: u64) -> u64 {
        self.find(id).map_or(0, |member| member.block_count)
    }

    fn find(&self, id: u64) -> Option<&Member> {
        let place = self.volumes.binary_search_by_key(&id, |member| member.id).ok()?;
        Some(&self.volumes[place])
    }
}

impl Commit {
    /// Starts a commit. Skips volumes that are not in the table or have nothing to journal. Also
    /// skips unanchored ones: the image that they wait for supersedes their blocks, which no
    /// transaction after it may repeat.
    fn begin(table: &Table, volume_ids: &[u64]) -> Self {
        let mut ids = volume_ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let volumes = ids.iter().filter_map(|&id| table.find(id)?.volume.upgrade());
        let is_ready =
            |it: &Arc<Volume>| it.durability() == Durability::Journal && it.map().is_anchored();
        let volumes = volumes.filter(is_ready);
        let walks = volumes.filter_map(|volume| volume.walk_unjournaled()).collect();
        Self { walks, done: 0 }
    }

    /// Captures the next blocks of all volumes, at most `blocks_max`. Returns nothing at the end.
    fn capture(&mut self, blocks_max: usize) -> Vec<Capture> {
        let mut captures = Vec::new();
        let mut room = blocks_max;
        while room > 0
            && let Some(walk) = self.walks.get_mut(self.done)
        {
            match walk.capture(room) {
                Some(capture) => {
                    room -= capture.block_count();
                    captures.push(capture);
                }
                None => self.done += 1,
            }
        }
        captures
    }
}

#[cfg(test)]
mod tests {
    use block_device::BlockDevice;
    use powercut::Disk;
    use region::{Region, RegionSpec};
    use volumes::{EngineOptions, ShrinkPolicy, VolumeSpec};

    use super::*;
    use crate::chain::Chain;
    use crate::format::SetId;
    use crate::log::Identity;
    use crate::options::{JournalOptions, SystemClock};
    use crate::replay::{Change, Position, Refusal, Replay, recover};
    use crate::segment_set::SegmentSet;

    const SET: SetId = *b"a set of a test.";
    const MIB: u64 = 1 << 20;

    fn open_engine(memory: &tempfile::TempDir) -> Arc<Engine> {
        let path = memory.path().join("region");
        let region = Region::open(&RegionSpec { path, size_bytes: 16 * MIB });
        let options = EngineOptions { lane_count: 2, fresh_secret: [7; 32] };
        Arc::new(Engine::open(region.expect("the region opens"), options).expect("it opens"))
    }

    fn writer(disk: &Disk, engine: &Arc<Engine>) -> Writer {
        let options = JournalOptions::default();
        let folder = disk.folder();
        let chain = Chain::find(&*folder, None, SET, u64::MAX).expect("the disk works");
        let segments = Arc::new(SegmentSet::new(folder, &chain, &options));
        let log = Log::new(
            segments,
            Identity { set_id: SET, key: None },
            &chain,
            Some(Position::START),
            &options,
        );
        let engine = Arc::new(OnceLock::from(Arc::downgrade(engine)));
        Writer::new(log, engine, Arc::default(), Arc::new(SystemClock::new()))
    }

    fn create(engine: &Engine) -> Arc<Volume> {
        let spec = VolumeSpec {
            durability: Durability::Journal,
            ..VolumeSpec::new("one".parse().expect("a good name"), 4 * MIB)
        };
        engine.create_volume(spec).expect("there is room")
    }

    /// Block indices in a journal.
    #[derive(Default)]
    struct Blocks(Vec<u64>);

    impl Replay for Blocks {
        fn volumes(&mut self, _table: &[VolumeRecord]) -> Result<(), Refusal> {
            Ok(())
        }

        fn blocks(&mut self, _volume: u64, block: u64, _change: Change<'_>) -> Result<(), Refusal> {
            self.0.push(block);
            Ok(())
        }
    }

    #[test]
    fn a_volume_is_written_as_it_is_before_the_engine_says_that_it_has_changed() {
        let memory = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
        let engine = open_engine(&memory);
        let disk = Disk::new(1 << 30);
        let mut writer = writer(&disk, &engine);
        let volume = create(&engine);
        writer.commit(&[volume.id()]).expect("the disk works");
        engine.resize_volume("one", 8 * MIB, ShrinkPolicy::KeepData).expect("it can grow");
        volume.write(6 * MIB, &[7; 4096]).expect("there is room");
        // Simulates a writer that reads the table in the middle of the resize.
        writer.table.version = Some(engine.table_version());
        writer.commit(&[volume.id()]).expect("the disk works");
        assert_eq!(volume.map().unjournaled_blocks(), 0);
        let mut found = Blocks::default();
        recover(&*disk.folder(), None, SET, Position::START, &mut found).expect("it is whole");
        assert_eq!(found.0, [6 * MIB / BLOCK_BYTES]);
    }

    #[test]
    fn blocks_past_the_end_are_neither_written_nor_taken_for_written() {
        let memory = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
        let engine = open_engine(&memory);
        let disk = Disk::new(1 << 30);
        let mut writer = writer(&disk, &engine);
        let volume = create(&engine);
        for block in [3, 900] {
            volume.write(block * BLOCK_BYTES, &[7; 4096]).expect("there is room");
        }
        writer.table.refresh(&engine);
        let walk = |volume: &Volume| volume.walk_unjournaled().expect("a block is to be written");
        // As the table is after a shrink that has not yet dropped blocks beyond the new end.
        writer.table.volumes[0].block_count = 100;
        let mut before = walk(&volume);
        writer.write(before.capture(8).into_iter().collect()).expect("the disk works");
        before.end();
        let mut found = Blocks::default();
        recover(&*disk.folder(), None, SET, Position::START, &mut found).expect("it is whole");
        assert_eq!((found.0, volume.map().unjournaled_blocks()), (vec![3], 1));
        // The next flush captures it again.
        writer.table.volumes[0].block_count = 1024;
        writer.write(walk(&volume).capture(8).into_iter().collect()).expect("the disk works");
        let mut found = Blocks::default();
        recover(&*disk.folder(), None, SET, Position::START, &mut found).expect("it is whole");
        assert_eq!((found.0, volume.map().unjournaled_blocks()), (vec![3, 900], 0));
    }
}
