//! Identifiers of filters.

/// Number of a filter in its index. Numbers of removed filters are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterId(u32);

impl FilterId {
    /// The number of filters in an index always fits into 32 bits.
    pub(super) fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("memory ends before there are as many filters"))
    }

    /// Returns the number as an index into a list of queries.
    pub fn index(self) -> usize {
        usize::try_from(self.0).expect("indices have at least 32 bits here")
    }
}
