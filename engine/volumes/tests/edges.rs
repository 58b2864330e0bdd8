//! Requests at the limits of a volume: empty ones, and ones over the whole volume.

mod support;

use block_device::{BlockDevice, ByteRange, DeviceErrorKind, SectorSize, Zeroes};
use model::Request;
use support::{Pool, check_sound_when_empty};
use volumes::{Engine, VolumeSpec};

const MIB: u64 = 1 << 20;

fn spec(name: &str, size_bytes: u64) -> VolumeSpec {
    VolumeSpec {
        sector: SectorSize::Bytes4096,
        ..VolumeSpec::new(name.parse().expect("a good name"), size_bytes)
    }
}

fn empty_requests(at: u64) -> [Request; 6] {
    let range = ByteRange::new(at, 0);
    let contents = model::Contents::new(model::Texture::Zeros, 0);
    [
        Request::Read { offset: at, length: 0 },
        Request::ReadInPlace(range),
        Request::Write { offset: at, length: 0, contents },
        Request::WriteZeroes(range, Zeroes::KeepAllocated),
        Request::Discard(range),
        Request::Extents { range, count_max: 1 },
    ]
}

#[track_caller]
fn check_empty_requests(volume: &dyn BlockDevice, at: u64, expected: Option<DeviceErrorKind>) {
    for request in empty_requests(at) {
        assert_eq!(request.run(volume).err(), expected, "{request:?}");
    }
}

#[test]
fn an_empty_request_fits_at_the_end_of_a_volume_and_not_past_it() {
    let pool = Pool::new(8 * MIB, 1);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", MIB)).expect("a volume can be made");
    check_empty_requests(&*volume, MIB, None);
    check_empty_requests(&*volume, MIB + 1, Some(DeviceErrorKind::OutOfRange));
    engine.delete_volume("v").expect("the volume is deleted");
    check_empty_requests(&*volume, 0, Some(DeviceErrorKind::Gone));
}

#[test]
fn a_request_that_moves_too_much_is_refused() {
    let pool = Pool::new(8 * MIB, 1);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", 64 * MIB)).expect("a volume can be made");
    let length = block_device::IO_BYTES_MAX + 1;
    let contents = model::Contents::new(model::Texture::Zeros, 0);
    for request in [
        Request::Read { offset: 0, length },
        Request::Write { offset: 0, length, contents },
        Request::ReadInPlace(ByteRange::new(0, MIB + 1)),
    ] {
        assert_eq!(request.run(&*volume).err(), Some(DeviceErrorKind::TooLong), "{request:?}");
    }
}

#[test]
fn a_range_whose_end_is_no_number_is_refused() {
    let pool = Pool::new(8 * MIB, 1);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", 64 * MIB)).expect("a volume can be made");
    let (offset, length) = (u64::MAX - 9, 4096);
    let range = ByteRange::new(offset, length);
    let contents = model::Contents::new(model::Texture::Noise, 0);
    for request in [
        Request::Read { offset, length: 4096 },
        Request::ReadInPlace(range),
        Request::Write { offset, length: 4096, contents },
        Request::WriteZeroes(range, Zeroes::KeepAllocated),
        Request::WriteZeroes(range, Zeroes::Unmap),
        Request::Discard(range),
        Request::Extents { range, count_max: 1 },
    ] {
        let refused = Some(DeviceErrorKind::OutOfRange);
        assert_eq!(request.run(&*volume).err(), refused, "{request:?}");
    }
}

/// Writes the first and the last block of a volume of 64 TiB, and lets `punch` empty it.
#[track_caller]
fn check_punch(punch: impl Fn(&dyn BlockDevice, ByteRange)) {
    let pool = Pool::new(8 * MIB, 1);
    let engine: Engine = pool.open();
    let size_bytes = 64 << 40;
    let volume = engine.create_volume(spec("v", size_bytes)).expect("a volume can be made");
    for offset in [0, size_bytes - 4096] {
        volume.write(offset, &[1; 4096]).expect("the write succeeds");
    }
    punch(&*volume, ByteRange::new(1, size_bytes - 2));
    let mut byte = [0; 2];
    volume.read(0, &mut byte).expect("the read succeeds");
    assert_eq!(byte, [1, 0]);
    volume.read(size_bytes - 2, &mut byte).expect("the read succeeds");
    assert_eq!(byte, [0, 1]);
    check_sound_when_empty(&engine);
}

#[test]
fn punching_takes_as_long_as_there_is_data_not_as_the_range() {
    check_punch(|volume, range| {
        volume.write_zeroes(range, Zeroes::Unmap).expect("punched");
    });
}

#[test]
fn zeros_that_keep_blocks_allocated_make_no_maps_of_holes() {
    let pool = Pool::new(8 * MIB, 1);
    let engine: Engine = pool.open();
    let size_bytes = 64 << 40;
    let volume = engine.create_volume(spec("v", size_bytes)).expect("a volume can be made");
    for offset in [8192, 3 << 40, size_bytes - 4096] {
        volume.write(offset, &[1; 4096]).expect("the write succeeds");
    }
    let snapshot = "s".parse().expect("a name");
    engine.create_snapshots(&["v"], &snapshot, 1).expect("there is room");
    let map_bytes = || engine.usage().map_bytes;
    let before = map_bytes();
    // Holes in existing leaves, whole and in part, and zeros, shared with a snapshot.
    volume.write(3 << 40, &[0; 4096]).expect("zeros are written");
    let with_own_path = map_bytes();
    assert_ne!(with_own_path, before, "a copy of the path was made");
    for range in [(0, 8192), (100, 512), (size_bytes - 8192, 4096), (3 << 40, 4096)] {
        let range = ByteRange::new(range.0, range.1);
        volume.write_zeroes(range, Zeroes::KeepAllocated).expect("zeroed");
    }
    assert_eq!(map_bytes(), with_own_path);
    // The whole volume: the time is proportional to the data, not to the range.
    volume.write_zeroes(ByteRange::new(1, size_bytes - 2), Zeroes::KeepAllocated).expect("zeroed");
    let extents = volume.extents(ByteRange::new(0, size_bytes), 10).expect("extents are listed");
    let kinds: Vec<_> = extents.iter().map(|extent| extent.kind).collect();
    use block_device::ExtentKind::{Data, Hole, Zero};
    assert_eq!(kinds, [Hole, Zero, Hole, Zero, Hole, Data]);
    engine.delete_snapshot("v", "s").expect("it is there");
    check_sound_when_empty(&engine);
}
