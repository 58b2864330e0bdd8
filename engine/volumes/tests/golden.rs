//! Pools of earlier releases: the current code opens them and finds their contents.
//!
//! `tests/golden/` contains files of regions, packed: for each page of the file that is not all
//! zeros its number (4 bytes), a length (2 bytes) and that many bytes in LZ4's block format, or the
//! page itself if the length is 4096; all numbers little-endian. The contents of the pools are
//! defined below and never change. With `MEMLANE_GOLDEN_OUT=FOLDER` the tests write the files of
//! the current code there, to be added for a new version of the layout.

mod support;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use block_device::{BlockDevice, ByteRange, SectorSize};
use codec::{BLOCK_BYTES, Block};
use region::{Region, RegionSpec};
use support::{check_sound_when_empty, check_sums, compress_idle, settle};
use volumes::{Engine, EngineOptions, Reduction, ShrinkPolicy, VolumeSpec};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = block_device::BLOCK_BYTES as u64;
const REGION_BYTES: u64 = 4 * MIB;

/// Number of volume records in front of the slabs.
const FRONT_PLACES: u64 = 1023;

/// Folder for the files of the current layout, if they are wanted.
const OUT_VARIABLE: &str = "MEMLANE_GOLDEN_OUT";

/// Contents of the volumes: blocks and arguments of `contents`.
const ALPHA: [(u64, u64); 12] = [
    (0, 1),
    (1, 2),
    (2, 3),
    (3, 1),
    (511, 4),
    (512, 5),
    (513, 6),
    (9000, 7),
    (9001, 8),
    (9002, 9),
    (9003, 10),
    (9004, 11),
];
const BETA: [(u64, u64); 5] = [(0, 20), (1, 21), (300_000, 22), (300_001, 3), (600_000, 20)];
const GAMMA: [(u64, u64); 4] = [(4, 1), (5, 5), (6, 20), (7, 30)];

/// Returns the contents of a block: every third number gives noise, every third a pattern, and the
/// others text that compresses to different sizes.
fn contents(number: u64) -> Block {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut block = [0; BLOCK_BYTES];
    match number % 3 {
        0 => block.as_chunks_mut::<4>().0.fill([noise()[0]; 4]),
        1 => block.as_chunks_mut::<8>().0.iter_mut().for_each(|bytes| *bytes = noise()),
        _ => {
            let period = usize::try_from(100 + 37 * number).expect("a small number");
            for index in 0..BLOCK_BYTES {
                let letter = noise()[0] % 16 + b'a';
                block[index] = if index < period { letter } else { block[index - period] };
            }
        }
    }
    block
}

fn open(path: &Path) -> Engine {
    let spec = RegionSpec { path: path.to_owned(), size_bytes: REGION_BYTES };
    let options = EngineOptions { lane_count: 1, fresh_secret: [7; 32] };
    Engine::open(Region::open(&spec).expect("the region opens"), options).expect("the pool opens")
}

fn fill(engine: &Engine, (name, size_bytes): (&str, u64), held: &[(u64, u64)]) {
    let (sector, reduction) = match name {
        "alpha" => (SectorSize::Bytes512, Reduction::Full),
        "beta" => (SectorSize::Bytes4096, Reduction::None),
        _ => (SectorSize::Bytes4096, Reduction::Dedup),
    };
    let name = name.parse().expect("a good name");
    let spec = VolumeSpec { sector, reduction, ..VolumeSpec::new(name, size_bytes) };
    let volume = engine.create_volume(spec).expect("a volume can be made");
    for &(block, number) in held {
        volume.write(block * BLOCK, &contents(number)).expect("there is room");
    }
}

/// Creates the pool of the golden files.
fn build(engine: &Engine) {
    fill(engine, ("alpha", 64 * MIB), &ALPHA);
    fill(engine, ("beta", 4096 * MIB), &BETA);
    fill(engine, ("gone", 64 * MIB), &[(0, 40), (1, 41)]);
    fill(engine, ("gamma", 64 * MIB), &[(4, 1), (5, 5), (6, 20), (7, 30), (9, 43), (5000, 44)]);
    engine.delete_volume("gone").expect("it is there");
    engine.rename_volume("beta", "renamed".parse().expect("a good name")).expect("it is there");
    let gamma = engine.volume("gamma").expect("it is there");
    gamma.discard(ByteRange::new(9 * BLOCK, BLOCK)).expect("it is there");
    engine.resize_volume("gamma", MIB, ShrinkPolicy::DropData).expect("data may be dropped");
}

/// The same with volume records in a table slab, for the volumes that remain.
fn build_in_table_slab(engine: &Engine) {
    let name = |number: u64| format!("filler-{number}");
    for number in 1..=FRONT_PLACES {
        fill(engine, (&name(number), MIB), &[]);
    }
    build(engine);
    for number in 1..=FRONT_PLACES {
        engine.delete_volume(&name(number)).expect("it is there");
    }
}

/// The same with idle pages, which are compressed once more.
fn build_with_idle_pages(engine: &Engine) {
    build(engine);
    settle(engine);
    compress_idle(engine, usize::MAX);
    compress_idle(engine, usize::MAX);
    assert!(engine.usage().idle_page_count > 0);
}

#[track_caller]
fn check_volume(engine: &Engine, name: &str, held: &[(u64, u64)]) {
    let volume = engine.volume(name).expect("it is there");
    for &(block, number) in held {
        let mut found = [0xEE; BLOCK_BYTES];
        volume.read(block * BLOCK, &mut found).expect("the read succeeds");
        assert!(found == contents(number), "block {block} of {name}");
        let beside = (block + 1..).find(|block| held.iter().all(|(held, _)| held != block));
        let beside = beside.expect("volumes have holes");
        if (beside + 1) * BLOCK <= volume.geometry().size_bytes {
            volume.read(beside * BLOCK, &mut found).expect("the read succeeds");
            assert!(found == [0; BLOCK_BYTES], "block {beside} of {name}");
        }
    }
}

#[track_caller]
fn check_pool(engine: &Engine) {
    check_volume(engine, "alpha", &ALPHA);
    check_volume(engine, "renamed", &BETA);
    check_volume(engine, "gamma", &GAMMA);
    let names: Vec<_> = engine.volumes().iter().map(|volume| volume.name()).collect();
    assert_eq!(names, ["alpha", "gamma", "renamed"]);
    let volume = |name| engine.volume(name).expect("it is there");
    assert_eq!(volume("alpha").geometry().sector, SectorSize::Bytes512);
    assert_eq!(volume("gamma").geometry().sector, SectorSize::Bytes4096);
    let sizes = ["alpha", "gamma", "renamed"].map(|name| volume(name).geometry().size_bytes / MIB);
    assert_eq!(sizes, [64, 1, 4096]);
    let reductions = ["alpha", "gamma", "renamed"].map(|name| volume(name).reduction());
    assert_eq!(reductions, [Reduction::Full, Reduction::Dedup, Reduction::None]);
}

fn pack(region: &Path) -> Vec<u8> {
    let bytes = std::fs::read(region).expect("the file is there");
    let mut encoder = codec::Encoder::new();
    let mut packed = Vec::new();
    for (number, page) in (0_u32..).zip(bytes.as_chunks::<BLOCK_BYTES>().0) {
        if page == &[0; BLOCK_BYTES] {
            continue;
        }
        let encoded = encoder.encode_thoroughly(page, 4000).unwrap_or(page);
        packed.extend(number.to_le_bytes());
        packed.extend(u16::try_from(encoded.len()).expect("a page at most").to_le_bytes());
        packed.extend_from_slice(encoded);
    }
    packed
}

fn unpack(mut packed: &[u8], region: &Path) {
    let file = std::fs::File::create(region).expect("tmpfs takes a file");
    file.set_len(REGION_BYTES).expect("tmpfs has room");
    while let Some((number, rest)) = packed.split_first_chunk::<4>() {
        let (length, rest) = rest.split_first_chunk::<2>().expect("a length follows");
        let (encoded, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)));
        let mut page = [0; BLOCK_BYTES];
        match <&Block>::try_from(encoded) {
            Ok(raw) => page = *raw,
            Err(_) => codec::decode(encoded, &mut page).expect("the file is whole"),
        }
        let offset = u64::from(u32::from_le_bytes(*number)) * BLOCK;
        file.write_all_at(&page, offset).expect("tmpfs has room");
        packed = rest;
    }
}

/// End of a pool's last run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    Killed,
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder") }
    }

    fn region(&self) -> PathBuf {
        self.folder.path().join("region")
    }
}

/// Opens a golden pool, checks and changes it, and opens it again.
#[track_caller]
fn check_left_behind(packed: &[u8]) {
    let place = Place::new();
    unpack(packed, &place.region());
    let engine = open(&place.region());
    check_pool(&engine);
    settle(&engine);
    check_sums(&engine);
    check_pool(&engine);
    let usage = engine.usage();
    let held = [&ALPHA[..], &BETA, &GAMMA].concat();
    assert_eq!(usage.written_bytes, held.len() as u64 * BLOCK);
    let patterns = held.iter().filter(|(_, number)| number % 3 == 0).count() as u64;
    assert_eq!(usage.fill_bytes, patterns * BLOCK);
    let alpha = engine.volume("alpha").expect("it is there");
    alpha.write(77 * BLOCK, &contents(50)).expect("there is room");
    drop(alpha);
    engine.close();
    let engine = open(&place.region());
    check_pool(&engine);
    check_volume(&engine, "alpha", &[(77, 50)]);
    check_sound_when_empty(&engine);
}

/// Checks that pools of the current code can be opened too, and writes them as golden files on
/// request.
fn check_today(build: fn(&Engine), end: End, name: &str) {
    let place = Place::new();
    let engine = open(&place.region());
    build(&engine);
    match end {
        End::Closed => {
            settle(&engine);
            engine.close();
        }
        End::Killed => drop(engine),
    }
    let packed = pack(&place.region());
    if let Some(folder) = std::env::var_os(OUT_VARIABLE) {
        std::fs::write(Path::new(&folder).join(name), &packed).expect("the folder is there");
    }
    check_left_behind(&packed);
}

#[test]
fn a_closed_pool_of_today_is_found_again() {
    check_today(build, End::Closed, "region-closed");
}

#[test]
fn a_killed_pool_of_today_is_found_again() {
    check_today(build, End::Killed, "region-killed");
}

#[test]
fn a_closed_pool_of_today_with_a_table_slab_is_found_again() {
    check_today(build_in_table_slab, End::Closed, "region-closed-table-slab");
}

#[test]
fn a_killed_pool_of_today_with_a_table_slab_is_found_again() {
    check_today(build_in_table_slab, End::Killed, "region-killed-table-slab");
}

#[test]
fn a_closed_pool_of_today_with_idle_pages_is_found_again() {
    check_today(build_with_idle_pages, End::Closed, "region-closed-idle");
}

#[test]
fn a_killed_pool_of_today_with_idle_pages_is_found_again() {
    check_today(build_with_idle_pages, End::Killed, "region-killed-idle");
}

#[test]
fn a_closed_pool_of_version_1_is_found_again() {
    check_left_behind(include_bytes!("golden/region-1-closed"));
}

#[test]
fn a_killed_pool_of_version_1_is_found_again() {
    check_left_behind(include_bytes!("golden/region-1-killed"));
}

#[test]
fn a_closed_pool_of_version_2_is_found_again() {
    check_left_behind(include_bytes!("golden/region-2-closed"));
}

#[test]
fn a_killed_pool_of_version_2_is_found_again() {
    check_left_behind(include_bytes!("golden/region-2-killed"));
}

#[test]
fn a_closed_pool_of_version_3_is_found_again() {
    check_left_behind(include_bytes!("golden/region-3-closed"));
}

#[test]
fn a_killed_pool_of_version_3_is_found_again() {
    check_left_behind(include_bytes!("golden/region-3-killed"));
}

#[test]
fn a_closed_pool_of_version_4_is_found_again() {
    check_left_behind(include_bytes!("golden/region-4-closed"));
}

#[test]
fn a_killed_pool_of_version_4_is_found_again() {
    check_left_behind(include_bytes!("golden/region-4-killed"));
}
