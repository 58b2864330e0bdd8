//! The journal that was shipped after an image, replayed onto a pool that holds the image.

use std::collections::HashMap;
use std::sync::Arc;

use durable_set::{Gap, ShippedJournal, Verified, causes};
use image::{ImageStore, OpenImage};
use sealing::SetKey;
use volumes::{Engine, ImageBase};

use crate::error::{StandbyError, StandbyErrorKind};

const ATTEMPT: &str = "replay the journal in the image store";

/// Result of a replay of what was shipped after an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Continued {
    pub transactions: u64,
    /// Bytes of the journal that were read.
    pub bytes: u64,
    /// Time before which all flushes are there, by the clock of the host that shipped them, in
    /// microseconds since 1970. `None`: that of the image counts.
    pub taken_unix_micros: Option<u64>,
    /// Blocks whose contents were damaged in the journal: reads of them fail.
    pub damaged_blocks: u64,
    /// Where the replay ended although more was shipped.
    pub gap: Option<Gap>,
    /// Volumes that could not be guaranteed, and why: they are thin.
    pub(crate) guarantees_lost: Vec<(String, String)>,
    /// Volumes that are in no image, and not as a whole in the journal.
    pub left_out: Vec<String>,
}

/// Takes from volumes that they hold what an image has. A kill from here on has all of it
/// fetched anew.
pub(crate) fn take_bases(engine: &Engine) -> HashMap<u64, ImageBase> {
    let mut bases = HashMap::new();
    for volume in engine.volumes() {
        bases.extend(volume.map().image_base().map(|base| (volume.id(), base)));
        volume.map().set_image_base(None);
    }
    bases
}

/// Gives volumes back what was taken. What a replay changed of them is dirty towards the image.
pub(crate) fn give_back(engine: &Engine, bases: &HashMap<u64, ImageBase>) {
    for volume in engine.volumes() {
        if let Some(base) = bases.get(&volume.id()) {
            volume.map().set_image_base(Some(*base));
        }
    }
}

/// Looks for what the writer of the image has shipped after it.
pub(crate) fn find_shipped(
    store: &Arc<dyn ImageStore>,
    image: &OpenImage,
    verified: &mut Verified,
) -> Result<Option<ShippedJournal>, StandbyError> {
    ShippedJournal::after(image, store, verified).map_err(StandbyError::image(ATTEMPT))
}

/// Replays what was shipped onto the pool, which holds the image, as far as it continues.
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
