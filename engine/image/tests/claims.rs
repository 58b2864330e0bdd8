//! One look at the next number tells whether another writer has claimed the store.

mod made;

use std::sync::Arc;

use image::{
    ClaimedStore, FolderStore, ImageErrorKind, ImageStore, OwnNumber, StoreWriter, Unwatched,
    claimant_of,
};
use made::{Contents, Made, WRITER, claim, disk, newest, options, store_on};
use powercut::{Effect, Fault};
use storage::StorageAction;

const OTHER: u128 = 2;

fn generation(number: u64) -> Made {
    let mut made = Made::one(1 << 20);
    made.write(0, number, Contents::Noise(number));
    made
}

fn writer(id: u128, daemon_id: u128) -> StoreWriter {
    StoreWriter { id, daemon_id, ..StoreWriter::default() }
}

fn may_be_replaced(own: &OwnNumber, store: &Arc<dyn ImageStore>) -> bool {
    own.may_be_replaced_in(&**store).expect("the disk is sound")
}

fn has_lost(claimed: &mut ClaimedStore) -> bool {
    let saved = claimed.save(&generation(99), &options(), &Unwatched);
    saved.is_err_and(|error| error.kind == ImageErrorKind::Fenced)
}

#[test]
fn a_store_has_the_manifests_that_it_lists() {
    let store = store_on(&disk());
    generation(1).save(&mut claim(&store));
    let listed = store.images().expect("the disk is sound");
    assert_eq!(listed.len(), 2);
    for (number, _) in listed {
        assert!(store.has_image(number).expect("the disk is sound"));
    }
    assert!(!store.has_image(3).expect("the disk is sound"));
}

#[test]
fn a_writer_sees_a_claim_of_another_and_not_what_it_does_itself() {
    let store = store_on(&disk());
    let mut first = claim(&store);
    let own = first.own_number();
    assert!(!may_be_replaced(&own, &store));
    for number in 1..4 {
        generation(number).save(&mut first);
        assert!(!may_be_replaced(&own, &store), "its own image {number}");
    }
    first.retain(1, &[]).expect("the disk is sound");
    first.delete(own.get(), &[]).expect("the disk is sound");
    assert!(!may_be_replaced(&own, &store), "what it has removed");
    ClaimedStore::claim(Arc::clone(&store), OTHER).expect("the disk is sound");
    assert!(may_be_replaced(&own, &store));
}

#[test]
fn a_claim_stays_seen_after_any_number_of_restarts_of_its_daemon() {
    let store = store_on(&disk());
    let mut first = ClaimedStore::claim(Arc::clone(&store), writer(WRITER, 7)).expect("it is free");
    generation(1).save(&mut first);
    let own = first.own_number();
    let mut last = None;
    for id in OTHER..OTHER + 40 {
        last = ClaimedStore::claim(Arc::clone(&store), writer(id, 8)).ok();
    }
    let mut last = last.expect("the disk is sound");
    generation(2).save(&mut last);
    last.retain(1, &[]).expect("the disk is sound");
    let kept = store.images().expect("the disk is sound").len();
    assert!(kept < 25, "old claims go: {kept}");
    assert!(may_be_replaced(&own, &store));
    assert!(has_lost(&mut first));
}

#[test]
fn a_look_during_which_the_writer_takes_numbers_tells_nothing() {
    let store = store_on(&disk());
    let mut first = claim(&store);
    generation(1).save(&mut first);
    let own = first.own_number();
    let look = |number| {
        for generation_number in 2..4 {
            generation(generation_number).save(&mut first);
        }
        first.retain(1, &[])?;
        ClaimedStore::claim(Arc::clone(&store), OTHER)?;
        let is_taken = store.has_image(number)?;
        assert!(!is_taken, "the writer has removed it");
        Ok(is_taken)
    };
    assert!(own.may_be_replaced(look).expect("the disk is sound"));
}

/// The other writer finds the manifests, and is suspended while the first one saves more images and
/// removes the one whose number it is about to take.
#[test]
fn a_claim_under_a_number_that_has_become_free_is_made_again() {
    let store = store_on(&disk());
    let mut first = claim(&store);
    generation(1).save(&mut first);
    let mut attempts = 0;
    let other = ClaimedStore::claim_after(Arc::clone(&store), OTHER, &mut |_| {
        attempts += 1;
        if attempts == 1 {
            for number in 2..5 {
                generation(number).save(&mut first);
            }
            first.retain(1, &[])?;
        }
        Ok(())
    });
    let mut other = other.expect("the disk is sound");
    assert_eq!(attempts, 2);
    let image = newest(&store).expect("the first writer's").id().number();
    assert_eq!(claimant_of(&*store, image).expect("the disk is sound"), Some(WRITER));
    let numbers: Vec<u32> =
        store.images().expect("listed").into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, [1, image, image + 1], "nothing is left of the first attempt");
    assert!(has_lost(&mut first));
    generation(9).save(&mut other);
}

/// The number of an unfinished manifest, which the writer has left out, is not given to others.
#[test]
fn an_unfinished_manifest_is_not_removed_while_it_is_the_newest() {
    let disk = disk();
    let store = store_on(&disk);
    let mut first = claim(&store);
    generation(1).save(&mut first);
    let own = first.own_number();
    disk.inject(Fault::always(&[StorageAction::WriteDurably, StorageAction::Remove], Effect::Io));
    first.save(&generation(2), &options(), &Unwatched).expect_err("the disk fails");
    disk.heal();
    first.collect().expect("the disk is sound");
    assert!(!may_be_replaced(&own, &store));
    ClaimedStore::claim(Arc::clone(&store), OTHER).expect("the disk is sound");
    assert!(may_be_replaced(&own, &store));
    assert!(has_lost(&mut first));
}

#[test]
fn a_claim_is_not_deleted_as_an_image() {
    let store: Arc<dyn ImageStore> =
        Arc::new(FolderStore::new(&*disk().folder()).expect("the disk is sound"));
    let mut first = claim(&store);
    generation(1).save(&mut first);
    let error = first.delete(1, &[]).expect_err("it is a claim");
    assert_eq!(error.kind, ImageErrorKind::NotFound);
    assert!(store.has_image(1).expect("the disk is sound"));
}
