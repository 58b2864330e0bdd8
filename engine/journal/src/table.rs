//! What the journal's volume table says of a volume, in the codes of the region's table.

use block_device::{BlockDevice, SectorSize};
use volume::{CapacityClass, Durability, Reduction, Volume, place_of};

use crate::format::VolumeRecord;

impl VolumeRecord {
    pub(crate) fn of(volume: &Volume) -> Self {
        let sector = u8::from(volume.geometry().sector == SectorSize::Bytes4096);
        let reduction = place_of(&Reduction::ALL, volume.reduction());
        let durability = place_of(&Durability::ALL, volume.durability());
        // Above zero, which means that nothing is said.
        let capacity = place_of(&CapacityClass::ALL, volume.capacity_class()) + 1;
        Self {
            id: volume.id(),
            size_bytes: volume.settled_size_bytes(),
            shape: u32::from_le_bytes([sector, reduction, durability, capacity]),
            name: volume.name(),
        }
    }

    pub fn sector(&self) -> SectorSize {
        match self.shape & 0xFF {
            0 => SectorSize::Bytes512,
            _ => SectorSize::Bytes4096,
        }
    }

    /// `None` for a policy that this program does not know.
    pub fn reduction(&self) -> Option<Reduction> {
        Reduction::ALL.get(self.byte(1)).copied()
    }

    /// `None` for a class that this program does not know.
    pub fn durability(&self) -> Option<Durability> {
        Durability::ALL.get(self.byte(2)).copied()
    }

    /// `None` for a record of an earlier release, which did not say it, and for a class that this
    /// program does not know.
    pub fn capacity(&self) -> Option<CapacityClass> {
        CapacityClass::ALL.get(self.byte(3).checked_sub(1)?).copied()
    }

    fn byte(&self, index: usize) -> usize {
        usize::from(self.shape.to_le_bytes()[index])
    }
}
