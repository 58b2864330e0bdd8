//! Locations of pages that the journal has.
//!
//! A fixed-size table in private memory. It is lossy: a page evicted by another one is written
//! again when it is needed next. Callers look up only pages whose slot is marked as journaled, so
//! that a page that reused a slot is never mistaken for the previous one.

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
    /// Page numbers and locations. A length of 0 marks a free entry.
    places: Box<[(u64, Known)]>,
    /// Lowest segment that transactions may refer to.
    floor: u32,
}

impl KnownPages {
    pub(crate) fn new(count_max: usize) -> Self {
        let nowhere = Location { segment: 0, offset: 0 };
        let free = (0, Known { at: nowhere, length: 0, check: PageCheck::NONE });
        let count = count_max.next_power_of_two();
        Self { places: vec![free; count].into_boxed_slice(), floor: 0 }
    }

    /// Returns the location of a page that a transaction may refer to.
    pub(crate) fn find(&self, number: u64) -> Option<Known> {
        self.find_anywhere(number).filter(|known| known.at.segment >= self.floor)
    }

    /// Returns the location of a page, even in a segment below the floor, which may have been
    /// removed.
    pub(crate) fn find_anywhere(&self, number: u64) -> Option<Known> {
        let (found, known) = self.places[self.place(number)];
        (found == number && known.length != 0).then_some(known)
    }

    pub(crate) fn note(&mut self, number: u64, known: Known) {
        let place = self.place(number);
        self.places[place] = (number, known);
    }

    /// Raises the floor, so that transactions refer only to pages in segments from this number on.
    pub(crate) fn raise_floor(&mut self, segment: u32) {
        self.floor = self.floor.max(segment);
    }

    fn place(&self, number: u64) -> usize {
        // Fibonacci hashing spreads numbers that differ in few bits (the multiplier is 2^64 over
        // the golden ratio).
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
