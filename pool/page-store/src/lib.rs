//! Contents in, page references out: the pool.
//!
//! A [`PageStore`] stores the contents of blocks as pages: shared if equal, compressed if that
//! saves memory, and without memory if a pattern fills the block. It also stores the nodes of the
//! maps that refer to pages, without knowledge of the maps' meaning.
//!
//! Invariants at every instruction, and so also after a kill (numbered as on the architecture
//! page):
//! 1. A reference count that is not zero means that the page's bytes are complete and immutable.
//! 2. A count is never below the number of map entries that refer to the page: [`Lane::replace`]
//!    publishes a reference that was raised before, and lowers the old one after a grace period.
//! 3. A block write commits by one aligned eight-byte store.
//! 4. Nothing in the region is a lock or an address.
//! 5. The dedup index, the free lists and all statistics are derived.
//!
//! Lock order: lane, then (in the engine) block, then index, then search, then class list, then
//! pieces of memory, then superblock, then free list.

mod capacity;
mod census;
mod claims;
mod compress;
mod core;
mod dedup;
mod deferred;
mod dense;
mod dense_form;
mod error;
mod fingerprint;
mod footprint;
mod index;
mod lane;
mod lane_cell;
mod layout;
mod leak_counts;
mod memory;
mod open_slab;
mod page_ref;
mod purpose;
mod read;
mod recovery;
mod resize;
mod retire;
mod root_words;
mod share;
mod slab_names;
mod slab_state;
mod slabs;
mod space;
mod steps;
mod store;
mod superblock;
mod tables;
mod taking;
mod usage;
mod verify;
mod writer;

pub use crate::core::PageBytes;
pub use claims::ClaimRefused;
pub use codec::DecodeError;
pub use compress::{Attempt, Compressor, Shrunk};
pub use dense::{DenseCompressor, Reencoded};
pub use error::{
    AddTableError, LinkError, NoSpace, OpenError, OpenErrorKind, ResizeError, ResizeErrorKind,
};
pub use fingerprint::Fingerprint;
pub use footprint::{
    encoding_bytes_max, index_footprint_bytes, node_footprint_bytes, page_footprint_bytes,
};
pub use lane::{Compression, Lane, Policy};
pub use layout::{NODE_ENTRY_COUNT, ROOT_WORD_COUNT, TABLE_SLAB_WORDS, TABLE_SLABS_MAX};
pub use leak_counts::LeakCounts;
pub use page_ref::{ABSENT_BITS, DirtyBits, NodeRef, OwnedPageRef, PageRef, PageRefKind, Parent};
pub use purpose::Purpose;
pub use resize::Leaving;
pub use store::{PageStore, StoreOptions};
pub use usage::{StoreUsage, Victims};
pub use verify::Verified;
pub use writer::Writer;
