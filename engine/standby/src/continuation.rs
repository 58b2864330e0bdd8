//! The journal that was shipped after an image, replayed onto a pool that holds the image.

use std::collections::HashMap;
use std::sync::Arc;

use durable_set::replay_onto;
use image::{ImageStore, OpenImage, claimant_of};
use journal::Position;
use sealing::SetKey;
use volumes::{Engine, ImageBase};

use crate::error::{StandbyError, StandbyErrorKind, causes};
use crate::extracts::{Gap, ShippedJournal, Verified, is_damage};

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

/// Looks for what the writer of the image has shipped after it. `None`: nothing that continues
/// it, and nothing that would if it were whole.
pub(crate) fn find_shipped(
    store: &Arc<dyn ImageStore>,
    image: &OpenImage,
    verified: &mut Verified,
) -> Result<Option<ShippedJournal>, StandbyError> {
    let fail = StandbyError::image(ATTEMPT);
    let summary = image.summary();
    // Extracts of another claim continue other images.
    let writer = match claimant_of(&**store, summary.id.number()) {
        Ok(Some(writer)) => writer,
        Ok(None) => return Ok(None),
        // Nothing is lost by it where nothing was shipped.
        Err(_) if store.extracts().map_err(&fail)?.is_empty() => return Ok(None),
        Err(error) if is_damage(&error) => {
            let why = format!("whose journal continues the image is not known: {}", causes(&error));
            return ShippedJournal::unusable(store, why).map(Some).map_err(fail);
        }
        // Asked again, the store may tell.
        Err(error) => return Err(fail(error)),
    };
    let from = begins_at(image).0;
    let found = ShippedJournal::find(store, writer, summary.set_id, from, verified);
    let found = found.map_err(&fail)?;
    Ok(Some(found).filter(|found| found.bytes > 0 || found.gap.is_some()))
}

/// Replays what was shipped onto the pool, which holds the image, as far as it continues.
pub(crate) fn replay(
    engine: &Arc<Engine>,
    found: &ShippedJournal,
    key: Option<&SetKey>,
    image: &OpenImage,
) -> Result<Continued, StandbyError> {
    let (set_id, from) = (image.summary().set_id, begins_at(image));
    let replayed = replay_onto(engine, &found.folder, key, set_id, from);
    let replayed = replayed
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

/// Place in the journal from which on it continues the image.
fn begins_at(image: &OpenImage) -> Position {
    Position(image.summary().journal.sequence.max(Position::START.0))
}
