//! Producer ids, handed out in blocks: a block is in the state log before any of its ids is given
//! away, and what a crash leaves of it is never used.

/// Ids of one record in the state log.
const BLOCK_COUNT: i64 = 1_000;

/// Clients may write any id. There is room behind this one for all that are ever given.
const USED_MAX: i64 = 1 << 62;

/// Ids below `next` were given away, those below `reserved_end` may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProducerIds {
    next: i64,
    reserved_end: i64,
}

impl ProducerIds {
    /// An id that was never given before. `reserve` has the state log say that all ids below a
    /// number are taken.
    pub(crate) fn take(&mut self, reserve: impl FnOnce(i64)) -> i64 {
        if self.next == self.reserved_end {
            self.reserved_end += BLOCK_COUNT;
            reserve(self.reserved_end);
        }
        let id = self.next;
        self.next += 1;
        id
    }

    /// Notes a range of ids that the state log says is taken: all ids below `end` are taken.
    pub(crate) fn note_taken(&mut self, end: i64) {
        self.reserved_end = self.reserved_end.max(end);
        self.next = self.reserved_end;
    }

    /// An id that a partition knows, whoever gave it: none that is given from now on is as low.
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
