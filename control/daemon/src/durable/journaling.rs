//! The journal: opened when the first volume needs it, and told of changes.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use journal::format::{SEGMENT_HEADER_BYTES, SegmentHeader};
use journal::{
    FailurePolicy, Journal, JournalOptions, JournalSpec, JournalState, Position, SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN, SystemClock,
};
use storage::{Folder, LinuxFolder, StorageErrorKind};
use volume::SetId;

use crate::config::OnJournalFailure;
use crate::durable::state::{Durable, OpenJournal};

/// A journal consists of about so many files.
const SEGMENT_COUNT: u64 = 16;

/// The longest file of a journal that is not told otherwise.
const SEGMENT_BYTES_LIKED_MAX: u64 = 64 << 20;

impl Durable {
    /// The journal, if there is one.
    pub(crate) fn journal(&self) -> Option<&Arc<Journal>> {
        self.journal.get().map(|open| &open.journal)
    }

    /// The journal, made if there is none yet.
    pub(crate) fn ready_journal(&self) -> anyhow::Result<&Arc<Journal>> {
        let _opening = self.opening.lock().expect("nobody panics with this lock");
        if let Some(journal) = self.journal() {
            return Ok(journal);
        }
        let dir = &self.journal_config.dir;
        let attempt = || format!("cannot open the journal in {}", dir.display());
        let opened = self.open_journal(dir).with_context(attempt)?;
        let open = self.journal.get_or_init(|| opened);
        open.journal.serve(&self.engine);
        Ok(&open.journal)
    }

    /// Returns when the journal knows what volumes there are now. Nothing to do without one.
    pub(crate) fn commit_table(&self) -> anyhow::Result<()> {
        match self.journal() {
            Some(journal) => Ok(journal.commit_table()?),
            None => Ok(()),
        }
    }

    /// Why the journal takes nothing at the moment.
    pub(crate) fn journal_failure(&self) -> Option<String> {
        match self.journal()?.status().state {
            JournalState::Working => None,
            JournalState::Failing { failure, .. } => Some(failure.cause),
        }
    }

    fn open_journal(&self, dir: &Path) -> anyhow::Result<OpenJournal> {
        let folder = LinuxFolder::open_or_make(dir)?;
        let lock = folder.lock()?;
        let covered = self.known().newest.map_or(Position::START, |newest| newest.position);
        let bytes_max = self.journal_config.bytes_max;
        let liked = (bytes_max / SEGMENT_COUNT).min(SEGMENT_BYTES_LIKED_MAX) & !4095;
        let options = JournalOptions {
            length_bytes_max: bytes_max,
            segment_bytes: u32::try_from(liked)
                .unwrap_or(SEGMENT_BYTES_MAX)
                .clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
            policy: match self.journal_config.on_failure {
                OnJournalFailure::Wait => FailurePolicy::Wait,
                OnJournalFailure::ReadOnly => FailurePolicy::ReadOnly,
            },
            ..JournalOptions::default()
        };
        let journal = Journal::open(JournalSpec {
            folder: Arc::new(folder),
            set_id: self.set_id,
            covered,
            options,
            clock: Arc::new(SystemClock::new()),
        })?;
        tracing::info!(dir = %dir.display(), "the journal is open");
        Ok(OpenJournal { journal: Arc::new(journal), _lock: lock })
    }
}

/// The durable set that the journal in a directory belongs to; `None` when there is none.
pub(super) fn set_in_folder(dir: &Path) -> anyhow::Result<Option<SetId>> {
    let attempt = || format!("cannot look for a journal in {}", dir.display());
    let folder = match LinuxFolder::open(dir) {
        Ok(folder) => folder,
        Err(error) if error.kind == StorageErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(attempt),
    };
    for file in folder.list().with_context(attempt)? {
        if !file.name.starts_with("journal-") {
            continue;
        }
        let mut header = vec![0; SEGMENT_HEADER_BYTES];
        let opened = folder.open(&file.name).with_context(attempt)?;
        if opened.read(0, &mut header).is_ok()
            && let Ok(header) = SegmentHeader::decode(&header)
        {
            return Ok(Some(header.set_id));
        }
    }
    Ok(None)
}
