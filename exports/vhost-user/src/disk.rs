//! Configuration of the disk for its driver: features, and the configuration space.

use block_device::{BLOCK_BYTES, BlockDevice, Geometry};
use vhost::vhost_user::VhostUserVirtioFeatures;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ,
    VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_TOPOLOGY,
    VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

/// The unit of addresses in requests, whatever the disk's own sector is.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// Queues of one disk, at most.
pub const QUEUE_COUNT_MAX: u16 = 16;

/// Entries of one ring, at most.
pub(crate) const RING_SIZE_MAX: u16 = 1024;

/// Runs of memory in one request, as drivers are told.
const SEGMENT_COUNT_MAX: u32 = 126;

/// The longest of them.
const SEGMENT_BYTES_MAX: u32 = 1 << 20;

/// Ranges in one request to discard or to zero.
pub(crate) const SPAN_COUNT_MAX: usize = 16;

/// The longest of them: a request must not keep a thread for long.
pub(crate) const SPAN_BYTES_MAX: u64 = 256 << 20;

/// Bytes of the space, of which drivers may know fewer.
const CONFIGURATION_BYTES: usize = 60;

/// Bytes that a front end may ask for.
const CONFIGURATION_BYTES_MAX: usize = 256;

/// Features of this device's disk. Never changes as long as the device is served, nor when it is
/// served again: a front end that comes back must find what it knows.
pub(crate) fn features(device: &dyn BlockDevice) -> u64 {
    let bits = [
        VIRTIO_F_VERSION_1,
        VIRTIO_RING_F_INDIRECT_DESC,
        VIRTIO_RING_F_EVENT_IDX,
        VIRTIO_BLK_F_SIZE_MAX,
        VIRTIO_BLK_F_SEG_MAX,
        VIRTIO_BLK_F_BLK_SIZE,
        VIRTIO_BLK_F_TOPOLOGY,
        VIRTIO_BLK_F_FLUSH,
        VIRTIO_BLK_F_MQ,
    ];
    let of_writable = [VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_WRITE_ZEROES];
    let of_kind: &[u32] = if device.is_read_only() { &[VIRTIO_BLK_F_RO] } else { &of_writable };
    let disk = bits.iter().chain(of_kind).fold(0, |sum, bit| sum | 1_u64 << bit);
    disk | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
}

/// Returns whether `features`, which a driver chose, have this one.
pub(crate) fn has(features: u64, bit: u32) -> bool {
    features & (1 << bit) != 0
}

/// `count` bytes of the configuration space from `offset` on, zeros past its end; `None` when so
/// much cannot be asked for.
pub(crate) fn configuration(
    geometry: Geometry,
    queue_count: u16,
    offset: usize,
    count: usize,
) -> Option<Vec<u8>> {
    let end = offset.checked_add(count)?;
    let mut space = space(geometry, queue_count);
    space.resize(CONFIGURATION_BYTES_MAX, 0);
    space.get(offset..end).map(<[u8]>::to_vec)
}

/// `struct virtio_blk_config`, little endian.
fn space(geometry: Geometry, queue_count: u16) -> Vec<u8> {
    let sector = geometry.sector.bytes();
    let block = u32::try_from(BLOCK_BYTES).expect("a small constant");
    let sectors_per_block = block / sector;
    let exponent = u8::try_from(sectors_per_block.trailing_zeros()).expect("less than 32");
    let optimal = u16::try_from(sectors_per_block).expect("eight at most");
    let span_sectors = u32::try_from(SPAN_BYTES_MAX / SECTOR_BYTES).expect("less than 2^32");
    let span_count = u32::try_from(SPAN_COUNT_MAX).expect("a small constant");
    let alignment = u32::try_from(u64::from(block) / SECTOR_BYTES).expect("a small number");
    let mut space = Vec::with_capacity(CONFIGURATION_BYTES_MAX);
    space.extend((geometry.size_bytes / SECTOR_BYTES).to_le_bytes());
    space.extend(SEGMENT_BYTES_MAX.to_le_bytes());
    space.extend(SEGMENT_COUNT_MAX.to_le_bytes());
    // Cylinders, heads and sectors, which no disk has any more.
    space.extend([0; 4]);
    space.extend(sector.to_le_bytes());
    // The block in logical sectors; sector 0 begins one; the smallest good request; the best one.
    space.extend([exponent, 0]);
    space.extend(optimal.to_le_bytes());
    space.extend(0_u32.to_le_bytes());
    // There is a write cache, whatever it holds: drivers flush. Then a byte that is not used.
    space.extend([1, 0]);
    space.extend(queue_count.to_le_bytes());
    space.extend(span_sectors.to_le_bytes());
    space.extend(span_count.to_le_bytes());
    space.extend(alignment.to_le_bytes());
    space.extend(span_sectors.to_le_bytes());
    space.extend(span_count.to_le_bytes());
    // Zeroing may unmap. Then bytes that are not used.
    space.extend([1, 0, 0, 0]);
    assert_eq!(space.len(), CONFIGURATION_BYTES, "the layout has this length");
    space
}

#[cfg(test)]
mod tests {
    use super::*;
    use block_device::SectorSize;

    const GEOMETRY: Geometry = Geometry { size_bytes: 1 << 30, sector: SectorSize::Bytes512 };

    #[test]
    fn fields_lie_where_drivers_look_for_them() {
        let bytes = |offset, count| configuration(GEOMETRY, 4, offset, count).expect("it is asked");
        assert_eq!(bytes(0, 8), (2_u64 << 20).to_le_bytes());
        assert_eq!(bytes(20, 4), 512_u32.to_le_bytes());
        assert_eq!(bytes(24, 4), [3, 0, 8, 0]);
        assert_eq!(bytes(34, 2), 4_u16.to_le_bytes());
        for field in [36, 40, 44, 48, 52] {
            assert_ne!(bytes(field, 4), [0; 4], "Windows divides by the field at {field}");
        }
    }

    #[test]
    fn what_is_asked_for_past_the_end_is_zero_up_to_a_bound() {
        assert_eq!(configuration(GEOMETRY, 1, 60, 196), Some(vec![0; 196]));
        assert_eq!(configuration(GEOMETRY, 1, 60, 197), None);
        assert_eq!(configuration(GEOMETRY, 1, usize::MAX, 2), None);
    }

    #[test]
    fn a_disk_of_large_sectors_is_its_own_block() {
        let geometry = Geometry { sector: SectorSize::Bytes4096, ..GEOMETRY };
        let bytes = configuration(geometry, 1, 20, 8).expect("it is asked");
        assert_eq!(bytes, [0, 16, 0, 0, 0, 0, 1, 0]);
    }
}
