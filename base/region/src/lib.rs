//! Memory that outlives the process, addressed by offsets.
//!
//! A [`Region`] is one shared mapping of a file on tmpfs or hugetlbfs. Its owner takes memory
//! for a range before anything touches that, so that too little memory is an error then and never a
//! signal later; the rest are holes, which are not touched. One process at a time has it open. This
//! crate knows nothing of what lies in a region; it turns offsets into words and bytes, checks them
//! against the mapping, and holds the unsafe code that this takes.
//!
//! Words are read and written as atomics, by anyone at any time. Bytes are plain memory: the
//! functions that touch them are `unsafe` and say which threads may look when.

#[cfg(feature = "crash-points")]
mod crash;
mod error;
mod file;
mod host_memory;
mod mapping;
mod sys;

#[cfg(feature = "crash-points")]
pub use crash::{CrashPoints, Crashed};
pub use error::{RegionError, RegionErrorKind};
pub use file::{RegionSpec, SIZE_UNIT_BYTES, existing_size_bytes};
pub use host_memory::{GroupLimit, HostMemory};
pub use mapping::Region;
