//! Extracts in a folder. Short ones lie one after the other in a file, so that storing one is one
//! write; others are files of their own.
//!
//! ```text
//! journal/<name of the first extract>: 1 MiB, which is zeros at first
//! ┌───────┬─────────┬──────┬───────┬─────────┬──────┬───────
//! │header │ payload │ 0    │header │ payload │ 0    │ 0
//! └───────┴─────────┴──────┴───────┴─────────┴──────┴───────
//! 0                        2 × (offset of this extract − offset of the first)
//! ```
//!
//! The place of an extract follows from its name. It always has room, because the payload is not
//! shorter than the header. Bytes at a place are never moved, and only replaced by the same bytes
//! or by zeros.
//!
//! A power loss during a write leaves sectors of zeros. An extract that has more of them than it
//! should have was therefore never acknowledged, and is not listed. One that differs in another way
//! is damaged, and is listed, so that whoever relies on it finds out.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use storage::{
    AlignedBuffer, FileInfo, Folder, StableFile, StorageAction, StorageError, StorageErrorKind,
};

use crate::extract::{SECTOR_BYTES, StoredExtract, decode_stored, zero_sectors};
use crate::format::ALIGNMENT_BYTES;
use crate::names::ExtractName;

/// Length of a file of extracts. Files of other lengths have one extract.
pub(crate) const LOG_BYTES: u64 = 1 << 20;

/// Maximum length of an extract in such a file. Storing a longer one takes as long anyway.
pub(crate) const SHORT_BYTES_MAX: usize = 64 << 10;

/// Least distance of two extracts.
const STEP_BYTES: u64 = 2 * ALIGNMENT_BYTES as u64;

/// Length that a damaged extract is listed with if its header does not tell.
const UNKNOWN_BYTES: u64 = STEP_BYTES;

/// Files of extracts of a store that this process writes.
#[derive(Debug, Default)]
pub(crate) struct ExtractLogs(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The file in which the last extract was put. Nobody removes it.
    newest: Option<ExtractName>,
    /// That file, unless an extract is being written to it.
    file: Option<Arc<dyn StableFile>>,
    /// All its extracts were removed.
    is_empty: bool,
    /// Number of files that were begun.
    begun_count: u64,
}

/// A place for an extract.
struct Place {
    first: ExtractName,
    file: Arc<dyn StableFile>,
    offset_bytes: u64,
}

/// Contents of a place.
enum Found {
    /// Nothing, or an extract that was never acknowledged.
    Nothing,
    Extract(u64),
    Damaged(u64),
}

impl ExtractLogs {
    /// Puts a short extract durably in a file with others. Returns false if it must become a file
    /// of its own.
    pub(crate) fn put(
        &self,
        folder: &dyn Folder,
        name: ExtractName,
        bytes: &AlignedBuffer,
    ) -> Result<bool, StorageError> {
        if !is_short(name, bytes) {
            return Ok(false);
        }
        let Some(place) = self.place(folder, name, bytes.len() as u64)? else { return Ok(false) };
        place.file.write_durably(place.offset_bytes, &[IoSlice::new(bytes)])?;
        let mut state = self.lock();
        if state.newest == Some(place.first) {
            (state.file, state.is_empty) = (Some(place.file), false);
        }
        Ok(true)
    }

    /// Number of files that were begun since the store was opened.
    pub(crate) fn begun_count(&self) -> u64 {
        self.lock().begun_count
    }

    /// Finds room for an extract in the newest file, or in a new one.
    fn place(
        &self,
        folder: &dyn Folder,
        name: ExtractName,
        length_bytes: u64,
    ) -> Result<Option<Place>, StorageError> {
        let mut state = self.lock();
        let newest = state.newest;
        if let Some(first) = newest
            && let Some(offset_bytes) = place_in(first, name, length_bytes)
            && let Some(file) = state.file.take()
        {
            return Ok(Some(Place { first, file, offset_bytes }));
        }
        drop(state);
        let same_writer = newest.filter(|newest| newest.writer == name.writer);
        if same_writer.is_some_and(|newest| name < newest) {
            // A request that was delayed.
            return existing_log(folder, name);
        }
        if let Some(place) = existing_log(folder, name)? {
            return Ok(Some(place));
        }
        if exists(folder, name)? {
            return Ok(None);
        }
        let file = match folder.create(&name.to_string(), LOG_BYTES) {
            Ok(file) => file,
            // There may still be room for the extract alone.
            Err(error) if error.kind == StorageErrorKind::NoSpace => return Ok(None),
            // A repeated request creates it at the same time.
            Err(error) if error.kind == StorageErrorKind::AlreadyExists => {
                return existing_log(folder, name);
            }
            Err(error) => return Err(error),
        };
        let left = {
            let mut state = self.lock();
            let begun_count = state.begun_count + 1;
            let begun = State { newest: Some(name), begun_count, ..State::default() };
            std::mem::replace(&mut *state, begun)
        };
        // Nobody writes to a file that is here, nor will.
        if left.is_empty
            && let (Some(first), Some(file)) = (left.newest, left.file)
            && scan(first, &*file)?.is_empty()
        {
            // If this fails, the next start removes it.
            let _ = folder.remove(&first.to_string());
        }
        Ok(Some(Place { first: name, file, offset_bytes: 0 }))
    }

    /// Removes an extract durably, be it a file of its own or in a file with others.
    pub(crate) fn remove(
        &self,
        folder: &dyn Folder,
        name: ExtractName,
    ) -> Result<(), StorageError> {
        if exists(folder, name)? && existing_log(folder, name)?.is_none() {
            remove_if_there(folder, &name.to_string())?;
            folder.sync_names()?;
        }
        for place in places_of(folder, name)? {
            let length_bytes = match look(&place, name)? {
                Found::Extract(bytes) | Found::Damaged(bytes) => bytes,
                Found::Nothing => continue,
            };
            let zeros = AlignedBuffer::zeroed(usize::try_from(length_bytes).unwrap_or(0));
            place.file.write_durably(place.offset_bytes, &[IoSlice::new(&zeros)])?;
            let next = place.offset_bytes + 2 * (length_bytes - ALIGNMENT_BYTES as u64);
            if !has_header(&*place.file, next)? && scan(place.first, &*place.file)?.is_empty() {
                self.remove_empty(folder, place.first)?;
            }
        }
        Ok(())
    }

    /// Removes extracts, in order of name. A file is removed as a whole if it has no other
    /// extracts. The folder is listed once, and its names are synced once.
    pub(crate) fn remove_all(
        &self,
        folder: &dyn Folder,
        names: &[ExtractName],
    ) -> Result<(), StorageError> {
        let removed: BTreeSet<ExtractName> = names.iter().copied().collect();
        for file in folder.list()? {
            let Ok(first) = file.name.parse::<ExtractName>() else { continue };
            if file.size_bytes != LOG_BYTES {
                if removed.contains(&first) {
                    remove_if_there(folder, &file.name)?;
                }
            } else if removed.range(within(first)).next().is_some() {
                self.remove_in(folder, first, &removed)?;
            }
        }
        folder.sync_names()
    }

    /// Removes extracts from a file of several.
    fn remove_in(
        &self,
        folder: &dyn Folder,
        first: ExtractName,
        removed: &BTreeSet<ExtractName>,
    ) -> Result<(), StorageError> {
        let mut state = self.lock();
        let is_newest = state.newest == Some(first);
        // Nobody else writes to a file that was taken from here.
        let taken = state.file.take_if(|_| is_newest);
        drop(state);
        let file = match (taken, is_newest) {
            (Some(file), _) => file,
            (None, false) => match folder.open(&first.to_string()) {
                Err(error) if error.kind == StorageErrorKind::NotFound => return Ok(()),
                opened => opened?,
            },
            (None, true) => {
                let mut within = removed.range(within(first));
                return within.try_for_each(|&name| self.remove(folder, name));
            }
        };
        let found = scan(first, &*file)?;
        let is_all = found.iter().all(|(name, _)| removed.contains(name));
        if is_newest {
            clear(first, &*file, &found, removed)?;
            let mut state = self.lock();
            if state.newest == Some(first) {
                (state.file, state.is_empty) = (Some(file), is_all);
                return Ok(());
            }
        }
        match is_all {
            true => remove_if_there(folder, &first.to_string()),
            false => clear(first, &*file, &found, removed),
        }
    }

    /// Removes a file without extracts, unless another may be put in it.
    fn remove_empty(&self, folder: &dyn Folder, first: ExtractName) -> Result<(), StorageError> {
        let mut state = self.lock();
        if state.newest == Some(first) {
            state.is_empty = true;
            return Ok(());
        }
        drop(state);
        folder.remove(&first.to_string())?;
        folder.sync_names()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no thread panics with this lock")
    }
}

/// Lists all extracts in a folder with their lengths, by name.
pub(crate) fn list(folder: &dyn Folder) -> Result<Vec<(ExtractName, u64)>, StorageError> {
    let mut found = BTreeMap::new();
    for file in folder.list()? {
        let Ok(first) = file.name.parse() else { continue };
        if file.size_bytes != LOG_BYTES {
            found.insert(first, file.size_bytes);
            continue;
        }
        match folder.open(&file.name) {
            // A later file has what was put again.
            Ok(file) => found.extend(scan(first, &*file)?),
            Err(error) if error.kind == StorageErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found.into_iter().collect())
}

/// Opens the file of an extract. Returns the place of the extract in it, and its length. Fails with
/// `NotFound` if there is no such extract.
pub(crate) fn open(
    folder: &dyn Folder,
    name: ExtractName,
) -> Result<(Arc<dyn StableFile>, u64, u64), StorageError> {
    match folder.open(&name.to_string()) {
        Ok(file) if file.size_bytes() != LOG_BYTES => {
            let length_bytes = file.size_bytes();
            return Ok((file, 0, length_bytes));
        }
        Err(error) if error.kind != StorageErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for place in places_of(folder, name)? {
        if let Found::Extract(bytes) | Found::Damaged(bytes) = look(&place, name)? {
            return Ok((place.file, place.offset_bytes, bytes));
        }
    }
    let kind = StorageErrorKind::NotFound;
    Err(StorageError::new(kind, StorageAction::Open, name.to_string()))
}

/// Removes files without extracts, which a killed process left. Nobody else uses the folder.
pub(crate) fn remove_empty_files(folder: &dyn Folder) -> Result<(), StorageError> {
    for file in folder.list()? {
        if let Some(first) = log_name(&file)
            && scan(first, &*folder.open(&file.name)?)?.is_empty()
        {
            folder.remove(&file.name)?;
        }
    }
    Ok(())
}

/// Returns the names of the extracts that may be in the file that begins with `first`.
fn within(first: ExtractName) -> Range<ExtractName> {
    let length = u32::try_from(LOG_BYTES / 2).expect("the file is short");
    first..ExtractName { offset: first.offset.saturating_add(length), ..first }
}

/// Overwrites extracts in a file with zeros: all at once, or one by one if others stay.
fn clear(
    first: ExtractName,
    file: &dyn StableFile,
    found: &[(ExtractName, u64)],
    removed: &BTreeSet<ExtractName>,
) -> Result<(), StorageError> {
    let end =
        |&(name, bytes): &(ExtractName, u64)| 2 * u64::from(name.offset - first.offset) + bytes;
    let is_removed = |(name, _): &&(ExtractName, u64)| removed.contains(name);
    let places: Vec<(u64, u64)> = match found.iter().all(|it| is_removed(&it)) {
        true => found.last().map(|last| (0, end(last))).into_iter().collect(),
        false => found.iter().filter(is_removed).map(|it| (end(it) - it.1, end(it))).collect(),
    };
    for (begin, end) in places {
        let zeros = AlignedBuffer::zeroed(usize::try_from(end - begin).expect("the file is short"));
        file.write_durably(begin, &[IoSlice::new(&zeros)])?;
    }
    Ok(())
}

/// Removes a file. A missing one is not an error.
pub(crate) fn remove_if_there(folder: &dyn Folder, name: &str) -> Result<(), StorageError> {
    match folder.remove(name) {
        Err(error) if error.kind == StorageErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn is_short(name: ExtractName, bytes: &[u8]) -> bool {
    let is_it = |stored: StoredExtract| {
        stored.header.name == name && stored.bytes == bytes.len() && stored.has_whole_blocks()
    };
    bytes.len() <= SHORT_BYTES_MAX && decode_stored(bytes).is_some_and(is_it)
}

/// Returns the place of an extract in the file that begins with `first`, if it has one.
fn place_in(first: ExtractName, name: ExtractName, length_bytes: u64) -> Option<u64> {
    let is_same_segment = (first.writer, first.segment) == (name.writer, name.segment);
    let distance = name.offset.checked_sub(first.offset).filter(|_| is_same_segment)?;
    let offset_bytes = 2 * u64::from(distance);
    let is_aligned = offset_bytes.is_multiple_of(STEP_BYTES);
    (is_aligned && offset_bytes + length_bytes <= LOG_BYTES).then_some(offset_bytes)
}

fn log_name(file: &FileInfo) -> Option<ExtractName> {
    file.name.parse().ok().filter(|_| file.size_bytes == LOG_BYTES)
}

/// Returns whether the extract is a file of its own.
fn exists(folder: &dyn Folder, name: ExtractName) -> Result<bool, StorageError> {
    match folder.open(&name.to_string()) {
        Ok(_) => Ok(true),
        Err(error) if error.kind == StorageErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the beginning of the file that begins with this extract and has others.
fn existing_log(folder: &dyn Folder, name: ExtractName) -> Result<Option<Place>, StorageError> {
    match folder.open(&name.to_string()) {
        Ok(file) if file.size_bytes() == LOG_BYTES => {
            Ok(Some(Place { first: name, file, offset_bytes: 0 }))
        }
        Err(error) if error.kind != StorageErrorKind::NotFound => Err(error),
        _ => Ok(None),
    }
}

/// Returns the places in which an extract may lie. That of the newest file comes first.
fn places_of(folder: &dyn Folder, name: ExtractName) -> Result<Vec<Place>, StorageError> {
    let mut places = Vec::new();
    for file in folder.list()?.iter().rev() {
        if let Some(first) = log_name(file)
            && let Some(offset_bytes) = place_in(first, name, STEP_BYTES)
        {
            match folder.open(&file.name) {
                Ok(file) => places.push(Place { first, file, offset_bytes }),
                Err(error) if error.kind == StorageErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(places)
}

fn look(place: &Place, name: ExtractName) -> Result<Found, StorageError> {
    let left_bytes = usize::try_from(LOG_BYTES - place.offset_bytes).unwrap_or(usize::MAX);
    let mut bytes = AlignedBuffer::zeroed(ALIGNMENT_BYTES);
    place.file.read(place.offset_bytes, &mut bytes)?;
    let length_bytes = decode_stored(&bytes).map_or(ALIGNMENT_BYTES, |stored| stored.bytes);
    bytes.resize(length_bytes.clamp(ALIGNMENT_BYTES, left_bytes), 0);
    place.file.read(place.offset_bytes, &mut bytes)?;
    Ok(judge(&bytes, name, true))
}

fn has_header(file: &dyn StableFile, offset_bytes: u64) -> Result<bool, StorageError> {
    if offset_bytes + STEP_BYTES > LOG_BYTES {
        return Ok(false);
    }
    let mut bytes = AlignedBuffer::zeroed(ALIGNMENT_BYTES);
    file.read(offset_bytes, &mut bytes)?;
    Ok(decode_stored(&bytes).is_some())
}

/// Determines what lies at the beginning of `bytes`. If nothing needs to be `expected` there, only
/// an intact header makes it an extract.
fn judge(bytes: &[u8], name: ExtractName, expected: bool) -> Found {
    let stored = decode_stored(bytes).filter(|stored| stored.header.name == name);
    let Some(stored) = stored.filter(|it| it.bytes <= bytes.len() && it.has_whole_blocks()) else {
        let is_zero = bytes[..SECTOR_BYTES].iter().all(|&byte| byte == 0);
        return match is_zero || !expected {
            true => Found::Nothing,
            false => Found::Damaged(UNKNOWN_BYTES),
        };
    };
    let payload = &bytes[ALIGNMENT_BYTES..stored.bytes];
    if stored.matches(payload) {
        return Found::Extract(stored.bytes as u64);
    }
    match zero_sectors(payload) > stored.zero_sectors {
        true => Found::Nothing,
        false => Found::Damaged(stored.bytes as u64),
    }
}

/// Returns the extracts in a file, by offset.
fn scan(
    first: ExtractName,
    file: &dyn StableFile,
) -> Result<Vec<(ExtractName, u64)>, StorageError> {
    let mut bytes = AlignedBuffer::zeroed(usize::try_from(LOG_BYTES).expect("it is short"));
    file.read(0, &mut bytes)?;
    let (mut found, mut offset_bytes, mut is_expected) = (Vec::new(), 0, true);
    while offset_bytes + STEP_BYTES <= LOG_BYTES {
        let distance = u32::try_from(offset_bytes / 2).expect("the file is short");
        let Some(offset) = first.offset.checked_add(distance) else { break };
        let name = ExtractName { offset, ..first };
        let from = usize::try_from(offset_bytes).expect("the file is short");
        let judged = judge(&bytes[from..], name, is_expected);
        is_expected = matches!(judged, Found::Extract(_));
        offset_bytes += match judged {
            Found::Extract(bytes) => 2 * (bytes - ALIGNMENT_BYTES as u64),
            Found::Nothing | Found::Damaged(_) => STEP_BYTES,
        };
        if let Found::Extract(bytes) | Found::Damaged(bytes) = judged {
            found.push((name, bytes));
        }
    }
    Ok(found)
}
