//! What slots are wanted for.

/// What a slot is wanted for decides how far down the free slabs may go: further and further.
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
    /// Copies of what maps share, for one that gives contents up: down to the last slab.
    Removal,
    /// Slots that the caller has claimed: see `claims`.
    Claimed,
}
