//! Estimate of data that a power failure would lose now, and of the time to save it.

use std::time::Duration;

use image::{Rehearsed, Watch, rehearse};
use sync::atomic::Ordering::Relaxed;
use volumes::{Durability, Volume};

use crate::error::DurableError;
use crate::set::DurableSet;

const BLOCK_BYTES: u64 = block_device::BLOCK_BYTES as u64;

/// Data of the volumes of one durability class that a power failure would lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassLoss {
    pub class: Durability,
    pub volume_count: u64,
    /// Bytes in readable blocks of the volumes.
    pub written_bytes: u64,
    /// Part of `written_bytes` whose current contents are not on stable storage.
    pub lost_bytes: u64,
}

/// Data that a power failure would lose now, and the time that saving it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldUp {
    /// Losses by class: `ram`, `image`, `journal`.
    pub losses: [ClassLoss; 3],
    /// Bytes that an image saved now would have to write, before reduction.
    pub unsaved_bytes: u64,
    /// Throughput of the last long save or rehearsal.
    pub save_bytes_per_second: Option<u64>,
    /// Estimated duration of such a save at that throughput.
    pub save_time: Option<Duration>,
}

impl DurableSet {
    /// Returns the data that a power failure would lose now.
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

    /// Measures the write throughput of the image store.
    pub fn rehearse(&self, writer: u128, watch: &dyn Watch) -> Result<Rehearsed, DurableError> {
        // Excludes concurrent saves, which would slow it down.
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

/// Returns the unsaved bytes of a volume. Without a base image everything is unsaved.
fn unsaved(volume: &Volume) -> u64 {
    match volume.map().image_base() {
        Some(_) => volume.map().unsaved_blocks() * BLOCK_BYTES,
        None => volume.written_bytes(),
    }
}
