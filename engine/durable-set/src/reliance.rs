//! Comparison of memory with stable storage. Blocks that are not dirty are supposed to be in an
//! image or the journal; those that are missing there become dirty again, and flushes wait until an
//! image has them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use image::{ImageError, ImageErrorKind, ImageId, ImageStore, OpenImage};
use journal::Position;
use volumes::{Durability, Engine, Volume};

use crate::error::DurableError;
use crate::newest::NewestImage;

/// Contents that memory relies on and stable storage lacks, until the next image has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Reason why flushes of class `journal` cannot rely on the journal, if any.
    pub journal: Option<String>,
    /// Numbers of images in which volumes were saved and that are missing or damaged, and the
    /// reasons.
    pub images: Vec<(u32, String)>,
}

impl Missing {
    /// Missing contents when there is no journal.
    pub(crate) fn of_journal(engine: &Engine) -> Self {
        let journal = lack_of_journal(&engine.volumes(), Position::START, None);
        if journal.is_some() {
            lose_anchors(engine);
        }
        Self { journal, images: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Looks for what memory relies on: the images that volumes were saved in, and the journal from the
/// newest image on, which begins at `journal` if there is one. What is missing counts as not stored
/// from now on. Fails, and changes nothing, while the store does not tell.
pub(crate) fn compare(
    engine: &Engine,
    store: &Arc<dyn ImageStore>,
    newest: &NewestImage,
    journal: Option<Position>,
) -> Result<Missing, DurableError> {
    let volumes = listed(engine);
    let mut lacking = BTreeMap::new();
    for volume in &volumes {
        let Some(id) = base_of(volume) else { continue };
        if let Entry::Vacant(unseen) = lacking.entry(id) {
            let found = look_at(store, newest, id);
            unseen.insert(found.map_err(DurableError::images(
                "check the journal and the images that memory depends on",
            ))?);
        }
    }
    lacking.retain(|_, lack| lack.is_some());
    for volume in &volumes {
        let lack = base_of(volume).and_then(|id| lacking.get(&id)?.as_ref());
        if lack.is_some_and(|(kind, _)| *kind == Lack::Image) {
            volume.map().set_image_base(None);
        }
    }
    let journal = lack_of_journal(&volumes, newest.covered(), journal);
    let mut missing = Missing { journal, images: Vec::new() };
    for (id, lack) in lacking {
        missing.images.extend(lack.map(|(_, why)| (id.number(), why)));
    }
    if !missing.is_empty() {
        lose_anchors(engine);
    }
    Ok(missing)
}

/// What an image lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    /// All of it, or what says what it has.
    Image,
    /// Packs. A save writes what was in them once more, where it is in memory.
    Packs,
}

/// What is wrong with an image, if anything. An error says that this is not known.
fn look_at(
    store: &Arc<dyn ImageStore>,
    newest: &NewestImage,
    id: ImageId,
) -> Result<Option<(Lack, String)>, ImageError> {
    let known = newest.image.clone().filter(|image| image.id() == id);
    let opened = match known {
        Some(image) => Ok(image),
        None => OpenImage::open(Arc::clone(store), id.number()).map(Arc::new),
    };
    let image = match opened {
        Ok(image) if image.id() == id => image,
        Ok(_) => return Ok(Some((Lack::Image, "another has its number".to_owned()))),
        Err(error) if is_missing(&error) => return Ok(Some((Lack::Image, error.kind.to_string()))),
        Err(error) => return Err(error),
    };
    match image.check_packs(&[]) {
        Ok(()) => Ok(None),
        Err(error) if is_missing(&error) => Ok(Some((Lack::Packs, error.to_string()))),
        Err(error) => Err(error),
    }
}

fn is_missing(error: &ImageError) -> bool {
    matches!(error.kind, ImageErrorKind::NotFound | ImageErrorKind::Damaged)
}

/// What volumes of class `journal` rely on that the journal does not have.
fn lack_of_journal(
    volumes: &[Arc<Volume>],
    from: Position,
    journal: Option<Position>,
) -> Option<String> {
    if !volumes.iter().any(|it| is_journaled(it) && it.map().is_anchored()) {
        return None;
    }
    match journal {
        None => Some("it is not there".to_owned()),
        Some(begins) if begins > from => {
            Some(format!("it begins with transaction {begins}, and is needed from {from} on"))
        }
        Some(_) => None,
    }
}

/// Without what they rely on volumes of class `journal` wait for an image.
pub(crate) fn lose_anchors(engine: &Engine) {
    let volumes = engine.volumes();
    volumes.iter().filter(|it| is_journaled(it)).for_each(|it| it.map().set_anchored(false));
}

fn is_journaled(volume: &Volume) -> bool {
    !volume.is_snapshot() && volume.durability() == Durability::Journal
}

fn base_of(volume: &Volume) -> Option<ImageId> {
    ImageId::from_word(volume.map().image_base()?.image)
}

/// Volumes and snapshots.
fn listed(engine: &Engine) -> Vec<Arc<Volume>> {
    let mut all = engine.volumes();
    all.extend(engine.snapshots());
    all
}
