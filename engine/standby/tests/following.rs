//! Tests of following: a pool has the contents of another's images, fetches only changes, and
//! readers see one image at a time.

mod support;

use std::io::IoSlice;
use std::sync::atomic::Ordering;

use block_device::{BlockDevice, ByteRange, DeviceErrorKind};
use standby::{StandbyErrorKind, Step};
use storage::AlignedBuffer;
use support::{BLOCK, Shared, Standby, VOLUME_BYTES, Writer, check_like, noise, read, write};
use volumes::{Durability, Reduction, ShrinkPolicy};

const BLOCKS: u64 = 1200;

/// Creates a volume with different contents in each block.
fn filled(writer: &Writer, name: &str, durability: Durability) {
    filled_from(writer, name, durability, 0);
}

fn filled_from(writer: &Writer, name: &str, durability: Durability, first_seed: u64) {
    let volume = writer.create(name, durability);
    for block in 0..BLOCKS {
        write(&volume, block, first_seed + block);
    }
}

#[track_caller]
fn check(standby: &Standby, name: &str, seeds: impl Fn(u64) -> u64) {
    for block in 0..BLOCKS {
        let expected = noise(seeds(block));
        assert!(standby.read(name, block) == Ok(expected), "block {block} of {name}");
    }
}

/// Returns all objects of the store with their contents.
fn stored(shared: &Shared) -> Vec<(String, Vec<u8>)> {
    let names = shared.disk.files().into_iter().map(|file| file.name);
    let names = names.filter(|name| name.starts_with("images/"));
    names.map(|name| (name.clone(), shared.disk.contents(&name))).collect()
}

#[test]
fn each_image_is_followed_and_only_what_changed_is_fetched() {
    let shared = Shared::new();
    let standby = shared.standby();
    assert!(matches!(standby.follow(), Step::Waiting));
    let writer = shared.writer();
    filled(&writer, "one", Durability::Image);
    filled(&writer, "two", Durability::Journal);
    let first = writer.save();
    let before = stored(&shared);
    assert!(standby.follow_to(first) >= 2 * BLOCKS / 2 * BLOCK);
    assert!(stored(&shared) == before, "a standby writes nothing to the store");
    check(&standby, "one", |block| block);
    assert!(matches!(standby.follow(), Step::Unchanged));
    standby.store.take_bytes_read();
    write(&writer.volume("one"), 700, 1_000_000);
    let second = writer.save();
    let before = stored(&shared);
    assert!(standby.follow_to(second) <= 4 * BLOCK);
    assert!(stored(&shared) == before, "a standby writes nothing to the store");
    let read = standby.store.take_bytes_read();
    assert!(read <= 16 * BLOCK, "{read} bytes were read for one block");
    check(&standby, "one", |block| if block == 700 { 1_000_000 } else { block });
    check(&standby, "two", |block| block);
    assert_eq!(standby.follower().progress().to_fetch_bytes, 0);
}

#[test]
fn an_image_is_followed_once_its_manifest_is_complete() {
    let shared = Shared::new();
    let (standby, writer) = (shared.standby(), shared.writer());
    filled(&writer, "one", Durability::Image);
    standby.follow_to(writer.save());
    write(&writer.volume("one"), 0, 10_000);
    let second = writer.save();
    // A manifest without its first block is unfinished.
    let open = || shared.disk.folder().folder("images")?.folder("images")?.open(&image(second));
    let file = open().expect("it was saved");
    let [mut header, zeros] = [(); 2].map(|()| AlignedBuffer::zeroed(storage::BLOCK_BYTES));
    file.read(0, &mut header).expect("it has a header");
    file.write_durably(0, &[IoSlice::new(&zeros)]).expect("the disk works");
    assert!(matches!(standby.follow(), Step::Unchanged));
    assert!(standby.follower().progress().skipped.is_empty(), "it is no damaged image");
    file.write_durably(0, &[IoSlice::new(&header)]).expect("the disk works");
    standby.follow_to(second);
    check(&standby, "one", |block| if block == 0 { 10_000 } else { block });
}

fn image(number: u32) -> String {
    format!("{number:010}")
}

#[test]
fn readers_keep_the_image_that_they_opened() {
    let shared = Shared::new();
    let (standby, writer) = (shared.standby(), shared.writer());
    filled(&writer, "one", Durability::Image);
    let first = writer.save();
    standby.follow_to(first);
    let old = standby.follower().generation().expect("it is complete");
    for block in 0..BLOCKS {
        write(&writer.volume("one"), block, block + 10_000);
    }
    let second = writer.save_and_keep(1);
    standby.follow_to(second);
    let one = old.volume("one").expect("the image has it");
    for block in 0..BLOCKS {
        assert!(read(one, block) == Ok(noise(block)), "block {block}");
    }
    assert_eq!((old.image_number(), old.is_whole()), (first, true));
    check(&standby, "one", |block| block + 10_000);
}

#[test]
fn volumes_and_snapshots_come_change_and_go_as_they_do_at_the_writer() {
    let shared = Shared::new();
    let (mut standby, writer) = (shared.standby(), shared.writer());
    for name in ["one", "two", "three"] {
        filled(&writer, name, Durability::Image);
    }
    let name = |text: &str| text.parse().expect("a good name");
    writer.engine.create_snapshots(&["one"], &name("first"), 7).expect("there is room");
    standby.follow_to(writer.save());
    check_like(&standby, &writer.engine);

    let engine = &writer.engine;
    write(&writer.volume("one"), 3, 77);
    engine.create_snapshots(&["one", "two"], &name("second"), 8).expect("there is room");
    write(&writer.volume("one"), 3, 78);
    let range = ByteRange::new(10 * BLOCK, 600 * BLOCK);
    writer.volume("one").discard(range).expect("it is one of its own");
    engine.rename_volume("two", name("swap")).expect("the name is free");
    engine.rename_volume("three", name("two")).expect("the name is free");
    engine.rename_volume("swap", name("three")).expect("the name is free");
    engine.resize_volume("two", VOLUME_BYTES / 8, ShrinkPolicy::DropData).expect("it may");
    engine.set_reduction("two", Reduction::None).expect("it is there");
    filled(&writer, "four", Durability::Journal);
    standby.follow_to(writer.save());
    check_like(&standby, &writer.engine);

    standby.start().expect("the pool is a standby's");
    engine.resize_volume("two", VOLUME_BYTES, ShrinkPolicy::KeepData).expect("there is room");
    engine.rename_snapshot("one", "second", &name("last")).expect("the name is free");
    engine.delete_snapshot("one", "first").expect("it is there");
    engine.delete_volume("four").expect("it is there");
    filled(&writer, "four", Durability::Image);
    write(&writer.volume("four"), 0, 99);
    standby.follow_to(writer.save());
    check_like(&standby, &writer.engine);
    let classes = standby.engine().volume("two").expect("it is there");
    assert_eq!(classes.reduction(), Reduction::None);
}

#[test]
fn after_a_kill_only_what_had_not_come_is_fetched() {
    let shared = Shared::new();
    let (mut standby, writer) = (shared.standby(), shared.writer());
    filled(&writer, "one", Durability::Image);
    filled_from(&writer, "two", Durability::Image, 50_000);
    let first = writer.save();
    let whole = standby.follow_to(first);
    let chunks = 2 * BLOCKS.div_ceil(512);
    for kill_after in 0..chunks {
        for block in 0..BLOCKS {
            write(&writer.volume("one"), block, block + 10_000 * (kill_after + 1));
            write(&writer.volume("two"), block, block + 20_000 * (kill_after + 1));
        }
        let number = writer.save();
        // Maps are read first: the new ones of two volumes, also the old ones if they are unknown,
        // and again while fetching pages.
        let maps = if kill_after == 0 { 2 } else { 4 } + 1 + u64::from(kill_after > chunks / 2);
        *standby.store.reads_left.lock().expect("no panic") = Some(maps + kill_after);
        let killed = standby.follower().follow(&image::Unwatched);
        assert!(!matches!(killed, Ok(Step::Complete { .. })), "{killed:?}");
        *standby.store.reads_left.lock().expect("no panic") = None;
        standby.start().expect("the pool is a standby's");
        assert!(standby.follower().generation().is_none(), "nothing is served that is not whole");
        let rest = standby.follow_to(number);
        let come = kill_after * (BLOCKS % 512) * BLOCK;
        assert!(rest + come <= whole + 64 * BLOCK, "{rest} of {whole} after {kill_after} chunks");
        check(&standby, "one", |block| block + 10_000 * (kill_after + 1));
        check(&standby, "two", |block| block + 20_000 * (kill_after + 1));
    }
}

#[test]
fn images_that_go_while_they_are_fetched_are_passed_over_and_nothing_comes_twice() {
    let shared = Shared::new();
    let (standby, writer) = (shared.standby(), shared.writer());
    filled(&writer, "one", Durability::Image);
    standby.follow_to(writer.save());
    for round in 1..6 {
        for block in 0..BLOCKS {
            write(&writer.volume("one"), block, block + 10_000 * round);
        }
        writer.save_and_keep(1);
        *standby.store.reads_left.lock().expect("no panic") = Some(4);
        let cut = standby.follower().follow(&image::Unwatched);
        assert!(!matches!(cut, Ok(Step::Complete { .. })), "{cut:?}");
        *standby.store.reads_left.lock().expect("no panic") = None;
        write(&writer.volume("one"), 5, 900_000 + round);
        // The image being fetched is gone.
        let last = writer.save_and_keep(1);
        let rest = standby.follow_to(last);
        assert!(rest <= (BLOCKS - 512) * BLOCK, "{rest} bytes");
        check(&standby, "one", |block| match block {
            5 => 900_000 + round,
            _ => block + 10_000 * round,
        });
    }
}

#[test]
fn a_damaged_image_is_skipped_and_the_last_good_one_stays() {
    let shared = Shared::new();
    let (standby, writer) = (shared.standby(), shared.writer());
    filled(&writer, "one", Durability::Image);
    let first = writer.save();
    standby.follow_to(first);
    write(&writer.volume("one"), 1, 5_000);
    let second = writer.save();
    shared.disk.flip_bit(&format!("images/images/{second:010}"), 8 * 4096 + 5);
    assert!(matches!(standby.follow(), Step::Unchanged));
    let progress = standby.follower().progress();
    assert_eq!(progress.skipped.len(), 1, "{progress:?}");
    assert_eq!((progress.skipped[0].0, progress.image_number), (second, Some(first)));
    check(&standby, "one", |block| block);
    write(&writer.volume("one"), 1, 5_001);
    let third = writer.save();
    standby.follow_to(third);
    assert_eq!(standby.follower().progress().skipped, []);
    check(&standby, "one", |block| if block == 1 { 5_001 } else { block });
}

#[test]
fn packs_that_are_missing_keep_readers_where_they_are_until_they_are_back() {
    let shared = Shared::new();
    let (standby, writer) = (shared.standby(), shared.writer());
    filled(&writer, "one", Durability::Image);
    let first = writer.save();
    standby.follow_to(first);
    let before: Vec<_> = packs(&writer);
    write(&writer.volume("one"), 1, 5_000);
    let second = writer.save();
    let new = packs(&writer).into_iter().filter(|pack| !before.contains(pack));
    *standby.store.hidden.lock().expect("no panic") = new.collect();
    assert!(matches!(standby.follow(), Step::Unchanged));
    assert_eq!(standby.follower().progress().skipped[0].0, second);
    check(&standby, "one", |block| block);
    standby.store.hidden.lock().expect("no panic").clear();
    standby.follow_to(second);
    check(&standby, "one", |block| if block == 1 { 5_000 } else { block });
}

fn packs(writer: &Writer) -> Vec<image::PackName> {
    let packs = writer.set.images().packs().expect("the disk works");
    packs.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_store_that_is_away_leaves_readers_what_they_have() {
    let shared = Shared::new();
    let (mut standby, writer) = (shared.standby(), shared.writer());
    filled(&writer, "one", Durability::Image);
    let first = writer.save();
    standby.follow_to(first);
    standby.store.is_away.store(true, Ordering::Relaxed);
    let failure = standby.follower().follow(&image::Unwatched).expect_err("it is away");
    assert_eq!(failure.kind, StandbyErrorKind::Store);
    check(&standby, "one", |block| block);
    standby.start().expect("the pool is a standby's, and no store is needed to know");
    standby.follower().follow(&image::Unwatched).expect_err("it is away");
    standby.store.is_away.store(false, Ordering::Relaxed);
    assert_eq!(standby.follow_to(first), 0, "memory has all of it");
    check(&standby, "one", |block| block);
}

#[test]
fn a_store_that_has_lost_its_images_is_an_error_and_the_last_one_is_read_on() {
    let shared = Shared::new();
    let (mut standby, writer) = (shared.standby(), shared.writer());
    assert!(matches!(standby.follow(), Step::Waiting));
    filled(&writer, "one", Durability::Image);
    let first = writer.save();
    standby.follow_to(first);
    let known = standby.follower().progress();
    standby.store.is_empty.store(true, Ordering::Relaxed);
    let failure = standby.follower().follow(&image::Unwatched).expect_err("it has none");
    assert_eq!(failure.kind, StandbyErrorKind::NoImage);
    assert_eq!(standby.follower().progress(), known, "its age is told on");
    check(&standby, "one", |block| block);
    standby.start().expect("the pool is a standby's");
    let failure = standby.follower().follow(&image::Unwatched).expect_err("it has none");
    assert_eq!(failure.kind, StandbyErrorKind::NoImage);
    standby.store.is_empty.store(false, Ordering::Relaxed);
    assert_eq!(standby.follow_to(first), 0, "memory has all of it");
}

#[test]
fn a_store_of_another_pool_is_refused() {
    let shared = Shared::new();
    let (standby, writer) = (shared.standby(), shared.writer());
    filled(&writer, "one", Durability::Image);
    standby.follow_to(writer.save());
    for file in shared.disk.files() {
        let (folders, name) = file.name.rsplit_once('/').expect("it is in a folder");
        let mut folder = shared.disk.folder();
        for part in folders.split('/') {
            folder = folder.folder(part).expect("the disk works");
        }
        folder.remove(name).expect("the disk works");
    }
    let other = shared.writer();
    filled(&other, "one", Durability::Image);
    other.save();
    other.save();
    let failure = standby.follower().follow(&image::Unwatched).expect_err("it is another's");
    assert_eq!(failure.kind, StandbyErrorKind::OtherSet);
    check(&standby, "one", |block| block);
}

#[test]
fn a_pool_with_volumes_of_its_own_does_not_follow() {
    let shared = Shared::new();
    let mut standby = shared.standby();
    standby.follower = None;
    let engine = standby.engine();
    engine.end_restoring();
    let spec = volumes::VolumeSpec::new("own".parse().expect("a good name"), VOLUME_BYTES);
    engine.create_volume(spec).expect("there is room");
    let failure = standby.start().expect_err("it would lose its volume");
    assert_eq!(failure.kind, StandbyErrorKind::NotEmpty);
}

#[test]
fn a_pool_that_is_too_small_says_so_and_readers_lose_nothing_but_time() {
    let shared = Shared::new();
    let standby = shared.standby_of(8 << 20, Vec::new());
    let writer = shared.writer();
    filled(&writer, "one", Durability::Image);
    let first = writer.save();
    standby.follow_to(first);
    filled_from(&writer, "two", Durability::Image, 50_000);
    writer.save();
    let failure = standby.follower().follow(&image::Unwatched).expect_err("there is no room");
    assert_eq!(failure.kind, StandbyErrorKind::PoolFull);
    writer.engine.delete_volume("two").expect("it is there");
    standby.follow_to(writer.save());
    check(&standby, "one", |block| block);
    let gone = standby.read("one", BLOCKS - 1).map_err(|kind| kind == DeviceErrorKind::Gone);
    assert_eq!(gone, Ok(noise(BLOCKS - 1)));
}

#[test]
fn five_hundred_volumes_are_followed_each_with_what_it_has() {
    let shared = Shared::new();
    let (mut standby, writer) = (shared.standby(), shared.writer());
    let name = |number: u64| format!("volume-{number}");
    for number in 0..500 {
        write(&writer.create(&name(number), Durability::Image), number, number);
    }
    standby.follow_to(writer.save());
    for number in (0..500).step_by(7) {
        write(&writer.volume(&name(number)), number, number + 1_000);
    }
    let second = writer.save();
    assert!(standby.follow_to(second) <= 500 / 7 * 4 * BLOCK);
    for _ in 0..2 {
        for number in 0..500 {
            let seed = if number % 7 == 0 { number + 1_000 } else { number };
            assert!(standby.read(&name(number), number) == Ok(noise(seed)), "{number}");
        }
        standby.start().expect("the pool is a standby's");
        assert_eq!(standby.follow_to(second), 0, "memory has all of it");
    }
}
