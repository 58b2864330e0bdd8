//! Allocation of producer ids in blocks. A block is recorded in the state log before its first id
//! is allocated. Ids of a block that are unused at a crash are never allocated.

/// Number of ids in a block.
const BLOCK_COUNT: i64 = 1_000;

/// Limit of ids in partitions that are considered, as clients may write any id. The ids above it
/// suffice for all allocations.
const USED_MAX: i64 = 1 << 62;

/// Ids below `next` were allocated, those below `reserved_end` are reserved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProducerIds {
    next: i64,
    reserved_end: i64,
}

impl ProducerIds {
    /// Allocates a new id. `reserve` records in the state log that all ids below its argument are
    /// reserved.
    pub(crate) fn take(&mut self, reserve: impl FnOnce(i64)) -> i64 {
        if self.next == self.reserved_end {
            self.reserved_end += BLOCK_COUNT;
            reserve(self.reserved_end);
        }
        let id = self.next;
        self.next += 1;
        id
    }

    /// Marks all ids below `end`, which the state log reserves, as allocated.
    pub(crate) fn note_taken(&mut self, end: i64) {
        self.reserved_end = self.reserved_end.max(end);
        self.next = self.reserved_end;
    }

    /// Marks an id that a partition contains as allocated, together with all lower ids.
    pub(crate) fn note_used(&mut self, id: i64) {
        if (self.reserved_end..USED_MAX).contains(&id) {
            self.note_taken(id + 1);
        }
    }

    pub(crate) fn reserved_end(&self) -> i64 {
        self.reserved_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_reserved_before_its_first_id() {
        let mut ids = ProducerIds::default();
        let mut reserved = 0;
        for expected in 0..3 * BLOCK_COUNT {
            assert_eq!(ids.take(|end| reserved = end), expected);
            assert!(expected < reserved && reserved <= expected + BLOCK_COUNT);
        }
    }

    #[test]
    fn ids_that_are_in_use_are_not_given() {
        let mut ids = ProducerIds::default();
        let mut reserved = 0;
        ids.take(|end| reserved = end);
        ids.note_used(1_500);
        ids.note_used(7);
        for too_high in [USED_MAX, i64::MAX, -1] {
            ids.note_used(too_high);
        }
        assert_eq!(ids.take(|end| reserved = end), 1_501);
        assert_eq!(reserved, 1_501 + BLOCK_COUNT);
    }

    #[test]
    fn what_was_left_of_a_block_is_not_given_after_a_crash() {
        let mut ids = ProducerIds::default();
        let mut reserved = 0;
        ids.take(|end| reserved = end);
        let mut ids = ProducerIds::default();
        ids.note_taken(reserved);
        assert_eq!(ids.take(|end| reserved = end), BLOCK_COUNT);
        assert_eq!(reserved, 2 * BLOCK_COUNT);
    }
}
