//! Tests that an engine's volumes are saved and restored while in use.

mod made;

use std::sync::Arc;

use block_device::{BlockDevice, ByteRange, DeviceErrorKind};
use image::{
    ClaimedStore, CopiedVolume, EngineSource, EngineTarget, ImageId, ImageStore, ImageVolume,
    ImageVolumeKind, OpenImage, Saved, Unwatched,
};
use made::{Contents, claim, disk, newest, open, options, store_on};
use region::{Region, RegionSpec};
use volumes::{Engine, EngineOptions, ImageBase, SavedVolume, Settles, Volume, VolumeSpec};

const BLOCK: u64 = block_device::BLOCK_BYTES as u64;
const MIB: u64 = 1 << 20;

/// A folder with a pool's file, deleted at the end.
struct Pool {
    folder: tempfile::TempDir,
}

impl Pool {
    fn new() -> Self {
        Self { folder: tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder") }
    }

    fn open(&self) -> Engine {
        self.open_sized(32 * MIB)
    }

    fn open_sized(&self, size_bytes: u64) -> Engine {
        let path = self.folder.path().join("region");
        let region = Region::open(&RegionSpec { path, size_bytes });
        let options = EngineOptions { lane_count: 2, fresh_secret: [7; 32] };
        Engine::open(region.expect("the region opens"), options).expect("the pool opens")
    }
}

fn spec(name: &str) -> VolumeSpec {
    VolumeSpec::new(name.parse().expect("a good name"), 64 * MIB)
}

fn write(volume: &Volume, block: u64, contents: Contents) {
    volume.write(block * BLOCK, &contents.bytes()).expect("there is room");
}

#[track_caller]
fn check(volume: &Volume, block: u64, contents: Contents) {
    let mut bytes = [0; 4096];
    volume.read(block * BLOCK, &mut bytes).expect("it can be read");
    assert!(bytes == contents.bytes(), "block {block} is not {contents:?}");
}

/// Creates two volumes with all kinds of contents.
fn filled(engine: &Engine) -> Vec<Arc<Volume>> {
    let one = engine.create_volume(spec("one")).expect("there is room");
    let two = engine.create_volume(spec("two")).expect("there is room");
    for block in 0..600 {
        write(&one, block, Contents::Noise(block));
        write(&two, 5000 + block, Contents::Text(block % 20));
    }
    write(&two, 0, Contents::Noise(3));
    write(&one, 700, Contents::Fill(7));
    write(&one, 701, Contents::Fill(0));
    vec![one, two]
}

/// Creates a source. The volumes are not written meanwhile, so they are their own copies.
fn source(engine: &Engine, volumes: &[Arc<Volume>]) -> EngineSource {
    let copied = |volume: &Arc<Volume>| CopiedVolume {
        record: ImageVolume::of(volume),
        copy: Arc::clone(volume),
    };
    EngineSource::new(volumes.iter().map(copied).collect(), engine.absent_image(), None)
}

/// Does what the owner does once an image with the copy's contents is durable.
fn note_saved(engine: &Engine, live: &Arc<Volume>, copy: &Arc<Volume>, image: ImageId) {
    live.map().set_image_base(Some(ImageBase { image: image.word(), volume_id: live.id() }));
    let (volume, copy) = (Arc::clone(live), Arc::clone(copy));
    engine.note_saved(&[SavedVolume { volume, copy, settles: Settles::Image }]);
}

/// Saves all volumes and records the result in the engine.
fn save(engine: &Engine, claimed: &mut ClaimedStore) -> Saved {
    let volumes = engine.volumes();
    let source = source(engine, &volumes);
    let saved = claimed.save(&source, &options(), &Unwatched).expect("the store is sound");
    volumes.iter().for_each(|volume| note_saved(engine, volume, volume, saved.id));
    saved
}

/// Restores all volumes of an image into another engine, with absent pages.
fn bring_back(engine: &Engine, image: &Arc<OpenImage>) -> Vec<Option<Arc<Volume>>> {
    engine.set_page_source(Some((image.id().word(), Arc::clone(image) as _)));
    let mut volumes = Vec::new();
    for (index, record) in image.volumes().iter().enumerate() {
        let spec = record.spec().expect("a good name");
        let volume = engine.begin_filling(spec, Some(record.id)).expect("there is room");
        image.fill(index, &volume).expect("the map is sound");
        engine.end_filling(&volume).expect("the name is free");
        volumes.push(Some(volume));
    }
    volumes
}

fn newest_shared(store: &Arc<dyn ImageStore>) -> Arc<OpenImage> {
    Arc::new(newest(store).expect("one was saved"))
}

/// Creates a store with an image of [`filled`] volumes.
fn saved_store() -> (powercut::Disk, Arc<dyn ImageStore>) {
    let disk = disk();
    let store = store_on(&disk);
    let pool = Pool::new();
    let engine = pool.open();
    let _volumes = filled(&engine);
    save(&engine, &mut claim(&store));
    (disk, store)
}

#[test]
fn volumes_are_read_before_their_pages_are_back() {
    let (_disk, store) = saved_store();
    let pool = Pool::new();
    let engine = pool.open();
    let volumes = bring_back(&engine, &newest_shared(&store));
    let [Some(one), Some(two)] = &volumes[..] else { panic!("{volumes:?}") };
    assert_eq!((one.map().absent_blocks(), two.map().absent_blocks()), (600, 601));
    check(one, 17, Contents::Noise(17));
    check(one, 700, Contents::Fill(7));
    check(one, 701, Contents::Fill(0));
    check(one, 702, Contents::Fill(0));
    check(two, 5599, Contents::Text(19));
    assert!(one.map().absent_blocks() < 600);
}

#[test]
fn a_restore_brings_all_pages_back_and_keeps_what_was_written_meanwhile() {
    let (_disk, store) = saved_store();
    let pool = Pool::new();
    let engine = pool.open();
    let image = newest_shared(&store);
    let volumes = bring_back(&engine, &image);
    let [Some(one), Some(two)] = &volumes[..] else { panic!("{volumes:?}") };
    write(one, 5, Contents::Noise(1 << 20));
    one.discard(ByteRange::new(6 * BLOCK, BLOCK)).expect("it is there");
    let mut target = EngineTarget::new(&volumes);
    let restored = image.restore(&mut target, &Unwatched).expect("the image is sound");
    assert!(restored.pages_placed <= 1201);
    assert_eq!((one.map().absent_blocks(), two.map().absent_blocks()), (0, 0));
    engine.set_page_source(None);
    for block in (0..600).filter(|block| ![5, 6].contains(block)) {
        check(one, block, Contents::Noise(block));
        check(two, 5000 + block, Contents::Text(block % 20));
    }
    check(one, 5, Contents::Noise(1 << 20));
    check(one, 6, Contents::Fill(0));
    check(two, 0, Contents::Noise(3));
}

#[test]
fn what_was_saved_is_not_saved_again() {
    let disk = disk();
    let store = store_on(&disk);
    let mut claimed = claim(&store);
    let pool = Pool::new();
    let engine = pool.open();
    let volumes = filled(&engine);
    let first = save(&engine, &mut claimed);
    // Pages shared by the two volumes are written once.
    assert_eq!(first.pages_written, 620);
    assert_eq!(volumes[0].map().unsaved_blocks() + volumes[1].map().unsaved_blocks(), 0);
    write(&volumes[0], 9, Contents::Noise(1 << 20));
    write(&volumes[1], 5009, Contents::Fill(4));
    let second = save(&engine, &mut claimed);
    assert_eq!(second.pages_written, 1);
    let other = Pool::new();
    let engine = other.open();
    let back = bring_back(&engine, &newest_shared(&store));
    check(back[0].as_deref().expect("it is back"), 9, Contents::Noise(1 << 20));
    check(back[0].as_deref().expect("it is back"), 10, Contents::Noise(10));
    check(back[1].as_deref().expect("it is back"), 5009, Contents::Fill(4));
}

#[test]
fn what_changes_after_the_copy_is_saved_next_time() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let pool = Pool::new();
    let engine = pool.open();
    let volumes = filled(&engine);
    let source = source(&engine, &volumes);
    let saved = claimed.save(&source, &options(), &Unwatched).expect("the store is sound");
    write(&volumes[0], 0, Contents::Noise(1 << 21));
    // In this test the volume is its own copy, so its dirty bits come from the last `note_saved`.
    volumes[0].map().set_image_base(None);
    note_saved(&engine, &volumes[1], &volumes[1], saved.id);
    let second = save(&engine, &mut claimed);
    assert!(second.pages_written <= 600, "{second:?}");
    let other = Pool::new();
    let engine = other.open();
    let back = bring_back(&engine, &newest_shared(&store));
    check(back[0].as_deref().expect("it is back"), 0, Contents::Noise(1 << 21));
}

#[test]
fn a_volume_is_saved_while_its_pages_are_not_back_yet() {
    let (_disk, store) = saved_store();
    let pool = Pool::new();
    let engine = pool.open();
    let volumes = bring_back(&engine, &newest_shared(&store));
    let one = volumes[0].as_deref().expect("it is back");
    write(one, 1, Contents::Noise(1 << 20));
    let saved = save(&engine, &mut claim(&store));
    assert_eq!((saved.pages_written, saved.bases_missing.len()), (1, 0));
    drop(volumes);
    let other = Pool::new();
    let engine = other.open();
    let image = Arc::new(open(&store, saved.id));
    let volumes = bring_back(&engine, &image);
    let one = volumes[0].as_deref().expect("it is back");
    check(one, 1, Contents::Noise(1 << 20));
    check(one, 2, Contents::Noise(2));
    let mut target = EngineTarget::new(&volumes);
    image.restore(&mut target, &Unwatched).expect("the image is sound");
    assert_eq!(one.map().absent_blocks(), 0);
}

#[test]
fn only_blocks_that_need_a_damaged_chunk_cannot_be_read() {
    let (disk, store) = saved_store();
    let pack = disk.files().into_iter().find(|file| file.name.starts_with("packs/"));
    disk.flip_bit(&pack.expect("one was saved").name, 100_000);
    let pool = Pool::new();
    let engine = pool.open();
    let image = newest_shared(&store);
    let volumes = bring_back(&engine, &image);
    let one = volumes[0].as_deref().expect("it is back");
    let mut bytes = [0; 4096];
    let error = one.read(BLOCK, &mut bytes).expect_err("its chunk is damaged");
    assert_eq!(error.kind, DeviceErrorKind::Corrupt);
    check(one, 550, Contents::Noise(550));
    let mut target = EngineTarget::new(&volumes);
    let restored = image.restore(&mut target, &Unwatched).expect("the rest is sound");
    assert_eq!(restored.chunks_left, 1);
    // Block 0 of the other volume also has a page in it.
    let damage = target.take_left();
    assert_eq!((damage.len(), damage[1].blocks[0].volume.as_str()), (2, "two"));
    let named = &damage[0].blocks[0];
    assert_eq!((named.volume.as_str(), named.first_block, named.block_count), ("one", 0, 512));
    assert_eq!(one.map().absent_blocks(), 512, "they may be had later");
    assert_eq!(one.give_up_absent(|_| true).expect("there is room").lost, 512);
    engine.set_page_source(None);
    one.read(BLOCK, &mut bytes).expect_err("it is lost");
    write(one, 1, Contents::Noise(77));
    check(one, 1, Contents::Noise(77));
    check(one, 599, Contents::Noise(599));
}

#[test]
fn lost_blocks_stay_lost_through_an_image() {
    let (disk, store) = saved_store();
    let pack = disk.files().into_iter().find(|file| file.name.starts_with("packs/"));
    disk.flip_bit(&pack.expect("one was saved").name, 100_000);
    let pool = Pool::new();
    let engine = pool.open();
    let image = newest_shared(&store);
    let volumes = bring_back(&engine, &image);
    image.restore(&mut EngineTarget::new(&volumes), &Unwatched).expect("the rest is sound");
    for volume in volumes.iter().flatten() {
        volume.give_up_absent(|_| true).expect("there is room");
    }
    engine.set_page_source(None);
    save(&engine, &mut claim(&store));
    drop(volumes);
    let other = Pool::new();
    let engine = other.open();
    let volumes = bring_back(&engine, &newest_shared(&store));
    let one = volumes[0].as_deref().expect("it is back");
    let mut bytes = [0; 4096];
    let error = one.read(BLOCK, &mut bytes).expect_err("it was lost before");
    assert_eq!(error.kind, DeviceErrorKind::Corrupt);
    check(one, 599, Contents::Noise(599));
}

#[test]
fn a_pool_too_small_for_an_image_is_an_error_that_says_so() {
    let (_disk, store) = saved_store();
    let pool = Pool::new();
    let engine = pool.open_sized(4 * MIB);
    let image = newest_shared(&store);
    let volumes = bring_back(&engine, &image);
    let filler = engine.create_volume(spec("filler")).expect("there is room");
    for block in 0..3000 {
        if filler.write(block * BLOCK, &Contents::Noise((1 << 40) + block).bytes()).is_err() {
            break;
        }
    }
    let error = image.restore(&mut EngineTarget::new(&volumes), &Unwatched);
    let error = error.expect_err("the pool is full");
    assert_eq!(error.kind, image::ImageErrorKind::PoolFull);
    check(volumes[0].as_deref().expect("it is back"), 599, Contents::Noise(599));
}

#[test]
fn an_image_has_what_the_volumes_held_when_they_were_frozen() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let pool = Pool::new();
    let engine = pool.open();
    let volumes = filled(&engine);
    let save_frozen = |claimed: &mut ClaimedStore, meanwhile: &dyn Fn()| {
        let frozen = engine.freeze(&volumes).expect("there is room");
        let copied = |(live, copy): (&Arc<Volume>, &Arc<Volume>)| CopiedVolume {
            record: ImageVolume::of(live),
            copy: Arc::clone(copy),
        };
        let copies = volumes.iter().zip(frozen.volumes()).map(copied).collect();
        let source = EngineSource::new(copies, engine.absent_image(), None);
        meanwhile();
        let saved = claimed.save(&source, &options(), &Unwatched).expect("the store is sound");
        let pairs = volumes.iter().zip(frozen.volumes());
        pairs.for_each(|(live, copy)| note_saved(&engine, live, copy, saved.id));
        saved
    };
    let first = save_frozen(&mut claimed, &|| {
        write(&volumes[0], 5, Contents::Noise(1 << 20));
        volumes[1].discard(ByteRange::new(5000 * BLOCK, BLOCK)).expect("it is there");
    });
    let second = save_frozen(&mut claimed, &|| write(&volumes[0], 6, Contents::Noise(1 << 21)));
    assert_eq!((second.pages_written, second.bases_missing.len()), (1, 0));
    let expected = [
        (first.id, Contents::Noise(5), Contents::Text(0)),
        (second.id, Contents::Noise(1 << 20), Contents::Fill(0)),
    ];
    for (id, block_5, block_5000) in expected {
        let other = Pool::new();
        let engine = other.open();
        let back = bring_back(&engine, &Arc::new(open(&store, id)));
        check(back[0].as_deref().expect("it is back"), 5, block_5);
        check(back[0].as_deref().expect("it is back"), 6, Contents::Noise(6));
        check(back[1].as_deref().expect("it is back"), 5000, block_5000);
    }
}

#[test]
fn a_snapshot_is_saved_with_its_volume_and_takes_little_more() {
    let store = store_on(&disk());
    let pool = Pool::new();
    let engine = pool.open();
    let one = Arc::clone(&filled(&engine)[0]);
    let name = "monday".parse().expect("a good name");
    let snapshots = engine.create_snapshots(&["one"], &name, 77).expect("there is room");
    write(&one, 5, Contents::Noise(1 << 20));
    let both = [Arc::clone(&one), Arc::clone(&snapshots[0])];
    let source = source(&engine, &both);
    let saved = claim(&store).save(&source, &options(), &Unwatched).expect("the store is sound");
    let image = open(&store, saved.id);
    let record = &image.volumes()[1];
    assert_eq!((record.name.as_str(), record.origin), ("one@monday", one.id()));
    assert_eq!((record.kind, record.created_seconds), (ImageVolumeKind::Snapshot, 77));
    // The changed leaf has its pages in both volumes. They are shared, so they are written once.
    assert!(saved.pages_written <= 601, "{saved:?}");
    let mut collected = made::Collected::default();
    image.restore(&mut collected, &Unwatched).expect("it is sound");
    assert!(collected.blocks[&(0, 5)] == Contents::Noise(1 << 20).bytes());
    assert!(collected.blocks[&(1, 5)] == Contents::Noise(5).bytes());
    assert!(collected.blocks[&(1, 599)] == Contents::Noise(599).bytes());
}
