//! Identity of the writers of a store.

/// A process that claims a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreWriter {
    /// Random, for each claim.
    pub id: u128,
    /// Host on which it runs, shown in errors of fenced writers. Empty if unknown.
    pub host: String,
}

impl From<u128> for StoreWriter {
    fn from(id: u128) -> Self {
        Self { id, host: String::new() }
    }
}
