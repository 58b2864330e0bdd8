//! Tests of the durability and write volume of flushes.

mod support;

use std::sync::Arc;

use block_device::{BlockDevice, ByteRange};
use journal::Position;
use powercut::{Effect, Fault, Gate};
use storage::StorageAction;
use support::{BLOCK, Bed, MIB, noise, read, roomy, small, wait_until, write};
use volumes::{Durability, ShrinkPolicy};

/// Contents in every stored form.
fn textures() -> Vec<Vec<u8>> {
    let text: Vec<u8> = b"what shrinks ".iter().copied().cycle().take(4096).collect();
    vec![noise(1), text, vec![0xAB; 4096], vec![0; 4096], noise(2)]
}

#[test]
fn what_was_flushed_is_read_back() {
    let bed = Bed::new(small());
    let volume = bed.create("one");
    for (block, contents) in (0..).zip(textures()) {
        write(&volume, 1000 + block * 3, &contents);
    }
    volume.flush().expect("the disk works");
    let shadow = bed.recover();
    for (block, contents) in (0..).zip(textures()) {
        assert_eq!(shadow.block(volume.id(), 1000 + block * 3), Some(contents), "{block}");
    }
    assert_eq!(shadow.names(), ["one"]);
}

#[test]
fn the_last_contents_of_a_block_count() {
    let bed = Bed::new(small());
    let volume = bed.create("one");
    for seed in 0..20 {
        write(&volume, 5, &noise(seed));
        volume.flush().expect("the disk works");
    }
    assert_eq!(bed.recover().block(volume.id(), 5), Some(noise(19)));
}

#[test]
fn a_discarded_block_is_read_back_as_a_hole() {
    let bed = Bed::new(small());
    let volume = bed.create("one");
    (0..8).for_each(|block| write(&volume, block, &noise(block)));
    volume.flush().expect("the disk works");
    volume.discard(ByteRange::new(2 * BLOCK, 4 * BLOCK)).expect("it is there");
    volume.flush().expect("the disk works");
    let shadow = bed.recover();
    assert_eq!(shadow.block_count(), 4);
    assert_eq!(shadow.block(volume.id(), 6), Some(noise(6)));
}

#[test]
fn a_flush_without_changes_writes_nothing() {
    let bed = Bed::new(small());
    let volume = bed.create("one");
    write(&volume, 0, &noise(1));
    volume.flush().expect("the disk works");
    let before = bed.journal.status();
    volume.flush().expect("the disk works");
    let after = bed.journal.status();
    assert_eq!((after.transactions, after.written_bytes), (1, before.written_bytes));
}

#[test]
fn what_was_written_back_leaves_the_flush_nothing_to_write() {
    let bed = Bed::new(small());
    let volume = bed.create("one");
    write(&volume, 0, &noise(1));
    volume.write_back();
    let before = bed.journal.status();
    assert_eq!((before.unjournaled_blocks, before.transactions, before.flushes), (0, 1, 0));
    volume.flush().expect("the disk works");
    assert_eq!(bed.journal.status().transactions, 1);
    assert_eq!(bed.recover().block(volume.id(), 0), Some(noise(1)));
}

#[test]
fn the_status_says_how_many_blocks_a_loss_of_power_would_take() {
    let bed = Bed::new(small());
    let (one, other) = (bed.create("one"), bed.create_as("memory-only", Durability::Ram));
    (0..5).for_each(|block| write(&one, block, &noise(block)));
    write(&other, 0, &noise(9));
    assert_eq!(bed.journal.status().unjournaled_blocks, 5);
    one.flush().expect("the disk works");
    write(&one, 0, &noise(10));
    assert_eq!(bed.journal.status().unjournaled_blocks, 1);
}

#[test]
fn only_volumes_that_are_flushed_are_written() {
    let bed = Bed::new(small());
    let (one, two) = (bed.create("one"), bed.create("two"));
    write(&one, 0, &noise(1));
    write(&two, 0, &noise(2));
    one.flush().expect("the disk works");
    let shadow = bed.recover();
    assert_eq!(shadow.block(one.id(), 0), Some(noise(1)));
    assert_eq!(shadow.block(two.id(), 0), Some(vec![0; 4096]));
}

#[test]
fn a_page_that_the_journal_has_is_written_as_a_reference() {
    let bed = Bed::new(roomy());
    let volume = bed.create("one");
    (0..32).for_each(|block| write(&volume, block, &noise(block)));
    volume.flush().expect("the disk works");
    let first = bed.journal.status();
    assert!(first.written_bytes > 32 * BLOCK, "{first:?}");
    (0..32).for_each(|block| write(&volume, 100 + block, &noise(block)));
    volume.flush().expect("the disk works");
    let second = bed.journal.status();
    assert_eq!(second.references, 32);
    assert_eq!(second.written_bytes - first.written_bytes, BLOCK, "a head without pages");
    let shadow = bed.recover();
    (0..32).for_each(|block| {
        assert_eq!(shadow.block(volume.id(), 100 + block), Some(noise(block)));
    });
}

#[test]
fn a_slot_that_another_page_took_is_not_taken_for_the_first() {
    let bed = Bed::new(roomy());
    let volume = bed.create("one");
    // Pages are replaced repeatedly, so that slots are reused.
    for round in 0..40 {
        (0..8).for_each(|block| write(&volume, block, &noise(round * 8 + block)));
        volume.flush().expect("the disk works");
        bed.engine.maintain();
    }
    let shadow = bed.recover();
    (0..8).for_each(|block| {
        assert_eq!(shadow.block(volume.id(), block), Some(noise(39 * 8 + block)));
    });
}

#[test]
fn compressed_pages_are_written_as_they_are_stored() {
    let bed = Bed::new(small());
    let volume = bed.create("one");
    let text = |block: u64| {
        let line = format!("line {block} of a text that shrinks well; ");
        line.bytes().cycle().take(4096).collect::<Vec<_>>()
    };
    (0..64).for_each(|block| write(&volume, block, &text(block)));
    wait_until("compressing ends", || !bed.engine.maintain());
    volume.flush().expect("the disk works");
    let status = bed.journal.status();
    assert!(status.written_bytes <= 4 * BLOCK, "{status:?}");
    let shadow = bed.recover();
    (0..64).for_each(|block| assert_eq!(shadow.block(volume.id(), block), Some(text(block))));
}

#[test]
fn a_large_flush_takes_several_transactions_and_segments() {
    let bed = Bed::new(roomy());
    let volume = bed.create("one");
    (0..2000).for_each(|block| write(&volume, block, &noise(block)));
    volume.flush().expect("the disk works");
    let status = bed.journal.status();
    assert!(status.transactions >= 2000 * BLOCK / (256 << 10), "{status:?}");
    assert_eq!(status.blocks, 2000);
    let shadow = bed.recover();
    assert!((0..2000).all(|block| shadow.block(volume.id(), block) == Some(noise(block))));
}

#[test]
fn a_fresh_journal_and_an_empty_folder_say_nothing() {
    let bed = Bed::new(small());
    let (shadow, recovered) = read(&bed.disk, Position::START).expect("nothing is damaged");
    assert_eq!((shadow.block_count(), recovered.transactions), (0, 0));
    assert_eq!(recovered.next_sequence, 1);
}

#[test]
fn after_a_restart_the_journal_goes_on() {
    let mut bed = Bed::new(roomy());
    bed.create("one");
    for run in 0..4 {
        let volume = bed.engine.volume("one").expect("it is there");
        write(&volume, run, &noise(run));
        write(&volume, 50, &noise(100 + run));
        volume.flush().expect("the disk works");
        // Unflushed writes stay in memory and are part of the next flush.
        write(&volume, 60 + run, &noise(run));
        drop(volume);
        bed.restart(roomy());
    }
    let volume = bed.engine.volume("one").expect("it is there");
    volume.flush().expect("the disk works");
    let shadow = bed.recover();
    for run in 0..4 {
        assert_eq!(shadow.block(volume.id(), run), Some(noise(run)));
        assert_eq!(shadow.block(volume.id(), 60 + run), Some(noise(run)));
    }
    assert_eq!(shadow.block(volume.id(), 50), Some(noise(103)));
}

/// Otherwise deleted volumes would reappear from an older image.
#[test]
fn volumes_of_class_image_are_in_the_table_and_their_contents_are_not() {
    let bed = Bed::new(small());
    let volume = bed.create("one");
    let imaged = bed.create_as("imaged", Durability::Image);
    write(&volume, 0, &noise(1));
    write(&imaged, 0, &noise(2));
    volume.flush().expect("the disk works");
    imaged.flush().expect("nothing is waited for");
    let shadow = bed.recover();
    assert_eq!((shadow.names(), shadow.block_count()), (vec!["one", "imaged"], 1));
    bed.engine.set_durability("one", Durability::Image).expect("it is there");
    bed.engine.delete_volume("imaged").expect("it is there");
    bed.journal.commit_table().expect("the disk works");
    let shadow = bed.recover();
    assert_eq!(shadow.names(), ["one"]);
    assert_eq!(shadow.table[0].durability(), Some(Durability::Image));
}

#[test]
fn the_table_follows_what_becomes_of_volumes() {
    let bed = Bed::new(small());
    bed.create("one");
    let two = bed.create("two");
    bed.create_as("memory-only", Durability::Ram);
    bed.journal.commit_table().expect("the disk works");
    assert_eq!(bed.recover().names(), ["one", "two"]);

    bed.engine.rename_volume("one", "first".parse().expect("a name")).expect("it is there");
    bed.engine.resize_volume("two", 128 * MIB, ShrinkPolicy::KeepData).expect("it grows");
    write(&two, 100 * MIB / BLOCK, &noise(1));
    two.flush().expect("the disk works");
    let shadow = bed.recover();
    assert_eq!(shadow.names(), ["first", "two"]);
    assert_eq!(shadow.table[1].size_bytes, 128 * MIB);
    assert_eq!(shadow.table[1].durability(), Some(Durability::Journal));
    assert_eq!(shadow.block(two.id(), 100 * MIB / BLOCK), Some(noise(1)));

    bed.engine.delete_volume("two").expect("it is there");
    bed.journal.commit_table().expect("the disk works");
    let shadow = bed.recover();
    assert_eq!((shadow.names(), shadow.block_count()), (vec!["first"], 0));
}

#[test]
fn flushes_that_come_while_one_is_written_share_the_next_transaction() {
    const FLUSHERS: u64 = 8;
    let bed = Bed::new(roomy());
    let volumes: Vec<_> = (0..FLUSHERS).map(|it| bed.create(&format!("v{it}"))).collect();
    bed.journal.commit_table().expect("the disk works");
    let before = bed.journal.status().transactions;
    let gate = Gate::new();
    bed.disk.inject(Fault::once(&[StorageAction::WriteDurably], 0, Effect::Hold(gate.clone())));
    let flush = |volume: &Arc<volumes::Volume>| {
        write(volume, 0, &noise(volume.id()));
        volume.flush().expect("the disk works");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| flush(&volumes[0]));
        gate.wait_until_reached_by(1);
        for volume in &volumes[1..] {
            scope.spawn(|| flush(volume));
        }
        wait_until("all wait for their turn", || bed.journal.waiting_flushes() == 7);
        gate.open();
    });
    assert_eq!(bed.journal.status().transactions - before, 2, "one alone, then all others");
    let shadow = bed.recover();
    for volume in &volumes {
        assert_eq!(shadow.block(volume.id(), 0), Some(noise(volume.id())));
    }
}

#[test]
fn writers_that_flush_at_the_same_time_lose_nothing() {
    const WRITERS: u64 = 4;
    const ROUNDS: u64 = 50;
    let bed = Bed::new(roomy());
    let volume = bed.create("one");
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let volume = &volume;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    write(volume, writer * 100 + round % 7, &noise(writer * 1000 + round));
                    volume.flush().expect("the disk works");
                }
            });
        }
    });
    let shadow = bed.recover();
    for writer in 0..WRITERS {
        for place in 0..7 {
            let last = (0..ROUNDS).rfind(|round| round % 7 == place).expect("there is one");
            let expected = Some(noise(writer * 1000 + last));
            assert_eq!(shadow.block(volume.id(), writer * 100 + place), expected);
        }
    }
}
