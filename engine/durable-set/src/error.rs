//! Errors of keeping memory and stable storage consistent.

use std::error::Error;

use image::{ImageError, ImageErrorKind};
use journal::JournalError;
use volumes::{SetId, VolumeError};

/// Kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurableErrorKind {
    /// The pool belongs to another durable set than the journal or the images.
    #[error(
        "pool, journal and images belong to different sets; configure the journal and image \
         directories of this pool, or another pool"
    )]
    OtherSet,
    /// The pool already has volumes, and stable storage has others.
    #[error(
        "the pool has volumes, and the journal and images have others to restore; configure \
         other directories for journal and images, or delete the volumes first"
    )]
    NotEmpty,
    /// The journal or images are not encrypted with the configured key, or the key is unreadable.
    #[error("encryption error")]
    Key,
    /// The journal cannot be read or written.
    #[error("journal error")]
    Journal,
    /// The images cannot be read or written.
    #[error("image store error")]
    Images,
    /// A volume cannot be created, filled or changed.
    #[error("volume error")]
    Volume,
    /// The frozen copies were given up during the save because writers needed memory.
    #[error("interrupted by writers")]
    GaveWay,
    /// An image is still being restored.
    #[error("volumes are still being restored from an image; wait until the restore is done")]
    Restoring,
    #[error("the image contains no volume or snapshot of that name")]
    NotInImage,
    #[error("the journal depends on this image; save another image first")]
    StartOfJournal,
    /// The newest image is unreadable, and older images and the journal lack some of its contents.
    #[error(
        "older images and the journal do not contain all of its data; bring it back, or accept \
         the loss with --accept-loss"
    )]
    NewestUnreadable,
    /// Memory is lost, and so is the journal that this host had.
    #[error(
        "the journal that this host had is gone; mount its file system, or put its directory back"
    )]
    JournalGone,
    /// Memory is lost, and the newest image that this host had is not in the store.
    #[error(
        "it is not in the image store, and older images do not contain all of its data; mount \
         the file system of the store, or put its directory back"
    )]
    ImageGone,
    /// Another image is the newest readable one.
    #[error("give that image's number to --accept-loss to accept the loss of later data")]
    NotNewest,
    /// The change is in effect in memory, but could not be recorded on stable storage.
    #[error(
        "the change is in effect but not in the journal, and a power loss would undo it; it is \
         written as soon as the journal can be written again"
    )]
    NotNoted,
    /// The change is in effect and in the journal on this host, but not in the image store.
    #[error(
        "the change is in effect and in the journal of this host, but not in the image store, so \
         a standby that is promoted now may lack it"
    )]
    NotMirrored,
}

/// A failure of an operation on a durable set.
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt}: {kind}")]
pub struct DurableError {
    pub kind: DurableErrorKind,
    /// Attempted operation: "restore image 7".
    pub attempt: String,
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl DurableError {
    pub(crate) fn new(kind: DurableErrorKind, attempt: impl Into<String>) -> Self {
        Self { kind, attempt: attempt.into(), source: None }
    }

    #[must_use]
    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Error for a pool and stable storage of different sets.
    pub(crate) fn other_set(pool: SetId, stored: SetId) -> Self {
        let (pool, stored) = (name_of(pool), name_of(stored));
        let attempt = format!(
            "combine a pool of durable set {pool} with a journal or images of durable set \
                     {stored}"
        );
        Self::new(DurableErrorKind::OtherSet, attempt)
    }

    /// Error for memory that would be restored without the journal of this set.
    pub(crate) fn journal_gone(set: SetId) -> Self {
        let attempt = format!("restore the pool of durable set {}", name_of(set));
        Self::new(DurableErrorKind::JournalGone, attempt)
    }

    /// Error for memory that would be restored without this image, which is not in the store.
    pub(crate) fn image_gone(number: u32) -> Self {
        Self::new(DurableErrorKind::ImageGone, format!("restore the pool without image {number}"))
    }

    pub(crate) fn key<Cause>(attempt: &str) -> impl Fn(Cause) -> Self + '_
    where
        Cause: Into<Box<dyn Error + Send + Sync>>,
    {
        Self::of(DurableErrorKind::Key, attempt)
    }

    pub(crate) fn journal(attempt: &str) -> impl Fn(JournalError) -> Self + '_ {
        Self::of(DurableErrorKind::Journal, attempt)
    }

    pub(crate) fn not_noted(attempt: &str) -> impl Fn(JournalError) -> Self + '_ {
        Self::of(DurableErrorKind::NotNoted, attempt)
    }

    pub(crate) fn images(attempt: &str) -> impl Fn(ImageError) -> Self + '_ {
        Self::of(DurableErrorKind::Images, attempt)
    }

    /// Wraps an error of the engine or of a volume.
    pub(crate) fn volume<Cause>(attempt: &str) -> impl Fn(Cause) -> Self + '_
    where
        Cause: Into<Box<dyn Error + Send + Sync>>,
    {
        Self::of(DurableErrorKind::Volume, attempt)
    }

    /// Returns the engine's error, if the engine failed.
    pub fn volume_error(&self) -> Option<&VolumeError> {
        self.source.as_ref()?.downcast_ref()
    }

    /// Returns whether another daemon has claimed the image store.
    pub fn is_fenced(&self) -> bool {
        let source = self.source.as_deref().and_then(|source| source.downcast_ref::<ImageError>());
        source.is_some_and(|error| error.kind == ImageErrorKind::Fenced)
    }

    /// Returns whether a change was made in memory nevertheless.
    pub fn is_made(&self) -> bool {
        matches!(self.kind, DurableErrorKind::NotNoted | DurableErrorKind::NotMirrored)
    }

    /// Returns whether an object in the image store is missing or damaged while the store itself
    /// works.
    pub(crate) fn is_of_object(&self) -> bool {
        let source = self.source.as_ref().and_then(|source| source.downcast_ref::<ImageError>());
        source.is_some_and(|error| {
            use ImageErrorKind::{Damaged, NotFound, Unfinished};
            matches!(error.kind, NotFound | Damaged | Unfinished)
        })
    }

    fn of<Cause>(kind: DurableErrorKind, attempt: &str) -> impl Fn(Cause) -> Self + '_
    where
        Cause: Into<Box<dyn Error + Send + Sync>>,
    {
        move |cause| Self { source: Some(cause.into()), ..Self::new(kind, attempt) }
    }
}

/// Formats a set's id.
pub(crate) fn name_of(id: SetId) -> String {
    format!("{:032x}", u128::from_be_bytes(id))
}

/// Formats an error and its causes in one line.
pub fn causes(error: &dyn Error) -> String {
    let rest = std::iter::successors(Error::source(error), |error| Error::source(*error));
    rest.fold(error.to_string(), |text, error| format!("{text}: {error}"))
}
