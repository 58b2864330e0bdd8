//! Slabs from which a lane allocates: one of each class, and two more for claimed slots, so that no
//! other purpose uses what was opened for these.

use crate::layout::{CLASS_COUNT, Class};
use crate::purpose::Purpose;

/// Free slots that a lane has taken, of one slab for each class.
#[derive(Debug)]
pub(crate) struct OpenSlabs {
    slabs: Box<[OpenSlab]>,
}

/// A slab and its slots that the lane may use.
#[derive(Debug)]
pub(crate) struct OpenSlab {
    pub(crate) slab: Option<u32>,
    /// In descending order, so that slots are used in ascending order.
    pub(crate) free: Vec<u32>,
    /// Purposes not below this one may use the slots without a check.
    pub(crate) opened_for: Purpose,
}

impl OpenSlabs {
    /// Allocates room for the slots of every class, so that later use never allocates.
    pub(crate) fn new() -> Self {
        let slab = |class: Class| {
            let slots = usize::try_from(class.shape().slot_count).expect("slots fit memory");
            OpenSlab { slab: None, free: Vec::with_capacity(slots), opened_for: Purpose::NewData }
        };
        let slabs: Box<[OpenSlab]> = Class::all().chain(CLAIMED).map(slab).collect();
        assert_eq!(slabs.len(), CLASS_COUNT + CLAIMED.len());
        Self { slabs }
    }

    #[inline]
    pub(crate) fn of(&mut self, class: Class, purpose: Purpose) -> &mut OpenSlab {
        &mut self.slabs[place(class, purpose)]
    }

    /// Returns the open slab from which a slot was taken last.
    pub(crate) fn holding(&mut self, slab: u32, class: Class) -> &mut OpenSlab {
        let claimed = place(class, Purpose::Claimed);
        let is_claimed = self.slabs[claimed].slab == Some(slab);
        &mut self.slabs[if is_claimed { claimed } else { class.index() }]
    }
}

/// Classes whose slots can be claimed.
const CLAIMED: [Class; 2] = [Class::RAW, Class::NODE];

/// Returns the index of the slab for a purpose.
#[inline]
fn place(class: Class, purpose: Purpose) -> usize {
    match purpose {
        Purpose::Claimed if class == Class::RAW => CLASS_COUNT,
        Purpose::Claimed if class == Class::NODE => CLASS_COUNT + 1,
        _ => class.index(),
    }
}
