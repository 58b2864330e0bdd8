//! Cost of a loss of power now, and of preventing it.

use std::time::Duration;

use image::{Rehearsed, Watch, rehearse};
use sync::atomic::Ordering::Relaxed;
use volumes::{Durability, Volume};

use crate::error::DurableError;
use crate::set::DurableSet;

const BLOCK_BYTES: u64 = block_device::BLOCK_BYTES as u64;

/// Loss of the volumes of one durability class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassLoss {
    pub class: Durability,
    pub volume_count: u64,
    /// Readable bytes that the volumes hold.
    pub written_bytes: u64,
    /// Part of these: bytes that stable storage does not have as they are now.
    pub lost_bytes: u64,
}

/// Cost of a loss of power now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldUp {
    /// By class: `ram`, `image`, `journal`.
    pub losses: [ClassLoss; 3],
    /// Bytes that an image that is saved now would have to write, before they are reduced.
    pub unsaved_bytes: u64,
    /// At which the store took the last long save, or the last rehearsal.
    pub save_bytes_per_second: Option<u64>,
    /// Time that such an image takes at that speed.
    pub save_time: Option<Duration>,
}

impl DurableSet {
    /// Computes what a loss of power would cost now.
    pub fn hold_up(&self) -> HoldUp {
        let mut losses = Durability::ALL.map(|class| ClassLoss {
            class,
            volume_count: 0,
            written_bytes: 0,
            lost_bytes: 0,
        });
        let mut unsaved_bytes = 0;
        for volume in self.engine.volumes() {
            let loss = losses.iter_mut().find(|loss| loss.class == volume.durability());
            let loss = loss.expect("all classes are listed");
            loss.volume_count += 1;
            loss.written_bytes += volume.written_bytes();
            loss.lost_bytes += lost_bytes(&volume);
            if volume.durability() != Durability::Ram {
                unsaved_bytes += unsaved(&volume);
            }
        }
        let speed = Some(self.save_speed.load(Relaxed)).filter(|&speed| speed > 0);
        let time = |speed: u64| Duration::from_secs_f64(unsaved_bytes as f64 / speed as f64);
        HoldUp { losses, unsaved_bytes, save_bytes_per_second: speed, save_time: speed.map(time) }
    }

    /// Measures how fast the store of images takes bytes, by writing some.
    pub fn rehearse(&self, writer: u128, watch: &dyn Watch) -> Result<Rehearsed, DurableError> {
        // One that is saved meanwhile would slow it down.
        let _claim = self.claim();
        let rehearsed = rehearse(&**self.images(), writer, watch);
        let rehearsed = rehearsed.map_err(DurableError::images("rehearse a save"))?;
        self.save_speed.store(rehearsed.bytes_a_second(), Relaxed);
        Ok(rehearsed)
    }
}

fn lost_bytes(volume: &Volume) -> u64 {
    match volume.durability() {
        Durability::Ram => volume.written_bytes(),
        Durability::Image => unsaved(volume),
        Durability::Journal if volume.map().is_anchored() => {
            volume.map().unjournaled_blocks() * BLOCK_BYTES
        }
        Durability::Journal => unsaved(volume),
    }
}

/// Without an image all of it is unsaved.
fn unsaved(volume: &Volume) -> u64 {
    match volume.map().image_base() {
        Some(_) => volume.map().unsaved_blocks() * BLOCK_BYTES,
        None => volume.written_bytes(),
    }
}
