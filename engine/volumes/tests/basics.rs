//! Volumes on a pool in a real file.

use block_device::{BlockDevice, ByteRange, DeviceErrorKind, ExtentKind, SectorSize, Zeroes};
use region::{Region, RegionSpec};
use volumes::{
    Engine, EngineOptions, Recovery, Reduction, ShrinkPolicy, VolumeErrorKind, VolumeSpec,
};

const MIB: u64 = 1 << 20;

struct Pool {
    folder: tempfile::TempDir,
    size_bytes: u64,
}

impl Pool {
    fn new(size_bytes: u64) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
        Self { folder, size_bytes }
    }

    fn open(&self) -> Engine {
        let path = self.folder.path().join("region");
        let spec = RegionSpec { path, size_bytes: self.size_bytes };
        let region = Region::open(&spec).expect("the region opens");
        let options = EngineOptions { lane_count: 2, fresh_secret: [7; 32] };
        Engine::open(region, options).expect("the pool opens")
    }
}

fn spec(name: &str, size_bytes: u64) -> VolumeSpec {
    VolumeSpec {
        sector: SectorSize::Bytes4096,
        ..VolumeSpec::new(name.parse().expect("a good name"), size_bytes)
    }
}

/// Returns pseudo-random bytes that cannot be compressed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..length.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(length).collect()
}

fn text(seed: u64, length: usize) -> Vec<u8> {
    let line = format!("line {seed} of a text that shrinks well; ");
    line.bytes().cycle().take(length).collect()
}

fn read(volume: &dyn BlockDevice, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; length];
    volume.read(offset, &mut bytes).expect("the read succeeds");
    bytes
}

fn settle(engine: &Engine) {
    for _ in 0..100_000 {
        if !engine.maintain() {
            return;
        }
    }
    panic!("maintenance does not end");
}

#[test]
fn what_is_written_is_read_back_whatever_its_kind() {
    let pool = Pool::new(64 * MIB);
    let engine = pool.open();
    for reduction in Reduction::ALL {
        let name = format!("v-{reduction}");
        let volume = engine.create_volume(VolumeSpec { reduction, ..spec(&name, 8 * MIB) });
        let volume = volume.expect("a volume can be made");
        for (offset, bytes) in [
            (0, noise(1, 128 << 10)),
            (MIB, text(2, 100_000)),
            (2 * MIB + 512, noise(3, 512)),
            (3 * MIB - 3, text(4, 9000)),
            (4 * MIB, vec![0xAB; 65536]),
        ] {
            volume.write(offset, &bytes).expect("the write succeeds");
            assert!(read(&*volume, offset, bytes.len()) == bytes, "{reduction} at {offset}");
        }
        assert_eq!(read(&*volume, 6 * MIB, 8192), vec![0; 8192]);
    }
}

#[test]
fn duplicates_and_fills_take_no_memory_of_their_own() {
    let pool = Pool::new(64 * MIB);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", 32 * MIB)).expect("a volume can be made");
    let bytes = noise(1, 4 << 20);
    volume.write(0, &bytes).expect("the write succeeds");
    let before = engine.usage();
    volume.write(8 * MIB, &bytes).expect("the write succeeds");
    volume.write(16 * MIB, &vec![0x5A; 4 << 20]).expect("the write succeeds");
    let after = engine.usage();
    assert_eq!(after.page_count, before.page_count);
    assert_eq!(after.page_bytes, before.page_bytes);
    assert_eq!(after.written_bytes, 12 * MIB);
    assert_eq!(after.fill_bytes, 4 * MIB);
    assert!(read(&*volume, 8 * MIB, 4 << 20) == bytes);
}

#[test]
fn deleting_and_discarding_give_all_memory_back() {
    let pool = Pool::new(64 * MIB);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", 32 * MIB)).expect("a volume can be made");
    volume.write(0, &noise(1, 16 << 20)).expect("the write succeeds");
    volume.write(16 * MIB, &text(1, 8 << 20)).expect("the write succeeds");
    volume.discard(ByteRange::new(0, 32 * MIB)).expect("the discard succeeds");
    assert_eq!(engine.usage().page_count, 0);
    assert_eq!(read(&*volume, MIB, 4096), vec![0; 4096]);
    engine.delete_volume("v").expect("the volume is deleted");
    let usage = engine.usage();
    assert_eq!((usage.page_count, usage.map_bytes, usage.written_bytes), (0, 0, 0));
    let error = volume.write(0, &[1; 4096]).expect_err("the volume is gone");
    assert_eq!(error.kind, DeviceErrorKind::Gone);
}

#[test]
fn contents_survive_a_clean_and_an_unclean_end() {
    let pool = Pool::new(64 * MIB);
    let (first, second) = (noise(1, 1 << 20), text(2, 1 << 20));
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", 32 * MIB)).expect("a volume can be made");
    volume.write(0, &first).expect("the write succeeds");
    drop(volume);
    engine.close();
    let engine = pool.open();
    assert_eq!(engine.recovery(), Recovery::Complete);
    let volume = engine.volume("v").expect("the volume is there");
    assert!(read(&*volume, 0, 1 << 20) == first);
    assert_eq!(engine.usage().written_bytes, MIB);
    volume.write(MIB, &second).expect("the write succeeds");
    volume.write(0, &second[..4096]).expect("the write succeeds");
    drop(volume);
    drop(engine); // As a kill: nothing is marked or lowered.
    let engine = pool.open();
    assert_eq!(engine.recovery(), Recovery::Sweeping);
    let volume = engine.volume("v").expect("the volume is there");
    assert!(read(&*volume, MIB, 1 << 20) == second);
    volume.write(2 * MIB, &first).expect("a write during the sweep succeeds");
    settle(&engine);
    assert_eq!(engine.damaged_entries(), 0);
    assert_eq!(engine.usage().written_bytes, 3 * MIB);
    assert!(read(&*volume, 4096, 4096) == first[4096..8192]);
    engine.delete_volume("v").expect("the volume is deleted");
    assert_eq!(engine.usage().page_count, 0, "nothing has leaked");
}

#[test]
fn a_full_pool_refuses_new_data_cleanly_and_serves_again_after_a_discard() {
    let pool = Pool::new(16 * MIB);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", 64 * MIB)).expect("a volume can be made");
    let mut written = 0;
    let error = loop {
        match volume.write(written * 65536, &noise(written + 1, 65536)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, DeviceErrorKind::NoSpace);
    assert!(written * 65536 > 12 * MIB, "most of the pool holds data: {written}");
    for index in 0..written {
        assert!(read(&*volume, index * 65536, 65536) == noise(index + 1, 65536));
    }
    volume.write(0, &noise(99, 65536)).expect("an overwrite draws on the reserve");
    volume.discard(ByteRange::new(65536, MIB)).expect("a discard always works");
    volume.write(MIB, &noise(100, 65536)).expect("there is room again");
    assert!(read(&*volume, MIB, 65536) == noise(100, 65536));
}

#[test]
fn overwrites_never_run_out_of_memory_in_a_full_pool() {
    let pool = Pool::new(32 * MIB);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", 64 * MIB)).expect("a volume can be made");
    let mut blocks = 0;
    while volume.write(blocks * 4096, &noise(blocks + 1, 4096)).is_ok() {
        blocks += 1;
    }
    // With a stride, so that each overwrite leaves a free slot in another slab.
    for round in 0..4 * blocks {
        let block = round * 33 % blocks;
        let result = volume.write(block * 4096, &noise(1_000_000 + round, 4096));
        result.unwrap_or_else(|error| panic!("overwrite {round} of {blocks} blocks: {error}"));
    }
}

#[test]
fn a_volume_grows_and_shrinks() {
    let pool = Pool::new(16 * MIB);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", 4 * MIB)).expect("a volume can be made");
    volume.write(3 * MIB, &noise(1, 4096)).expect("the write succeeds");
    let refused = engine.resize_volume("v", 2 * MIB, ShrinkPolicy::KeepData);
    assert_eq!(refused.expect_err("data is kept").kind, VolumeErrorKind::DataPastNewEnd);
    assert!(read(&*volume, 3 * MIB, 4096) == noise(1, 4096));
    engine.resize_volume("v", 2 * MIB, ShrinkPolicy::DropData).expect("forced");
    let error = volume.read(3 * MIB, &mut [0; 4096]).expect_err("past the end");
    assert_eq!(error.kind, DeviceErrorKind::OutOfRange);
    engine.resize_volume("v", 4 * MIB, ShrinkPolicy::KeepData).expect("growing");
    assert_eq!(read(&*volume, 3 * MIB, 4096), vec![0; 4096], "dropped data does not come back");
}

#[test]
fn an_empty_volume_of_64_tebibytes_takes_no_memory() {
    let pool = Pool::new(16 * MIB);
    let engine = pool.open();
    let before = engine.usage().used_bytes;
    let volume = engine.create_volume(spec("huge", 64 << 40)).expect("a volume can be made");
    assert_eq!(engine.usage().used_bytes, before);
    let last = (64 << 40) - 4096;
    volume.write(last, &noise(1, 4096)).expect("its last block can be written");
    assert!(read(&*volume, last, 4096) == noise(1, 4096));
    let extents = volume.extents(ByteRange::new(0, 64 << 40), 10).expect("extents are listed");
    let kinds: Vec<_> = extents.iter().map(|extent| extent.kind).collect();
    assert_eq!(kinds, [ExtentKind::Hole, ExtentKind::Data]);
    volume.discard(ByteRange::new(0, 64 << 40)).expect("the discard succeeds");
    assert_eq!(engine.usage().page_count, 0);
}

#[test]
fn zeroes_are_written_or_punched() {
    let pool = Pool::new(16 * MIB);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", 4 * MIB)).expect("a volume can be made");
    volume.write(0, &noise(1, 32768)).expect("the write succeeds");
    volume.write_zeroes(ByteRange::new(100, 8192), Zeroes::Unmap).expect("punched");
    volume.write_zeroes(ByteRange::new(16384, 4096), Zeroes::KeepAllocated).expect("written");
    let mut expected = noise(1, 32768);
    expected[100..8292].fill(0);
    expected[16384..20480].fill(0);
    assert!(read(&*volume, 0, 32768) == expected);
    let extents = volume.extents(ByteRange::new(0, 32768), 10).expect("extents are listed");
    let kinds: Vec<_> = extents.iter().map(|extent| (extent.range.length, extent.kind)).collect();
    use ExtentKind::{Data, Hole, Zero};
    assert_eq!(kinds, [(4096, Data), (4096, Hole), (8192, Data), (4096, Zero), (12288, Data)]);
}

#[test]
fn reads_in_place_show_what_reads_copy() {
    let pool = Pool::new(16 * MIB);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", 4 * MIB)).expect("a volume can be made");
    volume.write(0, &noise(1, 8192)).expect("the write succeeds");
    volume.write(8192, &text(2, 8192)).expect("the write succeeds");
    volume.write(16384, &[0x77; 4096]).expect("the write succeeds");
    let mut scratch = vec![0; 7 * 4096];
    let mut shown = Vec::new();
    let range = ByteRange::new(1000, 22000);
    let result = volume.read_in_place(range, &mut scratch, &mut |slices| {
        slices.iter().for_each(|slice| shown.extend_from_slice(slice));
    });
    result.expect("the read succeeds");
    assert!(shown == read(&*volume, 1000, 22000));
}

#[test]
fn sparse_slabs_are_emptied_so_that_their_memory_comes_back() {
    let pool = Pool::new(64 * MIB);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", 64 * MIB)).expect("a volume can be made");
    volume.write(0, &noise(1, 32 << 20)).expect("the write succeeds");
    settle(&engine);
    let full = engine.usage().used_bytes;
    for block in 0..8192 {
        if block % 8 != 0 {
            let range = ByteRange::new(block * 4096, 4096);
            volume.discard(range).expect("the discard succeeds");
        }
    }
    settle(&engine);
    let usage = engine.usage();
    assert!(usage.used_bytes < full / 3, "{} of {full} bytes are still used", usage.used_bytes);
    let noise = noise(1, 32 << 20);
    for block in (0..8192).step_by(8) {
        assert!(read(&*volume, block as u64 * 4096, 4096) == noise[block * 4096..][..4096]);
    }
}

#[test]
fn names_sizes_and_doubles_are_checked() {
    let pool = Pool::new(16 * MIB);
    let engine = pool.open();
    for name in ["", "-x", "a b", "ü", &"x".repeat(64), ".."] {
        let error = name.parse::<volumes::VolumeName>().expect_err("a bad name");
        assert_eq!(error.kind, VolumeErrorKind::InvalidName, "{name}");
    }
    for size_bytes in [0, 4095, 4097, (64 << 40) + 4096] {
        let error = engine.create_volume(spec("v", size_bytes)).expect_err("a bad size");
        assert_eq!(error.kind, VolumeErrorKind::InvalidSize);
    }
    engine.create_volume(spec("v", MIB)).expect("a volume can be made");
    let error = engine.create_volume(spec("v", MIB)).expect_err("it is there");
    assert_eq!(error.kind, VolumeErrorKind::AlreadyExists);
    engine.rename_volume("v", "w".parse().expect("a good name")).expect("renamed");
    assert_eq!(engine.volume("v").expect_err("renamed").kind, VolumeErrorKind::NotFound);
    drop(engine);
    assert!(pool.open().volume("w").is_ok(), "the new name survives");
}
