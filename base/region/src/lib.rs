//! Memory that outlives the process, addressed by offsets.
//!
//! A [`Region`] is a shared mapping of a file on tmpfs or hugetlbfs. Its owner allocates the memory
//! of a range before it is accessed, so that a lack of memory is an error at that time and never a
//! signal later. The remaining ranges are holes and must not be accessed. Only one process at a
//! time has a region open. This crate does not interpret the contents. It converts offsets to words
//! and bytes, checks them against the mapping, and contains the necessary unsafe code.
//!
//! Words are accessed as atomics, by any thread at any time. Bytes are plain memory. Functions that
//! access them are `unsafe` and document which concurrent accesses are allowed.

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
