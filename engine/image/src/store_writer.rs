//! Names of those that write to a store.

/// A process that claims a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreWriter {
    /// Drawn at random for each claim.
    pub id: u128,
    /// Host that it runs on, which writers that are fenced tell people; empty if it has no name.
    pub host: String,
}

impl From<u128> for StoreWriter {
    fn from(id: u128) -> Self {
        Self { id, host: String::new() }
    }
}
