//! Pages that the journal has, and their places.
//!
//! A table of a fixed size in private memory. It forgets: a page whose place is taken by another is
//! written once more when it is wanted again. It is asked only about pages whose slot says that the
//! journal has them, so that a page which took another's slot is never mistaken for it.

use crate::format::{Location, PageCheck};

/// A page in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) at: Location,
    pub(crate) length: u16,
    pub(crate) check: PageCheck,
}

#[derive(Debug)]
pub(crate) struct KnownPages {
    /// Numbers of pages and what is known of them; a length of 0 says that a place is free.
    places: Box<[(u64, Known)]>,
    /// Pages in segments below this number may not be referred to.
    floor: u32,
}

impl KnownPages {
    pub(crate) fn new(count_max: usize) -> Self {
        let nowhere = Location { segment: 0, offset: 0 };
        let free = (0, Known { at: nowhere, length: 0, check: PageCheck::NONE });
        let count = count_max.next_power_of_two();
        Self { places: vec![free; count].into_boxed_slice(), floor: 0 }
    }

    /// Place of a page to which a transaction may refer.
    pub(crate) fn find(&self, number: u64) -> Option<Known> {
        self.find_anywhere(number).filter(|known| known.at.segment >= self.floor)
    }

    /// Place of a page, also in a segment below the floor, which may be gone.
    pub(crate) fn find_anywhere(&self, number: u64) -> Option<Known> {
        let (found, known) = self.places[self.place(number)];
        (found == number && known.length != 0).then_some(known)
    }

    pub(crate) fn note(&mut self, number: u64, known: Known) {
        let place = self.place(number);
        self.places[place] = (number, known);
    }

    /// Sets the floor: only pages in segments from this number on may be referred to.
    pub(crate) fn raise_floor(&mut self, segment: u32) {
        self.floor = self.floor.max(segment);
    }

    fn place(&self, number: u64) -> usize {
        // Spreads numbers that differ in a few bits only (the multiplier is 2^64 over the golden
        // ratio).
        let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        let count = self.places.len() as u64;
        usize::try_from(spread % count).expect("below the count of places")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(segment: u32) -> Known {
        Known { at: Location { segment, offset: 4096 }, length: 100, check: PageCheck([5; 16]) }
    }

    #[test]
    fn a_noted_page_is_found_until_another_takes_its_place() {
        let mut pages = KnownPages::new(1);
        assert_eq!(pages.find(0), None, "nothing is known at first");
        pages.note(0, known(1));
        assert_eq!(pages.find(0), Some(known(1)));
        pages.note(7, known(2));
        assert_eq!((pages.find(0), pages.find(7)), (None, Some(known(2))));
    }

    #[test]
    fn pages_below_the_floor_are_not_found() {
        let mut pages = KnownPages::new(1000);
        pages.note(1, known(4));
        pages.note(2, known(5));
        pages.raise_floor(5);
        pages.raise_floor(3);
        assert_eq!((pages.find(1), pages.find(2)), (None, Some(known(5))));
        assert_eq!(pages.find_anywhere(1), Some(known(4)), "it may still be there");
    }
}
