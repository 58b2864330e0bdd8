//! Replay of the journal shipped after an image, into a pool that holds the image.

use std::collections::HashMap;
use std::sync::Arc;

use durable_set::{Gap, ShippedJournal, Verified, causes};
use image::{ImageStore, OpenImage};
use sealing::SetKey;
use volumes::{Engine, ImageBase};

use crate::error::{StandbyError, StandbyErrorKind};

const ATTEMPT: &str = "replay the journal in the image store";

/// Result of replaying the journal shipped after an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Continued {
    pub transactions: u64,
    /// Number of journal bytes read.
    pub bytes: u64,
    /// All flushes before this time are included. In microseconds since 1970, by the clock of the
    /// host that shipped them. If `None`, the time of the image applies.
    pub taken_unix_micros: Option<u64>,
    /// Number of blocks whose contents were damaged in the journal. Reads of them fail.
    pub damaged_blocks: u64,
    /// Point at which the replay ended although more was shipped.
    pub gap: Option<Gap>,
    /// Volumes that could not be guaranteed, with the reason. They are thin now.
    pub(crate) guarantees_lost: Vec<(String, String)>,
    /// Volumes that are in no image, and not completely in the journal.
    pub left_out: Vec<String>,
}

/// Removes and returns the volumes' base images. After a kill from here on, everything is fetched
/// again.
pub(crate) fn take_bases(engine: &Engine) -> HashMap<u64, ImageBase> {
    let mut bases = HashMap::new();
    for volume in engine.volumes() {
        bases.extend(volume.map().image_base().map(|base| (volume.id(), base)));
        volume.map().set_image_base(None);
    }
    bases
}

/// Restores the volumes' base images. Blocks changed by a replay are dirty relative to the image.
pub(crate) fn give_back(engine: &Engine, bases: &HashMap<u64, ImageBase>) {
    for volume in engine.volumes() {
        if let Some(base) = bases.get(&volume.id()) {
            volume.map().set_image_base(Some(*base));
        }
    }
}

/// Finds the journal that the image's writer has shipped after it.
pub(crate) fn find_shipped(
    store: &Arc<dyn ImageStore>,
    image: &OpenImage,
    verified: &mut Verified,
) -> Result<Option<ShippedJournal>, StandbyError> {
    ShippedJournal::after(image, store, verified).map_err(StandbyError::image(ATTEMPT))
}

/// Replays the shipped journal up to its first gap, into the pool that holds the image.
pub(crate) fn replay(
    engine: &Arc<Engine>,
    found: &ShippedJournal,
    key: Option<&SetKey>,
    image: &OpenImage,
) -> Result<Continued, StandbyError> {
    let replayed = found
        .replay(engine, key, image)
        .map_err(|error| StandbyError::new(StandbyErrorKind::Replay, ATTEMPT).with_source(error))?;
    let ended_early =
        replayed.ended_early.map(|error| Gap { what: causes(&error), left_out_bytes: found.bytes });
    let is_known = ended_early.is_none() && found.taken_unix_micros > 0;
    let volumes = engine.volumes();
    let name = |id| {
        let volume = volumes.iter().find(|volume| volume.id() == id);
        volume.map_or_else(String::new, |volume| volume.name())
    };
    let lost = replayed.guarantees_lost.into_iter();
    Ok(Continued {
        transactions: replayed.transactions,
        bytes: found.bytes,
        taken_unix_micros: Some(found.taken_unix_micros).filter(|_| is_known),
        damaged_blocks: replayed.damaged_blocks,
        gap: ended_early.or_else(|| found.gap.clone()),
        guarantees_lost: lost.map(|(id, error)| (name(id), causes(&error))).collect(),
        left_out: replayed.left_out,
    })
}
