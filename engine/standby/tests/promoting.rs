//! Tests of promotion: the standby owns the store, the old writer is fenced, and only data after
//! the newest image is lost.

mod support;

use std::sync::atomic::Ordering;

use block_device::BlockDevice;
use durable_set::Opened;
use image::{Claims, StoreWriter, Unwatched, claims_of};
use sealing::WrappingKey;
use standby::{LossPolicy, StandbyErrorKind};
use support::{BLOCK, Shared, noise, read, save, write};
use volumes::{CapacityClass, Durability};

#[test]
fn the_promoted_pool_has_the_newest_image_and_the_old_writer_saves_no_more() {
    let shared = Shared::new();
    let (mut standby, writer) = (shared.standby(), shared.writer());
    for (name, class) in [("one", Durability::Image), ("two", Durability::Journal)] {
        let volume = writer.create(name, class);
        for block in 0..600 {
            write(&volume, block, block);
        }
    }
    writer.engine.set_capacity("two", CapacityClass::Guaranteed).expect("there is room");
    standby.follow_to(writer.save());
    write(&writer.volume("one"), 3, 33);
    write(&writer.volume("two"), 4, 44);
    let newest = writer.save();
    write(&writer.volume("one"), 3, 333);
    let promoted = standby.follower().promote(1 << 40, &mut |_| Ok(())).expect("the store answers");
    assert_eq!(promoted.image_number, newest);
    let again =
        standby.follower().promote(1 << 41, &mut |_| Ok(())).expect_err("it has taken over");
    assert_eq!(again.kind, StandbyErrorKind::Promoted);
    let again = standby.follower().follow(&Unwatched).expect_err("the pool is a set's own");
    assert_eq!(again.kind, StandbyErrorKind::Promoted);
    assert!(promoted.to_fetch_bytes >= 2 * BLOCK, "{promoted:?}");
    assert!(promoted.guarantees_lost.is_empty(), "{promoted:?}");
    let refused = writer.try_to_save().expect_err("the store is another's");
    assert!(format!("{:?}", refused.source).contains("Fenced"), "{refused:?}");

    let (set, opening) = shared.open_promoted(&mut standby);
    assert!(matches!(opening.how, Opened::Continued), "{opening:?}");
    assert_eq!(set.id(), promoted.set_id);
    let volume = |name: &str| standby.engine().volume(name).expect("it is there");
    assert!(read(&volume("one"), 3) == Ok(noise(33)), "fetched when it is touched");
    assert_eq!(volume("two").capacity_class(), CapacityClass::Guaranteed);
    assert!(set.stream(&Unwatched).expect("the store answers").is_done);
    for block in 0..600 {
        let (one, two) =
            if block == 3 { (33, 3) } else { (block, if block == 4 { 44 } else { block }) };
        assert!(read(&volume("one"), block) == Ok(noise(one)), "block {block}");
        assert!(read(&volume("two"), block) == Ok(noise(two)), "block {block}");
    }
    write(&volume("one"), 0, 9_999);
    volume("one").flush().expect("memory has it");
}

#[test]
fn of_standbys_that_are_promoted_at_the_same_time_one_is() {
    let shared = Shared::new();
    let [first, mut second, third] = [(); 3].map(|()| shared.standby());
    let writer = shared.writer();
    write(&writer.create("one", Durability::Image), 0, 1);
    let newest = writer.save();
    for standby in [&first, &second, &third] {
        standby.follow_to(newest);
    }
    // A restart of the writer claims the store, too.
    let _writer = shared.restart(writer);
    let daemon = |id: u128| {
        let host = format!("host-{id}");
        StoreWriter { id, daemon_id: id, host, ..StoreWriter::default() }
    };
    let mut promote_second = |_: &Claims| {
        second.follower().promote(daemon(2), &mut |_| Ok(())).expect("it is the first");
        Ok(())
    };
    let refused = first.follower().promote_after(
        daemon(1),
        LossPolicy::Accept,
        &mut promote_second,
        &mut |_| Ok(()),
    );
    let late = third.follower().promote(daemon(3), &mut |_| Ok(()));
    for refused in [refused, late] {
        let refused = refused.expect_err("the second was promoted meanwhile");
        assert_eq!(refused.kind, StandbyErrorKind::ClaimedMeanwhile);
        assert!(format!("{refused:?}").contains("host-2"), "{refused:?}");
    }
    assert!(first.engine().is_restoring() && third.engine().is_restoring());
    let taken_over_by = || {
        let claims = claims_of(&shared.images()).expect("the store answers");
        claims.unsaved_takeover().map(|(_, writer)| writer.daemon_id)
    };
    assert_eq!(taken_over_by(), Some(2));
    let (set, _) = shared.open_promoted(&mut second);
    assert!(taken_over_by().is_some(), "it has saved no image");
    save(&set).expect("the disk works");
    assert_eq!(taken_over_by(), None);
    drop(set);
    // A promotion that is repeated is meant.
    third.follower().promote(daemon(3), &mut |_| Ok(())).expect("nobody else has come");
    first.follower().promote(daemon(1), &mut |_| Ok(())).expect("the same holds for the first");
}

#[test]
fn a_promotion_that_is_killed_is_done_again() {
    let shared = Shared::new();
    let (mut standby, writer) = (shared.standby(), shared.writer());
    let volume = writer.create("one", Durability::Image);
    for block in 0..600 {
        write(&volume, block, block);
    }
    standby.follow_to(writer.save());
    // The store becomes unreachable after a number of reads.
    for reads in 0..4 {
        for block in 0..600 {
            write(&volume, block, block + 1000 * (reads + 1));
        }
        if writer.try_to_save().is_err() {
            break;
        }
        *standby.store.reads_left.lock().expect("no panic") = Some(reads);
        let cut = standby.follower().promote(u128::from(reads) + (1 << 40), &mut |_| Ok(()));
        *standby.store.reads_left.lock().expect("no panic") = None;
        if cut.is_ok() {
            break;
        }
        assert!(standby.engine().is_restoring(), "it is a standby still");
        standby.start().expect("the pool is a standby's");
    }
    if standby.engine().is_restoring() {
        standby.follower().promote(1 << 50, &mut |_| Ok(())).expect("the store answers");
    }
    let (set, opening) = shared.open_promoted(&mut standby);
    assert!(matches!(opening.how, Opened::Continued), "{opening:?}");
    assert!(set.stream(&Unwatched).expect("the store answers").is_done);
    let one = standby.engine().volume("one").expect("it is there");
    let first = read(&one, 0).expect("it is there");
    let round = (0..6).find(|round| first == noise(1000 * round)).expect("one of the images");
    for block in 0..600 {
        assert!(read(&one, block) == Ok(noise(block + 1000 * round)), "block {block}");
    }
    drop((set, one));
    assert_eq!(standby.start().expect_err("it is promoted").kind, StandbyErrorKind::NotEmpty);
}

#[test]
fn a_promotion_that_cannot_be_noted_leaves_a_standby_and_is_done_again() {
    let shared = Shared::new();
    let (mut standby, writer) = (shared.standby(), shared.writer());
    write(&writer.create("one", Durability::Image), 0, 1);
    standby.follow_to(writer.save());
    let failure = standby.follower().promote(1 << 40, &mut |_| Err("no space".into()));
    assert_eq!(failure.expect_err("it is not noted").kind, StandbyErrorKind::NotNoted);
    assert!(standby.engine().is_restoring(), "it is a standby still");
    assert!(standby.read("one", 0) == Ok(noise(1)), "and is read");
    standby.follower().promote(1 << 41, &mut |_| Ok(())).expect("the store answers");
    let (_set, opening) = shared.open_promoted(&mut standby);
    assert!(matches!(opening.how, Opened::Continued), "{opening:?}");
}

#[test]
fn without_a_store_or_an_image_nothing_is_promoted_and_nothing_claimed() {
    let shared = Shared::new();
    let standby = shared.standby();
    let failure = standby.follower().promote(1, &mut |_| Ok(())).expect_err("there is nothing");
    assert_eq!(failure.kind, StandbyErrorKind::NoImage);
    let writer = shared.writer();
    write(&writer.create("one", Durability::Image), 0, 1);
    standby.follow_to(writer.save());
    standby.store.is_away.store(true, Ordering::Relaxed);
    let failure = standby.follower().promote(1, &mut |_| Ok(())).expect_err("it is away");
    assert_eq!(failure.kind, StandbyErrorKind::Store);
    assert!(standby.engine().is_restoring(), "it is a standby still");
    writer.save();
}

#[test]
fn a_standby_pool_that_is_opened_as_an_ordinary_one_comes_from_the_newest_image() {
    let shared = Shared::new();
    let (mut standby, writer) = (shared.standby(), shared.writer());
    write(&writer.create("one", Durability::Image), 0, 1);
    standby.follow_to(writer.save());
    write(&writer.volume("one"), 0, 2);
    writer.save();
    let (_set, opening) = shared.open_promoted(&mut standby);
    assert!(matches!(opening.how, Opened::Restored { .. }), "{opening:?}");
    let one = standby.engine().volume("one").expect("it is there");
    assert!(read(&one, 0) == Ok(noise(2)), "not what the standby had");
}

#[test]
fn an_encrypted_store_is_followed_with_its_key_and_refused_without() {
    let shared = Shared::new();
    let key = WrappingKey::new([9; 32]);
    let mut standby = shared.standby_of(32 << 20, vec![key.clone()]);
    let writer = shared.writer_with(Some(&key));
    write(&writer.create("one", Durability::Image), 0, 1);
    let first = writer.save();
    standby.follow_to(first);
    assert!(standby.read("one", 0) == Ok(noise(1)));
    for keys in [vec![], vec![WrappingKey::new([8; 32])]] {
        standby.keys = keys;
        standby.start().expect("the key is not asked for yet");
        let failure = standby.follower().follow(&Unwatched).expect_err("the key is wrong");
        assert_eq!(failure.kind, StandbyErrorKind::Key);
        let failure = standby.follower().promote(1, &mut |_| Ok(())).expect_err("the key is wrong");
        assert_eq!(failure.kind, StandbyErrorKind::Key);
    }
    standby.keys = vec![key];
    standby.start().expect("the pool is a standby's");
    standby.follow_to(first);
    writer.save();
}

#[test]
fn a_key_for_a_store_that_is_not_encrypted_is_refused() {
    let shared = Shared::new();
    let standby = shared.standby_of(32 << 20, vec![WrappingKey::new([9; 32])]);
    let writer = shared.writer();
    write(&writer.create("one", Durability::Image), 0, 1);
    writer.save();
    let failure = standby.follower().follow(&Unwatched).expect_err("a key is configured");
    assert_eq!(failure.kind, StandbyErrorKind::Key);
}
