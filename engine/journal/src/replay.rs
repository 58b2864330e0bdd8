//! Recovery: reads the whole journal in order into a [`Replay`], which restores volumes.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use codec::{BLOCK_BYTES, Block};
use sealing::SetKey;
use storage::{AlignedBuffer, Folder, StableFile};

use crate::chain::{Chain, Link};
use crate::error::{JournalError, JournalErrorKind};
use crate::format::{
    Entry, Location, PageCheck, Place, SEGMENT_HEADER_BYTES, Seal, SetId, Transaction,
    VolumeRecord, open_stored,
};
use crate::reader::{SegmentReader, Step, length_of};
use crate::segment_file::{cannot_read, name_of};

/// A position between two transactions of a journal. Everything that was durable when a checkpoint
/// began lies before its position. Images store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Default for Position {
    fn default() -> Self {
        Self::START
    }
}

impl Position {
    /// Position before the first transaction of a journal.
    pub const START: Self = Self(1);
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reason why a change was rejected.
pub type Refusal = Box<dyn Error + Send + Sync>;

/// Receives the changes of a journal, in commit order.
pub trait Replay {
    /// Receives the table of all volumes of class `journal` and `image` as of here. A volume with a
    /// known id is the same volume, even under a new name or size. A volume of class `image` that
    /// is not listed was deleted, and is not restored from an image.
    fn volumes(&mut self, table: &[VolumeRecord]) -> Result<(), Refusal>;

    /// Receives new contents of blocks of a volume. Calls for a volume that is not in the last
    /// table, or for blocks beyond its end, must be ignored.
    fn blocks(&mut self, volume_id: u64, block: u64, change: Change<'_>) -> Result<(), Refusal>;
}

/// Change of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'bytes> {
    /// This number of blocks are holes.
    Holes(u32),
    /// This number of blocks are filled with the pattern.
    Fill { count: u32, pattern: u32 },
    /// One block has these contents.
    Contents(&'bytes Block),
    /// The contents of one block are damaged in the journal, or were lost before they were written
    /// to it.
    Damaged,
}

impl Change<'_> {
    pub fn block_count(&self) -> u64 {
        match *self {
            Self::Holes(count) | Self::Fill { count, .. } => u64::from(count),
            Self::Contents(_) | Self::Damaged => 1,
        }
    }
}

/// Result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Sequence number after the last transaction.
    pub next_sequence: u64,
    /// Number of the last segment, and the offset in it at which the last transaction ends.
    pub end: Option<(u32, u32)>,
    pub transactions: u64,
    pub blocks: u64,
    /// Number of blocks whose contents are damaged in the journal, and the segments that should
    /// contain them.
    pub damaged_blocks: u64,
    pub damaged_segments: Vec<String>,
}

/// Replays the journal in `folder` from the position of the last image, or from
/// [`Position::START`]. Changes nothing on disk and can be repeated. Fails if a required part is
/// missing or corrupt. A single damaged page is not an error but is reported to `replay`.
pub fn recover(
    folder: &dyn Folder,
    key: Option<&SetKey>,
    set_id: SetId,
    from: Position,
    replay: &mut dyn Replay,
) -> Result<Recovered, JournalError> {
    let (recovered, failure) = recover_until_damage(folder, key, set_id, from, replay)?;
    failure.map_or(Ok(recovered), Err)
}

/// Replays the journal like [`recover`], but stops before a damaged or missing part and returns
/// that error. `replay` receives only complete transactions. Other failures are errors.
pub fn recover_until_damage(
    folder: &dyn Folder,
    key: Option<&SetKey>,
    set_id: SetId,
    from: Position,
    replay: &mut dyn Replay,
) -> Result<(Recovered, Option<JournalError>), JournalError> {
    let is_damage = |kind| matches!(kind, JournalErrorKind::Damaged | JournalErrorKind::Missing);
    let (chain, damage) = match Chain::find_until_damage(folder, key, set_id, from.0) {
        Err(error) if is_damage(error.kind) => return Ok((Recovered::default(), Some(error))),
        found => found?,
    };
    let next_sequence = chain.next_sequence().max(from.0);
    let end = chain.links.last().map(|link| (link.header.number, link.end.offset));
    let report = Recovered { next_sequence, end, ..Recovered::default() };
    let pages = PageFetcher::new(folder, key, &chain);
    let contents = Box::new([0; BLOCK_BYTES]);
    let opened = Vec::new();
    let mut recovery = Recovery { key, replay, pages, report, contents, opened };
    let mut expected = None;
    for link in &chain.links {
        if link.end.next_sequence <= from.0 {
            continue;
        }
        match recovery.read_segment(folder, link, from.0, expected) {
            Err(error) if is_damage(error.kind) => return Ok((recovery.report, Some(error))),
            read => expected = Some(read?),
        }
    }
    Ok((recovery.report, damage))
}

/// Returns the position from which the journal in a folder can be read to its end, judging by
/// headers and file lengths, or `None` if there is no journal.
pub fn begins_at(
    folder: &dyn Folder,
    key: Option<&SetKey>,
) -> Result<Option<Position>, JournalError> {
    Ok(Chain::first_sequence(folder, key)?.map(Position))
}

struct Recovery<'it> {
    key: Option<&'it SetKey>,
    replay: &'it mut dyn Replay,
    pages: PageFetcher<'it>,
    report: Recovered,
    contents: Box<Block>,
    /// Buffer for a decrypted page.
    opened: Vec<u8>,
}

impl Recovery<'_> {
    /// Replays a segment's transactions from sequence `from` on. Returns the next sequence number.
    fn read_segment(
        &mut self,
        folder: &dyn Folder,
        link: &Link,
        from: u64,
        expected: Option<u64>,
    ) -> Result<u64, JournalError> {
        let mut reader = SegmentReader::open(folder, self.key, link.header)?;
        let mut offset = SegmentReader::first_offset();
        let mut sequence = link.header.first_sequence;
        check_sequence(link, expected.unwrap_or(sequence.min(from)), from)?;
        while offset < link.end.offset {
            let length = match reader.read(offset, sequence)? {
                Step::Transaction(transaction) => {
                    if sequence >= from {
                        self.apply(&transaction, link.header.number)?;
                    }
                    length_of(&transaction)
                }
                Step::Nothing(error) => return Err(reader.damaged(offset, sequence, error)),
            };
            offset = offset.saturating_add(length);
            sequence += 1;
        }
        if offset != link.end.offset {
            return Err(ends_wrongly(link, offset));
        }
        Ok(sequence)
    }

    fn apply(&mut self, transaction: &Transaction<'_>, segment: u32) -> Result<(), JournalError> {
        self.report.transactions += 1;
        if let Some(table) = transaction.table() {
            self.replay.volumes(table).map_err(refused)?;
        }
        let mut volume_id = 0;
        for entry in transaction.entries() {
            match *entry {
                Entry::Volume(id) => volume_id = id,
                Entry::Hole { block, count } => {
                    self.change(volume_id, block, Change::Holes(count))?
                }
                Entry::Fill { block, count, pattern } => {
                    self.change(volume_id, block, Change::Fill { count, pattern })?;
                }
                Entry::Lost { block, count } => {
                    for block in block..block + u64::from(count) {
                        self.change(volume_id, block, Change::Damaged)?;
                    }
                }
                Entry::Page { block, place, length, check } => {
                    let opened = &mut self.opened;
                    let (stored, segment) = match place {
                        Place::Elsewhere(at) => {
                            (self.pages.fetch(at, length, check, opened)?, at.segment)
                        }
                        _ => (transaction.open_page(place, length, check, opened), segment),
                    };
                    let is_whole = decode(stored, &mut self.contents);
                    let change = match is_whole {
                        true => Change::Contents(&self.contents),
                        false => self.report.note_damaged(segment),
                    };
                    self.report.blocks += 1;
                    self.replay.blocks(volume_id, block, change).map_err(refused)?;
                }
            }
        }
        Ok(())
    }

    fn change(
        &mut self,
        volume_id: u64,
        block: u64,
        change: Change<'_>,
    ) -> Result<(), JournalError> {
        self.report.blocks += change.block_count();
        self.replay.blocks(volume_id, block, change).map_err(refused)
    }
}

impl Recovered {
    /// Counts a block whose contents in the segment are damaged.
    fn note_damaged(&mut self, segment: u32) -> Change<'static> {
        self.damaged_blocks += 1;
        let name = name_of(segment);
        if !self.damaged_segments.contains(&name) {
            self.damaged_segments.push(name);
        }
        Change::Damaged
    }
}

/// Decodes an intact page into `contents`. Returns `false` if there is none.
pub(crate) fn decode(stored: Option<&[u8]>, contents: &mut Block) -> bool {
    let Some(stored) = stored else { return false };
    if stored.len() == BLOCK_BYTES {
        contents.copy_from_slice(stored);
        return true;
    }
    codec::decode(stored, contents).is_ok()
}

/// Checks that a segment continues the previous one, apart from transactions whose write failed. If
/// an image is newer than the journal's end, there may be a gap, and the image covers it.
fn check_sequence(link: &Link, expected: u64, from: u64) -> Result<(), JournalError> {
    let first = link.header.first_sequence;
    let continues = first == expected.saturating_add(u64::from(link.header.abandoned));
    if continues || first == expected || (first > expected && first <= from) {
        return Ok(());
    }
    let what = format!(
        "segment {} begins with transaction {first} instead of {expected}",
        name_of(link.header.number)
    );
    Err(JournalError::new(JournalErrorKind::Missing, what))
}

fn ends_wrongly(link: &Link, offset: u32) -> JournalError {
    let (end, name) = (link.end.offset, name_of(link.header.number));
    let what =
        format!("segment {name} should end at byte {end}, and a transaction ends at {offset}");
    JournalError::new(JournalErrorKind::Damaged, what)
}

fn refused(refusal: Refusal) -> JournalError {
    let what = "cannot replay a change of a volume from the journal".to_owned();
    JournalError { kind: JournalErrorKind::Refused, what, source: Some(refusal) }
}

/// Read size around a page, and maximum number of cached pieces.
const PIECE_BYTES: u32 = 128 << 10;
const PIECE_COUNT_MAX: usize = 128;

/// Fetches pages from any location in the journal.
struct PageFetcher<'it> {
    folder: &'it dyn Folder,
    segments: BTreeMap<u32, Segment>,
    pieces: BTreeMap<(u32, u32), Piece>,
    /// Number of fetches, as a logical clock for LRU eviction.
    time: u64,
    page: Vec<u8>,
}

struct Segment {
    end: u32,
    seal: Seal,
    /// Opened on first use.
    file: Option<Arc<dyn StableFile>>,
}

struct Piece {
    bytes: AlignedBuffer,
    used_at: u64,
}

impl<'it> PageFetcher<'it> {
    fn new(folder: &'it dyn Folder, key: Option<&SetKey>, chain: &Chain) -> Self {
        let segment =
            |link: &Link| Segment { end: link.end.offset, seal: link.header.seal(key), file: None };
        let segments = chain.links.iter().map(|link| (link.header.number, segment(link))).collect();
        Self { folder, segments, pieces: BTreeMap::new(), time: 0, page: Vec::new() }
    }

    /// Returns the page at a location, if the location is in the journal and the page is intact.
    fn fetch<'page>(
        &'page mut self,
        at: Location,
        length: u16,
        check: PageCheck,
        opened: &'page mut Vec<u8>,
    ) -> Result<Option<&'page [u8]>, JournalError> {
        let Some(Segment { end, seal, .. }) = self.segments.get(&at.segment) else {
            return Ok(None);
        };
        let (end, seal) = (*end, seal.clone());
        let header_bytes = u32::try_from(SEGMENT_HEADER_BYTES).expect("a block");
        let page_end = at.offset.saturating_add(u32::from(length));
        if at.offset < header_bytes || page_end > end {
            return Ok(None);
        }
        self.page.clear();
        let mut offset = at.offset;
        while offset < page_end {
            let start = offset / PIECE_BYTES * PIECE_BYTES;
            let piece_end = start.saturating_add(PIECE_BYTES).min(end);
            let until = page_end.min(piece_end);
            self.bring(at.segment, start, piece_end - start)?;
            let piece = &self.pieces[&(at.segment, start)];
            let range = (offset - start) as usize..(until - start) as usize;
            self.page.extend_from_slice(&piece.bytes[range]);
            offset = until;
        }
        Ok(open_stored(&seal, &self.page, at.offset.into(), check, opened))
    }

    /// Loads a piece into the cache if it is not there.
    fn bring(&mut self, segment: u32, start: u32, length: u32) -> Result<(), JournalError> {
        self.time += 1;
        let used_at = self.time;
        if let Some(piece) = self.pieces.get_mut(&(segment, start)) {
            piece.used_at = used_at;
            return Ok(());
        }
        if self.pieces.len() >= PIECE_COUNT_MAX {
            let oldest = self.pieces.iter().min_by_key(|(_, piece)| piece.used_at);
            let &oldest = oldest.expect("there are some").0;
            self.pieces.remove(&oldest);
        }
        let mut bytes = AlignedBuffer::zeroed(length as usize);
        let file = self.file(segment)?;
        file.read(u64::from(start), &mut bytes).map_err(|error| cannot_read(segment, error))?;
        self.pieces.insert((segment, start), Piece { bytes, used_at });
        Ok(())
    }

    fn file(&mut self, segment: u32) -> Result<Arc<dyn StableFile>, JournalError> {
        let known = self.segments.get_mut(&segment).expect("the caller found it");
        if let Some(file) = &known.file {
            return Ok(Arc::clone(file));
        }
        let opened = self.folder.open(&name_of(segment));
        let opened = opened.map_err(|error| cannot_read(segment, error))?;
        Ok(Arc::clone(known.file.insert(opened)))
    }
}
