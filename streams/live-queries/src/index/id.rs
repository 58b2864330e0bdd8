//! Names of filters.

/// A filter's number in its index. Numbers of removed filters are given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterId(u32);

impl FilterId {
    /// An index holds fewer filters than fit 32 bits.
    pub(super) fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("memory ends before there are as many filters"))
    }

    /// Index into a list of queries.
    pub fn index(self) -> usize {
        usize::try_from(self.0).expect("indices have at least 32 bits here")
    }
}
