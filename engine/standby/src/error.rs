//! Errors of following a store.

use std::error::Error;

use image::{ImageError, ImageErrorKind};
use volumes::VolumeError;

/// Kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StandbyErrorKind {
    /// The pool has volumes of its own.
    #[error(
        "the pool has volumes, which a standby would discard; if they are not needed, delete them \
         while [standby] is not configured; if this daemon was the writer of the store and another \
         has taken over, set rejoin = true in [standby]"
    )]
    NotEmpty,
    /// The pool has no volumes, and the images in the store are those of earlier volumes of it.
    #[error(
        "the images in the store are those of this pool's deleted volumes; configure the store of \
         another daemon, or, if another has taken over this store, set rejoin = true in [standby]"
    )]
    OwnSet,
    /// The images in the store belong to another set than those followed so far.
    #[error(
        "the image store holds images of another pool than those followed so far; configure the \
         store of that pool, or delete the standby's pool to follow this one"
    )]
    OtherSet,
    /// The store is encrypted and no key opens it, or it is unencrypted and a key is configured.
    #[error("the encryption of the image store does not match the configured key")]
    Key,
    /// The pool is that of the store's writer.
    #[error(
        "no other daemon has taken over the image store from this one, so its pool has the newest \
         data; promote a standby first, or remove [standby] to continue as the writer"
    )]
    NotTakenOver,
    /// There is no restorable image.
    #[error("the image store has no complete image")]
    NoImage,
    /// The store does not answer, or rejects the request.
    #[error("image store error")]
    Store,
    /// The shipped journal cannot be read or replayed. The pool is still a standby.
    #[error("the journal after the newest image cannot be replayed")]
    Replay,
    /// Acknowledged flushes of the writer are or may be missing, and the caller did not accept the
    /// loss. The pool is still a standby.
    #[error(
        "flushes that the writer acknowledged would be lost; to accept this, use --accept-loss"
    )]
    Loss,
    /// The pool has no memory for the image's contents.
    #[error("the pool is full; a standby needs as much memory as the pool that it follows")]
    PoolFull,
    /// The owner failed to record the promotion. The pool is still a standby.
    #[error("the promotion cannot be recorded; free space in the state directory and repeat it")]
    NotNoted,
    #[error("the standby was promoted")]
    Promoted,
    /// Another daemon has claimed the store since the standby last read its claims. The pool is
    /// still a standby.
    #[error(
        "another daemon has claimed the image store meanwhile, and may have been promoted; to take \
         over from it nevertheless, stop it and repeat the promotion"
    )]
    ClaimedMeanwhile,
    /// Cancelled by the owner.
    #[error("it was cancelled")]
    Cancelled,
    /// A volume cannot be created or changed.
    #[error("volume error")]
    Volume,
}

/// Error of following a store, or of promoting a standby.
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt}: {kind}")]
pub struct StandbyError {
    pub kind: StandbyErrorKind,
    /// Attempted operation: "follow image 7".
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
