//! Source of a save: volumes, leaf by leaf, as they were at one instant.

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
    /// Image that has the blocks that are not dirty. `None`: the whole volume is saved.
    pub base: Option<ImageBase>,
}

/// Volumes as they were at one instant, whatever happens to them meanwhile, or not at all any more:
/// a source may give up ([`LeafSource::is_whole`]), and the save with it.
///
/// The save looks at each leaf that is there once, in ascending order, from one thread. It asks for
/// the blocks' states and then for the contents of those that it needs; both must be of the same
/// instant.
pub trait LeafSource: Debug + Send + Sync {
    /// Lists all volumes, in the same order at every call.
    fn volumes(&self) -> Vec<SourceVolume>;

    /// Returns whether everything that was read so far is of the same instant. Once it is not, it
    /// stays so.
    fn is_whole(&self) -> bool {
        true
    }

    /// The image that absent blocks refer to, if there can be any.
    fn fetched_from(&self) -> Option<ImageId>;

    /// The image of [`LeafSource::fetched_from`], if it is open: its manifest may be gone from the
    /// store.
    fn fetched_image(&self) -> Option<&OpenImage> {
        None
    }

    /// Returns whether this chunk was found damaged in the image that absent blocks refer to.
    fn is_damaged_there(&self, chunk: ChunkNumber) -> bool;

    /// Estimate of the bytes to be saved, for the progress of a save.
    fn content_bytes(&self) -> u64;

    /// The first leaf (of 512 blocks) that is there from number `from` on.
    fn next_leaf(&self, volume: usize, from: u64) -> Option<u64>;

    /// Reads the states of a leaf's blocks.
    fn states(&self, volume: usize, leaf: u64, into: &mut [BlockView; LEAF_BLOCKS]);

    /// Reads the contents of the blocks in `wanted` (ascending places in the leaf, of blocks that
    /// are [`BlockView::Page`]) and passes them in that order to `give`, each with its place. The
    /// bytes are borrowed for that call only, and `give` must return quickly. Contents are
    /// verified: a damaged block comes after the others if it could be healed, and is left out if
    /// not.
    fn read(
        &self,
        volume: usize,
        leaf: u64,
        wanted: &[u16],
        give: &mut dyn FnMut(u16, StoredBytes<'_>),
    );
}
