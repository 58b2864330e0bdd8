//! Maps of volumes: the page of each block, and the only way to change it.
//!
//! `entries` contains all changes of entries. From the bottom: `table`, `tree`, `leaf_cache`,
//! `counts` and `claims` are the components of a map, `volume_map` combines them, `sharing` copies
//! shared nodes before they are changed.

pub(crate) mod claiming;
pub(crate) mod claims;
pub(crate) mod copying;
pub(crate) mod counts;
pub(crate) mod diff;
pub(crate) mod entries;
pub(crate) mod idle_leaves;
pub(crate) mod leaf_bits;
pub(crate) mod leaf_cache;
pub(crate) mod maps;
pub(crate) mod mirroring;
pub(crate) mod runs;
pub(crate) mod sharing;
pub(crate) mod stored;
pub(crate) mod table;
pub(crate) mod tree;
pub(crate) mod view;
pub(crate) mod volume_map;
