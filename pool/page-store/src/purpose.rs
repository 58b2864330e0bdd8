//! Purposes for which slots are taken.

/// Purpose for which a slot is taken, which decides how far down the free slabs may go: further and
/// further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// A block that held nothing yet.
    NewData,
    /// A block that held something: draws on the reserve that new data leaves.
    Overwrite,
    /// The same for a page as it is that the block alone has, and gives up for this: draws on what
    /// overwrites that take more than they free leave.
    Replacement,
    /// The pool's own work, which gives back more than it takes.
    Housekeeping,
    /// Copies of what maps share, for a caller that gives contents up: down to the last slab.
    Removal,
    /// Slots that the caller has claimed: see `claims`.
    Claimed,
}

impl Purpose {
    /// Slabs that this purpose leaves to others, of those that new data leaves.
    pub(crate) fn floor(self, reserve: usize) -> usize {
        match self {
            Self::NewData => reserve,
            Self::Overwrite => reserve.div_ceil(2),
            Self::Replacement | Self::Housekeeping => reserve.div_ceil(4),
            Self::Removal | Self::Claimed => 0,
        }
    }
}
