//! The engine: the lists of all volumes, and all operations on them except requests.

pub(crate) mod background;
pub(crate) mod capacity;
pub(crate) mod copies;
pub(crate) mod durable;
pub(crate) mod engine;
pub(crate) mod frozen;
mod listing;
pub(crate) mod load;
pub(crate) mod maintenance;
pub(crate) mod open;
mod places;
pub(crate) mod pool_size;
pub(crate) mod saved;
pub(crate) mod usage;
pub(crate) mod volumes;
