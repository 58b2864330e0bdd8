//! Errors of following a store.

use std::error::Error;

use image::{ImageError, ImageErrorKind};
use volumes::VolumeError;

/// The class of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StandbyErrorKind {
    /// The pool has volumes of its own, or belongs to a set that is not being followed.
    #[error("the pool has volumes of its own; a standby needs a new pool")]
    NotEmpty,
    /// The images in the store are of another set than those that were followed.
    #[error(
        "the image store holds images of another pool than those followed so far; configure the \
         store of that pool, or delete the standby's pool to follow this one"
    )]
    OtherSet,
    /// The store is encrypted and there is no key for it, or the other way round.
    #[error("the encryption of the image store does not match the configured key")]
    Key,
    /// There is no image that can be restored.
    #[error("the image store has no complete image")]
    NoImage,
    /// The store does not answer, or refuses.
    #[error("image store error")]
    Store,
    /// What was shipped of the journal cannot be read or restored. The pool is a standby's still.
    #[error("the journal after the newest image cannot be replayed")]
    Replay,
    /// The pool has no memory left for what the image has.
    #[error("the pool is full; a standby needs as much memory as the pool that it follows")]
    PoolFull,
    /// The owner could not note that it comes next. The pool is a standby's still.
    #[error("the promotion cannot be recorded; free space in the state directory and repeat it")]
    NotNoted,
    #[error("the standby was promoted")]
    Promoted,
    /// The owner asked to stop.
    #[error("it was cancelled")]
    Cancelled,
    /// A volume cannot be made or changed.
    #[error("volume error")]
    Volume,
}

/// A failure to follow a store, or to take over from its writer.
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt}: {kind}")]
pub struct StandbyError {
    pub kind: StandbyErrorKind,
    /// Operation that was attempted: "follow image 7".
    pub attempt: String,
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl StandbyError {
    pub(crate) fn new(kind: StandbyErrorKind, attempt: impl Into<String>) -> Self {
        Self { kind, attempt: attempt.into(), source: None }
    }

    #[must_use]
    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    pub(crate) fn image(attempt: &str) -> impl Fn(ImageError) -> Self + '_ {
        move |error| {
            let kind = match error.kind {
                ImageErrorKind::PoolFull => StandbyErrorKind::PoolFull,
                ImageErrorKind::Cancelled => StandbyErrorKind::Cancelled,
                ImageErrorKind::Key => StandbyErrorKind::Key,
                ImageErrorKind::Invalid => StandbyErrorKind::Volume,
                _ => StandbyErrorKind::Store,
            };
            Self::new(kind, attempt).with_source(error)
        }
    }

    pub(crate) fn volume(attempt: &str) -> impl Fn(VolumeError) -> Self + '_ {
        move |error| {
            let kind = match error.kind {
                volumes::VolumeErrorKind::NoSpace => StandbyErrorKind::PoolFull,
                _ => StandbyErrorKind::Volume,
            };
            Self::new(kind, attempt).with_source(error)
        }
    }
}
