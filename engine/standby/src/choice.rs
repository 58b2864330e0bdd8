//! Selection of the image to follow: the newest complete one.

use std::sync::Arc;

use durable_set::causes;
use image::{ImageErrorKind, ImageStore, OpenImage};

use crate::error::StandbyError;

const LOOK: &str = "look for a new image";

/// Result of a selection.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// Highest number taken, by an image or by a claim of the store.
    pub(crate) top_number: u32,
    /// The newest complete image.
    pub(crate) image: Option<OpenImage>,
    /// Newer images that are damaged or lack packs, newest first, with reasons.
    pub(crate) skipped: Vec<(u32, String)>,
    /// A newer manifest is unfinished: its writer was killed, or will complete it.
    pub(crate) is_one_unfinished: bool,
}

/// Selects the newest complete image of a store. Fails if the store does not answer.
pub(crate) fn choose(store: &Arc<dyn ImageStore>) -> Result<Chosen, StandbyError> {
    let fail = StandbyError::image(LOOK);
    let numbers = store.images().map_err(&fail)?;
    let top_number = numbers.last().map_or(0, |&(number, _)| number);
    let (mut skipped, mut is_one_unfinished) = (Vec::new(), false);
    for (number, _) in numbers.into_iter().rev() {
        let opened = OpenImage::open(Arc::clone(store), number);
        match opened.and_then(|image| image.check_packs(&[]).map(|()| image)) {
            Ok(image) => {
                return Ok(Chosen { top_number, image: Some(image), skipped, is_one_unfinished });
            }
            Err(error) if error.kind == ImageErrorKind::Unfinished => is_one_unfinished = true,
            // A claim of the store, or an image removed after the listing.
            Err(error) if error.kind == ImageErrorKind::NotFound => {}
            Err(error) if is_of_image(error.kind) => {
                skipped.push((number, causes(&error)));
            }
            Err(error) => return Err(fail(error)),
        }
    }
    Ok(Chosen { top_number, image: None, skipped, is_one_unfinished })
}

/// Returns whether the error concerns the image and not the store.
fn is_of_image(kind: ImageErrorKind) -> bool {
    matches!(kind, ImageErrorKind::Damaged | ImageErrorKind::Newer)
}
