//! Segments of a journal that is being written: those in use, a spare, and those to be removed.
//!
//! Their total size never exceeds the journal's limit. Files are created and removed without
//! holding a lock. A thread that needs the segment that another is creating waits for it.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use storage::{Folder, StableFile, StorageError, StorageErrorKind};

use crate::chain::{Chain, Leftover};
use crate::error::{JournalError, JournalErrorKind};
use crate::format::SEGMENT_HEADER_BYTES;
use crate::last_written::LastWritten;
use crate::options::JournalOptions;
use crate::segment_file::name_of;

/// Segments of one journal on disk.
#[derive(Debug)]
pub(crate) struct SegmentSet {
    folder: Arc<dyn Folder>,
    segment_bytes: u32,
    length_bytes_max: u64,
    state: Mutex<State>,
    changed: Condvar,
    last_written: LastWritten,
}

#[derive(Debug)]
struct State {
    /// In order of sequence. The last one may still be written.
    kept: Vec<Kept>,
    spare: Spare,
    /// Files to be removed.
    unused: Vec<Leftover>,
    next_number: u32,
    /// Set if the last attempt to create a file found the disk full.
    is_disk_full: bool,
}

#[derive(Debug)]
struct Kept {
    number: u32,
    file_bytes: u64,
    /// Sequence number after its last transaction, once known.
    end_sequence: Option<u64>,
    /// End of its last durable transaction. 0 excludes the segment from shipping.
    written_bytes: u32,
}

/// Durable part of a segment, available to readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Number of the segment.
    pub segment: u32,
    /// Length from the start of the segment, including the header.
    pub bytes: u32,
}

#[derive(Debug)]
enum Spare {
    None,
    /// Being created, with this size in bytes.
    Making(u32),
    Ready(Segment),
}

/// A zero-filled file, ready to be written.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) number: u32,
    pub(crate) bytes: u32,
    pub(crate) file: Arc<dyn StableFile>,
}

impl Segment {
    fn leftover(&self) -> Leftover {
        Leftover { number: self.number, file_bytes: u64::from(self.bytes) }
    }
}

impl SegmentSet {
    pub(crate) fn new(folder: Arc<dyn Folder>, chain: &Chain, options: &JournalOptions) -> Self {
        // The missing segment that cuts off strays may reappear. Strays are removed together with
        // everything before the newest segment.
        let newest = chain.links.last().map(|link| link.header.first_sequence);
        let stray = chain.stray.iter().map(|&Leftover { number, file_bytes }| Kept {
            number,
            file_bytes,
            end_sequence: newest,
            written_bytes: 0,
        });
        let kept = chain.links.iter().map(|link| Kept {
            number: link.header.number,
            file_bytes: link.file_bytes,
            end_sequence: Some(link.end.next_sequence),
            written_bytes: link.end.offset,
        });
        let state = State {
            kept: stray.chain(kept).collect(),
            spare: Spare::None,
            unused: chain.unused.clone(),
            next_number: chain.next_number,
            is_disk_full: false,
        };
        Self {
            folder,
            segment_bytes: options.segment_bytes,
            length_bytes_max: options.length_bytes_max,
            state: Mutex::new(state),
            changed: Condvar::new(),
            last_written: LastWritten::default(),
        }
    }

    /// Returns the copy of what was written last.
    pub(crate) fn last_written(&self) -> &LastWritten {
        &self.last_written
    }

    /// Takes a new segment of at least `bytes_min`: the spare, or one created now.
    pub(crate) fn take(&self, bytes_min: u32) -> Result<Segment, JournalError> {
        loop {
            let mut state = self.lock();
            match mem::replace(&mut state.spare, Spare::None) {
                Spare::Ready(segment) if segment.bytes >= bytes_min => return Ok(segment),
                Spare::Ready(segment) => state.unused.push(segment.leftover()),
                Spare::Making(bytes) => {
                    state.spare = Spare::Making(bytes);
                    let woken = self.changed.wait(state);
                    drop(woken.expect("no thread panics with the segments locked"));
                }
                Spare::None => {
                    drop(state);
                    self.make_ready_of(bytes_min)?;
                }
            }
        }
    }

    /// Prepares a spare segment, unless one exists or is being created. Removes obsolete files
    /// first. Fails if the journal has reached its limit.
    pub(crate) fn make_ready(&self) -> Result<(), JournalError> {
        self.make_ready_of(self.segment_bytes)
    }

    fn make_ready_of(&self, bytes: u32) -> Result<(), JournalError> {
        self.remove_unused()?;
        let number = {
            let mut state = self.lock();
            if !matches!(state.spare, Spare::None) {
                return Ok(());
            }
            if !self.has_room(&state, bytes) {
                return Err(self.too_long());
            }
            state.spare = Spare::Making(bytes);
            state.next_number = state.next_number.checked_add(1).expect("numbers last for ages");
            state.next_number - 1
        };
        let created = self.folder.create(&name_of(number), u64::from(bytes));
        let mut state = self.lock();
        let answer = match created {
            Ok(file) => {
                state.spare = Spare::Ready(Segment { number, bytes, file });
                state.is_disk_full = false;
                Ok(())
            }
            Err(error) => {
                state.spare = Spare::None;
                state.is_disk_full = error.kind == StorageErrorKind::NoSpace;
                let what = format!("cannot create segment {}", name_of(number));
                Err(JournalError::storage(what, error))
            }
        };
        drop(state);
        self.changed.notify_all();
        answer
    }

    /// Returns the numbers of the journal's segments, by sequence.
    pub(crate) fn kept_numbers(&self) -> Vec<u32> {
        self.lock().kept.iter().map(|kept| kept.number).collect()
    }

    /// Opens a segment of the journal. Returns `None` if it is no longer part of it.
    pub(crate) fn open(&self, number: u32) -> Result<Option<Arc<dyn StableFile>>, StorageError> {
        if !self.keeps(number) {
            return Ok(None);
        }
        match self.folder.open(&name_of(number)) {
            // It was removed in between.
            Err(_) if !self.keeps(number) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Returns whether a segment is part of the journal.
    pub(crate) fn keeps(&self, number: u32) -> bool {
        self.lock().kept.iter().any(|kept| kept.number == number)
    }

    /// Returns whether a spare segment is missing and could be created now, as far as is known.
    pub(crate) fn wants_spare(&self) -> bool {
        !self.is_disk_full() && self.lacks_spare()
    }

    /// Returns whether a spare segment is missing and the limit allows one, regardless of disk
    /// space.
    pub(crate) fn lacks_spare(&self) -> bool {
        let state = self.lock();
        matches!(state.spare, Spare::None) && self.has_room(&state, self.segment_bytes)
    }

    /// Returns whether the disk has no space for another file, as far as is known.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.lock().is_disk_full
    }

    /// Returns whether a checkpoint now would free files. The last one is always kept.
    pub(crate) fn can_shrink(&self) -> bool {
        self.lock().kept.len() > 1
    }

    /// Adds a segment to the journal.
    pub(crate) fn keep(&self, segment: &Segment) {
        let file_bytes = u64::from(segment.bytes);
        let written_bytes = u32::try_from(SEGMENT_HEADER_BYTES).expect("a block");
        let number = segment.number;
        let kept = Kept { number, file_bytes, end_sequence: None, written_bytes };
        self.lock().kept.push(kept);
    }

    /// Records the durable length of the last segment.
    pub(crate) fn note_written(&self, bytes: u32) {
        if let Some(last) = self.lock().kept.last_mut() {
            last.written_bytes = bytes;
        }
    }

    /// Returns the durable parts of the journal's segments, by sequence.
    pub(crate) fn written(&self) -> Vec<Written> {
        let state = self.lock();
        let written = state.kept.iter().filter(|kept| kept.written_bytes > 0);
        written.map(|it| Written { segment: it.number, bytes: it.written_bytes }).collect()
    }

    /// Closes the last segment, whose end is known. Nothing more is written to it.
    pub(crate) fn close_last(&self, end_sequence: u64) {
        if let Some(last) = self.lock().kept.last_mut() {
            last.end_sequence.get_or_insert(end_sequence);
        }
    }

    /// Discards a segment that never became part of the journal.
    pub(crate) fn give_up(&self, segment: &Segment) {
        self.lock().unused.push(segment.leftover());
    }

    /// Removes segments whose transactions all lie before `sequence`. The last one is kept, because
    /// it records the end of the journal.
    pub(crate) fn drop_before(&self, sequence: u64) -> Result<(), JournalError> {
        let mut state = self.lock();
        let is_covered =
            |kept: &Kept| kept.end_sequence.is_some_and(|end_sequence| end_sequence <= sequence);
        let Some(last) = state.kept.pop() else { return Ok(()) };
        let (covered, kept): (Vec<_>, Vec<_>) = state.kept.drain(..).partition(is_covered);
        state.kept = kept;
        state.kept.push(last);
        let leftover = |Kept { number, file_bytes, .. }| Leftover { number, file_bytes };
        state.unused.extend(covered.into_iter().map(leftover));
        drop(state);
        self.remove_unused()
    }

    /// Returns the total size of the journal's segments.
    pub(crate) fn length_bytes(&self) -> u64 {
        self.lock().length_bytes()
    }

    /// Returns the total size of all files, including spare and obsolete ones.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.lock().file_bytes()
    }

    pub(crate) fn remove_unused(&self) -> Result<(), JournalError> {
        loop {
            let Some(&Leftover { number, .. }) = self.lock().unused.first() else { return Ok(()) };
            let removed = self.folder.remove(&name_of(number));
            match removed {
                Err(error) if error.kind != StorageErrorKind::NotFound => {
                    let what = format!("cannot remove segment {}", name_of(number));
                    return Err(JournalError::storage(what, error));
                }
                // The file is gone, removed here or by someone else.
                _ => self.lock().unused.retain(|unused| unused.number != number),
            }
        }
    }

    fn has_room(&self, state: &State, bytes: u32) -> bool {
        state.file_bytes() + u64::from(bytes) <= self.length_bytes_max
    }

    fn too_long(&self) -> JournalError {
        let what = format!("cannot add a segment to a journal of {} bytes", self.length_bytes_max);
        JournalError::new(JournalErrorKind::Limit, what)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the segments locked")
    }
}

impl State {
    fn length_bytes(&self) -> u64 {
        self.kept.iter().map(|kept| kept.file_bytes).sum()
    }

    fn file_bytes(&self) -> u64 {
        let unused: u64 = self.unused.iter().map(|unused| unused.file_bytes).sum();
        let spare = match &self.spare {
            Spare::None => 0,
            Spare::Making(bytes) | Spare::Ready(Segment { bytes, .. }) => *bytes,
        };
        self.length_bytes() + unused + u64::from(spare)
    }
}
