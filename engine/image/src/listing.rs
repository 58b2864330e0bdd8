//! Listing of a store's images.

use std::sync::Arc;

use volumes::SetId;

use crate::error::ImageError;
use crate::format::manifest::{JournalPosition, Manifest, ManifestKind};
use crate::manifests::{ManifestState, read_state};
use crate::names::ImageId;
use crate::store::ImageStore;
use crate::volume_record::ImageVolume;

/// Summary of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSummary {
    pub id: ImageId,
    pub set_id: SetId,
    pub created_seconds: u64,
    pub journal: JournalPosition,
    /// Empty if none.
    pub label: String,
    pub volumes: Vec<ImageVolume>,
    /// Number of blocks whose contents were lost before the image was saved. 0 for images of
    /// earlier releases.
    pub lost_blocks: u64,
    /// Total length of all chunks that the image refers to, including those shared with other
    /// images.
    pub chunk_bytes: u64,
    pub chunk_count: u64,
}

impl ImageSummary {
    pub(crate) fn of(manifest: &Manifest) -> Self {
        Self {
            id: manifest.id,
            set_id: manifest.set_id,
            created_seconds: manifest.created_seconds,
            journal: manifest.journal,
            label: manifest.label.clone(),
            volumes: manifest.volumes.clone(),
            lost_blocks: manifest.lost_blocks,
            chunk_bytes: manifest.chunks.iter().map(|it| u64::from(it.length_bytes)).sum(),
            chunk_count: manifest.chunks.len() as u64,
        }
    }
}

/// An image in the store.
#[derive(Debug)]
pub enum ListedImage {
    Whole(ImageSummary),
    /// An image that cannot be read, with the reason.
    Unreadable {
        number: u32,
        error: ImageError,
    },
}

/// Lists all images, oldest first, except unfinished ones.
pub fn list_images(store: &Arc<dyn ImageStore>) -> Result<Vec<ListedImage>, ImageError> {
    let mut listed = Vec::new();
    for (number, size_bytes) in store.images()? {
        match read_state(&**store, number, size_bytes) {
            Ok(ManifestState::Whole(manifest)) if manifest.kind == ManifestKind::Image => {
                listed.push(ListedImage::Whole(ImageSummary::of(&manifest)));
            }
            Ok(ManifestState::Unreadable(error)) => {
                listed.push(ListedImage::Unreadable { number, error });
            }
            // An error means that the image was removed after the listing.
            Ok(ManifestState::Whole(_) | ManifestState::Unfinished) | Err(_) => {}
        }
    }
    Ok(listed)
}
