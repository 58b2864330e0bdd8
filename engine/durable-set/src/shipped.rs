//! Presents a shipped journal in an image store as a folder for replay.
//!
//! The folder contains only the gapless part: each extract matches its digest and follows the
//! previous one in its segment, and each segment names the end of the previous one. Everything
//! after the first missing or damaged extract is excluded.

use std::collections::{BTreeMap, HashMap};
use std::io::IoSlice;
use std::sync::{Arc, Mutex};

use image::{ExtractHeader, ExtractName, ImageError, ImageStore, OpenImage};
use image::{claimant_of, read_extract};
use journal::format::{
    PreviousEnd, SEGMENT_HEADER_BYTES, SegmentHeader, TRANSACTION_HEADER_BYTES, TransactionHead,
};
use journal::{JournalError, JournalErrorKind, segment_file_name};
use sealing::SetKey;
use storage::{
    AlignedBuffer, FileInfo, Folder, StableFile, StorageAction, StorageError, StorageErrorKind,
};
use volumes::Engine;

use crate::error::causes;
use crate::newest::covered_by;
use crate::replay::{Replayed, replay_onto};

/// Journal that an image's writer has shipped after it.
#[derive(Debug)]
pub struct ShippedJournal {
    folder: ShippedFolder,
    /// Length of the gapless part.
    pub bytes: u64,
    /// Every flush before this time is in these bytes or in the image. In microseconds since 1970,
    /// 0 if unknown.
    pub taken_unix_micros: u64,
    /// End of the gapless part if more was shipped, with the reason and the number of excluded
    /// bytes.
    pub gap: Option<Gap>,
}

/// End of the gapless part, and the size of the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Missing or damaged extract or segment.
    pub what: String,
    /// Length of unused extracts.
    pub left_out_bytes: u64,
}

/// Shipped part of a segment.
#[derive(Debug)]
struct Segment {
    header: SegmentHeader,
    extracts: Vec<Piece>,
    /// End of the last extract, and its time.
    end: u32,
    taken_unix_micros: u64,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    name: ExtractName,
    object_bytes: u64,
    payload_bytes: u32,
}

/// Extracts by segment, in order of offset.
type Listed = BTreeMap<u32, Vec<(ExtractName, u64)>>;

impl ShippedJournal {
    /// Finds the journal that the image's writer shipped after it. Returns `None` if no extract,
    /// intact or not, continues the image. Fails if the store cannot list its extracts.
    pub fn after(
        image: &OpenImage,
        store: &Arc<dyn ImageStore>,
        verified: &mut Verified,
    ) -> Result<Option<Self>, ImageError> {
        let summary = image.summary();
        // Extracts of another claim continue other images.
        let writer = match claimant_of(&**store, summary.id.number()) {
            Ok(Some(writer)) => writer,
            Ok(None) => return Ok(None),
            // Harmless if nothing was shipped.
            Err(_) if store.extracts()?.is_empty() => return Ok(None),
            Err(error) if is_damage(&error) => {
                let why = causes(&error);
                let why =
                    format!("cannot determine the writer whose journal continues the image: {why}");
                return Self::unusable(store, why).map(Some);
            }
            // A retry may succeed.
            Err(error) => return Err(error),
        };
        let from = covered_by(image).0;
        let found = Self::find(store, writer, summary.set_id, from, verified)?;
        Ok(Some(found).filter(|found| found.bytes > 0 || found.gap.is_some()))
    }

    /// Replays the shipped journal up to the first gap, into a pool that holds the image and whose
    /// volumes are not served. After a failure the pool's state is undefined.
    pub fn replay(
        &self,
        engine: &Arc<Engine>,
        key: Option<&SetKey>,
        image: &OpenImage,
    ) -> Result<Replayed, JournalError> {
        let set_id = image.summary().set_id;
        let mut replayed = replay_onto(engine, &self.folder, key, set_id, covered_by(image))?;
        if replayed.ended_early.is_none() {
            replayed.ended_early = self.damage_after(replayed.end)?;
        }
        Ok(replayed)
    }

    /// Returns the damage at which the replay of the last segment has ended, if any. There it looks
    /// like a transaction whose write was cut off. But all that was shipped had been written; only
    /// the rest of a long transaction may not have been shipped yet.
    fn damage_after(&self, end: Option<(u32, u32)>) -> Result<Option<JournalError>, JournalError> {
        let Some((number, offset)) = end else { return Ok(None) };
        let Some(segment) = self.folder.segments.get(&number) else { return Ok(None) };
        let left_bytes = segment.end.saturating_sub(offset) as usize;
        if left_bytes == 0 {
            return Ok(None);
        }
        let name = segment_file_name(number);
        let failed = |error: StorageError| JournalError {
            kind: JournalErrorKind::Disk,
            what: format!("cannot read {name}"),
            source: Some(error.into()),
        };
        let file = self.folder.open(&name).map_err(failed)?;
        let mut head = [0; TRANSACTION_HEADER_BYTES];
        file.read(u64::from(offset), &mut head).map_err(failed)?;
        let is_long = |it: TransactionHead| it.sizes.total_bytes() > left_bytes;
        Ok(match TransactionHead::decode(&head).is_ok_and(is_long) {
            true => None,
            false => Some(JournalError {
                kind: JournalErrorKind::Damaged,
                what: format!("the transaction at byte {offset} of {name} is damaged"),
                source: None,
            }),
        })
    }

    /// Finds what `writer` has shipped of a set's journal after sequence `from`. Fails if the store
    /// does not answer. Only extracts that match their digests are used.
    fn find(
        store: &Arc<dyn ImageStore>,
        writer: u128,
        set_id: [u8; 16],
        from: u64,
        verified: &mut Verified,
    ) -> Result<Self, ImageError> {
        let mut listed = Listed::new();
        for (name, bytes) in store.extracts()? {
            if name.writer == writer {
                listed.entry(name.segment).or_default().push((name, bytes));
            }
        }
        verified.0.retain(|name, _| listed.contains_key(&name.segment));
        let mut found = Found { store, verified, set_id, segments: BTreeMap::new(), gap: None };
        found.collect(&listed, from)?;
        let Found { segments, gap, .. } = found;
        // The last time, not the highest: the clock may have been set back.
        let taken = segments.last_key_value().map_or(0, |(_, last)| last.taken_unix_micros);
        let used: u64 = segments.values().map(|segment| u64::from(segment.end)).sum();
        let left_out_bytes = payload_bytes(listed.values().flatten()).saturating_sub(used);
        Ok(Self {
            folder: ShippedFolder { store: Arc::clone(store), segments: Arc::new(segments) },
            bytes: used,
            taken_unix_micros: taken,
            gap: gap.map(|what| Gap { what, left_out_bytes }),
        })
    }

    /// Result if nothing shipped is usable, with the reason.
    fn unusable(store: &Arc<dyn ImageStore>, what: String) -> Result<Self, ImageError> {
        let left_out_bytes = payload_bytes(&store.extracts()?);
        Ok(Self {
            folder: ShippedFolder { store: Arc::clone(store), segments: Arc::default() },
            bytes: 0,
            taken_unix_micros: 0,
            gap: Some(Gap { what, left_out_bytes }),
        })
    }
}

/// Returns the length of the journal in extracts, without their headers.
fn payload_bytes<'it>(listed: impl IntoIterator<Item = &'it (ExtractName, u64)>) -> u64 {
    listed.into_iter().map(|(_, bytes)| bytes.saturating_sub(4096)).sum()
}

/// Cache of verified extracts, so that each is read only once.
#[derive(Debug, Default)]
pub struct Verified(HashMap<ExtractName, (u64, Facts)>);

/// Origin of an extract, and the header of its segment.
#[derive(Clone, Copy, Debug)]
struct Facts {
    extract: ExtractHeader,
    /// Header of the segment, if it begins the extract.
    segment: Option<SegmentHeader>,
    /// Sequence number after the last transaction, if the extract consists of whole ones.
    next_sequence: Option<u64>,
}

struct Found<'it> {
    verified: &'it mut Verified,
    store: &'it Arc<dyn ImageStore>,
    set_id: [u8; 16],
    segments: BTreeMap<u32, Segment>,
    gap: Option<String>,
}

impl Found<'_> {
    fn collect(&mut self, listed: &Listed, from: u64) -> Result<(), ImageError> {
        let mut before: Option<PreviousEnd> = None;
        for (&number, extracts) in listed {
            let (segment, mut failure) = self.segment(number, extracts)?;
            if failure.is_some() && self.is_covered(extracts, from)? {
                failure = None;
            }
            let Some(segment) = segment else {
                // Extracts from before the image may be partially removed. A later segment decides.
                self.gap = self.gap.take().or(failure);
                continue;
            };
            let end = PreviousEnd { number, end: segment.end };
            if segment.header.first_sequence <= from {
                // Earlier segments are not needed.
                self.segments = BTreeMap::from([(number, segment)]);
                (before, self.gap) = (Some(end), failure);
                continue;
            }
            if self.gap.is_none() && (before.is_none() || segment.header.previous != before) {
                let name = segment_file_name(number);
                self.gap = Some(format!("the end of the segment before {name} is missing"));
            }
            if self.gap.is_none() {
                self.segments.insert(number, segment);
                (before, self.gap) = (Some(end), failure);
            }
        }
        Ok(())
    }

    /// Returns whether everything in a segment up to its last extract is from before sequence
    /// `from`. Any of these extracts may have been removed, because the image has them.
    fn is_covered(
        &mut self,
        extracts: &[(ExtractName, u64)],
        from: u64,
    ) -> Result<bool, ImageError> {
        let Some(&(name, object_bytes)) = extracts.last() else { return Ok(false) };
        match self.facts(name, object_bytes) {
            Ok(facts) => {
                let is_own = facts.extract.set_id == self.set_id;
                Ok(is_own && facts.next_sequence.is_some_and(|next| next <= from))
            }
            Err(error) if is_damage(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the gapless part of a segment, and the reason why it ends early.
    fn segment(
        &mut self,
        number: u32,
        extracts: &[(ExtractName, u64)],
    ) -> Result<(Option<Segment>, Option<String>), ImageError> {
        let mut segment: Option<Segment> = None;
        for &(name, object_bytes) in extracts {
            let end = segment.as_ref().map_or(0, |segment| segment.end);
            if name.offset != end {
                let name = segment_file_name(number);
                let gap = format!("byte {end} of {name} is missing in the shipped journal");
                return Ok((segment, Some(gap)));
            }
            let facts = match self.facts(name, object_bytes) {
                Ok(read) => read,
                Err(error) if is_damage(&error) => return Ok((segment, Some(causes(&error)))),
                Err(error) => return Err(error),
            };
            let header = facts.extract;
            if header.set_id != self.set_id {
                let gap =
                    format!("part {name} of the shipped journal belongs to another durable set");
                return Ok((segment, Some(gap)));
            }
            let piece = Piece { name, object_bytes, payload_bytes: header.payload_bytes };
            match &mut segment {
                Some(segment) => segment.extracts.push(piece),
                None => match facts.segment.filter(|it| it.number == number) {
                    Some(header) => {
                        segment = Some(Segment {
                            header,
                            extracts: vec![piece],
                            end: 0,
                            taken_unix_micros: 0,
                        });
                    }
                    None => {
                        let gap =
                            format!("part {name} of the shipped journal does not begin a segment");
                        return Ok((None, Some(gap)));
                    }
                },
            }
            if let Some(segment) = &mut segment {
                segment.end += header.payload_bytes;
                segment.taken_unix_micros = header.taken_unix_micros;
            }
        }
        Ok((segment, None))
    }
}

impl Found<'_> {
    fn facts(&mut self, name: ExtractName, object_bytes: u64) -> Result<Facts, ImageError> {
        if let Some((bytes, facts)) = self.verified.0.get(&name)
            && *bytes == object_bytes
        {
            return Ok(*facts);
        }
        let (extract, payload) = read_extract(&**self.store, name, object_bytes)?;
        let (segment, next_sequence) = (segment_header(&payload), next_sequence(name, &payload));
        let facts = Facts { extract, segment, next_sequence };
        self.verified.0.insert(name, (object_bytes, facts));
        Ok(facts)
    }
}

fn is_damage(error: &ImageError) -> bool {
    use image::ImageErrorKind::{Damaged, Newer, NotFound};
    matches!(error.kind, Damaged | Newer | NotFound)
}

fn segment_header(payload: &[u8]) -> Option<SegmentHeader> {
    SegmentHeader::decode(payload.get(..SEGMENT_HEADER_BYTES)?).ok()
}

/// Returns the sequence number after the last transaction of an extract, or `None` unless the
/// extract consists of whole transactions.
fn next_sequence(name: ExtractName, payload: &[u8]) -> Option<u64> {
    let mut at = if name.offset == 0 { SEGMENT_HEADER_BYTES } else { 0 };
    let mut next = None;
    while at < payload.len() {
        let TransactionHead { address, sizes, .. } =
            TransactionHead::decode(&payload[at..]).ok()?;
        let offset = name.offset.checked_add(u32::try_from(at).ok()?)?;
        if (address.segment, address.offset) != (name.segment, offset) {
            return None;
        }
        next = address.sequence.checked_add(1);
        at = at.checked_add(sizes.total_bytes())?;
    }
    next.filter(|_| at == payload.len())
}

/// Read-only folder with a shipped journal.
#[derive(Debug)]
struct ShippedFolder {
    store: Arc<dyn ImageStore>,
    segments: Arc<BTreeMap<u32, Segment>>,
}

#[derive(Debug)]
struct ShippedFile {
    store: Arc<dyn ImageStore>,
    segments: Arc<BTreeMap<u32, Segment>>,
    number: u32,
    /// The extract read last.
    kept: Mutex<Option<(u32, AlignedBuffer)>>,
}

fn refused(action: StorageAction, name: &str) -> StorageError {
    let why = "the journal in an image store can be read only";
    StorageError::new(StorageErrorKind::Invalid(why), action, name)
}

impl Folder for ShippedFolder {
    fn create(&self, name: &str, _size_bytes: u64) -> Result<Arc<dyn StableFile>, StorageError> {
        Err(refused(StorageAction::Create, name))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn StableFile>, StorageError> {
        let number = self.segments.keys().find(|&&number| segment_file_name(number) == name);
        let Some(&number) = number else { return Err(refused(StorageAction::Open, name)) };
        let (store, segments) = (Arc::clone(&self.store), Arc::clone(&self.segments));
        Ok(Arc::new(ShippedFile { store, segments, number, kept: Mutex::new(None) }))
    }

    fn folder(&self, name: &str) -> Result<Arc<dyn Folder>, StorageError> {
        Err(refused(StorageAction::OpenFolder, name))
    }

    fn list(&self) -> Result<Vec<FileInfo>, StorageError> {
        let file = |(&number, segment): (&u32, &Segment)| FileInfo {
            name: segment_file_name(number),
            size_bytes: u64::from(segment.header.segment_bytes),
        };
        Ok(self.segments.iter().map(file).collect())
    }

    fn rename(&self, from: &str, _to: &str) -> Result<(), StorageError> {
        Err(refused(StorageAction::Rename, from))
    }

    fn publish(&self, from: &str, _to: &str) -> Result<(), StorageError> {
        Err(refused(StorageAction::Rename, from))
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        Err(refused(StorageAction::Remove, name))
    }

    fn sync_names(&self) -> Result<(), StorageError> {
        Ok(())
    }

    fn free_bytes(&self) -> Result<u64, StorageError> {
        Ok(0)
    }
}

impl ShippedFile {
    fn segment(&self) -> &Segment {
        &self.segments[&self.number]
    }

    /// Copies the beginning of a range from one extract. Returns the number of bytes copied.
    fn copy(&self, offset: u32, into: &mut [u8]) -> Result<usize, ImageError> {
        let segment = self.segment();
        let piece = segment.extracts.iter().rfind(|piece| piece.name.offset <= offset);
        let piece = piece.expect("the first one begins the segment");
        let skipped = (offset - piece.name.offset) as usize;
        let mut kept = self.kept.lock().expect("no thread panics with an extract locked");
        if kept.as_ref().is_none_or(|(at, _)| *at != piece.name.offset) {
            let (_, payload) = read_extract(&*self.store, piece.name, piece.object_bytes)?;
            *kept = Some((piece.name.offset, payload));
        }
        let (_, payload) = kept.as_ref().expect("it was read");
        let count = into.len().min(piece.payload_bytes as usize - skipped);
        into[..count].copy_from_slice(&payload[skipped..skipped + count]);
        Ok(count)
    }
}

impl StableFile for ShippedFile {
    fn size_bytes(&self) -> u64 {
        u64::from(self.segment().header.segment_bytes)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), StorageError> {
        let end = u64::from(self.segment().end);
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            if at >= end {
                // Nothing more was shipped, which is equivalent to nothing more being written.
                into[done..].fill(0);
                break;
            }
            let at = u32::try_from(at).expect("a segment has fewer bytes");
            done += self.copy(at, &mut into[done..]).map_err(|error| StorageError {
                // The store had it before, so this is an I/O error, not a missing part of the
                // journal.
                kind: StorageErrorKind::Io,
                action: StorageAction::Read,
                name: segment_file_name(self.number),
                source: Some(std::io::Error::other(error)),
            })?;
        }
        Ok(())
    }

    fn write(&self, _offset: u64, _parts: &[IoSlice<'_>]) -> Result<(), StorageError> {
        Err(refused(StorageAction::Write, &segment_file_name(self.number)))
    }

    fn write_durably(&self, _offset: u64, _parts: &[IoSlice<'_>]) -> Result<(), StorageError> {
        Err(refused(StorageAction::WriteDurably, &segment_file_name(self.number)))
    }

    fn sync(&self) -> Result<(), StorageError> {
        Ok(())
    }
}
