//! virtio-blk feature bits and configuration space.

use block_device::{BLOCK_BYTES, BlockDevice, Geometry};
use vhost::vhost_user::VhostUserVirtioFeatures;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ,
    VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_TOPOLOGY,
    VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

/// Unit of addresses and lengths in virtio-blk requests, independent of the disk's logical sector.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// Maximum number of queues per disk.
pub const QUEUE_COUNT_MAX: u16 = 16;

/// Maximum number of entries in a ring.
pub(crate) const RING_SIZE_MAX: u16 = 1024;

/// `seg_max`: maximum number of data segments in a request, as drivers are told.
const SEGMENT_COUNT_MAX: u32 = 126;

/// `size_max`: maximum size of a segment.
const SEGMENT_BYTES_MAX: u32 = 1 << 20;

/// Maximum number of ranges in a discard or write-zeroes request.
pub(crate) const SPAN_COUNT_MAX: usize = 16;

/// Maximum length of such a range, which bounds the time that a request holds a thread.
pub(crate) const SPAN_BYTES_MAX: u64 = 256 << 20;

/// Size of the configuration space. Drivers may know a shorter one.
const CONFIGURATION_BYTES: usize = 60;

/// Maximum number of bytes that a front end may read.
const CONFIGURATION_BYTES_MAX: usize = 256;

/// Feature bits of this device's disk. They stay the same while the device is served and when it is
/// served again, because a reconnecting front end must find the features that it negotiated.
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

/// Returns whether the negotiated `features` include `bit`.
pub(crate) fn has(features: u64, bit: u32) -> bool {
    features & (1 << bit) != 0
}

/// Returns `count` bytes of the configuration space from `offset`, with zeros past its end. Returns
/// `None` if the range exceeds the limit.
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
    // Geometry: no cylinders, heads and sectors.
    space.extend([0; 4]);
    space.extend(sector.to_le_bytes());
    // Topology: physical block exponent, alignment offset, minimum I/O size in logical sectors, no
    // optimal I/O size.
    space.extend([exponent, 0]);
    space.extend(optimal.to_le_bytes());
    space.extend(0_u32.to_le_bytes());
    // `writeback` is always 1, so that drivers flush. Then an unused byte.
    space.extend([1, 0]);
    space.extend(queue_count.to_le_bytes());
    space.extend(span_sectors.to_le_bytes());
    space.extend(span_count.to_le_bytes());
    space.extend(alignment.to_le_bytes());
    space.extend(span_sectors.to_le_bytes());
    space.extend(span_count.to_le_bytes());
    // `write_zeroes_may_unmap`, then three unused bytes.
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
