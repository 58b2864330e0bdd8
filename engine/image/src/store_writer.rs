//! Identity of the writers of a store.

/// A process that claims a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreWriter {
    /// Random, for each claim.
    pub id: u128,
    /// Random, the same for all claims of a daemon. 0 if unknown, as in claims of earlier releases.
    pub daemon_id: u128,
    /// Host on which it runs, shown in errors of fenced writers. Empty if unknown.
    pub host: String,
}

impl From<u128> for StoreWriter {
    fn from(id: u128) -> Self {
        Self { id, ..Self::default() }
    }
}
