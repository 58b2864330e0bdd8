//! What can go wrong with a pool.

/// There is no slot left for the purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pool has no free memory left")]
pub struct NoSpace;

/// Why a node cannot be linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error(transparent)]
    NoSpace(#[from] NoSpace),
    /// The parent names something that is no node.
    #[error("a node of the map is damaged")]
    Damaged,
}

/// Why a region cannot be opened as a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenErrorKind {
    /// Its first bytes are somebody else's.
    Foreign,
    /// A later release wrote it.
    Newer,
    /// An earlier release, or one built otherwise, wrote it in a layout that this one cannot read.
    OtherLayout,
    /// It is a pool, and neither copy of its superblock is whole.
    Damaged,
    /// The pool was made for another size than its file has.
    SizeDiffers,
}

/// A region that is no pool for us. Nothing in it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot open the pool: {}", kind.advice())]
pub struct OpenError {
    pub kind: OpenErrorKind,
}

impl OpenErrorKind {
    const fn advice(self) -> &'static str {
        match self {
            Self::Foreign => "the file holds something else; name another file",
            Self::Newer => "a newer release wrote it; start that release",
            Self::OtherLayout => {
                "another release wrote it in a layout that this one does not read; \
                 start that release, or delete the file to lose its data"
            }
            Self::Damaged => {
                "both copies of its superblock are damaged; delete the file to start anew"
            }
            Self::SizeDiffers => "its file was cut or extended; restore the file's size",
        }
    }
}
