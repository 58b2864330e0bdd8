//! Reading manifests from a store.

use storage::AlignedBuffer;

use crate::error::{Disbelief, ImageError, ImageErrorKind};
use crate::format::manifest::{MANIFEST_BYTES_MAX, Manifest, ManifestKind};
use crate::store::{ImageStore, ObjectName};

/// State of a manifest.
#[derive(Debug)]
pub(crate) enum ManifestState {
    Whole(Box<Manifest>),
    /// Its writer was killed or is still writing.
    Unfinished,
    /// Damaged, of a newer version, or not returned by the store.
    Unreadable(ImageError),
}

/// Reads a manifest in any state. Unreadable manifests are a state, not an error, so that one does
/// not affect others. Fails only if it no longer exists.
pub(crate) fn read_state(
    store: &dyn ImageStore,
    number: u32,
    size_bytes: u64,
) -> Result<ManifestState, ImageError> {
    let attempt = format!("read the manifest of image {number}");
    if size_bytes > MANIFEST_BYTES_MAX {
        let error = Disbelief::Damaged("it is too long for a manifest").error(attempt);
        return Ok(ManifestState::Unreadable(error));
    }
    let length = usize::try_from(size_bytes).expect("it was compared with a limit");
    let mut bytes = AlignedBuffer::zeroed(length);
    match store.read(ObjectName::Image(number), 0, &mut bytes) {
        Err(error) if error.kind == ImageErrorKind::NotFound => return Err(error),
        Err(error) => return Ok(ManifestState::Unreadable(error)),
        Ok(()) => {}
    }
    Ok(match Manifest::decode(&bytes) {
        Ok(manifest) if manifest.id.number() == number => ManifestState::Whole(Box::new(manifest)),
        Ok(_) => {
            let error = Disbelief::Damaged("it is the manifest of another image").error(attempt);
            ManifestState::Unreadable(error)
        }
        Err(Disbelief::Unfinished) => ManifestState::Unfinished,
        Err(disbelief) => ManifestState::Unreadable(disbelief.error(attempt)),
    })
}

/// Reads a manifest that must be intact.
pub(crate) fn read_manifest(store: &dyn ImageStore, number: u32) -> Result<Manifest, ImageError> {
    let attempt = || format!("read the manifest of image {number}");
    let images = store.images()?;
    let Some((_, size_bytes)) = images.into_iter().find(|(known, _)| *known == number) else {
        return Err(ImageError::new(ImageErrorKind::NotFound, attempt()));
    };
    match read_state(store, number, size_bytes)? {
        ManifestState::Whole(manifest) => Ok(*manifest),
        ManifestState::Unfinished => Err(Disbelief::Unfinished.error(attempt())),
        ManifestState::Unreadable(error) => Err(error),
    }
}

/// Returns the writer that saved image `number`: that of the newest claim before it. Returns `None`
/// if there is no claim. Fails if a manifest that may be the claim is unreadable.
pub fn claimant_of(store: &dyn ImageStore, number: u32) -> Result<Option<u128>, ImageError> {
    let before = |&(found, _): &(u32, u64)| found < number;
    for (found, size_bytes) in store.images()?.into_iter().filter(before).rev() {
        match read_state(store, found, size_bytes) {
            Ok(ManifestState::Whole(manifest)) if manifest.kind == ManifestKind::Fence => {
                return Ok(Some(manifest.writer().id));
            }
            Ok(ManifestState::Unreadable(error)) => return Err(error),
            Ok(_) => {}
            Err(error) if error.kind == ImageErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Returns the highest number taken, and the writer of the newest claim after `number`, if any.
pub fn newest_claim_after(
    store: &dyn ImageStore,
    number: u32,
) -> Result<(u32, Option<u128>), ImageError> {
    let images = store.images()?;
    let top_number = images.last().map_or(0, |&(number, _)| number);
    for (found, size_bytes) in images.into_iter().rev().take_while(|&(found, _)| found > number) {
        match read_state(store, found, size_bytes) {
            Ok(ManifestState::Whole(manifest)) if manifest.kind == ManifestKind::Fence => {
                return Ok((top_number, Some(manifest.writer().id)));
            }
            Ok(ManifestState::Unreadable(error)) => return Err(error),
            // Unfinished: it may become a claim, so the next call must include it.
            Ok(ManifestState::Unfinished) => return Ok((found - 1, None)),
            Ok(ManifestState::Whole(_)) => {}
            Err(error) if error.kind == ImageErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok((top_number, None))
}
