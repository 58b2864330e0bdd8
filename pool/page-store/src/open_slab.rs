//! The slab of each class that a lane allocates from.

use crate::layout::{CLASS_COUNT, Class};

/// The free slots that a lane has taken: of one slab for each class.
#[derive(Debug)]
pub(crate) struct OpenSlabs {
    slabs: Box<[OpenSlab]>,
}

/// One slab and those of its slots that the lane may use.
#[derive(Debug)]
pub(crate) struct OpenSlab {
    pub(crate) slab: Option<u32>,
    /// Highest first, so that slots are used in rising order.
    pub(crate) free: Vec<u32>,
}

impl OpenSlabs {
    /// Room for the slots of every class, so that allocating never allocates.
    pub(crate) fn new() -> Self {
        let slab = |class: Class| {
            let slots = usize::try_from(class.shape().slot_count).expect("slots fit memory");
            OpenSlab { slab: None, free: Vec::with_capacity(slots) }
        };
        let slabs: Box<[OpenSlab]> = Class::all().map(slab).collect();
        assert_eq!(slabs.len(), CLASS_COUNT);
        Self { slabs }
    }

    pub(crate) fn of(&mut self, class: Class) -> &mut OpenSlab {
        &mut self.slabs[class.index()]
    }
}
