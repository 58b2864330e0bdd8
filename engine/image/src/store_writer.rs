//! Identity of the writers of a store.

/// A process that claims a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreWriter {
    /// Random, for each claim.
    pub id: u128,
    /// Random id, the same in all claims of a daemon; 0 if unknown, as in claims of older releases.
    pub daemon_id: u128,
    /// Guarantee for a daemon that takes over the store.
    pub mirroring: Mirroring,
    /// Host on which it runs, shown in errors of fenced writers. Empty if unknown.
    pub host: String,
}

/// Guarantee about flushes of class `journal` acknowledged under a claim, weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mirroring {
    /// Flushes may be on the writer's host only. Claims of earlier releases have this value.
    #[default]
    Off,
    /// Flushes are in the store, unless it did not respond in time.
    MayStop,
    /// Flushes are in the store.
    Always,
    /// No flush was acknowledged under the claim.
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
