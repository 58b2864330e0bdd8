//! What can go wrong between memory and stable storage.

use std::error::Error;
use std::fmt;

use block_device::DeviceError;
use image::{ImageError, ImageErrorKind};
use journal::JournalError;
use volumes::VolumeError;

/// The class of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurableErrorKind {
    /// The pool belongs to another set than the journal or the images.
    OtherSet,
    /// The pool has volumes of its own, and stable storage has others.
    NotEmpty,
    /// The journal cannot be read or written.
    Journal,
    /// The images cannot be read or written.
    Images,
    /// A volume cannot be made, filled or changed.
    Volume,
    /// Writers needed the memory that an image kept while it was saved.
    GaveWay,
    /// An image is still being restored from.
    Restoring,
    /// The image has no volume of that name.
    NotInImage,
    /// The journal goes on from this image.
    StartOfJournal,
    /// The newest image cannot be read, and what it has is not all in older ones and the journal.
    NewestUnreadable,
    /// Another image is the newest that can be read.
    NotNewest,
    /// What was attempted is so in memory, and stable storage could not be told.
    NotNoted,
}

impl fmt::Display for DurableErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherSet => {
                "memory and stable storage belong to different sets; name the directories that \
                 belong to this pool, or another pool"
            }
            Self::NotEmpty => {
                "memory has volumes, and stable storage has others that would be restored; name \
                 other directories for journal and images, or delete the volumes first"
            }
            Self::Journal => "the journal failed",
            Self::Images => "the store of images failed",
            Self::Volume => "a volume failed",
            Self::GaveWay => "writers came first",
            Self::NotInImage => "the image has no volume or snapshot of that name",
            Self::NewestUnreadable => {
                "older images and the journal do not have all of it; bring it back, or accept the \
                 loss"
            }
            Self::NotNewest => "name that one to accept that what came after it is lost",
            Self::NotNoted => {
                "it is so in memory, but the journal could not be told, and a power loss would \
                 take it back; it is written as soon as the journal takes something again"
            }
            Self::StartOfJournal => {
                "the journal goes on from it; save another image first, which takes its place"
            }
            Self::Restoring => "volumes are still being fetched from an image; wait until they are",
        })
    }
}

/// A failure between memory and stable storage.
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt}: {kind}")]
pub struct DurableError {
    pub kind: DurableErrorKind,
    /// What was attempted: "restore image 7".
    pub attempt: String,
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl DurableError {
    pub(crate) fn new(kind: DurableErrorKind, attempt: impl Into<String>) -> Self {
        Self { kind, attempt: attempt.into(), source: None }
    }

    pub(crate) fn journal(attempt: &str) -> impl Fn(JournalError) -> Self + '_ {
        move |error| Self::of(DurableErrorKind::Journal, attempt, error)
    }

    pub(crate) fn not_noted(attempt: &str) -> impl Fn(JournalError) -> Self + '_ {
        move |error| Self::of(DurableErrorKind::NotNoted, attempt, error)
    }

    /// The engine's refusal, if that is what failed.
    pub fn volume_error(&self) -> Option<&VolumeError> {
        self.source.as_ref()?.downcast_ref()
    }

    pub(crate) fn images(attempt: &str) -> impl Fn(ImageError) -> Self + '_ {
        move |error| Self::of(DurableErrorKind::Images, attempt, error)
    }

    pub(crate) fn volume(attempt: &str) -> impl Fn(VolumeError) -> Self + '_ {
        move |error| Self::of(DurableErrorKind::Volume, attempt, error)
    }

    pub(crate) fn device(attempt: &str) -> impl Fn(DeviceError) -> Self + '_ {
        move |error| Self::of(DurableErrorKind::Volume, attempt, error)
    }

    /// Whether an object of the store of images is missing or damaged, and nothing is wrong with
    /// the store.
    pub(crate) fn is_of_object(&self) -> bool {
        let source = self.source.as_ref().and_then(|source| source.downcast_ref::<ImageError>());
        source.is_some_and(|error| {
            matches!(error.kind, ImageErrorKind::NotFound | ImageErrorKind::Damaged)
        })
    }

    fn of(
        kind: DurableErrorKind,
        attempt: &str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { kind, attempt: attempt.to_owned(), source: Some(source.into()) }
    }
}
