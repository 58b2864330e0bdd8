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
    /// Image that has the blocks that are not dirty. `None`: all blocks are new.
    pub base: Option<ImageBase>,
}

/// Volumes as they were at one instant, whatever happens to them meanwhile, or not at all any more:
/// a source may give up ([`LeafSource::is_whole`]), and the save with it.
///
/// The save looks at each leaf that is there once, in ascending order, from one thread. It asks for
/// the blocks' states and then for the contents of those that it needs; both must be of the same
/// instant.
pub trait LeafSource: Debug + Send + Sync {
    /// All volumes. The same in the same order whenever it is asked.
    fn volumes(&self) -> Vec<SourceVolume>;

    /// Whether everything that was read so far is of the one instant. Once it is not, it stays so.
    fn is_whole(&self) -> bool {
        true
    }

    /// The image that absent blocks refer to, if there can be any.
    fn fetched_from(&self) -> Option<ImageId>;

    /// That image, if it is open: its manifest may be gone from the store.
    fn fetched_image(&self) -> Option<&OpenImage> {
        None
    }

    /// Whether the image that absent blocks are in was found to have this chunk damaged.
    fn is_damaged_there(&self, chunk: ChunkNumber) -> bool;

    /// About how many bytes the blocks with contents stand for, to tell how far the save got.
    fn content_bytes(&self) -> u64;

    /// The first leaf (of 512 blocks) that is there from number `from` on.
    fn next_leaf(&self, volume: usize, from: u64) -> Option<u64>;

    /// The states of a leaf's blocks.
    fn states(&self, volume: usize, leaf: u64, into: &mut [BlockView; LEAF_BLOCKS]);

    /// Gives the contents of the blocks in `wanted` (ascending places in the leaf, of blocks that
    /// are [`BlockView::Page`]), in that order, each with its place. The bytes are borrowed for
    /// that call only, and `give` takes no time to speak of. Contents are verified: a block whose
    /// are damaged comes after the others if they could be mended, and is left out if not.
    fn read(
        &self,
        volume: usize,
        leaf: u64,
        wanted: &[u16],
        give: &mut dyn FnMut(u16, StoredBytes<'_>),
    );
}
