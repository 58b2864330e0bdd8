//! Layout of the shared memory. Both sides compute it; no offset is read from the memory.

/// Maximum number of lanes of one connection.
pub const LANES_MAX: usize = 16;

/// Number of slots of a lane, and of entries in its ring.
pub const SLOTS: usize = 64;

/// Size of a slot's buffer: the maximum amount of data of one entry.
pub const SLOT_BYTES: usize = 16 << 10;

pub(crate) const LINE_BYTES: usize = 64;
const PAGE_BYTES: usize = 4096;

/// Size of the device, in the first page, kept up to date by the server.
pub(crate) const SIZE_OFFSET: usize = 0;
/// Sleep flag of the server.
pub(crate) const SERVER_SLEEP_OFFSET: usize = 2 * LINE_BYTES;
/// Bit set of the lanes that the client uses.
pub(crate) const LANES_IN_USE_OFFSET: usize = 4 * LINE_BYTES;

/// Sleep flag of the client, in the first page of the lane. This offset and the following ones are
/// relative to the lane.
const LANE_SLEEP_OFFSET: usize = 0;
const SUBMISSIONS_OFFSET: usize = PAGE_BYTES;
const COMPLETIONS_OFFSET: usize = SUBMISSIONS_OFFSET + SLOTS * LINE_BYTES;
const BUFFERS_OFFSET: usize = COMPLETIONS_OFFSET + SLOTS * LINE_BYTES;
const LANE_BYTES: usize = BUFFERS_OFFSET + SLOTS * SLOT_BYTES;

const _: () = assert!(SLOTS == u64::BITS as usize, "a word has a bit for each slot");
const _: () = assert!(LANES_MAX <= u64::BITS as usize, "a word has a bit for each lane");
const _: () = assert!(BUFFERS_OFFSET.is_multiple_of(PAGE_BYTES));
const _: () = assert!(SLOT_BYTES.is_multiple_of(PAGE_BYTES));

/// Size of the memory of a connection with this number of lanes.
pub const fn memory_bytes(lane_count: usize) -> usize {
    PAGE_BYTES + lane_count * LANE_BYTES
}

pub(crate) fn lane_sleep_offset(lane: usize) -> usize {
    lane_offset(lane) + LANE_SLEEP_OFFSET
}

/// Offset of the entry at a position, which counts from the first entry of the lane.
pub(crate) fn submission_offset(lane: usize, position: u64) -> usize {
    let index = usize::try_from(position % SLOTS as u64).expect("there are few slots");
    lane_offset(lane) + SUBMISSIONS_OFFSET + index * LINE_BYTES
}

pub(crate) fn completion_offset(lane: usize, slot: usize) -> usize {
    debug_assert!(slot < SLOTS, "a slot of the lane");
    lane_offset(lane) + COMPLETIONS_OFFSET + slot * LINE_BYTES
}

pub(crate) fn buffer_offset(lane: usize, slot: usize) -> usize {
    debug_assert!(slot < SLOTS, "a slot of the lane");
    lane_offset(lane) + BUFFERS_OFFSET + slot * SLOT_BYTES
}

fn lane_offset(lane: usize) -> usize {
    PAGE_BYTES + lane * LANE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_everything_is_inside() {
        let mut places: Vec<(usize, usize)> = vec![
            (SIZE_OFFSET, 8),
            (SERVER_SLEEP_OFFSET, LINE_BYTES),
            (LANES_IN_USE_OFFSET, LINE_BYTES),
        ];
        for lane in 0..LANES_MAX {
            places.push((lane_sleep_offset(lane), LINE_BYTES));
            for slot in 0..SLOTS {
                places.push((submission_offset(lane, slot as u64), LINE_BYTES));
                places.push((completion_offset(lane, slot), LINE_BYTES));
                places.push((buffer_offset(lane, slot), SLOT_BYTES));
            }
        }
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        let (last, length) = *places.last().expect("there are many");
        assert!(last + length <= memory_bytes(LANES_MAX));
    }

    #[test]
    fn a_ring_comes_round_after_as_many_entries_as_there_are_slots() {
        assert_eq!(submission_offset(1, 0), submission_offset(1, SLOTS as u64));
        assert_ne!(submission_offset(1, 0), submission_offset(1, 1));
    }
}
