//! Tests that a promotion replays the shipped journal up to its first gap.

mod support;

use std::sync::atomic::Ordering;

use block_device::{BlockDevice, DeviceErrorKind};
use durable_set::{DurableSet, Opened, SaveExtent, SaveRequest, Shipped, Shipper};
use image::{ExtractName, ImageStore, ObjectName};
use sealing::WrappingKey;
use standby::Promoted;
use support::shipping::{NOW, ship_at};
use support::{PutFate, Shared, Standby, Writer, noise, read, write};
use volumes::{Durability, ShrinkPolicy, VolumeSpec};

fn promote(standby: &Standby) -> Promoted {
    standby.follower().promote(1 << 40, &mut |_| Ok(())).expect("the store answers")
}

fn read_promoted(standby: &Standby, name: &str, block: u64) -> Result<Vec<u8>, DeviceErrorKind> {
    read(&standby.engine().volume(name).expect("it is there"), block)
}

/// Creates a volume with block 0 in an image, and blocks 1 to 8 flushed and shipped one by one.
fn ship_eight(shared: &Shared) -> (Writer, Shipper) {
    let writer = shared.writer();
    let volume = writer.create("one", Durability::Journal);
    write(&volume, 0, 100);
    writer.save();
    let mut shipper = Shipper::new(writer.set.clone());
    for block in 1..=8 {
        write(&volume, block, block);
        volume.flush().expect("the disk works");
        assert_eq!(ship_at(&mut shipper, NOW + block), 1);
    }
    (writer, shipper)
}

fn save(set: &DurableSet) {
    let request = SaveRequest {
        extent: SaveExtent::Durable,
        created_seconds: 1_000_000_000,
        label: String::new(),
        bytes_a_second_max: None,
    };
    set.save(&request, &image::Unwatched).expect("the disk works");
    set.remove_shipped().expect("the disk works");
}

fn extracts(shared: &Shared) -> Vec<ExtractName> {
    let all = shared.images().extracts().expect("the disk works");
    all.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_promotion_replays_what_was_shipped() {
    let shared = Shared::new();
    let mut standby = shared.standby();
    let (writer, shipper) = ship_eight(&shared);
    assert_eq!((shipper.lag().bytes, shipper.lag().shipped_unix_micros), (0, Some(NOW + 8)));
    write(&writer.volume("one"), 9, 9);
    writer.volume("one").flush().expect("the disk works");
    assert!(shipper.lag().bytes > 0);
    let promoted = promote(&standby);
    let continued = &promoted.continued;
    assert_eq!((continued.transactions, &continued.gap), (8, &None));
    assert_eq!(continued.taken_unix_micros, Some(NOW + 8));
    let (set, _) = shared.open_promoted(&mut standby);
    assert!(read_promoted(&standby, "one", 0) == Ok(noise(100)));
    for block in 1..=8 {
        assert!(read_promoted(&standby, "one", block) == Ok(noise(block)), "block {block}");
    }
    assert!(read_promoted(&standby, "one", 9) == Ok(vec![0; 4096]), "it was not shipped");
    drop(set);
}

#[test]
fn the_end_of_the_shipped_journal_is_known_after_the_clock_was_set_back_or_forward() {
    let hour = 3_600_000_000;
    for now in [NOW - hour, NOW + hour] {
        let shared = Shared::new();
        let standby = shared.standby();
        let (writer, mut shipper) = ship_eight(&shared);
        let volume = writer.volume("one");
        let shipped = || {
            standby.follow();
            standby.follower().progress().shipped_unix_micros
        };
        write(&volume, 9, 9);
        volume.flush().expect("the disk works");
        ship_at(&mut shipper, now);
        assert_eq!(shipped(), Some(now), "of the last flush that was shipped");
        // Several segments, of which the first is shipped before the store fails.
        (10..600).for_each(|block| write(&volume, block, block));
        volume.flush().expect("the disk works");
        *shared.puts.0.lock().expect("no panic") = Some((1, PutFate::Lost));
        shipper.ship(NOW).expect_err("the store fails");
        let expected = Some(now).filter(|&now| now <= NOW);
        assert_eq!(shipped(), expected, "more follows what was shipped");
        *shared.puts.0.lock().expect("no panic") = None;
        ship_at(&mut shipper, NOW);
        assert_eq!(shipped(), Some(NOW));
    }
}

#[test]
fn a_promoted_pool_that_loses_its_memory_before_its_first_image_comes_back_with_what_was_replayed()
{
    for is_saved in [false, true] {
        let shared = Shared::new();
        let mut standby = shared.standby();
        let (_writer, _shipper) = ship_eight(&shared);
        promote(&standby);
        let (set, _) = shared.open_promoted(&mut standby);
        write(&standby.engine().volume("one").expect("it is there"), 9, 9);
        // As an owner does regularly: the journal then has the table but no contents, except of a
        // new volume.
        set.maintain().expect("the disk works");
        let spec = VolumeSpec {
            durability: Durability::Journal,
            ..VolumeSpec::new("new".parse().expect("a good name"), 1 << 20)
        };
        let new = set.create_volume(spec).expect("the disk works");
        write(&new, 0, 77);
        new.flush().expect("the journal has all of it");
        assert!(set.journal().length_bytes() > 0);
        if is_saved {
            save(&set);
        }
        drop(set);
        standby.lose_memory();
        let (set, opening) = shared.open_promoted(&mut standby);
        let Opened::Restored { shipped_transactions, shipped_gap, .. } = &opening.how else {
            panic!("{opening:?}")
        };
        let expected = if is_saved { 0 } else { 8 };
        assert_eq!((*shipped_transactions, shipped_gap), (expected, &None));
        assert_eq!(opening.wants_image(), !is_saved, "memory alone has it");
        for block in 1..=8 {
            assert!(read_promoted(&standby, "one", block) == Ok(noise(block)), "block {block}");
        }
        assert!(read_promoted(&standby, "one", 0) == Ok(noise(100)));
        let of_promoted = if is_saved { noise(9) } else { vec![0; 4096] };
        assert!(read_promoted(&standby, "one", 9) == Ok(of_promoted));
        assert!(read_promoted(&standby, "new", 0) == Ok(noise(77)));
        // No journal has the replayed data, so flushes need an image.
        let volume = standby.engine().volume("one").expect("it is there");
        assert_eq!(volume.map().is_anchored(), is_saved);
        save(&set);
        drop(set);
        standby.lose_memory();
        let (_set, opening) = shared.open_promoted(&mut standby);
        assert!(!opening.wants_image(), "{opening:?}");
        for block in 1..=8 {
            assert!(read_promoted(&standby, "one", block) == Ok(noise(block)), "block {block}");
        }
    }
}

#[test]
fn a_start_restores_what_was_shipped_up_to_a_gap_and_not_on_top_of_the_writers_own_journal() {
    let shared = Shared::new();
    let (writer, _shipper) = ship_eight(&shared);
    write(&writer.volume("one"), 9, 9);
    writer.volume("one").flush().expect("the disk works");
    drop(writer);
    // The writer's own journal has all of it, and more than was shipped.
    let (own, _set, opening) = shared.open_anew("journal");
    let Opened::Restored { transactions, shipped_transactions, .. } = opening.how else {
        panic!("{opening:?}")
    };
    assert!(transactions >= 9 && shipped_transactions == 0);
    let volume = own.engine().volume("one").expect("it is there");
    assert!(read(&volume, 9) == Ok(noise(9)));
    assert!(volume.map().is_anchored(), "the journal has it");
    // Another host has only the store.
    let of_tail = extracts(&shared).len() - 8;
    let gap = extracts(&shared)[of_tail + 5];
    shared.images().remove(ObjectName::Extract(gap)).expect("the disk works");
    let (other, _set, opening) = shared.open_anew("journal-of-another");
    assert!(opening.wants_image());
    let Opened::Restored { shipped_transactions, shipped_gap, .. } = opening.how else {
        panic!("{opening:?}")
    };
    assert_eq!(shipped_transactions, 5);
    assert!(shipped_gap.expect("it is told").contains("is missing"));
    let volume = other.engine().volume("one").expect("it is there");
    for block in 1..=8 {
        let expected = if block <= 5 { noise(block) } else { vec![0; 4096] };
        assert!(read(&volume, block) == Ok(expected), "block {block}");
    }
}

#[test]
fn what_was_replayed_is_in_the_next_image() {
    let shared = Shared::new();
    let mut standby = shared.standby();
    let (_writer, _shipper) = ship_eight(&shared);
    promote(&standby);
    let (set, _) = shared.open_promoted(&mut standby);
    let request = durable_set::SaveRequest {
        extent: durable_set::SaveExtent::Durable,
        created_seconds: 1_000_000_000,
        label: String::new(),
        bytes_a_second_max: None,
    };
    let number = set.save(&request, &image::Unwatched).expect("the disk works").id.number();
    set.remove_shipped().expect("the disk works");
    assert_eq!(extracts(&shared), [], "the image covers them");
    let other = shared.standby();
    other.follow_to(number);
    for block in 1..=8 {
        assert!(other.read("one", block) == Ok(noise(block)), "block {block}");
    }
    assert!(other.read("one", 0) == Ok(noise(100)));
}

#[test]
fn nothing_is_applied_past_an_extract_that_is_missing_or_damaged() {
    for (at, is_damaged) in [(0, false), (3, false), (3, true), (7, false), (7, true)] {
        let shared = Shared::new();
        let standby = shared.standby();
        let (_writer, _shipper) = ship_eight(&shared);
        let images = shared.images();
        let of_tail = extracts(&shared).len() - 8;
        let name = extracts(&shared)[of_tail + at];
        match is_damaged {
            true => {
                let mut bytes = storage::AlignedBuffer::zeroed(8192);
                let size = images.extracts().expect("it works");
                let (_, size) = size.into_iter().find(|it| it.0 == name).expect("it is there");
                bytes.resize(usize::try_from(size).expect("short"), 0);
                images.read(ObjectName::Extract(name), 0, &mut bytes).expect("it is there");
                let last = bytes.len() - 1;
                bytes[last] ^= 1;
                images.put_extract(name, &bytes).expect("the disk works");
            }
            false => images.remove(ObjectName::Extract(name)).expect("the disk works"),
        }
        let promoted = promote(&standby);
        let continued = promoted.continued;
        assert_eq!(continued.transactions, at as u64, "{continued:?}");
        // The loss of the last extract goes unnoticed.
        assert_eq!(continued.gap.is_some(), at != 7 || is_damaged, "{continued:?}");
        for block in 1..=8 {
            let expected = if block <= at as u64 { noise(block) } else { vec![0; 4096] };
            assert!(read_promoted(&standby, "one", block) == Ok(expected), "block {block}");
        }
    }
}

#[test]
fn a_claim_that_cannot_be_read_is_told_and_nothing_that_was_shipped_is_applied() {
    let shared = Shared::new();
    let standby = shared.standby();
    let (_writer, _shipper) = ship_eight(&shared);
    let images = shared.images();
    let (image, _) = *images.images().expect("it works").last().expect("one was saved");
    standby.follow_to(image);
    let (claim, bytes) = images.images().expect("it works")[0];
    assert!(claim < image, "the claim comes first");
    let mut manifest = storage::AlignedBuffer::zeroed(usize::try_from(bytes).expect("short"));
    images.read(ObjectName::Image(claim), 0, &mut manifest).expect("it is there");
    manifest[100] ^= 1;
    images.remove(ObjectName::Image(claim)).expect("the disk works");
    images.create_image(claim, &manifest).expect("the disk works");
    let continued = promote(&standby).continued;
    assert_eq!((continued.transactions, continued.taken_unix_micros), (0, None));
    let gap = continued.gap.expect("it is told");
    assert!(gap.what.contains(&format!("read the manifest of image {claim}")), "{gap:?}");
    assert!(gap.left_out_bytes > 0, "{gap:?}");
    assert!(read_promoted(&standby, "one", 0) == Ok(noise(100)));
    assert!(read_promoted(&standby, "one", 1) == Ok(vec![0; 4096]));
}

#[test]
fn extracts_of_a_writer_that_lost_its_claim_are_not_applied_to_newer_images() {
    let shared = Shared::new();
    let mut standby = shared.standby();
    let (writer, mut shipper) = ship_eight(&shared);
    promote(&standby);
    let volume = writer.volume("one");
    write(&volume, 10, 10);
    volume.flush().expect("the disk works");
    let refused = shipper.ship(NOW + 10).expect_err("the store is another's");
    assert!(format!("{:?}", refused.source).contains("Fenced"), "{refused:?}");
    let (set, _) = shared.open_promoted(&mut standby);
    let before = extracts(&shared);
    let request = durable_set::SaveRequest {
        extent: durable_set::SaveExtent::Durable,
        created_seconds: 1_000_000_000,
        label: String::new(),
        bytes_a_second_max: None,
    };
    set.save(&request, &image::Unwatched).expect("the disk works");
    drop(set);
    // A delayed extract, of a segment that begins after the newer image.
    let stale = ExtractName { segment: before[0].segment + 1, offset: 0, ..before[0] };
    let bytes = image::encode_extract([1; 16], stale, NOW, &vec![7; 8192]);
    shared.images().put_extract(stale, &bytes).expect("the disk works");
    let third = shared.standby();
    let promoted = third.follower().promote(1 << 50, &mut |_| Ok(())).expect("it answers");
    assert_eq!((promoted.continued.transactions, promoted.continued.bytes), (0, 0));
    assert!(read_promoted(&third, "one", 10) == Ok(vec![0; 4096]));
    assert!(read_promoted(&third, "one", 8) == Ok(noise(8)));
}

#[test]
fn a_promotion_whose_replay_is_cut_is_done_again() {
    for reads in (0..100).step_by(3) {
        let shared = Shared::new();
        let mut standby = shared.standby();
        let (writer, mut shipper) = ship_eight(&shared);
        standby.follow_to(1 + 1);
        *standby.store.extract_reads_left.lock().expect("no panic") = Some(reads);
        let cut = standby.follower().promote(1 << 40, &mut |_| Ok(()));
        *standby.store.extract_reads_left.lock().expect("no panic") = None;
        if cut.is_ok() {
            assert!(reads > 0, "something is read");
            return;
        }
        if reads % 2 == 0 {
            standby.start().expect("the pool is a standby's");
        }
        // The writer has saved nothing since. Its shipping is rejected from now on.
        write(&writer.volume("one"), 20, 20);
        writer.volume("one").flush().expect("the disk works");
        shipper.ship(NOW + 20).expect_err("the store is another's");
        // Following shows the image without replayed data.
        standby.follow();
        assert!(standby.read("one", 3) == Ok(vec![0; 4096]), "after {reads} reads");
        assert!(standby.read("one", 0) == Ok(noise(100)));
        let promoted = promote(&standby);
        assert_eq!(promoted.continued.transactions, 8, "after {reads} reads");
        assert!(read_promoted(&standby, "one", 8) == Ok(noise(8)));
    }
    panic!("no promotion came about");
}

#[test]
fn volumes_are_as_the_shipped_journal_lists_them() {
    let shared = Shared::new();
    let standby = shared.standby();
    let writer = shared.writer();
    for (name, class) in [
        ("gone", Durability::Journal),
        ("renamed", Durability::Journal),
        ("grown", Durability::Journal),
        ("of-images", Durability::Image),
    ] {
        write(&writer.create(name, class), 0, 1);
    }
    writer.save();
    let mut shipper = Shipper::new(writer.set.clone());
    write(&writer.volume("of-images"), 0, 2);
    writer.engine.delete_volume("gone").expect("it is not used");
    writer.engine.rename_volume("renamed", "other".parse().expect("good")).expect("it can be");
    let size = 32 << 20;
    writer.engine.resize_volume("grown", size, ShrinkPolicy::KeepData).expect("it can grow");
    let made = writer.create("made", Durability::Journal);
    made.map().set_anchored(true);
    write(&made, 5, 55);
    made.flush().expect("the disk works");
    write(&writer.volume("grown"), 5000, 77);
    writer.volume("grown").flush().expect("the disk works");
    ship_at(&mut shipper, NOW);
    promote(&standby);
    let names: Vec<String> = standby.engine().volumes().iter().map(|it| it.name()).collect();
    let mut names = names;
    names.sort();
    assert_eq!(names, ["grown", "made", "of-images", "other"]);
    assert!(read_promoted(&standby, "grown", 5000) == Ok(noise(77)));
    assert!(read_promoted(&standby, "made", 5) == Ok(noise(55)));
    assert!(read_promoted(&standby, "other", 0) == Ok(noise(1)));
    assert!(read_promoted(&standby, "of-images", 0) == Ok(noise(1)), "its class has no more");
}

#[test]
fn nothing_is_shipped_before_an_image_and_an_image_removes_what_it_covers() {
    let shared = Shared::new();
    let writer = shared.writer();
    let volume = writer.create("one", Durability::Journal);
    let mut shipper = Shipper::new(writer.set.clone());
    assert_eq!(shipper.ship(NOW).expect("it is not asked"), Shipped::NeedsImage);
    for round in 0..6 {
        writer.save();
        for block in 0..300 {
            write(&volume, block, 1000 * round + block);
        }
        volume.flush().expect("the disk works");
        ship_at(&mut shipper, NOW + round);
        let kept: Vec<u32> = writer.set.journal().written().iter().map(|it| it.segment).collect();
        let shipped: Vec<u32> = extracts(&shared).iter().map(|name| name.segment).collect();
        assert!(shipped.iter().all(|it| kept.contains(it)), "{shipped:?} of {kept:?}");
    }
    let standby = shared.standby();
    assert_eq!(promote(&standby).continued.gap, None);
    for block in 0..300 {
        assert!(read_promoted(&standby, "one", block) == Ok(noise(5000 + block)), "{block}");
    }
}

#[test]
fn a_store_is_asked_for_extracts_only_while_it_may_have_some_and_a_failure_is_told() {
    let shared = Shared::new();
    let writer = shared.writer();
    let volume = writer.create("one", Durability::Journal);
    let listings = || shared.puts.1.swap(0, Ordering::Relaxed);
    writer.save();
    assert_eq!(listings(), 1, "a writer before this one may have left some");
    for block in 0..3 {
        write(&volume, block, block);
        volume.flush().expect("the disk works");
        writer.save();
    }
    assert_eq!(listings(), 0, "nothing was shipped");
    let mut shipper = Shipper::new(writer.set.clone());
    write(&volume, 5, 5);
    volume.flush().expect("the disk works");
    ship_at(&mut shipper, NOW);
    let shipped = extracts(&shared);
    assert!(!shipped.is_empty());
    // Full segments, which the next image makes obsolete.
    for block in 0..600 {
        write(&volume, block, 9000 + block);
    }
    volume.flush().expect("the disk works");
    shared.puts.2.store(true, Ordering::Relaxed);
    let refused = writer.try_to_save().expect_err("extracts cannot be removed");
    let source = refused.source.as_ref().expect("the store's answer");
    assert!(source.to_string().contains("remove an extract"), "{refused:?}");
    assert_eq!(extracts(&shared), shipped);
    shared.puts.2.store(false, Ordering::Relaxed);
    // Although nothing was shipped meanwhile.
    writer.set.remove_shipped().expect("the disk works");
    assert!(extracts(&shared).iter().all(|it| it.segment != shipped[0].segment));
}

#[test]
fn an_encrypted_journal_is_shipped_encrypted_and_replayed_with_its_key() {
    let shared = Shared::new();
    let key = WrappingKey::new([9; 32]);
    let standby = shared.standby_of(32 << 20, vec![key.clone()]);
    let writer = shared.writer_with(Some(&key));
    let volume = writer.create("marked-name", Durability::Journal);
    writer.save();
    let mut shipper = Shipper::new(writer.set.clone());
    let marked = b"marked contents. ".repeat(241)[..4096].to_vec();
    volume.write(0, &marked).expect("there is room");
    write(&volume, 1, 1);
    volume.flush().expect("the disk works");
    ship_at(&mut shipper, NOW);
    let images = shared.images();
    let all = images.extracts().expect("the disk works");
    assert!(!all.is_empty());
    for (name, size) in all {
        let mut bytes = vec![0; usize::try_from(size).expect("short")];
        images.read(ObjectName::Extract(name), 0, &mut bytes).expect("it is there");
        for marker in [&b"marked-name"[..], &b"marked contents"[..], &noise(1)[..64]] {
            assert!(!bytes.windows(marker.len()).any(|window| window == marker), "{name}");
        }
    }
    assert_eq!(promote(&standby).continued.transactions, 1);
    assert!(read_promoted(&standby, "marked-name", 0) == Ok(marked));
}

#[test]
fn a_store_that_fails_holds_up_no_flush_and_gets_the_rest_when_it_is_back() {
    for fate in [PutFate::Lost, PutFate::AnswerLost] {
        for puts in 0..4 {
            let shared = Shared::new();
            let writer = shared.writer();
            let volume = writer.create("one", Durability::Journal);
            writer.save();
            let mut shipper = Shipper::new(writer.set.clone());
            *shared.puts.0.lock().expect("no panic") = Some((puts, fate));
            for block in 1..=8 {
                write(&volume, block, block);
                volume.flush().expect("the disk works");
                let shipped = shipper.ship(NOW + block);
                assert_eq!(shipped.is_ok(), block <= puts, "{shipped:?}");
                assert_eq!(shipper.lag().bytes == 0, block <= puts);
            }
            let shown = shipper.lag().shipped_unix_micros;
            assert_eq!(shown, (puts > 0).then_some(NOW + puts));
            *shared.puts.0.lock().expect("no panic") = None;
            shipper.ship(NOW + 9).expect("the store is back");
            assert_eq!(shipper.lag().bytes, 0);
            let standby = shared.standby();
            let continued = promote(&standby).continued;
            assert_eq!((continued.transactions, continued.gap), (8, None));
            assert_eq!(continued.taken_unix_micros, Some(NOW + 9));
            for block in 1..=8 {
                assert!(read_promoted(&standby, "one", block) == Ok(noise(block)));
            }
        }
    }
}

#[test]
fn a_writer_that_dies_while_it_ships_loses_at_most_what_the_lag_said() {
    for fate in [PutFate::Lost, PutFate::AnswerLost] {
        for puts in 0..4 {
            let shared = Shared::new();
            let writer = shared.writer();
            let volume = writer.create("one", Durability::Journal);
            writer.save();
            let mut shipper = Shipper::new(writer.set.clone());
            *shared.puts.0.lock().expect("no panic") = Some((puts, fate));
            for block in 1..=4 {
                write(&volume, block, block);
                volume.flush().expect("the disk works");
                assert_eq!(shipper.ship(NOW + block).is_ok(), block <= puts);
            }
            let standby = shared.standby();
            let continued = promote(&standby).continued;
            assert_eq!(continued.gap, None);
            let told = shipper.lag().shipped_unix_micros.map_or(0, |micros| micros - NOW);
            assert_eq!(told, puts);
            assert!(continued.transactions >= told, "{continued:?}");
            for block in 1..=4 {
                let is_there = block <= continued.transactions;
                let expected = if is_there { noise(block) } else { vec![0; 4096] };
                assert!(read_promoted(&standby, "one", block) == Ok(expected), "block {block}");
            }
        }
    }
}

#[test]
fn a_long_journal_goes_out_in_turns_and_comes_back() {
    let shared = Shared::new();
    let writer = shared.writer();
    let volume = writer.create("one", Durability::Journal);
    writer.save();
    let mut shipper = Shipper::new(writer.set.clone());
    for block in 0..1500 {
        write(&volume, block, block);
        if block % 100 == 99 {
            volume.flush().expect("the disk works");
        }
    }
    while matches!(shipper.ship(NOW).expect("the store answers"), Shipped::Some { .. }) {}
    let segments = writer.set.journal().written().len();
    assert!(segments > 3, "{segments}");
    let standby = shared.standby();
    assert_eq!(promote(&standby).continued.gap, None);
    for block in 0..1500 {
        assert!(read_promoted(&standby, "one", block) == Ok(noise(block)), "block {block}");
    }
}
