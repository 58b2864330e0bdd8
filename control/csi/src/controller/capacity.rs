//! Available capacity for volumes of a class, reported by `GetCapacity` and checked before
//! creation.

use api::{Capacity, Pool};
use tonic::Status;

use super::sizes::SIZE_BYTES_MAX;
use crate::class::Class;
use crate::driver::Driver;
use crate::wire::{GetCapacityAnswer, GetCapacityRequest, Number};

/// Capacity is rounded down to this unit, which leaves room for the metadata of the blocks.
const STEP_BYTES: u64 = 1 << 20;

/// Divisor: a guaranteed volume reserves 1/240 of its size for its map, which is counted twice.
const MAP_PART: u64 = 240;

/// Additional reservation for the map of each guaranteed volume.
const MAP_BYTES_MIN: u64 = 4 << 20;

impl Driver {
    pub(crate) fn capacity(
        &self,
        request: GetCapacityRequest,
    ) -> Result<GetCapacityAnswer, Status> {
        let class = Class::of(&request.parameters)?;
        let is_elsewhere = request.accessible_topology.is_some_and(|it| !self.is_here(&it));
        let bytes = match is_elsewhere {
            true => 0,
            false => room_bytes(&self.daemon.pool()?, &class),
        };
        Ok(GetCapacityAnswer {
            available_capacity: bytes.cast_signed(),
            maximum_volume_size: Some(Number { value: bytes.cast_signed() }),
        })
    }

    /// Fails if a volume is larger than the space left for its class.
    pub(super) fn check_room(&self, class: &Class, size_bytes: u64) -> Result<(), Status> {
        let room_bytes = room_bytes(&self.daemon.pool()?, class);
        if size_bytes <= room_bytes {
            return Ok(());
        }
        Err(Status::resource_exhausted(format!(
            "not enough space in this node's pool: {size_bytes} bytes requested, {room_bytes} \
             available to the class; delete volumes, enlarge the pool (memlane pool set), or \
             raise overcommit in the StorageClass"
        )))
    }
}

/// Size of the largest volume of the class that fits the pool.
fn room_bytes(pool: &Pool, class: &Class) -> u64 {
    let taken = pool.used_bytes.saturating_add(pool.guaranteed_bytes);
    let rest = pool.max_memory_bytes.saturating_sub(taken.saturating_add(pool.reserve_bytes));
    let bytes = match class.capacity {
        Capacity::Thin => rest.saturating_mul(class.overcommit).min(SIZE_BYTES_MAX),
        Capacity::Guaranteed => rest.saturating_sub(MAP_BYTES_MIN + rest / MAP_PART),
    };
    bytes / STEP_BYTES * STEP_BYTES
}

#[cfg(test)]
mod tests {
    use api::FillState;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn pool() -> Pool {
        Pool {
            max_memory_bytes: 1000 * MIB,
            capacity_bytes: 2000 * MIB,
            used_bytes: 300 * MIB,
            guaranteed_bytes: 200 * MIB,
            reserve_bytes: 100 * MIB,
            daemon_bytes: 0,
            thresholds_percent: Vec::new(),
            passed_percent: None,
            fill_state: FillState::Unknown,
            forecast: None,
        }
    }

    #[test]
    fn thin_volumes_find_what_is_neither_used_nor_claimed_by_others() {
        let class = |overcommit| Class { overcommit, ..Class::default() };
        assert_eq!(room_bytes(&pool(), &class(1)), 400 * MIB);
        assert_eq!(room_bytes(&pool(), &class(3)), 1200 * MIB);
        let full = Pool { used_bytes: 900 * MIB, ..pool() };
        assert_eq!(room_bytes(&full, &class(3)), 0);
    }

    #[test]
    fn guaranteed_volumes_find_less_by_their_maps() {
        let class = Class { capacity: Capacity::Guaranteed, overcommit: 9, ..Class::default() };
        assert_eq!(room_bytes(&pool(), &class), 394 * MIB);
    }
}
