//! What stable storage does for the engine, which knows neither files nor formats.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;

use codec::Block;

use crate::volume::Volume;

/// An error of the owner's, told to whoever made the request.
pub type HookError = Box<dyn Error + Send + Sync>;

/// Makes flushes of volumes of class `journal` true.
pub trait FlushTarget: Debug + Send + Sync {
    /// Returns when everything that was acknowledged on the volume before the call is on stable
    /// storage. The caller holds nothing of the engine.
    fn flush(&self, volume: &Volume) -> Result<(), HookError>;

    /// Brings to stable storage what was acknowledged on the volume so far, or leaves it to the
    /// next flush. The caller holds nothing of the engine.
    fn write_back(&self, volume: &Volume);
}

/// Has the contents of absent blocks.
pub trait PageSource: Debug + Send + Sync {
    /// Fetches the page of this number, and what can be had with it at no cost. The caller holds
    /// nothing of the engine.
    fn fetch(&self, number: u64) -> Result<Arc<dyn FetchedPages>, SourceError>;
}

/// Pages that a [`PageSource`] has fetched and found whole.
pub trait FetchedPages: Debug + Send + Sync {
    /// The contents of a page, if it is among these.
    fn read(&self, number: u64, into: &mut Block) -> Result<Found, SourceError>;
}

/// Whether a page is among those that were fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Here,
    Elsewhere,
}

/// Why an absent page cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceErrorKind {
    /// What the image has is missing or damaged. It may come back: only the pool's owner says that
    /// it will not.
    Gone,
    /// The image cannot be read now.
    Unreachable,
}

/// An absent page cannot be had.
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

/// There is nobody who could do it: the engine's owner has not said who does.
#[derive(Debug, thiserror::Error)]
#[error("no {what} is connected; start the daemon with one")]
pub(crate) struct NotConnected {
    pub(crate) what: &'static str,
}
