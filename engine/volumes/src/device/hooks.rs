//! Services of stable storage, connected by the engine's owner. The engine knows neither files nor
//! formats.

use std::error::Error;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock, RwLock};

use codec::Block;

use sync::atomic::{AtomicBool, Ordering};

use crate::map::volume_map::VolumeMap;
use crate::walks::integrity::Integrity;

/// Error of the owner's code, passed to the caller of the request.
pub type HookError = Box<dyn Error + Send + Sync>;

/// Makes flushes of volumes of class `journal` durable.
pub trait FlushTarget: Debug + Send + Sync {
    /// Waits until everything acknowledged on the volume before the call is on stable storage. The
    /// caller holds no lock and no pin of the engine.
    fn flush(&self, volume: &VolumeMap) -> Result<(), HookError>;

    /// Starts to write everything acknowledged on the volume so far to stable storage, or leaves it
    /// to the next flush. The caller holds no lock and no pin of the engine.
    fn write_back(&self, volume: &VolumeMap);
}

/// Source of the contents of absent blocks.
pub trait PageSource: Debug + Send + Sync {
    /// Fetches the page of this number, and others read with it. The caller holds no lock and no
    /// pin of the engine.
    fn fetch(&self, number: u64) -> Result<Arc<dyn FetchedPages>, SourceError>;
}

/// Pages that a [`PageSource`] has fetched and verified.
pub trait FetchedPages: Debug + Send + Sync {
    /// Reads a page, if it is among these.
    fn read(&self, number: u64, into: &mut Block) -> Result<Found, SourceError>;
}

/// Presence of a page among the fetched pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Here,
    Elsewhere,
}

/// Reason why an absent page cannot be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceErrorKind {
    /// The page is missing in the image or damaged. It may become readable again: only the pool's
    /// owner gives it up.
    Gone,
    /// The image cannot be read now.
    Unreachable,
}

/// Error of an absent page that cannot be fetched.
#[derive(Debug, thiserror::Error)]
#[error("{}", match kind {
    SourceErrorKind::Gone => "the image's copy is missing or damaged",
    SourceErrorKind::Unreachable => "the image cannot be read now",
})]
pub struct SourceError {
    pub kind: SourceErrorKind,
    #[source]
    pub source: Option<HookError>,
}

/// Error if no service is connected.
#[derive(Debug, thiserror::Error)]
#[error("no {what} is connected; start the daemon with one")]
struct NotConnected {
    what: &'static str,
}

/// Services that the engine's owner has connected.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    flush_target: OnceLock<Arc<dyn FlushTarget>>,
    /// Changes to volumes of class `journal` are rejected.
    is_journal_failing: AtomicBool,
    page_source: RwLock<Option<Arc<dyn PageSource>>>,
    pub(crate) integrity: Arc<Integrity>,
}

impl Hooks {
    pub(crate) fn set_flush_target(&self, target: Arc<dyn FlushTarget>) {
        assert!(self.flush_target.set(target).is_ok(), "one journal serves a pool");
    }

    pub(crate) fn set_journal_failing(&self, is_failing: bool) {
        self.is_journal_failing.store(is_failing, Ordering::Relaxed);
    }

    pub(crate) fn is_journal_failing(&self) -> bool {
        self.is_journal_failing.load(Ordering::Relaxed)
    }

    /// Flushes a volume to the journal. The caller must hold neither a pin nor a lane.
    pub(crate) fn flush(&self, volume: &VolumeMap) -> Result<(), HookError> {
        match self.flush_target.get() {
            Some(target) => target.flush(volume),
            None => Err(Box::new(NotConnected { what: "journal" })),
        }
    }

    /// Starts a write-back without waiting for it, unlike [`Hooks::flush`].
    pub(crate) fn write_back(&self, volume: &VolumeMap) {
        if let Some(target) = self.flush_target.get() {
            target.write_back(volume);
        }
    }

    pub(crate) fn set_page_source(&self, source: Option<Arc<dyn PageSource>>) {
        *self.page_source.write().expect("nothing panics with it locked") = source;
    }

    /// Fetches an absent page, and those read with it.
    pub(crate) fn fetch(&self, number: u64) -> Result<Arc<dyn FetchedPages>, SourceError> {
        let source = self.page_source.read().expect("nothing panics with it locked").clone();
        let source = source.ok_or_else(|| SourceError {
            kind: SourceErrorKind::Unreachable,
            source: Some(Box::new(NotConnected { what: "image" })),
        })?;
        source.fetch(number)
    }
}
