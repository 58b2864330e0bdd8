//! Choice of the image to follow: the newest that the store has all of.

use std::sync::Arc;

use durable_set::causes;
use image::{ImageErrorKind, ImageStore, OpenImage};

use crate::error::StandbyError;

const LOOK: &str = "look for a new image";

/// Images of a store, as far as they were looked at.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// The highest number that is taken, by an image or by a writer that claimed the store.
    pub(crate) top_number: u32,
    /// The newest image that is whole.
    pub(crate) image: Option<OpenImage>,
    /// Newer ones that are damaged or lack packs, the newest first, and why.
    pub(crate) skipped: Vec<(u32, String)>,
}

/// Chooses among the images of a store. Fails when the store does not tell.
pub(crate) fn choose(store: &Arc<dyn ImageStore>) -> Result<Chosen, StandbyError> {
    let fail = StandbyError::image(LOOK);
    let numbers = store.images().map_err(&fail)?;
    let top_number = numbers.last().map_or(0, |&(number, _)| number);
    let mut skipped = Vec::new();
    for (number, _) in numbers.into_iter().rev() {
        let opened = OpenImage::open(Arc::clone(store), number);
        match opened.and_then(|image| image.check_packs(&[]).map(|()| image)) {
            Ok(image) => return Ok(Chosen { top_number, image: Some(image), skipped }),
            // A claim of the store, or an image that was removed since.
            Err(error) if error.kind == ImageErrorKind::NotFound => {}
            Err(error) if is_of_image(error.kind) => {
                skipped.push((number, causes(&error)));
            }
            Err(error) => return Err(fail(error)),
        }
    }
    Ok(Chosen { top_number, image: None, skipped })
}

/// Returns whether the image is to be blamed, and not the store.
fn is_of_image(kind: ImageErrorKind) -> bool {
    matches!(kind, ImageErrorKind::Damaged | ImageErrorKind::Newer)
}
