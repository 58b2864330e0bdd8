//! Address space on the volume, behind that of the log, for state that the owner derives from it.
//!
//! The second half of the volume is divided by a bit-reversed number: the two places of partition 0
//! begin at its start and its middle, those of partition 1 at the quarters, and so on. Additional
//! partitions never move a place. They only reduce the space behind other places.

use std::fmt;
use std::sync::Arc;

use block_device::BlockDevice;

use crate::layout::{PARTITION_COUNT_MAX, log_bytes};

/// Number of places of one partition.
const PLACE_COUNT: u32 = 2;

/// Two places of one partition on its topic's volume, each with far more address space than any
/// memory. They take memory when they are written, and are deleted with the topic.
#[derive(Clone)]
pub struct DerivedArea {
    device: Arc<dyn BlockDevice>,
    partition: u32,
}

impl DerivedArea {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, partition: u32) -> Self {
        Self { device, partition }
    }

    /// Returns the volume. Its flush makes written data durable.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Returns the start of place 0 or 1 in bytes.
    pub fn place(&self, place: u32) -> u64 {
        assert!(place < PLACE_COUNT, "a partition has two places");
        place_start(self.device.geometry().size_bytes, PLACE_COUNT * self.partition + place)
    }

    /// Returns the size of one place if the topic has `partition_count` partitions.
    pub fn room_bytes(&self, partition_count: u32) -> u64 {
        let places = (PLACE_COUNT * partition_count.max(1)).next_power_of_two();
        let size_bytes = self.device.geometry().size_bytes;
        (size_bytes - log_bytes(size_bytes)) / u64::from(places)
    }
}

impl fmt::Debug for DerivedArea {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DerivedArea").field("partition", &self.partition).finish_non_exhaustive()
    }
}

fn place_start(size_bytes: u64, number: u32) -> u64 {
    const COUNT: u32 = PLACE_COUNT * PARTITION_COUNT_MAX;
    const { assert!(COUNT.is_power_of_two()) };
    let turned = number.reverse_bits() >> (u32::BITS - COUNT.trailing_zeros());
    let start = log_bytes(size_bytes);
    start + (size_bytes - start) / u64::from(COUNT) * u64::from(turned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_as_far_apart_as_the_room_of_so_many_partitions_says() {
        let size_bytes = 64 << 40;
        for partition_count in [1, 2, 3, 7, 16, 1_000] {
            let places = PLACE_COUNT * partition_count;
            let mut starts: Vec<u64> = (0..places).map(|it| place_start(size_bytes, it)).collect();
            starts.push(size_bytes);
            starts.sort_unstable();
            let room = (size_bytes / 2) / u64::from(places.next_power_of_two());
            assert!(starts[0] >= log_bytes(size_bytes));
            assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= room), "{partition_count}");
        }
    }
}
