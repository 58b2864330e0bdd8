//! Chain of segments that form the journal, and its end.
//!
//! Each header names the previous segment and the offset at which that segment ended. The journal
//! consists of the segments reached by following these references back from the newest intact one.
//! All other segments are remains of failed attempts, or were prepared and never used. Files that
//! are not segments are ignored.

use sealing::{KeyId, SetKey};
use storage::Folder;

use crate::error::{JournalError, JournalErrorKind};
use crate::format::{FormatError, FormatErrorKind, PreviousEnd, SegmentHeader, SetId};
use crate::reader::{End, SegmentReader, holds_transactions};
use crate::segment_file::{self, Found, name_of};

/// A segment of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) header: SegmentHeader,
    pub(crate) file_bytes: u64,
    pub(crate) end: End,
}

/// A file that is not part of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leftover {
    pub(crate) number: u32,
    pub(crate) file_bytes: u64,
}

/// The journal as found in its folder.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// In order of sequence, the newest last.
    pub(crate) links: Vec<Link>,
    /// Segments that are not part of the journal: remains of failed attempts, or cut off by a
    /// missing segment.
    pub(crate) stray: Vec<Leftover>,
    /// Segment files without contents.
    pub(crate) unused: Vec<Leftover>,
    pub(crate) next_number: u32,
    /// The highest epoch in any segment header, including segments outside the journal.
    pub(crate) epoch: u64,
    highest_sequence: u64,
}

impl Chain {
    /// Finds the segments from sequence `from` on. Fails if one of them is missing or damaged. A
    /// torn transaction at the end of the newest segment is the end of the journal.
    pub(crate) fn find(
        folder: &dyn Folder,
        key: Option<&SetKey>,
        set_id: SetId,
        from: u64,
    ) -> Result<Self, JournalError> {
        let (chain, damage) = Self::find_until_damage(folder, key, set_id, from)?;
        damage.map_or(Ok(chain), Err)
    }

    /// Finds the segments like [`Chain::find`]. A damaged transaction in the newest segment is the
    /// end of the journal, and returned.
    pub(crate) fn find_until_damage(
        folder: &dyn Folder,
        key: Option<&SetKey>,
        set_id: SetId,
        from: u64,
    ) -> Result<(Self, Option<JournalError>), JournalError> {
        let found = segment_file::find_all(folder)?;
        found.iter().try_for_each(|found| refuse_others(folder, found, set_id))?;
        found.iter().try_for_each(|found| refuse_other_key(found, key))?;
        let next_number = found.last().map_or(0, |found| found.number.saturating_add(1));
        let headers = || found.iter().filter_map(|found| found.header.ok());
        let mut chain = Self {
            next_number,
            epoch: headers().map(|header| header.epoch).max().unwrap_or(0),
            highest_sequence: headers().map(|it| it.first_sequence).max().unwrap_or(1),
            ..Self::default()
        };
        let mut damage = None;
        if let Some(newest) = find_newest(folder, key, &found)? {
            damage = newest.1;
            chain.links.push(newest.0);
            chain.follow_back(&found, from)?;
        }
        for &Found { number, file_bytes, header } in &found {
            let is_part = chain.links.iter().any(|link| link.header.number == number);
            match header {
                Ok(_) if !is_part => chain.stray.push(Leftover { number, file_bytes }),
                Err(error) if is_ours(error.kind) => {
                    chain.unused.push(Leftover { number, file_bytes });
                }
                _ => {}
            }
        }
        Ok((chain, damage))
    }

    /// Returns the first sequence from which the journal can be read to its end, judging by headers
    /// and file lengths, or `None` if there is no journal.
    pub(crate) fn first_sequence(
        folder: &dyn Folder,
        key: Option<&SetKey>,
    ) -> Result<Option<u64>, JournalError> {
        let found = segment_file::find_all(folder)?;
        found.iter().try_for_each(|found| refuse_other_key(found, key))?;
        let mut chain = Self::default();
        let Some((newest, damage)) = find_newest(folder, key, &found)? else { return Ok(None) };
        damage.map_or(Ok(()), Err)?;
        chain.links.push(newest);
        // The error says why the chain cannot be followed further back. The journal begins there.
        let _beginning = chain.follow_back(&found, 0);
        let is_whole = |link: &&Link| link.file_bytes >= u64::from(link.end.offset);
        let first = chain.links.iter().rev().take_while(is_whole).last();
        Ok(first.map(|link| link.header.first_sequence))
    }

    /// Prepends earlier segments until one begins at or before `from`.
    fn follow_back(&mut self, found: &[Found], from: u64) -> Result<(), JournalError> {
        loop {
            let first = self.links[0].header;
            let is_enough = first.first_sequence <= from;
            let Some(PreviousEnd { number, end }) = first.previous else {
                return if is_enough { Ok(()) } else { Err(begins_late(&first, from)) };
            };
            let previous = found.iter().find(|found| found.number == number);
            let Some(previous) = previous else {
                return if is_enough { Ok(()) } else { Err(missing(number, &first)) };
            };
            let header = match previous.header {
                Ok(header) => header,
                Err(_) if is_enough => return Ok(()),
                Err(error) => return Err(damaged_header(number, error)),
            };
            if header.first_sequence > first.first_sequence || number >= first.number {
                return Err(contradiction(&header, &first));
            }
            let end = End { offset: end, next_sequence: first.first_sequence, last_start: None };
            self.links.insert(0, Link { header, file_bytes: previous.file_bytes, end });
        }
    }

    /// Secures the end of the journal against power loss by rewriting the last transaction. If its
    /// first write failed, or the process died before the write returned, the transaction is
    /// readable now, but may still be lost later even after a sync.
    pub(crate) fn secure_end(
        &self,
        folder: &dyn Folder,
        key: Option<&SetKey>,
    ) -> Result<(), JournalError> {
        match self.links.last() {
            Some(&Link { header, end: End { offset, last_start: Some(start), .. }, .. }) => {
                SegmentReader::open(folder, key, header)?.write_again(start, offset)
            }
            _ => Ok(()),
        }
    }

    /// Returns the sequence number after the last transaction.
    pub(crate) fn end_sequence(&self) -> u64 {
        self.links.last().map_or(1, |link| link.end.next_sequence)
    }

    /// Returns the sequence number of the next transaction. It is at least the highest in any
    /// header, so that it comes after every checkpoint.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.end_sequence().max(self.highest_sequence)
    }

    /// Returns the number and end of the last segment, for the header of the next segment.
    pub(crate) fn end(&self) -> Option<PreviousEnd> {
        let Link { header, end, .. } = self.links.last()?;
        Some(PreviousEnd { number: header.number, end: end.offset })
    }
}

/// Finds the newest segment of the journal, and the damage at which it ends, if any.
///
/// An empty segment may be left by a failed attempt whose removal a power loss undid. Therefore it
/// counts only if it follows the newest segment that has a transaction. If no segment has one,
/// nothing was ever acknowledged.
fn find_newest(
    folder: &dyn Folder,
    key: Option<&SetKey>,
    found: &[Found],
) -> Result<Option<(Link, Option<JournalError>)>, JournalError> {
    let mut empty: Vec<Link> = Vec::new();
    for found in found.iter().rev() {
        let Ok(header) = found.header else { continue };
        let (end, damage) = SegmentReader::open(folder, key, header)?.find_end()?;
        let link = Link { header, file_bytes: found.file_bytes, end };
        if end.next_sequence == header.first_sequence && damage.is_none() {
            empty.push(link);
            continue;
        }
        let heir = empty.iter().position(|heir| follows(heir, &empty, header.number));
        return Ok(Some((heir.map_or(link, |heir| empty[heir]), damage)));
    }
    Ok(empty.into_iter().next().map(|link| (link, None)))
}

/// Returns whether a segment follows segment `number` with only empty segments in between.
fn follows(link: &Link, empty: &[Link], number: u32) -> bool {
    let mut header = &link.header;
    while let Some(previous) = header.previous {
        if previous.number == number {
            return true;
        }
        let between = empty.iter().find(|link| link.header.number == previous.number);
        match between {
            Some(link) if link.header.number < header.number => header = &link.header,
            _ => return false,
        }
    }
    false
}

/// Returns whether an invalid segment file was created by this journal: it is blank, or its header
/// is torn.
fn is_ours(kind: FormatErrorKind) -> bool {
    matches!(kind, FormatErrorKind::Blank | FormatErrorKind::Damaged)
}

/// Returns the set id of the journal in a folder, or `None` if there is no journal. If segments of
/// several sets exist, the newest determines it.
pub fn set_in(folder: &dyn Folder) -> Result<Option<SetId>, JournalError> {
    let found = segment_file::find_all(folder)?;
    Ok(found.iter().rev().find_map(|found| Some(found.header.ok()?.set_id)))
}

/// Checks the key of the journal in a folder. Fails if the journal is encrypted with another key,
/// is encrypted and no key is given, or is not encrypted and a key is given.
pub fn check_key(folder: &dyn Folder, key: Option<&SetKey>) -> Result<(), JournalError> {
    segment_file::find_all(folder)?.iter().try_for_each(|found| refuse_other_key(found, key))
}

/// Encryption of the journal in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalKey {
    /// There is no journal.
    Empty,
    /// The journal is not encrypted.
    None,
    /// The journal is encrypted with this data key.
    Sealed(KeyId),
}

/// Finds the data key of a journal. If segments have different keys, the newest determines it.
pub fn find_key(folder: &dyn Folder) -> Result<JournalKey, JournalError> {
    let found = segment_file::find_all(folder)?;
    let newest = found.iter().rev().find_map(|found| found.header.ok());
    Ok(match newest.map(|header| header.sealed) {
        None => JournalKey::Empty,
        Some(None) => JournalKey::None,
        Some(Some(sealed)) => JournalKey::Sealed(sealed.data_key),
    })
}

fn refuse_other_key(found: &Found, key: Option<&SetKey>) -> Result<(), JournalError> {
    let Ok(header) = &found.header else { return Ok(()) };
    if header.matches(key) {
        return Ok(());
    }
    let why = match (header.sealed, key) {
        (Some(_), None) => "is encrypted, and no key is configured",
        (None, _) => "is not encrypted, and a key is configured",
        (Some(_), Some(_)) => "is encrypted by another data key",
    };
    let what = format!("segment {} {why}", name_of(found.number));
    Err(JournalError::new(JournalErrorKind::Key, what))
}

/// Fails for a file that this journal cannot have created.
fn refuse_others(folder: &dyn Folder, found: &Found, set_id: SetId) -> Result<(), JournalError> {
    let name = name_of(found.number);
    match found.header {
        Ok(header) if header.set_id == set_id => Ok(()),
        Ok(header) => {
            let (other, this) = (hexadecimal(header.set_id), hexadecimal(set_id));
            let what =
                format!("segment {name} belongs to durable set {other}, and this pool to {this}");
            Err(JournalError::new(JournalErrorKind::Foreign, what))
        }
        Err(error) if matches!(error.kind, FormatErrorKind::Newer(_)) => {
            Err(JournalError::format(format!("cannot read segment {name}"), error))
        }
        // A segment's header is durable before any transaction is written, so it must be intact
        // here.
        Err(error) if holds_transactions(folder, found, set_id)? => {
            Err(damaged_header(found.number, error))
        }
        Err(_) => Ok(()),
    }
}

fn hexadecimal(set_id: SetId) -> String {
    set_id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn damaged_header(number: u32, error: FormatError) -> JournalError {
    JournalError::format(format!("cannot read the beginning of segment {}", name_of(number)), error)
}

fn begins_late(first: &SegmentHeader, from: u64) -> JournalError {
    let what = format!(
        "the journal starts with transaction {} in segment {}, but is needed from transaction \
         {from} on",
        first.first_sequence,
        name_of(first.number)
    );
    JournalError::new(JournalErrorKind::Missing, what)
}

fn missing(number: u32, next: &SegmentHeader) -> JournalError {
    let what = format!(
        "segment {} is missing, and {} continues it",
        name_of(number),
        name_of(next.number)
    );
    JournalError::new(JournalErrorKind::Missing, what)
}

fn contradiction(previous: &SegmentHeader, next: &SegmentHeader) -> JournalError {
    let what = format!(
        "segment {} continues segment {}, which is newer",
        name_of(next.number),
        name_of(previous.number)
    );
    JournalError::new(JournalErrorKind::Damaged, what)
}
