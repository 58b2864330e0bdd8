//! Purposes of allocations.

/// Purpose of an allocation, which determines how much of the reserve it may use, in ascending
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// A block that was a hole.
    NewData,
    /// A block that had contents: may use a part of the reserve that new data leaves.
    Overwrite,
    /// Same for an uncompressed unshared page, which the block releases in exchange: may also use
    /// the part that overwrites leave if they take more than they free.
    Replacement,
    /// The pool's own work, which frees more than it takes.
    Housekeeping,
    /// Copies of shared nodes, for a caller that removes contents: down to the last slab.
    Removal,
    /// Slots that the caller has claimed: see `claims`.
    Claimed,
}

impl Purpose {
    /// Number of slabs of the reserve that this purpose leaves to others.
    pub(crate) fn floor(self, reserve: usize) -> usize {
        match self {
            Self::NewData => reserve,
            Self::Overwrite => reserve.div_ceil(2),
            Self::Replacement | Self::Housekeeping => reserve.div_ceil(4),
            Self::Removal | Self::Claimed => 0,
        }
    }
}
