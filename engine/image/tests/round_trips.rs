//! Tests of round trips: saved data is restored, and unchanged data is not saved again.

mod made;

use std::ops::ControlFlow;

use image::{BlockPlace, BlockRef, ImageErrorKind, ImageVolumeKind, SaveOptions, Unwatched};
use made::{
    Collected, Contents, Made, all_refs, claim, disk, image_volume, newest, open, options, store_on,
};
use proptest::prelude::*;
use volumes::ImageBase;

const MIB: u64 = 1 << 20;

/// Creates a volume with all kinds of contents, and a snapshot that shares most of them.
fn motley() -> Made {
    let mut made = Made::one(3 * 1024 * MIB);
    for block in 0..700 {
        made.write(0, block, Contents::Noise(block));
        made.write(0, 2000 + block, Contents::Text(block % 50));
    }
    made.write(0, 1500, Contents::Fill(0));
    made.write(0, 1501, Contents::Fill(0xDEAD_BEEF));
    made.write(0, 1502, Contents::Damaged);
    made.write(0, 3 * 1024 * 256 - 1, Contents::Noise(5));
    let snapshot = made.add(image_volume(2, "data@monday", 10 * MIB));
    made.volumes[snapshot].source.volume.kind = ImageVolumeKind::Snapshot;
    made.volumes[snapshot].source.volume.origin = 1;
    for block in 0..600 {
        made.write(snapshot, block, Contents::Noise(block));
    }
    made
}

#[test]
fn everything_comes_back_as_it_was_saved() {
    let store = store_on(&disk());
    let mut made = motley();
    let saved = made.save(&mut claim(&store));
    let image = open(&store, saved.id);
    made.check(&image);
    let summary = image.summary();
    assert_eq!((summary.set_id, summary.journal), (made::SET, options().journal));
    let verified = image.verify(&Unwatched).expect("the store can be read");
    assert_eq!((verified.chunks_damaged, verified.damage.len()), (0, 0));
}

#[test]
fn a_restore_gives_every_page_once() {
    let store = store_on(&disk());
    let mut made = motley();
    let saved = made.save(&mut claim(&store));
    let mut collected = Collected::default();
    let image = open(&store, saved.id);
    let restored = image.restore(&mut collected, &Unwatched).expect("the image is sound");
    assert_eq!(collected.blocks.len(), 700 + 700 + 1 + 600);
    assert_eq!(restored.pages_placed, 2001);
    for block in 0..600 {
        assert!(collected.blocks[&(1, block)] == Contents::Noise(block).bytes());
    }
    assert!(collected.blocks[&(0, 2049)] == Contents::Text(49).bytes());
}

#[test]
fn a_restore_leaves_out_what_is_not_wanted_any_more() {
    let store = store_on(&disk());
    let mut made = motley();
    let saved = made.save(&mut claim(&store));
    let unwanted = BlockPlace { volume: 0, block: 3 };
    let mut collected = Collected { unwanted: vec![unwanted], ..Collected::default() };
    open(&store, saved.id).restore(&mut collected, &Unwatched).expect("the image is sound");
    assert!(!collected.blocks.contains_key(&(0, 3)));
    assert!(collected.blocks.contains_key(&(0, 4)));
}

#[test]
fn pages_that_blocks_share_are_written_once() {
    let store = store_on(&disk());
    let mut made = Made::one(100 * MIB);
    for block in 0..5000 {
        made.write(0, block, Contents::Noise(block % 10));
    }
    let saved = made.save(&mut claim(&store));
    assert_eq!(saved.pages_written, 10);
    made.check(&open(&store, saved.id));
}

#[test]
fn volumes_with_equal_leaves_take_the_room_of_one() {
    let store = store_on(&disk());
    let mut made = Made::one(4 * MIB);
    let other = made.add(image_volume(2, "copy", 4 * MIB));
    for block in 0..1024 {
        made.write(0, block, Contents::Noise(block));
        made.write(other, block, Contents::Noise(block));
    }
    let saved = made.save(&mut claim(&store));
    assert_eq!(saved.pages_written, 1024);
    made.check(&open(&store, saved.id));
}

#[test]
fn an_unchanged_volume_is_saved_with_a_manifest_alone() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let mut made = motley();
    let first = made.save(&mut claimed);
    let again = made.save(&mut claimed);
    assert!(first.bytes_written > 2 * MIB);
    assert_eq!((again.chunks_new, again.pages_written), (0, 0));
    assert!(again.bytes_written < 16 << 10, "{again:?}");
    made.check(&open(&store, again.id));
    made.check(&open(&store, first.id));
}

#[test]
fn one_hundredth_of_random_changes_takes_little_more_than_that() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let block_count = 64 * 512;
    let mut made = Made::one(block_count * 4096);
    for block in 0..block_count {
        made.write(0, block, Contents::Noise(block));
    }
    let full = made.save(&mut claimed);
    for change in 0..block_count / 100 {
        let block = (change * 7_919 * 101) % block_count;
        made.write(0, block, Contents::Noise(1 << 40 | change));
    }
    let incremental = made.save(&mut claimed);
    made.check(&open(&store, incremental.id));
    assert!(
        incremental.bytes_written * 100 <= full.bytes_written * 3,
        "{} of {} bytes",
        incremental.bytes_written,
        full.bytes_written
    );
}

#[test]
fn a_leaf_in_too_many_chunks_is_written_whole() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let mut made = Made::one(2 * MIB);
    for block in 0..512 {
        made.write(0, block, Contents::Noise(block));
    }
    made.save(&mut claimed);
    let mut chunk_counts = Vec::new();
    for round in 0..40 {
        made.write(0, round, Contents::Noise(1000 + round));
        let saved = made.save(&mut claimed);
        let image = open(&store, saved.id);
        made.check(&image);
        let refs = all_refs(&image, 0);
        let mut chunks: Vec<_> = refs
            .values()
            .map(|found| match found {
                BlockRef::Page(page) => page.chunk(),
                other => panic!("{other:?}"),
            })
            .collect();
        chunks.sort_unstable();
        chunks.dedup();
        chunk_counts.push(chunks.len());
    }
    assert_eq!(chunk_counts.iter().max(), Some(&16));
    assert_eq!(chunk_counts.iter().filter(|&&count| count == 1).count(), 2);
}

#[test]
fn discarded_and_overwritten_blocks_are_not_in_the_next_image() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let mut made = motley();
    made.save(&mut claimed);
    for block in 0..512 {
        made.discard(0, block);
    }
    made.write(0, 600, Contents::Fill(7));
    let saved = made.save(&mut claimed);
    made.check(&open(&store, saved.id));
}

#[test]
fn blocks_that_were_not_fetched_yet_keep_their_pages() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let mut made = motley();
    let first = made.save(&mut claimed);
    let refs = all_refs(&open(&store, first.id), 0);
    let mut restoring = Made { fetched_from: Some(first.id), ..motley() };
    for (block, found) in refs {
        if let BlockRef::Page(page) = found {
            restoring.write(0, block, Contents::Absent(page));
        }
    }
    restoring.write(0, 10, Contents::Noise(77));
    restoring.settle(first.id);
    restoring.write(0, 11, Contents::Noise(78));
    let saved = restoring.save(&mut claimed);
    // Block 10 is marked as unchanged, so it has the contents of the base image.
    restoring.write(0, 10, Contents::Noise(10));
    restoring.check(&open(&store, saved.id));
    assert_eq!(saved.pages_written, 1);
}

#[test]
fn blocks_to_be_fetched_from_an_image_that_is_gone_are_found_in_others_or_fail_the_save() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let mut made = motley();
    let first = made.save(&mut claimed);
    let mut restoring = Made { fetched_from: Some(first.id), ..motley() };
    for (block, found) in all_refs(&open(&store, first.id), 0) {
        if let BlockRef::Page(page) = found {
            restoring.write(0, block, Contents::Absent(page));
        }
    }
    let second = made.save(&mut claimed);
    claimed.delete(first.id.number(), &[]).expect("it is there");
    let third = restoring.save(&mut claimed);
    made.check(&open(&store, third.id));
    for id in [second.id, third.id] {
        claimed.delete(id.number(), &[]).expect("it is there");
    }
    let error = claimed.save(&restoring, &options(), &Unwatched).expect_err("nothing has them");
    assert_eq!(error.kind, ImageErrorKind::InUse);
}

#[test]
fn without_its_base_image_a_volume_is_saved_whole() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let mut made = motley();
    let first = made.save(&mut claimed);
    claimed.delete(first.id.number(), &[]).expect("it is there");
    claimed.collect().expect("the store is sound");
    let second = made.save(&mut claimed);
    assert_eq!(second.bases_missing, [first.id]);
    assert!(second.pages_written >= 700);
    made.check(&open(&store, second.id));
}

#[test]
fn an_image_of_another_set_is_no_base() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let mut made = motley();
    let foreign = SaveOptions { set_id: [5; 16], ..options() };
    let saved = claimed.save(&made, &foreign, &Unwatched).expect("the store is sound");
    made.settle(saved.id);
    made.write(0, 0, Contents::Noise(1 << 30));
    // The base's contents of block 1 must not reappear.
    made.write(0, 1, Contents::Noise(1 << 31));
    made.mark_in_base(0, 1);
    let second = made.save(&mut claimed);
    assert_eq!(second.bases_missing, [saved.id]);
    made.check(&open(&store, second.id));
}

#[test]
fn a_block_that_its_base_does_not_have_is_written() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let mut made = motley();
    made.save(&mut claimed);
    made.write(0, 100_000, Contents::Noise(1 << 32));
    made.mark_in_base(0, 100_000);
    let saved = made.save(&mut claimed);
    assert_eq!(saved.pages_written, 1);
    made.check(&open(&store, saved.id));
}

#[test]
fn volumes_may_have_different_bases() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let mut left = Made::one(4 * MIB);
    let mut right = Made::default();
    right.add(image_volume(9, "other", 4 * MIB));
    for block in 0..300 {
        left.write(0, block, Contents::Noise(block));
        right.write(0, block, Contents::Noise(5000 + block));
    }
    left.save(&mut claimed);
    right.save(&mut claimed);
    let mut both = left;
    both.volumes.extend(right.volumes);
    both.write(1, 7, Contents::Noise(1 << 20));
    let saved = both.save(&mut claimed);
    assert_eq!(saved.pages_written, 1);
    both.check(&open(&store, saved.id));
}

#[test]
fn a_clone_refers_to_what_its_origin_has_in_the_base() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let mut made = Made::one(4 * MIB);
    for block in 0..300 {
        made.write(0, block, Contents::Noise(block));
    }
    let first = made.save(&mut claimed);
    let mut clone = made.volumes[0].clone();
    clone.source.volume = image_volume(2, "clone", 4 * MIB);
    clone.source.base = Some(ImageBase { image: first.id.word(), volume_id: 1 });
    made.volumes.push(clone);
    made.write(1, 5, Contents::Noise(1 << 20));
    let saved = made.save(&mut claimed);
    assert_eq!(saved.pages_written, 1);
    made.check(&open(&store, saved.id));
}

#[test]
fn packs_of_which_little_is_in_use_are_let_go() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let mut made = Made::one(40 * MIB);
    for block in 0..10 * 512 {
        made.write(0, block, Contents::Noise(block));
    }
    made.save(&mut claimed);
    let old = store.packs().expect("listed")[0].0;
    for block in (0..10 * 512).filter(|block| block % 10 != 0) {
        made.write(0, block, Contents::Noise(10_000 + block));
    }
    made.save(&mut claimed);
    made.write(0, 1, Contents::Noise(1 << 33));
    for leaf in 0..10 {
        made.write(0, leaf * 512, Contents::Noise((1 << 34) + leaf));
    }
    let saved = made.save(&mut claimed);
    made.check(&open(&store, saved.id));
    claimed.retain(1, &[]).expect("the store is sound");
    let packs = store.packs().expect("listed");
    assert!(packs.iter().all(|(name, _)| *name != old), "{packs:?}");
    made.check(&newest(&store).expect("one is left"));
}

#[test]
fn unsound_volumes_and_labels_are_refused() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let long = SaveOptions { label: "x".repeat(64), ..options() };
    let error = claimed.save(&motley(), &long, &Unwatched).expect_err("the label is long");
    assert_eq!(error.kind, ImageErrorKind::Invalid);
    let mut made = Made::default();
    made.add(image_volume(1, "no/name", MIB));
    let error = claimed.save(&made, &options(), &Unwatched).expect_err("the name is bad");
    assert_eq!(error.kind, ImageErrorKind::Invalid);
}

#[test]
fn a_look_at_the_leaves_can_end_early() {
    let store = store_on(&disk());
    let saved = motley().save(&mut claim(&store));
    let mut count = 0;
    let visited = open(&store, saved.id).leaves(0, &mut |_, _| {
        count += 1;
        ControlFlow::Break(())
    });
    visited.expect("the map is sound");
    assert_eq!(count, 1);
}

/// Strategy for a change of a volume of 1200 blocks.
fn change() -> impl Strategy<Value = (u64, Option<Contents>)> {
    let contents = prop_oneof![
        Just(None),
        (0..3_u32).prop_map(|pattern| Some(Contents::Fill(pattern))),
        (0..40_u64).prop_map(|seed| Some(Contents::Noise(seed))),
        (100..140_u64).prop_map(|seed| Some(Contents::Text(seed))),
    ];
    (0..1200_u64, contents)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_image_of_a_changing_volume_is_what_the_volume_was(
        rounds in prop::collection::vec(prop::collection::vec(change(), 0..120), 1..12)
    ) {
        let store = store_on(&disk());
        let mut claimed = claim(&store);
        let mut made = Made::one(1200 * 4096);
        let mut images = Vec::new();
        for changes in rounds {
            for (block, contents) in changes {
                match contents {
                    Some(contents) => made.write(0, block, contents),
                    None => made.discard(0, block),
                }
            }
            let saved = made.save(&mut claimed);
            images.push((saved.id, made.clone()));
        }
        for (id, made) in &images {
            made.check(&open(&store, *id));
        }
        claimed.retain(2, &[]).expect("the store is sound");
        for (id, made) in images.iter().rev().take(2) {
            made.check(&open(&store, *id));
        }
    }
}
