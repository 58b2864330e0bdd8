//! Metadata contexts for block status queries.
//!
//! | name | reports |
//! |---|---|
//! | `base:allocation` | holes, zeros and data |
//! | `memlane:changed:SNAPSHOT` | differences from that snapshot of the export |
//!
//! The snapshot is looked up by name when a client selects the context, and identified by its id
//! from then on. Once the snapshot is deleted, queries in the context fail, even if another
//! snapshot has taken the name.

use std::collections::HashSet;

use block_device::{
    BlockDevice, ByteRange, ChangeExtent, ChangeKind, DeviceError, Extent, ExtentKind, SnapshotId,
};

use crate::wire::state;

/// Maximum number of contexts that a client may select. More are not granted.
pub(crate) const CONTEXT_COUNT_MAX: usize = 16;

const ALLOCATION: &str = "base:allocation";
const BASE_NAMESPACE: &str = "base:";
const CHANGED_PREFIX: &str = "memlane:changed:";
const OUR_NAMESPACE: &str = "memlane:";

/// Metadata context of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    Allocation,
    ChangedSince(SnapshotId),
}

/// A context that an export offers, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) name: String,
    pub(crate) context: Context,
}

/// Returns all contexts of a device.
fn offers(device: &dyn BlockDevice) -> impl Iterator<Item = Offer> {
    let allocation = Offer { name: ALLOCATION.to_owned(), context: Context::Allocation };
    let changed = device.snapshots().into_iter().map(|snapshot| Offer {
        name: format!("{CHANGED_PREFIX}{}", snapshot.name),
        context: Context::ChangedSince(snapshot.id),
    });
    std::iter::once(allocation).chain(changed)
}

/// Returns the contexts that match a client's list queries: names, namespaces, or none for all.
pub(crate) fn listed(queries: &[&str], device: &dyn BlockDevice) -> Vec<Offer> {
    let queries: HashSet<&str> = queries.iter().copied().collect();
    let groups = [BASE_NAMESPACE, OUR_NAMESPACE, CHANGED_PREFIX];
    let groups: Vec<_> = groups.into_iter().filter(|group| queries.contains(group)).collect();
    let is_asked_for = |offer: &Offer| {
        let name = offer.name.as_str();
        queries.contains(name) || groups.iter().any(|group| name.starts_with(group))
    };
    offers(device).filter(|offer| queries.is_empty() || is_asked_for(offer)).collect()
}

/// Returns the contexts that a client selects by name.
pub(crate) fn chosen(names: &[&str], device: &dyn BlockDevice) -> Vec<Offer> {
    let names: HashSet<&str> = names.iter().copied().collect();
    let is_chosen = |offer: &Offer| names.contains(offer.name.as_str());
    offers(device).filter(is_chosen).take(CONTEXT_COUNT_MAX).collect()
}

impl Context {
    /// Returns lengths and states of the extents that cover `range`, as [`BlockDevice::extents`]
    /// does.
    pub(crate) fn states(
        self,
        device: &dyn BlockDevice,
        range: ByteRange,
        count_max: usize,
    ) -> Result<Vec<(u64, u32)>, DeviceError> {
        Ok(match self {
            Self::Allocation => {
                let state = |extent: &Extent| (extent.range.length, allocation(extent.kind));
                device.extents(range, count_max)?.iter().map(state).collect()
            }
            Self::ChangedSince(snapshot) => {
                let state = |extent: &ChangeExtent| (extent.range.length, change(extent.kind));
                device.changed_extents(snapshot, range, count_max)?.iter().map(state).collect()
            }
        })
    }
}

fn allocation(kind: ExtentKind) -> u32 {
    match kind {
        ExtentKind::Hole => state::HOLE | state::ZERO,
        ExtentKind::Zero => state::ZERO,
        ExtentKind::Data => 0,
    }
}

fn change(kind: ChangeKind) -> u32 {
    match kind {
        ChangeKind::Unchanged => 0,
        ChangeKind::Changed => state::CHANGED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_extent_has_its_state() {
        let kinds = [ExtentKind::Hole, ExtentKind::Zero, ExtentKind::Data];
        assert_eq!(kinds.map(allocation), [3, 2, 0]);
        assert_eq!([ChangeKind::Unchanged, ChangeKind::Changed].map(change), [0, 1]);
    }
}
