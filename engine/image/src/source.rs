//! Source of a save: volumes, leaf by leaf, as of one instant.

use std::fmt::Debug;

use volumes::{BlockView, ImageBase, StoredBytes};

use crate::format::part::LEAF_BLOCKS;
use crate::names::{ChunkNumber, ImageId};
use crate::open_image::OpenImage;
use crate::volume_record::ImageVolume;

/// A volume to be saved.
#[derive(Clone, Debug)]
pub struct SourceVolume {
    pub volume: ImageVolume,
    /// Image that contains the blocks that are not dirty. If `None`, the whole volume is saved.
    pub base: Option<ImageBase>,
}

/// Volumes as of one instant, unaffected by later changes. A source may give up its copy
/// ([`LeafSource::is_whole`]), which fails the save.
///
/// The save visits each existing leaf once, in ascending order, from one thread. It reads the
/// blocks' states and then the contents of those that it needs. Both must be of the same instant.
pub trait LeafSource: Debug + Send + Sync {
    /// Lists all volumes, in the same order in every call.
    fn volumes(&self) -> Vec<SourceVolume>;

    /// Returns whether everything read so far is of the same instant. Once false, it stays false.
    fn is_whole(&self) -> bool {
        true
    }

    /// Returns the image that absent blocks refer to, if there can be any.
    fn fetched_from(&self) -> Option<ImageId>;

    /// Returns the image of [`LeafSource::fetched_from`], if open. Its manifest may be gone from
    /// the store.
    fn fetched_image(&self) -> Option<&OpenImage> {
        None
    }

    /// Returns whether this chunk was found damaged in the image that absent blocks refer to.
    fn is_damaged_there(&self, chunk: ChunkNumber) -> bool;

    /// Estimates the number of bytes to save, for progress reports.
    fn content_bytes(&self) -> u64;

    /// Returns the first existing leaf (of 512 blocks) from number `from` on.
    fn next_leaf(&self, volume: usize, from: u64) -> Option<u64>;

    /// Reads the states of a leaf's blocks.
    fn states(&self, volume: usize, leaf: u64, into: &mut [BlockView; LEAF_BLOCKS]);

    /// Reads the contents of the blocks in `wanted` (ascending indices in the leaf, of blocks that
    /// are [`BlockView::Page`]) and passes them in that order to `give`, each with its index. The
    /// bytes are borrowed for that call only, and `give` must return quickly. Contents are
    /// verified. A damaged block comes after the others if it could be healed, and is omitted
    /// otherwise.
    fn read(
        &self,
        volume: usize,
        leaf: u64,
        wanted: &[u16],
        give: &mut dyn FnMut(u16, StoredBytes<'_>),
    );
}
