//! The maps of volumes: which page each block holds, and the one way to change that.
//!
//! `entries` has all that changes an entry. From below: `table`, `tree`, `leaf_cache`, `counts` and
//! `claims` are what a map is made of, `volume_map` puts them together, `sharing` makes leaves a
//! map's own before they are changed.

pub(crate) mod claiming;
pub(crate) mod claims;
pub(crate) mod copying;
pub(crate) mod counts;
pub(crate) mod diff;
pub(crate) mod entries;
pub(crate) mod idle_leaves;
pub(crate) mod leaf_bits;
pub(crate) mod leaf_cache;
pub(crate) mod runs;
pub(crate) mod sharing;
pub(crate) mod stored;
pub(crate) mod table;
pub(crate) mod tree;
pub(crate) mod view;
pub(crate) mod volume_map;
