//! Comparison of memory with stable storage. Blocks that are not dirty should be in an image or the
//! journal. Those that are missing there become dirty again, and flushes wait until an image has
//! them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use image::{ImageError, ImageErrorKind, ImageId, ImageStore, OpenImage};
use journal::Position;
use volumes::{Durability, Engine, Volume};

use crate::error::DurableError;
use crate::newest::NewestImage;

/// Contents that memory depends on and stable storage lacks, until the next image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Reason why flushes of class `journal` cannot rely on the journal, if so.
    pub journal: Option<String>,
    /// Base images of volumes that are missing or damaged: numbers with reasons.
    pub images: Vec<(u32, String)>,
}

impl Missing {
    /// Determines what is missing if there is no journal.
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

/// Checks what memory depends on: the base images of volumes, and the journal after the newest
/// image, where `journal` is its beginning. Missing contents count as not stored from now on. Fails
/// without changes if the store does not answer.
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

/// Missing part of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    /// The manifest or other metadata.
    Image,
    /// Packs. A save writes their contents again if they are in memory.
    Packs,
}

/// Checks an image. Returns what it lacks, if anything. An error means that this is unknown.
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
        Ok(_) => return Ok(Some((Lack::Image, "its number belongs to another image".to_owned()))),
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
    use ImageErrorKind::{Damaged, NotFound, Unfinished};
    matches!(error.kind, NotFound | Damaged | Unfinished)
}

/// Returns what volumes of class `journal` depend on and the journal lacks, if anything.
fn lack_of_journal(
    volumes: &[Arc<Volume>],
    from: Position,
    journal: Option<Position>,
) -> Option<String> {
    if !volumes.iter().any(|it| is_journaled(it) && it.map().is_anchored()) {
        return None;
    }
    match journal {
        None => Some("it does not exist".to_owned()),
        Some(begins) if begins > from => {
            Some(format!("it begins with transaction {begins}, and is needed from {from} on"))
        }
        Some(_) => None,
    }
}

/// Makes flushes of all volumes of class `journal` wait for an image.
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

/// Returns volumes and snapshots.
fn listed(engine: &Engine) -> Vec<Arc<Volume>> {
    let mut all = engine.volumes();
    all.extend(engine.snapshots());
    all
}
