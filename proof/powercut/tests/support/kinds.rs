//! Kinds of steps and states that the histories of a run must include: one that never occurs proves
//! nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// All kinds. Every counted kind is listed, and every listed one must occur.
const KINDS: &[&str] = &[
    "a write",
    "a write of parts of blocks",
    "zeroes that unmap",
    "zeroes that keep",
    "a discard",
    "a request that finds the pool full",
    "a guaranteed write into a full pool",
    "a flush",
    "a flush that fails",
    "a volume is made",
    "a volume is refused",
    "a volume is deleted",
    "a volume is renamed",
    "a volume is made shorter",
    "a volume is made longer",
    "a volume becomes one of class ram",
    "a volume becomes one of class image",
    "a volume becomes one of class journal",
    "a volume becomes guaranteed",
    "a volume becomes thin",
    "a volume is reduced otherwise",
    "a change that the journal was not told",
    "a snapshot",
    "snapshots of one instant",
    "a snapshot is deleted",
    "a snapshot is renamed",
    "a clone of a volume",
    "a clone of a snapshot",
    "a restore",
    "an image",
    "an image of a full pool",
    "an image that fails",
    "images are deleted",
    "an answer of the object store is lost",
    "an object arrives late",
    "absent blocks are fetched",
    "upkeep of the set",
    "upkeep of the pool",
    "a fault of the disk",
    "the pool is filled",
    "the daemon is killed",
    "the daemon is killed with a full pool",
    "a state of a folder",
    "a state of an encrypted folder",
    "a state of an object store",
    "a state of an encrypted object store",
    "a state of a recovery that was cut",
    "a state with damage",
    "damage that is noticed",
    "a volume of sectors of 512 bytes",
    "a volume of sectors of 4096 bytes",
    "a volume of class journal",
    "a volume of class image",
    "a guaranteed volume",
    "a snapshot that came back",
];

static COUNTS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());

/// Counts one event of a kind.
pub(crate) fn count(kind: &'static str) {
    count_many(kind, 1);
}

pub(crate) fn count_many(kind: &'static str, number: usize) {
    assert!(KINDS.contains(&kind), "{kind:?} is listed as a kind");
    *COUNTS.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default() +=
        number as u64;
}

pub(crate) fn number_of(kind: &str) -> u64 {
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner).get(kind).copied().unwrap_or(0)
}

/// Fails unless events of each kind have occurred.
pub(crate) fn check_that_all_happened() {
    let missing: Vec<_> = KINDS.iter().filter(|kind| number_of(kind) == 0).collect();
    assert!(missing.is_empty(), "in no history there was {missing:?}");
}

/// Describes the events in words.
pub(crate) fn told() -> String {
    let of_kind = |kind: &&str| format!("{kind}: {}", number_of(kind));
    KINDS.iter().map(of_kind).collect::<Vec<_>>().join("; ")
}
