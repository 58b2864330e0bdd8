//! Claims of writers on a store, read from its manifests.

use crate::error::{ImageError, ImageErrorKind};
use crate::format::manifest::{Manifest, ManifestKind};
use crate::manifests::{ManifestState, read_state};
use crate::store::ImageStore;
use crate::store_writer::{Mirroring, StoreWriter};

/// Claims of writers on a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Number and writer of the newest claim.
    pub newest: Option<(u32, StoreWriter)>,
    /// Highest number in use.
    pub top_number: u32,
    /// Number of a later manifest that could not be read, and may be a claim.
    pub unread: Option<u32>,
    /// Weakest guarantee among the claims under which flushes since the newest image were
    /// acknowledged. `Off` if one of these claims is unknown.
    pub mirroring: Mirroring,
    /// Writer of the newest image, if its claim is known.
    pub saver: Option<StoreWriter>,
}

impl Claims {
    /// Returns the newest claim if its daemon has taken over from the one that saved the newest
    /// image, and has saved none yet.
    pub fn unsaved_takeover(&self) -> Option<&(u32, StoreWriter)> {
        let (newest, saver) = (self.newest.as_ref()?, self.saver.as_ref()?);
        let (new_id, id) = (newest.1.daemon_id, saver.daemon_id);
        (new_id != id && new_id != 0 && id != 0).then_some(newest)
    }
}

/// A manifest in the store.
pub(crate) struct Found {
    pub(crate) number: u32,
    pub(crate) state: ManifestState,
}

/// Reads the claims on a store.
pub fn claims_of(store: &dyn ImageStore) -> Result<Claims, ImageError> {
    Ok(claims_in(&find(store)?))
}

/// Returns the claims among manifests, without damaged ones.
pub(crate) fn claims_in(found: &[Found]) -> Claims {
    let top_number = found.last().map_or(0, |found| found.number);
    let mut claims = Claims { top_number, mirroring: Mirroring::Unused, ..Claims::default() };
    let image_number = newest_image(found).map_or(0, |image| image.id.number());
    let mut is_saver_known = true;
    for Found { number, state } in found.iter().rev() {
        match state {
            ManifestState::Whole(fence) if fence.kind == ManifestKind::Fence => {
                let writer = fence.writer();
                claims.mirroring = claims.mirroring.min(writer.mirroring);
                claims.newest.get_or_insert_with(|| (*number, writer.clone()));
                if *number < image_number {
                    claims.saver = Some(writer).filter(|_| is_saver_known);
                    return claims;
                }
            }
            ManifestState::Unreadable(error) => {
                claims.mirroring = Mirroring::Off;
                is_saver_known &= *number > image_number;
                if error.kind != ImageErrorKind::Damaged && claims.newest.is_none() {
                    claims.unread.get_or_insert(*number);
                }
            }
            _ => {}
        }
    }
    // There is no image, or none with a known claim.
    claims.mirroring = Mirroring::Off;
    claims
}

/// Lists all manifests with their states, ascending, without chunk and part tables to save memory.
pub(crate) fn find(store: &dyn ImageStore) -> Result<Vec<Found>, ImageError> {
    let mut found = Vec::new();
    for (number, size_bytes) in store.images()? {
        // If this fails, the manifest was removed after the listing.
        if let Ok(mut state) = read_state(store, number, size_bytes) {
            if let ManifestState::Whole(manifest) = &mut state {
                (manifest.chunks, manifest.parts) = (Vec::new(), Vec::new());
            }
            found.push(Found { number, state });
        }
    }
    Ok(found)
}

pub(crate) fn whole(found: &Found) -> Option<&Manifest> {
    match &found.state {
        ManifestState::Whole(manifest) => Some(manifest),
        _ => None,
    }
}

pub(crate) fn unreadable(found: &Found) -> Option<&ImageError> {
    match &found.state {
        ManifestState::Unreadable(error) => Some(error),
        _ => None,
    }
}

pub(crate) fn newest_image(found: &[Found]) -> Option<&Manifest> {
    let mut images = found.iter().rev().filter_map(whole);
    images.find(|manifest| manifest.kind == ManifestKind::Image)
}
