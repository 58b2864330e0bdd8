//! Pools at the limits of their counters, and pools with damaged memory.

mod support;

use std::collections::HashSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use block_device::{BlockDevice, ByteRange, DeviceError, DeviceErrorKind, SectorSize};
use model::{Block, Contents, ModelVolume, Random, Texture};
use support::{Pool, check_sound_when_empty, check_sums, settle};
use volumes::{Reduction, Volume, VolumeErrorKind, VolumeSpec};

const MIB: u64 = 1 << 20;
const BLOCK: usize = block_device::BLOCK_BYTES;

fn spec(name: &str, size_bytes: u64) -> VolumeSpec {
    VolumeSpec {
        sector: SectorSize::Bytes4096,
        ..VolumeSpec::new(name.parse().expect("a good name"), size_bytes)
    }
}

fn read(volume: &dyn BlockDevice, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; length];
    volume.read(offset, &mut bytes).expect("the read succeeds");
    bytes
}

/// Goal: contents that are shared by more blocks than a reference count can represent are stored in
/// a second page, and a kill does not confuse the counts.
#[test]
fn contents_may_be_shared_more_often_than_a_count_has_room_for() {
    const COPIES: usize = 70_000;
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let size_bytes = (COPIES * BLOCK) as u64;
    let volume = engine.create_volume(spec("v", size_bytes)).expect("a volume can be made");
    let block = Contents::new(Texture::Noise, 1).block(0);
    let run = block.repeat(1000);
    for copy in 0..COPIES / 1000 {
        volume.write((copy * run.len()) as u64, &run).expect("the write succeeds");
    }
    assert_eq!(engine.usage().page_count, 2);
    drop(volume);
    drop(engine);
    let engine = pool.open();
    settle(&engine);
    check_sums(&engine);
    assert_eq!(engine.usage().page_count, 2);
    let volume = engine.volume("v").expect("it is there");
    assert!(read(&*volume, size_bytes - BLOCK as u64, BLOCK) == block);
    // One reference less: another one fits again, without a third page.
    volume.discard(ByteRange::new(0, BLOCK as u64)).expect("the discard succeeds");
    volume.write(0, &block).expect("the write succeeds");
    assert_eq!(engine.usage().page_count, 2);
    check_sound_when_empty(&engine);
}

#[test]
fn rewriting_the_same_contents_does_not_hide_them_from_the_dedup_index() {
    let pool = Pool::new(16 * MIB, 1);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", MIB)).expect("a volume can be made");
    let contents = Contents::new(Texture::Noise, 1);
    for _ in 0..20 {
        volume.write(0, &contents.block(0)).expect("the write succeeds");
        volume.write(0, &contents.block(1)).expect("the write succeeds");
    }
    volume.write(8192, &contents.block(0)).expect("the write succeeds");
    volume.write(12288, &contents.block(0)).expect("the write succeeds");
    assert_eq!(engine.usage().page_count, 2, "one page for each of two contents");
}

#[test]
fn a_damaged_page_is_an_error_and_harms_no_other() {
    let pool = Pool::new(8 * MIB, 1);
    let engine = pool.open();
    let volume = engine.create_volume(spec("v", MIB)).expect("a volume can be made");
    let marker = b"0123456789ABCDEFGHIJ";
    let mut block = b"shrinks well; ".repeat(BLOCK)[..BLOCK].to_vec();
    block[..marker.len()].copy_from_slice(marker);
    volume.write(0, &block).expect("the write succeeds");
    let other = Contents::new(Texture::Mixed, 4).bytes(16 * BLOCK);
    volume.write(8192, &other).expect("the write succeeds");
    settle(&engine);
    drop(volume);
    engine.close();
    pool.damage_around(marker);
    let engine = pool.open();
    let volume = engine.volume("v").expect("it is there");
    let error = volume.read(0, &mut [0; BLOCK]).expect_err("the page is damaged");
    assert_eq!(error.kind, DeviceErrorKind::Corrupt);
    let error = volume.write(1, &[1]).expect_err("a part cannot be changed");
    assert_eq!(error.kind, DeviceErrorKind::Corrupt);
    assert!(read(&*volume, 8192, other.len()) == other);
    volume.write(0, &block).expect("a whole block can be written");
    assert!(read(&*volume, 0, BLOCK) == block);
    assert!(engine.withheld_bytes() > 0, "the memory may be what is damaged");
    drop(volume);
    engine.close();
    check_sound_when_empty(&pool.open());
}

#[test]
fn a_full_volume_table_refuses_and_takes_again_after_a_delete() {
    let pool = Pool::new(8 * MIB, 1);
    let engine = pool.open();
    let refused = (0..20_000).find_map(|nth| {
        engine.create_volume(spec(&format!("v{nth}"), MIB)).err().map(|error| (nth, error.kind))
    });
    let (count, kind) = refused.expect("the table has an end");
    assert_eq!(kind, VolumeErrorKind::TooManyVolumes);
    assert_eq!(count, 1023 + 32 * 512);
    engine.delete_volume("v7").expect("the volume is deleted");
    engine.create_volume(spec("again", MIB)).expect("there is room for one");
}

/// Panic that a damaged reference count causes, because continuing could free memory twice.
const STOP: &str = "a reference count never falls below zero";

/// Blocks that a pool with arbitrary damage may return with verification: words of maps and slots
/// have no checksum, those of pages do. Two leaves may be one node, and a slot with a count of zero
/// is allocated again, together with the leaf in it. Therefore a block may have the contents of
/// another block that was once stored, a repeated pattern, as an entry can describe, or a node of a
/// map, even if it was just written, but never other bytes that nobody has written.
#[derive(Default)]
struct Stored(HashSet<Block>);

impl Stored {
    /// Writes blocks, and records their contents.
    fn write(&mut self, volume: &Volume, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.0.extend(bytes.as_chunks::<BLOCK>().0);
        volume.write(at * BLOCK as u64, bytes)
    }

    /// Reads blocks that may be damaged.
    #[track_caller]
    fn check_all(&self, volume: &Volume, blocks: Range<u64>) {
        for block in blocks {
            let mut found = [0xEE; BLOCK];
            match volume.read(block * BLOCK as u64, &mut found) {
                Ok(()) => {
                    let is_pattern = codec::fill_pattern(&found).is_some();
                    let is_known = self.0.contains(&found) || is_pattern || is_node(&found);
                    assert!(is_known, "block {block} of {}: {:?}", volume.name(), &found[..32]);
                }
                Err(error) => {
                    assert_eq!(error.kind, DeviceErrorKind::Corrupt, "block {block}");
                }
            }
        }
    }
}

/// Returns whether these may be the words of a node: each is zero or a valid entry.
fn is_node(block: &Block) -> bool {
    block.as_chunks::<8>().0.iter().all(|word| *word == [0; 8] || (1..=5).contains(&(word[7] >> 4)))
}

/// Goal: with arbitrary damage in a region, the engine reads and stores only inside it, terminates,
/// and panics only because of a reference count below zero. Verified reads return only contents
/// that were stored once.
/// Method: change some words of a pool in use, including tables and nodes, then use it.
#[test]
fn damaged_words_anywhere_are_survived() {
    let (mut used_count, mut stop_count) = (0, 0);
    model::for_each_seed("cargo test -p volumes --test damage anywhere", 150, |seed| {
        let mut random = Random::new(seed);
        let pool = Pool::new(4 * MIB, 1);
        let engine = pool.open();
        let mut stored = Stored::default();
        for name in ["v", "w"] {
            let volume = engine.create_volume(spec(name, 8 * MIB)).expect("a volume can be made");
            let bytes = Contents::new(Texture::Mixed, 5).bytes(64 * BLOCK);
            stored.write(&volume, 0, &bytes).expect("the write succeeds");
            stored.write(&volume, 1024, &bytes).expect("the write succeeds");
        }
        match random.below(2) {
            0 => engine.close(),
            _ => drop(engine),
        }
        pool.damage_words(&mut random);
        let used = AssertUnwindSafe(|| use_damaged(&pool, &mut random, &mut stored));
        used_count += 1;
        if let Err(payload) = catch_unwind(used) {
            let is_stop = payload.downcast_ref::<&str>() == Some(&STOP);
            assert!(is_stop, "stopped for something else");
            stop_count += 1;
        }
    });
    eprintln!("measured: {stop_count} of {used_count} pools stopped for a count");
    assert!(stop_count < used_count, "none was used to the end");
}

/// Performs requests of all kinds.
fn use_damaged(pool: &Pool, random: &mut Random, stored: &mut Stored) {
    let engine = pool.open();
    engine.set_verify_reads(true);
    for volume in engine.volumes() {
        stored.check_all(&volume, 0..64 + 9);
        stored.check_all(&volume, 1024..1024 + 64 + 9);
    }
    let check_kind = |done: Result<(), DeviceError>| {
        let Err(error) = done else { return };
        let kinds = [DeviceErrorKind::NoSpace, DeviceErrorKind::Corrupt];
        assert!(kinds.contains(&error.kind), "{error}");
    };
    for step in 0..3 {
        for volume in engine.volumes() {
            let size_bytes = volume.geometry().size_bytes;
            let block_count = size_bytes.min(8 * MIB) / BLOCK as u64;
            let mut random_block = || random.below(block_count - 9);
            for texture in Texture::ALL {
                let bytes = Contents::new(texture, step).bytes(3 * BLOCK);
                let at = random_block();
                check_kind(stored.write(&volume, at, &bytes));
                stored.check_all(&volume, at..at + 3);
                let at = random_block();
                stored.check_all(&volume, at..at + 9);
                let range = ByteRange::new(random_block() * BLOCK as u64, 9 * BLOCK as u64);
                check_kind(volume.discard(range));
                check_kind(volume.extents(ByteRange::new(0, size_bytes), 50).map(drop));
            }
            let _usage = volume.usage();
        }
        let _usage = engine.usage();
        let _worked = (0..step * 50).take_while(|_| engine.maintain()).count();
    }
    for volume in engine.volumes() {
        engine.delete_volume(&volume.name()).expect("it is there");
    }
    engine.close();
    drop(pool.open());
}

/// First bytes of a block, which an encoding contains unchanged, because nothing before them is
/// repeated there.
fn beginning(block: &Block) -> &[u8] {
    &block[..8]
}

/// Goal: if only pages are damaged, reads return what was written, or an error.
/// Method: volumes of all reductions beside models of them; a bit is flipped in all pages of some
/// blocks, uncompressed or compressed; then everything is read, by verifying readers or after a
/// scrub, partly changed, and overwritten.
#[test]
fn damaged_pages_are_errors_and_never_wrong_data() {
    model::for_each_seed("cargo test -p volumes --test damage pages_are", 12, |seed| {
        let mut random = Random::new(seed);
        let pool = Pool::new(8 * MIB, 2);
        let engine = pool.open();
        let models: Vec<_> = Reduction::ALL
            .into_iter()
            .map(|reduction| {
                let name = format!("{reduction:?}").to_lowercase();
                let spec = VolumeSpec { reduction, ..spec(&name, MIB) };
                let volume = engine.create_volume(spec).expect("it can be made");
                let model = ModelVolume::new(MIB, SectorSize::Bytes4096);
                for _ in 0..60 {
                    let at = random.below(MIB / BLOCK as u64 - 3) * BLOCK as u64;
                    let bytes = Contents::random(&mut random).bytes(3 * BLOCK);
                    volume.write(at, &bytes).expect("there is room");
                    model.write(at, &bytes).expect("the model has memory");
                }
                (name, model)
            })
            .collect();
        if random.one_in(2) {
            settle(&engine);
        }
        let damaged = damage_pages(&pool, &models, &mut random);
        match random.one_in(2) {
            true => engine.set_verify_reads(true),
            false => while !engine.scrub().is_round {},
        }
        let mut lost_count = 0;
        for (name, model) in &models {
            let volume = engine.volume(name).expect("it is there");
            lost_count += check_damaged(&volume, model, &damaged);
        }
        assert!(lost_count > 0, "no block has what was damaged");
        settle(&engine);
        assert!(engine.withheld_bytes() > 0, "the memory may be what is damaged");
        engine.close();
        check_sound_when_empty(&pool.open());
    });
}

/// Flips a bit in all pages of some blocks. Returns the first bytes of these blocks.
fn damage_pages(
    pool: &Pool,
    models: &[(String, ModelVolume)],
    random: &mut Random,
) -> HashSet<Vec<u8>> {
    let (mut damaged, mut place_count) = (HashSet::new(), 0);
    while damaged.len() < 5 {
        let (_, model) = &models[random.index(models.len())];
        let block = model.block(random.pick(&model.written_blocks()));
        let block = block.expect("it is written");
        let is_fill = block[..4] == block[4..8];
        if !is_fill && damaged.insert(beginning(&block).to_vec()) {
            place_count += pool.flip_bit_in_each(beginning(&block));
        }
    }
    assert!(place_count >= 5, "most begin so in memory, too");
    damaged
}

/// Reads all blocks, changes a part of lost ones, overwrites them, and compares with the model.
/// Returns the number of lost blocks.
fn check_damaged(volume: &Volume, model: &ModelVolume, damaged: &HashSet<Vec<u8>>) -> u64 {
    let mut lost_count = 0;
    for block in 0..MIB / BLOCK as u64 {
        let expected = model.block(block).unwrap_or([0; BLOCK]);
        let (offset, mut found) = (block * BLOCK as u64, [0xEE; BLOCK]);
        if let Err(error) = volume.read(offset, &mut found) {
            assert_eq!(error.kind, DeviceErrorKind::Corrupt, "block {block}");
            assert!(damaged.contains(beginning(&expected)), "block {block} was not damaged");
            let error = volume.write(offset + 1, &[1]).expect_err("the rest is lost");
            assert_eq!(error.kind, DeviceErrorKind::Corrupt, "block {block}");
            volume.write(offset, &expected).expect("a whole block can be written");
            volume.read(offset, &mut found).expect("it was overwritten");
            lost_count += 1;
        }
        assert!(found == expected, "block {block} of {}", volume.name());
    }
    lost_count
}
