//! Segment files: names and headers.

use storage::{AlignedBuffer, FileInfo, Folder, StableFile, StorageError};

use crate::error::JournalError;
use crate::format::{FormatError, SEGMENT_HEADER_BYTES, SegmentHeader};

const PREFIX: &str = "journal-";

/// A segment file.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) number: u32,
    pub(crate) file_bytes: u64,
    pub(crate) header: Result<SegmentHeader, FormatError>,
}

/// File name of a segment.
pub fn name_of(number: u32) -> String {
    format!("{PREFIX}{number:08}")
}

/// Parses a segment's file name.
fn number_of(name: &str) -> Option<u32> {
    let number = name.strip_prefix(PREFIX)?.parse().ok()?;
    (name_of(number) == name).then_some(number)
}

/// Lists all segment files in a folder, by number. Ignores other files.
pub(crate) fn find_all(folder: &dyn Folder) -> Result<Vec<Found>, JournalError> {
    let failed = |error| JournalError::storage("cannot list the journal segments", error);
    let mut found = Vec::new();
    for FileInfo { name, size_bytes } in folder.list().map_err(failed)? {
        let Some(number) = number_of(&name) else { continue };
        let file = folder.open(&name).map_err(|error| cannot_read(number, error))?;
        let header = read_header(&*file, number).map_err(|error| cannot_read(number, error))?;
        found.push(Found { number, file_bytes: size_bytes, header });
    }
    found.sort_by_key(|found| found.number);
    Ok(found)
}

/// Reads the header of segment `number`, if it is valid.
pub(crate) fn read_header(
    file: &dyn StableFile,
    number: u32,
) -> Result<Result<SegmentHeader, FormatError>, StorageError> {
    let length = file.size_bytes().min(SEGMENT_HEADER_BYTES as u64);
    let mut bytes = AlignedBuffer::zeroed(usize::try_from(length).expect("a block"));
    file.read(0, &mut bytes)?;
    Ok(SegmentHeader::decode(&bytes).and_then(|header| match header.number {
        it if it == number => Ok(header),
        _ => Err(FormatError::misplaced("the segment's header")),
    }))
}

/// Renames all segment files in a folder to `aside-EPOCH-journal-NUMBER`. No journal uses these
/// names, so another journal can begin there without loss of data.
pub fn set_aside(folder: &dyn Folder) -> Result<(), JournalError> {
    for Found { number, header, .. } in find_all(folder)? {
        let name = name_of(number);
        let epoch = header.map_or(0, |header| header.epoch);
        let renamed = folder.rename(&name, &format!("aside-{epoch:08}-{name}"));
        renamed.map_err(|error| {
            JournalError::storage(format!("cannot rename segment {name}"), error)
        })?;
    }
    let synced = folder.sync_names();
    synced.map_err(|error| JournalError::storage("cannot sync the renamed segments", error))
}

pub(crate) fn cannot_read(number: u32, error: StorageError) -> JournalError {
    JournalError::storage(format!("cannot read segment {}", name_of(number)), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_names_as_they_are_written() {
        for number in [0, 7, 99_999_999, 100_000_000, u32::MAX] {
            assert_eq!(number_of(&name_of(number)), Some(number));
        }
        for name in ["journal-7", "journal-", "journal-0000000x", "journal-00000007.old", "other"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
