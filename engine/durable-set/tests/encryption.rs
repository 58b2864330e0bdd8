//! Tests of sets with encrypted journal and images: no plaintext is on disk, only their key opens
//! them, and a wrong key changes nothing.

use std::sync::Arc;

use block_device::BlockDevice;
use durable_set::{
    DurableError, DurableErrorKind, DurableSet, DurableSpec, MirrorOptions, Opened, SaveExtent,
    SaveRequest, open_key,
};
use image::{FolderStore, ImageStore, Unwatched};
use journal::{JournalOptions, SystemClock};
use model::Random;
use powercut::{Cut, Disk, Loss, Moment};
use region::{Region, RegionSpec};
use sealing::{SetKey, WrappingKey};
use storage::Folder;
use volumes::{Durability, Engine, EngineOptions, Volume, VolumeSpec};

const BLOCK: u64 = 4096;
const MARKER: &[u8; 16] = b"nobody reads me!";
const NAME: &str = "secret-name";

/// A pool that is lost when dropped.
struct Pool {
    _memory: tempfile::TempDir,
    engine: Arc<Engine>,
    set: DurableSet,
}

fn key(byte: u8) -> WrappingKey {
    WrappingKey::new([byte; 32])
}

fn journal_folder(disk: &Disk) -> Arc<dyn Folder> {
    disk.folder().folder("journal").expect("the disk works")
}

fn store(disk: &Disk) -> Arc<dyn ImageStore> {
    let folder = disk.folder().folder("images").expect("the disk works");
    Arc::new(FolderStore::new(&*folder).expect("the disk works"))
}

fn key_on(disk: &Disk, keys: &[WrappingKey]) -> Result<Arc<SetKey>, DurableError> {
    open_key(&*journal_folder(disk), &*store(disk), keys)
}

/// Opens a set with empty memory.
fn open_with(disk: &Disk, key: Option<Arc<SetKey>>) -> Result<(Pool, Opened), DurableError> {
    let memory = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
    let path = memory.path().join("region");
    let region = Region::open(&RegionSpec { path, size_bytes: 32 << 20 });
    let options = EngineOptions { lane_count: 1, fresh_secret: [7; 32] };
    let engine = Arc::new(Engine::open(region.expect("it opens"), options).expect("it opens"));
    let packs = store(disk).packs().expect("the disk works");
    let writer = packs.iter().map(|(name, _)| name.writer).max().map_or(1, |last| last + 1);
    let spec = DurableSpec {
        journal: journal_folder(disk),
        journal_options: JournalOptions {
            length_bytes_max: 16 << 20,
            segment_bytes: 1 << 20,
            ..JournalOptions::default()
        },
        clock: Arc::new(SystemClock::new()),
        images: store(disk),
        key,
        writer: writer.into(),
        mirror: MirrorOptions::default(),
        fresh_id: [9; 16],
        last_known: None,
    };
    let (set, opening) = DurableSet::open(&engine, spec)?;
    Ok((Pool { _memory: memory, engine, set }, opening.how))
}

fn open(disk: &Disk, keys: &[WrappingKey]) -> Result<(Pool, Opened), DurableError> {
    let key = if keys.is_empty() { None } else { Some(key_on(disk, keys)?) };
    open_with(disk, key)
}

fn contents(block: u64) -> Vec<u8> {
    let mut random = Random::new(block);
    let mut bytes: Vec<u8> = MARKER.repeat(8);
    // Compressible and incompressible blocks.
    while bytes.len() < 4096 {
        let number = if block.is_multiple_of(2) { random.number() } else { block };
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

fn create(pool: &Pool, name: &str, durability: Durability) -> Arc<Volume> {
    let name = name.parse().expect("a good name");
    let spec = VolumeSpec { durability, ..VolumeSpec::new(name, 16 << 20) };
    pool.set.create_volume(spec).expect("there is room")
}

fn save(pool: &Pool) {
    let request = SaveRequest {
        extent: SaveExtent::Durable,
        created_seconds: 1_000_000_000,
        label: "secret-label".to_owned(),
        bytes_a_second_max: None,
    };
    pool.set.save(&request, &Unwatched).expect("the disk works");
}

fn write(volume: &Volume, blocks: std::ops::Range<u64>) {
    for block in blocks {
        volume.write(block * BLOCK, &contents(block)).expect("there is room");
    }
    volume.flush().expect("the disk works");
}

#[track_caller]
fn check(pool: &Pool, blocks: std::ops::Range<u64>) {
    let volume = pool.engine.volume(NAME).expect("it is there");
    for block in blocks {
        let mut found = vec![0; 4096];
        volume.read(block * BLOCK, &mut found).expect("it can be read");
        assert_eq!(found, contents(block), "block {block}");
    }
}

/// Creates a set with 1000 blocks in an image and 100 more in the journal.
fn build(keys: &[WrappingKey]) -> Disk {
    let disk = Disk::new(1 << 30);
    let (pool, how) = open(&disk, keys).expect("the disk works");
    assert!(matches!(how, Opened::New));
    let volume = create(&pool, NAME, Durability::Journal);
    write(&volume, 0..1000);
    while pool.engine.maintain() {}
    save(&pool);
    write(&volume, 1000..1100);
    disk
}

/// Returns all files with their contents.
fn all(disk: &Disk) -> Vec<(String, Vec<u8>)> {
    let file = |name: String| {
        let contents = disk.contents(&name);
        (name, contents)
    };
    disk.files().into_iter().map(|info| file(info.name)).collect()
}

fn has(disk: &Disk, what: &[u8]) -> bool {
    all(disk).iter().any(|(_, bytes)| bytes.windows(what.len()).any(|window| window == what))
}

#[track_caller]
fn check_refused(disk: &Disk, keys: &[WrappingKey], why: &str) {
    let before = all(disk);
    let error = open(disk, keys).err().expect("the key is not the one");
    assert_eq!(error.kind, DurableErrorKind::Key);
    let mut text = error.to_string();
    let mut next = std::error::Error::source(&error);
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    assert!(text.contains(why), "{text}");
    assert!(all(disk) == before, "nothing was touched");
}

#[test]
fn what_was_saved_and_flushed_comes_back_with_the_key() {
    let disk = build(&[key(1)]);
    let (pool, how) = open(&disk, &[key(1)]).expect("it is the key");
    assert!(matches!(how, Opened::Restored { damaged_blocks: 0, .. }), "{how:?}");
    check(&pool, 0..1100);
    write(&pool.engine.volume(NAME).expect("it is there"), 1100..1200);
    save(&pool);
    drop(pool);
    let (pool, _) = open(&disk, &[key(1)]).expect("it is the key");
    check(&pool, 0..1200);
}

#[test]
fn nothing_of_contents_and_names_is_on_the_disk() {
    let plain = build(&[]);
    let sealed = build(&[key(1)]);
    for text in [&MARKER[..], NAME.as_bytes(), b"secret-label"] {
        assert!(has(&plain, text), "the test looks where it is");
        assert!(!has(&sealed, text), "{:?}", String::from_utf8_lossy(text));
    }
}

#[test]
fn a_wrong_or_missing_key_is_refused_and_touches_nothing() {
    let sealed = build(&[key(1)]);
    check_refused(&sealed, &[key(2)], "configure the key that wrapped it");
    let id = key(1).id();
    let why = format!("the journal is encrypted with the key {id}, and encryption-key-file is not");
    check_refused(&sealed, &[], &why);
    let why = "the journal is not encrypted, and a key is configured; to encrypt existing data";
    check_refused(&build(&[]), &[key(1)], why);
}

#[test]
fn a_store_alone_is_refused_without_its_key_and_restored_with_it() {
    let sealed = build(&[key(1)]);
    let folder = journal_folder(&sealed);
    for info in folder.list().expect("the disk works") {
        folder.remove(&info.name).expect("it is there");
    }
    folder.sync_names().expect("the disk works");
    check_refused(&sealed, &[key(2)], "configure the key that wrapped it");
    let why = format!("the image store is encrypted with the key {}, and", key(1).id());
    check_refused(&sealed, &[], &why);
    let (pool, _) = open(&sealed, &[key(1)]).expect("it is the key");
    check(&pool, 0..1000);
}

#[test]
fn a_journal_without_its_data_key_is_refused() {
    let sealed = build(&[key(1)]);
    let images = sealed.folder().folder("images").expect("the disk works");
    let folder = images.folder("images").expect("the disk works");
    for info in folder.list().expect("the disk works") {
        folder.remove(&info.name).expect("it is there");
    }
    journal_folder(&sealed).remove("data-key").expect("it is there");
    check_refused(&sealed, &[key(1)], "the file data-key is missing");
}

/// Goal: at every moment of a key rotation one of the two keys opens the set. Method: cut the power
/// at each moment, with all kinds of losses.
#[test]
fn a_rotation_that_is_cut_anywhere_is_opened_by_one_of_the_keys() {
    let disk = build(&[key(1)]);
    let before = disk.now();
    let first = key_on(&disk, &[key(1)]).expect("it is the key");
    assert_eq!(disk.now(), before, "without another key nothing is written");
    let rotated = key_on(&disk, &[key(2), key(1)]).expect("the old key opens it");
    assert_eq!(rotated.id(), first.id(), "the data key stays");
    let mut states = [0, 0];
    for moment in before.0..=disk.now().0 {
        for seed in 0..8 {
            let loss = Loss::HONEST[usize::try_from(seed % 4).expect("below 4")];
            let cut = Cut { moment: Moment(moment), loss, seed };
            let left = disk.after(&cut).disk;
            let is_old = key_on(&left, &[key(1)]).is_ok();
            states[usize::from(is_old)] += 1;
            assert!(is_old || key_on(&left, &[key(2)]).is_ok(), "{cut:?}");
            let (pool, _) = open(&left, &[key(2), key(1)]).expect("one of them opens it");
            check(&pool, 0..1100);
        }
    }
    assert!(states.iter().all(|&count| count > 0), "{states:?}");
    check_refused(&disk, &[key(1)], "configure the key that wrapped it");
    let (pool, _) = open(&disk, &[key(2)]).expect("it is the key");
    check(&pool, 0..1100);
}

#[test]
fn one_damaged_copy_of_the_data_key_is_healed_and_two_are_refused() {
    let disk = build(&[key(1)]);
    let flip = |byte: u64| disk.flip_bit("journal/data-key", byte * 8);
    flip(70);
    let opened = key_on(&disk, &[key(1)]).expect("there is another copy");
    flip(4096 + 70);
    assert_eq!(key_on(&disk, &[key(1)]).expect("the first was healed").id(), opened.id());
    flip(70);
    flip(4096 + 70);
    check_refused(&disk, &[key(1)], "the wrapped data key is corrupt");
}

/// Goal: a bit flip anywhere in the store is detected or harmless. Method: flip one bit, restore,
/// and check that each block is correct or an error.
#[test]
fn a_flipped_bit_in_the_store_never_gives_wrong_data() {
    let disk = build(&[key(1)]);
    let files: Vec<_> = all(&disk)
        .into_iter()
        .filter(|(name, _)| name.starts_with("images/"))
        .map(|(name, bytes)| (name, bytes.len() as u64))
        .collect();
    let mut noticed = 0;
    model::for_each_seed("cargo test -p durable-set --test encryption flipped", 40, |seed| {
        let mut random = Random::new(seed);
        let (name, bytes) = &files[random.index(files.len())];
        let bit = random.below(bytes * 8);
        let cut = Cut { moment: disk.now(), loss: Loss::Nothing, seed };
        let copy = disk.after(&cut).disk;
        copy.flip_bit(name, bit);
        match open(&copy, &[key(1)]) {
            Err(_) => noticed += 1,
            Ok((pool, _)) => {
                let volume = pool.engine.volume(NAME);
                for block in 0..1100 {
                    let mut found = vec![0; 4096];
                    let read = volume.as_ref().map(|it| it.read(block * BLOCK, &mut found));
                    let is_read = matches!(read, Ok(Ok(())));
                    assert!(!is_read || found == contents(block), "bit {bit} of {name}: {block}");
                    noticed += i32::from(!is_read);
                }
            }
        }
    });
    assert!(noticed > 0, "some of them hit something");
}
