//! Consistent copies of volumes, in a folder or an object store: saving, retention, verification
//! and restore.
//!
//! A store contains three kinds of immutable objects. A pack is a sequence of chunks: the new pages
//! of one leaf each, or a part of a map, identified by the digest of their bytes. A manifest lists
//! the volumes of one image and all chunks that it refers to, in any pack. An image exists exactly
//! as long as its manifest. Packs that no manifest names are removed later. An extract is a part of
//! the journal that continues an image.
//!
//! Invariants:
//! - Data is used only after its digest was verified, and offsets only after they were checked:
//!   damage is an error, never wrong contents.
//! - A manifest is created after everything that it refers to is durable, under a number that only
//!   one writer can obtain.
//! - Saves and restores use buffers of less than 32 MiB, plus chunk tables of about 200 bytes per
//!   chunk of up to 2 MiB.
//!
//! This crate draws no random numbers, and accesses volumes only through [`LeafSource`] and
//! [`RestoreTarget`]. A save, verification or restore runs on the calling thread, with helper
//! threads that read ahead or write behind.
//!
//! Modules form layers, from the bottom: formats and the store interface, objects in a store,
//! reading an image, saving one. A module uses only layers below it.
#![forbid(unsafe_code)]

mod error;
mod extract;
mod format;
mod names;
mod store;
mod store_writer;
mod volume_record;
mod watch;

mod arrival;
mod chunk_reader;
mod extract_log;
mod folder_store;
mod listing;
mod manifests;
mod rehearse;
mod sealed_pack;
mod sealed_store;
mod source;
mod visited_folder;

mod chunk_cache;
mod chunk_stream;
mod elsewhere;
mod engine_target;
mod kept_maps;
mod open_image;
mod refill;
mod restore;
mod verify;

mod bases;
mod catalog;
mod claimed_store;
mod claims;
mod engine_source;
mod leaf_saver;
mod own_number;
mod pipeline;
mod save;
mod saved;
mod shared_pages;

pub use arrival::Arrival;
pub use claimed_store::{ClaimedStore, Removed, RemovedExtracts};
pub use claims::{Claims, claims_of};
pub use engine_source::{CopiedVolume, EngineSource};
pub use engine_target::EngineTarget;
pub use error::{ImageError, ImageErrorKind};
pub use extract::{EXTRACT_BYTES_MAX, ExtractHeader, encode_extract, read_extract};
pub use folder_store::FolderStore;
pub use format::manifest::{JournalPosition, LABEL_BYTES_MAX};
pub use format::part::{BlockRef, LEAF_BLOCKS, LeafRefs};
pub use kept_maps::{ChangedParts, KeptMaps};
pub use listing::{ImageSummary, ListedImage, list_images};
pub use manifests::{claimant_of, newest_claim_after};
pub use names::{
    CHUNK_PAGES_MAX, ChunkNumber, ExtractName, ImageId, NoPackName, PackName, PageNumber,
};
pub use open_image::{BlockRun, OpenImage};
pub use own_number::OwnNumber;
pub use refill::{Held, Refill};
pub use rehearse::{Rehearsed, rehearse};
pub use restore::{BlockPlace, DamagedChunk, RestoreTarget, Restored};
pub use save::SaveOptions;
pub use saved::Saved;
pub use sealed_store::{SealedStore, StoreKey, find_store_key};
pub use source::{LeafSource, SourceVolume};
pub use store::{ImageStore, ObjectName, PackWriter};
pub use store_writer::{Mirroring, StoreWriter};
pub use verify::Verified;
pub use visited_folder::VisitedFolder;
pub use volume_record::{IMAGE_NAME_BYTES_MAX, ImageVolume, ImageVolumeKind};
pub use watch::{Progress, Unwatched, Watch};
