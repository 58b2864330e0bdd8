//! The bytes of images: chunks, maps and manifests, to and from memory.
//!
//! Pure functions over slices; `docs/formats/image.md` draws them. What is read may be anything:
//! every length is bounded and every offset checked before it is used, and nothing is allocated
//! that the bytes themselves do not pay for.

pub(crate) mod chunk;
pub(crate) mod fields;
pub(crate) mod manifest;
pub(crate) mod part;
pub(crate) mod sealed;

/// The version of objects that are not sealed, and of what is inside those that are.
pub(crate) const VERSION: u32 = 1;

/// The version of sealed objects, the highest that this code reads.
pub(crate) const SEALED_VERSION: u32 = 2;

/// Multiple of which all lengths and offsets on disk are.
pub(crate) const ALIGNMENT_BYTES: usize = 4096;
