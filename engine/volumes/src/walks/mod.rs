//! Walks over maps: compression, idle compression, evacuation, captures for the journal, the leak
//! check, and integrity. None of them knows whose maps they are.

pub(crate) mod capture;
pub(crate) mod compression;
pub(crate) mod evacuation;
pub(crate) mod idle_compression;
pub(crate) mod integrity;
pub(crate) mod leaks;
pub(crate) mod node_moves;
