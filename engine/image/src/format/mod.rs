//! On-disk format of images: chunks, maps and manifests.
//!
//! Pure functions over slices. `docs/formats/image.md` describes the format. Input is untrusted:
//! every length and offset is checked before use, and allocations are bounded by the input's size.

pub(crate) mod chunk;
pub(crate) mod fields;
pub(crate) mod manifest;
pub(crate) mod part;
pub(crate) mod sealed;

/// Format version of unsealed objects, and of the contents of sealed ones.
pub(crate) const VERSION: u32 = 1;

/// Format version of sealed objects, and the latest version that this code reads.
pub(crate) const SEALED_VERSION: u32 = 2;

/// Alignment of all lengths and offsets on disk.
pub(crate) const ALIGNMENT_BYTES: usize = 4096;
