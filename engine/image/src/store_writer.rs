//! Identity of the writers of a store.

/// A process that claims a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreWriter {
    /// Random, for each claim.
    pub id: u128,
    /// Random, the same for all claims of a daemon. 0 if unknown, as in claims of earlier releases.
    pub daemon_id: u128,
    /// Promise to those who take over the store.
    pub mirroring: Mirroring,
    /// Host on which it runs, shown in errors of fenced writers. Empty if unknown.
    pub host: String,
}

/// Promise of a claim about acknowledged flushes of class `journal`, weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mirroring {
    /// They may be on the writer's host only. Claims of earlier releases promise this.
    #[default]
    Off,
    /// They are in the store, unless it did not answer in time.
    MayStop,
    /// They are in the store.
    Always,
    /// Nothing was acknowledged under the claim.
    Unused,
}

impl Mirroring {
    /// All values, by code.
    pub(crate) const ALL: [Self; 4] = [Self::Off, Self::MayStop, Self::Always, Self::Unused];
}

impl From<u128> for StoreWriter {
    fn from(id: u128) -> Self {
        Self { id, ..Self::default() }
    }
}
