//! Tests that damage is always detected, reported and never returned as contents.

mod made;

use std::sync::Arc;

use image::{
    BlockRef, BlockRun, ImageErrorKind, ImageStore, ListedImage, OpenImage, Unwatched, list_images,
};
use made::{Collected, Contents, Made, all_refs, claim, disk, newest, open, store_on};
use powercut::{Disk, Effect, Fault};
use storage::StorageAction;

/// Saves an image with uncompressed and encoded pages, fills and holes in one pack.
fn saved_on(disk: &Disk) -> (Arc<dyn ImageStore>, Made) {
    let store = store_on(disk);
    let mut made = Made::one(8 << 20);
    for block in 0..12 {
        made.write(0, block, Contents::Noise(block));
        made.write(0, 600 + block, Contents::Text(block));
    }
    made.write(0, 40, Contents::Fill(9));
    made.save(&mut claim(&store));
    (store, made)
}

fn file_of(disk: &Disk, folder: &str) -> (String, u64) {
    let files = disk.files();
    let found = files.into_iter().rfind(|file| file.name.starts_with(folder));
    let file = found.expect("it was saved");
    (file.name, file.size_bytes)
}

#[test]
fn a_flip_of_any_byte_of_a_pack_is_noticed_and_never_read() {
    let disk = disk();
    let (store, made) = saved_on(&disk);
    let (pack, size_bytes) = file_of(&disk, "packs/");
    let mut noticed = 0;
    for byte in (0..size_bytes).step_by(997) {
        disk.flip_bit(&pack, byte * 8 + byte % 8);
        let image = newest(&store).expect("its manifest is whole");
        let verified = image.verify(&Unwatched).expect("the store can be read");
        check_reads_right_or_fails(&made, &image);
        noticed += usize::from(verified.chunks_damaged == 1);
        disk.flip_bit(&pack, byte * 8 + byte % 8);
    }
    // All flips except those in the informational digest of a chunk's header.
    assert!(noticed as u64 >= size_bytes / 997, "{noticed} of {}", size_bytes / 997 + 1);
    made.check(&newest(&store).expect("whole again"));
}

/// Checks that every block has its contents or is unavailable.
fn check_reads_right_or_fails(made: &Made, image: &OpenImage) {
    let mut collected = Collected::default();
    image.restore(&mut collected, &Unwatched).expect("what is damaged is left out");
    for ((_, block), bytes) in &collected.blocks {
        assert!(*bytes == made.contents(0, *block).bytes(), "block {block}");
    }
}

#[test]
fn a_flip_of_any_byte_of_a_manifest_is_noticed() {
    let disk = disk();
    let (store, _made) = saved_on(&disk);
    let (manifest, size_bytes) = file_of(&disk, "images/");
    for byte in (0..size_bytes).step_by(13) {
        disk.flip_bit(&manifest, byte * 8);
        match newest(&store) {
            None => {}
            // Bytes after the tables are ignored zeros.
            Some(_) => assert!(byte > 4096 + 192, "byte {byte}"),
        }
        disk.flip_bit(&manifest, byte * 8);
    }
    assert!(newest(&store).is_some());
}

#[test]
fn a_damaged_chunk_is_named_with_its_place_and_the_blocks_that_need_it() {
    let disk = disk();
    let (store, _made) = saved_on(&disk);
    let (pack, _) = file_of(&disk, "packs/");
    disk.flip_bit(&pack, 5000 * 8);
    let image = newest(&store).expect("its manifest is whole");
    let mut collected = Collected::default();
    let restored = image.restore(&mut collected, &Unwatched).expect("the rest is sound");
    assert_eq!((restored.chunks_left, collected.damaged.len()), (1, 1));
    assert_eq!(collected.blocks.len(), 12);
    let damage = &collected.damaged[0];
    let pack = pack.strip_prefix("packs/").expect("it is one");
    assert_eq!(
        damage.error.to_string(),
        format!("cannot read chunk 1 at 0 of pack {pack}: it is corrupt")
    );
    let run = BlockRun { volume: "data".into(), first_block: 0, block_count: 12 };
    assert_eq!(damage.blocks, std::slice::from_ref(&run));
    let verified = image.verify(&Unwatched).expect("the store can be read");
    assert_eq!(verified.damage[0].blocks, [run]);
}

#[test]
fn a_page_of_a_damaged_chunk_cannot_be_fetched_and_others_can() {
    let disk = disk();
    let (store, made) = saved_on(&disk);
    let (pack, _) = file_of(&disk, "packs/");
    disk.flip_bit(&pack, 5000 * 8);
    let image = newest(&store).expect("its manifest is whole");
    let refs = all_refs(&image, 0);
    let mut bytes = [0; 4096];
    let BlockRef::Page(lost) = refs[&3] else { panic!("{:?}", refs[&3]) };
    let error = image.fetch(lost, &mut bytes).expect_err("its chunk is damaged");
    assert_eq!(error.kind, ImageErrorKind::Damaged);
    let BlockRef::Page(found) = refs[&605] else { panic!("{:?}", refs[&605]) };
    image.fetch(found, &mut bytes).expect("its chunk is sound");
    assert!(bytes == made.contents(0, 605).bytes());
}

#[test]
fn a_damaged_map_is_named_and_what_it_says_is_left_out() {
    let disk = disk();
    let (store, _made) = saved_on(&disk);
    let (pack, size_bytes) = file_of(&disk, "packs/");
    disk.flip_bit(&pack, (size_bytes - 4090) * 8);
    let image = newest(&store).expect("its manifest is whole");
    let mut collected = Collected::default();
    let restored = image.restore(&mut collected, &Unwatched).expect("nothing else is needed");
    assert_eq!((restored.pages_placed, restored.chunks_left), (0, 1));
    let error = &collected.damaged[0].error;
    assert_eq!(error.kind, ImageErrorKind::Damaged);
    assert!(error.to_string().contains("read chunk 3 at "), "{error}");
    let verified = image.verify(&Unwatched).expect("the store can be read");
    assert_eq!(verified.chunks_damaged, 1);
}

#[test]
fn wrong_bytes_are_had_from_another_image_that_has_the_same() {
    let disk = disk();
    let store = store_on(&disk);
    let mut made = Made::one(256 << 20);
    for leaf in 0..40 {
        (0..4)
            .for_each(|block| made.write(0, leaf * 512 + block, Contents::Noise(leaf * 4 + block)));
    }
    made.save(&mut claim(&store));
    for leaf in 1..40 {
        (0..4).for_each(|block| made.discard(0, leaf * 512 + block));
    }
    // Refers to one chunk of a pack that is sparse from now on. The next image abandons that pack.
    let little_used = made.save(&mut claim(&store));
    let moved = made.save(&mut claim(&store));
    let page_of = |image: &OpenImage| match all_refs(image, 0)[&0] {
        BlockRef::Page(page) => page,
        other => panic!("{other:?} is no page"),
    };
    let images = [little_used.id, moved.id].map(|id| open(&store, id));
    let packs = images.each_ref().map(|image| image.whereabouts(page_of(image)).expect("a page").0);
    assert_ne!(packs[0], packs[1], "the newer one has it elsewhere");
    for (image, pack) in images.iter().zip(packs) {
        disk.flip_bit(&format!("packs/{pack}"), 5000 * 8);
        let mut bytes = [0; 4096];
        image.fetch(page_of(image), &mut bytes).expect("the other image has it");
        assert!(bytes == made.contents(0, 0).bytes());
        disk.flip_bit(&format!("packs/{pack}"), 5000 * 8);
    }
}

#[test]
fn what_could_not_be_had_is_asked_for_again() {
    let disk = disk();
    let (store, made) = saved_on(&disk);
    let (pack, _) = file_of(&disk, "packs/");
    let image = newest(&store).expect("its manifest is whole");
    let BlockRef::Page(page) = all_refs(&image, 0)[&3] else { panic!("it is a page") };
    disk.flip_bit(&pack, 5000 * 8);
    let mut bytes = [0; 4096];
    for _ in 0..100 {
        let error = image.fetch(page, &mut bytes).expect_err("its chunk is damaged");
        assert_eq!(error.kind, ImageErrorKind::Damaged);
    }
    assert_eq!(image.damaged_chunks().len(), 1);
    disk.flip_bit(&pack, 5000 * 8);
    let begun = std::time::Instant::now();
    while image.fetch(page, &mut bytes).is_err() {
        assert!(begun.elapsed().as_secs() < 60, "it is read again by itself");
        std::thread::yield_now();
    }
    assert!(bytes == made.contents(0, 3).bytes() && image.damaged_chunks().is_empty());
}

#[test]
fn verifying_tells_what_was_lost_before_the_image_was_saved() {
    let disk = disk();
    let store = store_on(&disk);
    let mut made = Made::one(8 << 20);
    (0..12).for_each(|block| made.write(0, block, Contents::Noise(block)));
    (5..7).for_each(|block| made.write(0, block, Contents::Damaged));
    let saved = made.save(&mut claim(&store));
    assert_eq!(saved.lost_blocks, 2);
    let image = open(&store, saved.id);
    assert_eq!(image.summary().lost_blocks, 2);
    let verified = image.verify(&Unwatched).expect("the store can be read");
    let run = BlockRun { volume: "data".into(), first_block: 5, block_count: 2 };
    assert_eq!((verified.lost_blocks, verified.lost), (2, vec![run]));
}

#[test]
fn a_save_writes_anew_what_lies_in_a_missing_pack() {
    let disk = disk();
    let (store, mut made) = saved_on(&disk);
    let (name, _) = store.packs().expect("listed")[0];
    store.remove(image::ObjectName::Pack(name)).expect("it is there");
    let saved = made.save(&mut claim(&store));
    assert_eq!((saved.pages_reused, saved.lost_blocks), (0, 0));
    made.check(&open(&store, saved.id));
}

#[test]
fn a_save_heals_what_its_damaged_base_map_does_not_say() {
    let disk = disk();
    let (store, mut made) = saved_on(&disk);
    let (pack, size_bytes) = file_of(&disk, "packs/");
    disk.flip_bit(&pack, (size_bytes - 4090) * 8);
    made.write(0, 5, Contents::Noise(500));
    let saved = made.save(&mut claim(&store));
    made.check(&open(&store, saved.id));
}

#[test]
fn a_missing_pack_is_damage_to_those_who_need_it() {
    let disk = disk();
    let (store, _made) = saved_on(&disk);
    let (name, _) = store.packs().expect("listed")[0];
    store.remove(image::ObjectName::Pack(name)).expect("it is there");
    let image = newest(&store).expect("its manifest is whole");
    let verified = image.verify(&Unwatched).expect("the store can be listed");
    assert_eq!(verified.chunks_damaged, 3);
    assert_eq!(verified.damage[0].error.kind, ImageErrorKind::NotFound);
}

#[test]
fn a_damaged_newest_image_is_shown_and_the_one_before_is_opened() {
    let disk = disk();
    let (store, mut made) = saved_on(&disk);
    let before = made.clone();
    made.write(0, 0, Contents::Noise(1 << 20));
    let second = made.save(&mut claim(&store));
    let (manifest, _) = file_of(&disk, "images/");
    disk.flip_bit(&manifest, 300 * 8);
    let mut skipped = Vec::new();
    let image = OpenImage::open_newest(Arc::clone(&store), &mut |number, error| {
        skipped.push((number, error.kind));
    });
    before.check(&image.expect("the store can be read").expect("one is whole"));
    assert_eq!(skipped, [(second.id.number(), ImageErrorKind::Damaged)]);
    let listed = list_images(&store).expect("the store can be read");
    assert!(matches!(&listed[..], [ListedImage::Whole(_), ListedImage::Unreadable { .. }]));
}

#[test]
fn nothing_is_collected_while_a_manifest_cannot_be_read() {
    let disk = disk();
    let (store, mut made) = saved_on(&disk);
    let mut claimed = claim(&store);
    made.write(0, 0, Contents::Noise(1 << 20));
    let second = made.save(&mut claimed);
    let (manifest, _) = file_of(&disk, "images/");
    disk.flip_bit(&manifest, 300 * 8);
    let packs = store.packs().expect("listed");
    let error = claimed.collect().expect_err("a manifest is damaged");
    assert_eq!(error.kind, ImageErrorKind::Damaged);
    assert_eq!(store.packs().expect("listed"), packs);
    claimed.delete(second.id.number(), &[]).expect("it is there");
    assert_eq!(claimed.collect().expect("all are whole").pack_count, 1);
}

#[test]
fn numbers_that_a_damaged_manifest_may_have_given_are_not_given_again() {
    let disk = disk();
    let (store, mut made) = saved_on(&disk);
    made.write(0, 0, Contents::Noise(1 << 20));
    made.save(&mut claim(&store));
    let damaged = all_refs(&newest(&store).expect("whole"), 0);
    let (manifest, _) = file_of(&disk, "images/");
    disk.flip_bit(&manifest, 300 * 8);
    made.write(0, 0, Contents::Noise(1 << 21));
    let third = made.save(&mut claim(&store));
    let refs = all_refs(&open(&store, third.id), 0);
    assert_ne!(refs[&0], damaged[&0]);
    assert!(third.id.number() > 4);
    made.check(&open(&store, third.id));
}

#[test]
fn a_disk_that_fails_is_not_taken_for_damage() {
    let disk = disk();
    let (store, _made) = saved_on(&disk);
    let image = newest(&store).expect("whole");
    disk.inject(Fault::always(&[StorageAction::Read], Effect::Io));
    let mut collected = Collected::default();
    let error = image.restore(&mut collected, &Unwatched).expect_err("the disk fails");
    assert_eq!(error.kind, ImageErrorKind::Unavailable);
    assert!(collected.damaged.is_empty());
    let error = image.verify(&Unwatched).expect_err("the disk fails");
    assert_eq!(error.kind, ImageErrorKind::Unavailable);
    disk.heal();
    image.restore(&mut collected, &Unwatched).expect("the disk is sound again");
    assert_eq!(collected.blocks.len(), 24);
}
