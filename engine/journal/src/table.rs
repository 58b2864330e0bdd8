//! Conversion between volumes and their records in the journal's volume table, in the codes of the
//! region's table.

use block_device::{BlockDevice, SectorSize};
use volumes::{CapacityClass, Durability, Reduction, Volume, VolumeMirror, place_of};

use crate::format::{RecordKind, VolumeRecord};

/// Flag beside the capacity class: the table lists the volume's snapshots. Earlier releases did not
/// write snapshots. They treat the flag as an unknown class.
const LISTS_SNAPSHOTS: u8 = 1 << 7;

/// Flag beside the capacity class: the journal lacks the volume's beginning, although it is of
/// class `journal`. No flush of it was acknowledged, and its older contents are at most in an
/// image.
const IS_UNANCHORED: u8 = 1 << 6;

/// Flag beside the capacity class: flushes of the volume are not mirrored. Earlier releases treat
/// the flag as an unknown class.
const IS_NOT_MIRRORED: u8 = 1 << 5;

impl VolumeRecord {
    pub(crate) fn of(volume: &Volume) -> Self {
        let sector = u8::from(volume.geometry().sector == SectorSize::Bytes4096);
        let reduction = place_of(&Reduction::ALL, volume.reduction());
        let durability = place_of(&Durability::ALL, volume.durability());
        // Plus one, because zero means unspecified.
        let capacity = place_of(&CapacityClass::ALL, volume.capacity_class()) + 1;
        let (kind, name, capacity) = match volume.is_snapshot() {
            true => (RecordKind::Snapshot, volume.snapshot_name(), capacity),
            false => (RecordKind::Volume, volume.name(), capacity | LISTS_SNAPSHOTS),
        };
        let is_journaled = !volume.is_snapshot() && volume.durability() == Durability::Journal;
        let capacity = match is_journaled && !volume.map().is_anchored() {
            true => capacity | IS_UNANCHORED,
            false => capacity,
        };
        let capacity = match volume.mirror() {
            VolumeMirror::Yes => capacity,
            VolumeMirror::No => capacity | IS_NOT_MIRRORED,
        };
        Self {
            id: volume.id(),
            size_bytes: volume.map().settled_size_bytes(),
            kind,
            shape: u32::from_le_bytes([sector, reduction, durability, capacity]),
            name,
        }
    }

    /// Returns whether the table lists the volume's snapshots, so that an unlisted one was deleted.
    /// Earlier releases did not list them.
    pub fn lists_snapshots(&self) -> bool {
        self.byte(3) & LISTS_SNAPSHOTS != 0
    }

    /// Returns whether the journal has only part of the volume's contents, so that an image must
    /// supply the rest.
    pub fn is_unanchored(&self) -> bool {
        self.byte(3) & IS_UNANCHORED != 0
    }

    pub fn sector(&self) -> SectorSize {
        match self.shape & 0xFF {
            0 => SectorSize::Bytes512,
            _ => SectorSize::Bytes4096,
        }
    }

    /// Returns the reduction policy, or `None` if it is unknown to this program.
    pub fn reduction(&self) -> Option<Reduction> {
        Reduction::ALL.get(usize::from(self.byte(1))).copied()
    }

    /// Returns the durability class, or `None` if it is unknown to this program.
    pub fn durability(&self) -> Option<Durability> {
        Durability::ALL.get(usize::from(self.byte(2))).copied()
    }

    /// Returns the capacity class, or `None` if it is unknown to this program or the record is of
    /// an earlier release, which did not store it.
    pub fn capacity(&self) -> Option<CapacityClass> {
        let flags = LISTS_SNAPSHOTS | IS_UNANCHORED | IS_NOT_MIRRORED;
        let class = usize::from(self.byte(3) & !flags);
        CapacityClass::ALL.get(class.checked_sub(1)?).copied()
    }

    pub fn mirror(&self) -> VolumeMirror {
        match self.byte(3) & IS_NOT_MIRRORED {
            0 => VolumeMirror::Yes,
            _ => VolumeMirror::No,
        }
    }

    fn byte(&self, index: usize) -> u8 {
        self.shape.to_le_bytes()[index]
    }
}
