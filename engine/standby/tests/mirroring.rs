//! Tests that mirrored flushes return once the image store has them, and that a promotion loses
//! none of them.

mod support;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;

use block_device::BlockDevice;
use durable_set::{MirrorPolicy, MirrorState, Shipped, Shipper};
use image::{ClaimedStore, Claims, ExtractName, ImageStore, ObjectName, StoreWriter};
use image::{encode_extract, read_extract};
use powercut::{Cut, Loss};
use sealing::WrappingKey;
use standby::{LossPolicy, StandbyErrorKind};
use storage::AlignedBuffer;
use support::shipping::{LONG, NOW, SHORT, begin, flush_during, promote, ship};
use support::{POOL_BYTES, PutFate, Shared, Standby, Writer, noise, read, write};
use volumes::{Durability, Volume};

/// Creates a writer with the volume `one`.
fn begin_one(shared: &Shared) -> (Writer, Shipper, Arc<Volume>) {
    let (writer, shipper) = begin(shared, &["one"]);
    let volume = writer.volume("one");
    (writer, shipper, volume)
}

/// Writes and flushes blocks 1 to 4, each flush with a shipment of its own.
fn flush_four(writer: &Writer, shipper: &mut Shipper, volume: &Arc<Volume>) {
    for block in 1..=4 {
        write(volume, block, block);
        flush_during(writer, volume, || ship(shipper)).expect("the store has it");
    }
}

fn check_read(standby: &Standby, blocks: u64) {
    let volume = standby.engine().volume("one").expect("it is there");
    for block in 1..=blocks {
        assert!(read(&volume, block) == Ok(noise(block)), "block {block}");
    }
}

#[test]
fn what_was_flushed_is_promoted_and_a_flush_waits_for_the_store() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, volume) = begin_one(&shared);
    for block in 1..=8 {
        write(&volume, block, block);
        let flushed = flush_during(&writer, &volume, || ship(&mut shipper));
        flushed.expect("the store has it");
    }
    let standby = shared.standby();
    let promoted = promote(&standby, LossPolicy::Refuse).expect("nothing is missing");
    assert!(promoted.is_complete, "{promoted:?}");
    check_read(&standby, 8);
}

#[test]
fn flushes_wait_for_an_image_of_their_claim_after_a_restart() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, volume) = begin_one(&shared);
    write(&volume, 1, 1);
    flush_during(&writer, &volume, || ship(&mut shipper)).expect("the store has it");
    drop((shipper, volume));
    let writer = shared.restart(writer);
    let volume = writer.volume("one");
    let mut shipper = Shipper::new(Arc::clone(&writer.set));
    write(&volume, 2, 2);
    let flushed = flush_during(&writer, &volume, || {
        assert_eq!(shipper.ship(NOW).expect("nothing is put"), Shipped::NeedsImage);
        assert_eq!(writer.set.mirror().status().waiting, 1);
        writer.save();
        ship(&mut shipper);
    });
    flushed.expect("the store has it");
    let standby = shared.standby();
    assert!(promote(&standby, LossPolicy::Refuse).expect("nothing is missing").is_complete);
    check_read(&standby, 2);
}

#[test]
fn a_flush_fails_if_the_store_was_claimed_between_the_put_and_the_check() {
    for policy in [MirrorPolicy::Wait, MirrorPolicy::Fail, MirrorPolicy::Alone] {
        let shared = Shared::mirrored(policy, LONG);
        let (writer, mut shipper, volume) = begin_one(&shared);
        write(&volume, 1, 1);
        let flushed = flush_during(&writer, &volume, || {
            let other = StoreWriter { daemon_id: 9, ..(1_u128 << 90).into() };
            ClaimedStore::claim(Arc::clone(writer.set.images()), other).expect("it answers");
            shipper.ship(NOW).expect_err("another has claimed the store");
        });
        flushed.expect_err("a promotion may not have it");
        assert!(!shared.images().extracts().expect("it answers").is_empty(), "it was put");
        volume.flush().expect_err("the claim stays");
        drop((shipper, volume));
        let writer = shared.restart(writer);
        writer.try_to_save().expect_err("another has claimed the store");
        writer.volume("one").flush().expect_err("the claim stays");
    }
}

#[test]
fn short_flushes_are_mirrored_without_reading_the_journal() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, volume) = begin_one(&shared);
    write(&volume, 1, 1);
    flush_during(&writer, &volume, || ship(&mut shipper)).expect("the store has it");
    let reads = [storage::StorageAction::Read];
    shared.disk.inject(powercut::Fault::always(&reads, powercut::Effect::Io));
    for block in 2..=8 {
        write(&volume, block, block);
        flush_during(&writer, &volume, || ship(&mut shipper)).expect("the store has it");
    }
    shared.disk.heal();
    let standby = shared.standby();
    assert!(promote(&standby, LossPolicy::Refuse).expect("nothing is missing").is_complete);
    check_read(&standby, 8);
}

#[test]
fn flushes_list_no_manifests_as_long_as_nobody_else_has_claimed_the_store() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, volume) = begin_one(&shared);
    let mut flush = |block| {
        write(&volume, block, block);
        flush_during(&writer, &volume, || ship(&mut shipper)).expect("the store has it");
    };
    flush(1);
    writer.save();
    let listings = || shared.puts.3.load(Ordering::Relaxed);
    let before = listings();
    (2..6).for_each(&mut flush);
    assert_eq!(listings(), before);
    let other = StoreWriter { daemon_id: 9, ..(1_u128 << 90).into() };
    ClaimedStore::claim(Arc::new(shared.images()), other).expect("it answers");
    write(&volume, 6, 6);
    let flushed = flush_during(&writer, &volume, || {
        shipper.ship(NOW).expect_err("another has claimed the store");
    });
    flushed.expect_err("a promotion may not have it");
    assert!(listings() > before, "the listing tells who has claimed it");
}

#[test]
fn a_put_of_which_the_answer_is_lost_is_repeated_before_a_flush_returns() {
    for fate in [PutFate::Lost, PutFate::AnswerLost] {
        let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
        let (writer, mut shipper, volume) = begin_one(&shared);
        write(&volume, 1, 1);
        let flushed = flush_during(&writer, &volume, || {
            *shared.puts.0.lock().expect("no panic") = Some((0, fate));
            shipper.ship(NOW).expect_err("the store fails");
            assert_eq!(writer.set.mirror().status().waiting, 1);
            *shared.puts.0.lock().expect("no panic") = None;
            ship(&mut shipper);
        });
        flushed.expect("the store has it");
        let standby = shared.standby();
        assert!(promote(&standby, LossPolicy::Refuse).expect("nothing is missing").is_complete);
        check_read(&standby, 1);
    }
}

#[test]
fn a_segment_that_cannot_be_opened_is_not_taken_for_shipped() {
    use powercut::{Effect, Fault};
    use storage::StorageAction;
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, volume) = begin_one(&shared);
    // More than the journal keeps in memory.
    let blocks = 100;
    (1..=blocks).for_each(|block| write(&volume, block, block));
    let flushed = flush_during(&writer, &volume, || {
        for action in [StorageAction::Open, StorageAction::Read] {
            shared.disk.inject(Fault::always(&[action], Effect::Io));
            shipper.ship(NOW).expect_err("the disk fails");
            shared.disk.heal();
        }
        assert_eq!(writer.set.mirror().status().waiting, 1);
        ship(&mut shipper);
    });
    flushed.expect("the store has it");
    let standby = shared.standby();
    assert!(promote(&standby, LossPolicy::Refuse).expect("nothing is missing").is_complete);
    check_read(&standby, blocks);
}

#[test]
fn a_flush_fails_in_time_and_what_it_flushed_is_shipped_later() {
    let shared = Shared::mirrored(MirrorPolicy::Fail, SHORT);
    let (writer, mut shipper, volume) = begin_one(&shared);
    write(&volume, 1, 1);
    volume.flush().expect_err("nothing is shipped");
    assert_eq!(writer.set.mirror().status().failed, 1);
    ship(&mut shipper);
    volume.flush().expect("the store has it");
    let standby = shared.standby();
    assert!(promote(&standby, LossPolicy::Refuse).expect("nothing is missing").is_complete);
    check_read(&standby, 1);
}

#[test]
fn a_stop_fails_flushes_that_wait() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, _shipper, volume) = begin_one(&shared);
    write(&volume, 1, 1);
    let limited = flush_during(&writer, &volume, || writer.set.mirror().limit_waits(SHORT));
    limited.expect_err("the store lacks it");
    write(&volume, 2, 2);
    writer.set.mirror().stop();
    volume.flush().expect_err("the store lacks it");
}

#[test]
fn a_flush_without_a_time_limit_ships_itself_unless_the_last_round_failed() {
    for (policy, ships) in [(MirrorPolicy::Wait, true), (MirrorPolicy::Fail, false)] {
        let shared = Shared::mirrored(policy, if ships { LONG } else { SHORT });
        let (writer, mut shipper, volume) = begin_one(&shared);
        let mirror = Arc::clone(writer.set.mirror());
        let rounds = Arc::new(Mutex::new(Vec::new()));
        let run = Arc::clone(&rounds);
        mirror.begin_rounds(move || {
            run.lock().expect("no panic").push(thread::current().id());
            match shipper.ship(NOW) {
                Ok(Shipped::All { .. }) => None,
                _ => Some(SHORT),
            }
        });
        write(&volume, 1, 1);
        assert_eq!(volume.flush().is_ok(), ships, "{policy:?}");
        let expected = if ships { vec![thread::current().id()] } else { Vec::new() };
        assert_eq!(*rounds.lock().expect("no panic"), expected, "{policy:?}");
        if ships {
            // After a failure only the shipper tries again.
            *shared.puts.0.lock().expect("no panic") = Some((0, PutFate::Lost));
            write(&volume, 2, 2);
            flush_during(&writer, &volume, || {
                while mirror.ship().is_some() {
                    *shared.puts.0.lock().expect("no panic") = None;
                }
            })
            .expect("the store has it");
            mirror.limit_waits(SHORT);
            write(&volume, 3, 3);
            volume.flush().expect_err("a daemon that stops does not wait for the store");
        }
        mirror.end_rounds();
        assert!(mirror.ship().is_none(), "nothing ships");
    }
}

#[test]
fn a_change_of_volumes_waits_for_the_store_too() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, volume) = begin_one(&shared);
    write(&volume, 1, 1);
    flush_during(&writer, &volume, || ship(&mut shipper)).expect("the store has it");
    let set = Arc::clone(&writer.set);
    let renaming =
        thread::spawn(move || set.rename_volume("one", "two".parse().expect("a good name")));
    while writer.set.mirror().status().waiting == 0 {
        assert!(!renaming.is_finished(), "it did not wait");
        thread::yield_now();
    }
    // Nothing else waits for it.
    writer.save();
    ship(&mut shipper);
    renaming.join().expect("no panic").expect("the store has it");
    let standby = shared.standby();
    assert!(promote(&standby, LossPolicy::Refuse).expect("nothing is missing").is_complete);
    assert!(standby.engine().volume("two").is_ok());
}

#[test]
fn a_promotion_that_would_lose_a_flush_is_refused_unless_that_is_accepted() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, volume) = begin_one(&shared);
    flush_four(&writer, &mut shipper, &volume);
    let extracts = shared.images().extracts().expect("it answers");
    let (name, _) = extracts[extracts.len() - 2];
    shared.images().remove(ObjectName::Extract(name)).expect("it answers");
    let standby = shared.standby();
    let images = shared.images().images().expect("it answers").len();
    let refused = promote(&standby, LossPolicy::Refuse).expect_err("a flush is missing");
    assert_eq!(refused.kind, StandbyErrorKind::Loss);
    assert!(durable_set::causes(&refused).contains("is missing"), "{refused:?}");
    assert_eq!(shared.images().images().expect("it answers").len(), images, "nothing is claimed");
    let promoted = promote(&standby, LossPolicy::Accept).expect("it is accepted");
    assert!(!promoted.is_complete && promoted.continued.gap.is_some(), "{promoted:?}");
    check_read(&standby, 2);
}

/// Changes a byte of an extract as if the writer's disk had before it was shipped: only the journal
/// in it is damaged.
fn damage(shared: &Shared, (name, length): (ExtractName, u64), byte: usize) {
    let store = shared.images();
    let (header, mut payload) = read_extract(&store, name, length).expect("it is intact");
    payload[byte] ^= 1;
    let damaged = encode_extract(header.set_id, name, header.taken_unix_micros, &payload);
    store.remove(ObjectName::Extract(name)).expect("it answers");
    store.put_extract(name, &damaged).expect("there is room");
}

#[test]
fn a_loss_that_only_the_replay_finds_refuses_a_promotion_too() {
    const HEAD_BYTES: usize = 4096;
    for (damaged, byte, why) in [
        (3, 1, "ends early"),
        (3, HEAD_BYTES + 77, "damaged blocks"),
        // In the last one it looks like the end of the journal.
        (4, 1, "ends early"),
        (4, 70, "ends early"),
        (4, HEAD_BYTES + 77, "ends early"),
    ] {
        let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
        let (writer, mut shipper, volume) = begin_one(&shared);
        flush_four(&writer, &mut shipper, &volume);
        let extracts = shared.images().extracts().expect("it answers");
        damage(&shared, extracts[extracts.len() + damaged - 5], byte);
        let standby = shared.standby();
        let refused = promote(&standby, LossPolicy::Refuse).expect_err("a flush is damaged");
        assert_eq!(refused.kind, StandbyErrorKind::Loss);
        assert!(durable_set::causes(&refused).contains(why), "{refused:?}");
        assert!(standby.engine().is_restoring(), "it is still a standby");
        let promoted = promote(&standby, LossPolicy::Accept).expect("it is accepted");
        assert!(!promoted.is_complete, "{promoted:?}");
        check_read(&standby, damaged as u64 - 1);
        let volume = standby.engine().volume("one").expect("it is there");
        assert!(read(&volume, damaged as u64) != Ok(noise(damaged as u64)), "it was damaged");
    }
}

#[test]
fn an_extract_that_is_damaged_while_the_store_is_claimed_refuses_a_promotion() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, volume) = begin_one(&shared);
    flush_four(&writer, &mut shipper, &volume);
    let standby = shared.standby();
    standby.follow();
    let store = shared.images();
    let (name, length) = store.extracts().expect("it answers")[1];
    // The standby has verified it before.
    let mut damage_it = |_: &Claims| {
        let mut bytes = AlignedBuffer::zeroed(usize::try_from(length).expect("short"));
        store.read(ObjectName::Extract(name), 0, &mut bytes)?;
        bytes[5000] ^= 1;
        store.remove(ObjectName::Extract(name))?;
        store.put_extract(name, &bytes)
    };
    let (writer, follower) = (1_u128 << 100, standby.follower());
    let promoted =
        follower.promote_after(writer, LossPolicy::Refuse, &mut damage_it, &mut |_| Ok(()));
    let refused = promoted.expect_err("a flush is lost");
    assert_eq!(refused.kind, StandbyErrorKind::Loss, "{refused:?}");
    assert!(standby.engine().is_restoring(), "it is still a standby");
}

/// A removal of covered extracts that a kill or a power loss ends leaves some of them.
#[test]
fn what_is_left_of_a_journal_that_an_image_covers_is_no_gap() {
    for key in [None, Some(WrappingKey::new([6; 32]))] {
        let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
        let writer = shared.writer_with(key.as_ref());
        let volume = writer.create("one", Durability::Journal);
        writer.save();
        let mut shipper = Shipper::new(Arc::clone(&writer.set));
        for block in 1..=6 {
            write(&volume, block, block);
            flush_during(&writer, &volume, || ship(&mut shipper)).expect("the store has it");
        }
        let store = shared.images();
        let stored = |(name, length): &(ExtractName, u64)| {
            let mut bytes = AlignedBuffer::zeroed(usize::try_from(*length).expect("short"));
            store.read(ObjectName::Extract(*name), 0, &mut bytes).expect("it is there");
            (*name, bytes)
        };
        let extracts: Vec<_> = store.extracts().expect("it answers").iter().map(stored).collect();
        let last = extracts.len() - 1;
        let keys = || key.iter().map(|_| WrappingKey::new([6; 32])).collect();
        // As long as no image has these flushes, a missing one is a gap.
        store.remove(ObjectName::Extract(extracts[last - 1].0)).expect("it answers");
        let standby = shared.standby_of(POOL_BYTES, keys());
        let refused = promote(&standby, LossPolicy::Refuse).expect_err("a flush is missing");
        assert_eq!(refused.kind, StandbyErrorKind::Loss);
        writer.save();
        let names = extracts.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        store.remove_extracts(&names).expect("it answers");
        for left in [&[last][..], &[0], &[0, 1, last], &[2, 3, last], &[1, last - 1]] {
            let cut = Cut { moment: shared.disk.now(), loss: Loss::Nothing, seed: 0 };
            let after = Shared { disk: shared.disk.after(&cut).disk, ..Shared::new() };
            for &index in left {
                let (name, bytes) = &extracts[index];
                after.images().put_extract(*name, bytes).expect("there is room");
            }
            let standby = after.standby_of(POOL_BYTES, keys());
            let promoted = promote(&standby, LossPolicy::Refuse).expect("nothing is missing");
            assert!(promoted.is_complete, "{left:?}: {promoted:?}");
            check_read(&standby, 6);
        }
    }
}

#[test]
fn a_writer_goes_on_alone_and_waits_again_when_the_store_is_back() {
    let shared = Shared::mirrored(MirrorPolicy::Alone, SHORT);
    let (writer, mut shipper, volume) = begin_one(&shared);
    let mirror = Arc::clone(writer.set.mirror());
    ship(&mut shipper);
    assert_eq!(mirror.status().state, MirrorState::InSync);
    for block in 1..=3 {
        write(&volume, block, block);
        volume.flush().expect("it is acknowledged alone");
        assert_eq!(mirror.status().state, MirrorState::Alone);
    }
    assert_eq!(mirror.status().alone, 3);
    let standby = shared.standby();
    let refused = promote(&standby, LossPolicy::Refuse).expect_err("the store cannot tell");
    assert_eq!(refused.kind, StandbyErrorKind::Loss);
    ship(&mut shipper);
    assert_eq!(mirror.status().state, MirrorState::InSync);
    write(&volume, 4, 4);
    flush_during(&writer, &volume, || ship(&mut shipper)).expect("the store has it");
    assert_eq!(mirror.status().alone, 3);
    assert!(!promote(&standby, LossPolicy::Accept).expect("it is accepted").is_complete);
    check_read(&standby, 4);
}

#[test]
fn a_writer_without_the_setting_says_so_in_the_store_before_it_acknowledges() {
    let mut shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, volume) = begin_one(&shared);
    write(&volume, 1, 1);
    flush_during(&writer, &volume, || ship(&mut shipper)).expect("the store has it");
    drop((shipper, volume));
    shared.mirror.policy = MirrorPolicy::Off;
    let mut writer = shared.restart(writer);
    for _ in 0..2 {
        let volume = writer.volume("one");
        write(&volume, 2, 2);
        let stopped = flush_during(&writer, &volume, || writer.set.mirror().stop());
        stopped.expect_err("the store still says that flushes are mirrored");
        drop(volume);
        writer = shared.restart(writer);
    }
    let volume = writer.volume("one");
    write(&volume, 3, 3);
    flush_during(&writer, &volume, || {
        writer.save();
    })
    .expect("the store was told");
    write(&volume, 4, 4);
    volume.flush().expect("flushes are not mirrored any more");
    drop(volume);
    let writer = shared.restart(writer);
    write(&writer.volume("one"), 5, 5);
    writer.volume("one").flush().expect("nor after a restart");
    let standby = shared.standby();
    assert!(!promote(&standby, LossPolicy::Refuse).expect("as without mirroring").is_complete);
    check_read(&standby, 3);
}

#[test]
fn a_writer_that_would_go_on_alone_says_so_in_the_store_before_it_does() {
    let mut shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, volume) = begin_one(&shared);
    write(&volume, 1, 1);
    flush_during(&writer, &volume, || ship(&mut shipper)).expect("the store has it");
    drop((shipper, volume));
    shared.mirror.policy = MirrorPolicy::Alone;
    shared.mirror.patience = SHORT;
    let writer = shared.restart(writer);
    let volume = writer.volume("one");
    write(&volume, 2, 2);
    let flushed = flush_during(&writer, &volume, || {
        while writer.set.mirror().status().waited < Some(4 * SHORT) {
            thread::yield_now();
        }
        assert_eq!(writer.set.mirror().status().waiting, 1);
        writer.save();
    });
    flushed.expect("it is acknowledged alone");
    let standby = shared.standby();
    promote(&standby, LossPolicy::Refuse).expect_err("the store cannot tell");
}

#[test]
fn a_mirror_is_not_moved_to_a_store_that_does_not_know_it() {
    let shared = Shared::mirrored(MirrorPolicy::Wait, LONG);
    let (writer, mut shipper, volume) = begin_one(&shared);
    write(&volume, 1, 1);
    flush_during(&writer, &volume, || ship(&mut shipper)).expect("the store has it");
    drop((shipper, volume));
    for (number, _) in shared.images().images().expect("it answers") {
        shared.images().remove(ObjectName::Image(number)).expect("it answers");
    }
    let writer = shared.restart(writer);
    let error = writer.try_to_save().expect_err("it is another store");
    let cause = durable_set::causes(&error);
    assert!(cause.contains("mirrors flushes to another image store"), "{cause}");
    let state = writer.set.mirror().status().state;
    assert!(matches!(state, MirrorState::TakenOver(_)), "{state:?}");
}

#[test]
fn an_extract_that_is_put_while_covered_ones_are_removed_stays() {
    let images: Arc<dyn ImageStore> = Arc::new(Shared::new().images());
    let mut claimed = ClaimedStore::claim(Arc::clone(&images), 5).expect("it answers");
    for segment in 4..=6 {
        let name = ExtractName { writer: 5, segment, offset: 0 };
        images.put_extract(name, &AlignedBuffer::zeroed(4096)).expect("it answers");
    }
    // Segment 6 was begun after the segments were listed.
    claimed.remove_extracts(&[5]).expect("it answers");
    let left = images.extracts().expect("it answers");
    let left: Vec<u32> = left.into_iter().map(|(name, _)| name.segment).collect();
    assert_eq!(left, [5, 6]);
}
