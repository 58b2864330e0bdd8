//! Tests of the durability and write volume of flushes.

mod support;

use std::sync::Arc;

use block_device::{BlockDevice, ByteRange};
use journal::Position;
use powercut::{Effect, Fault, Gate};
use storage::StorageAction;
use support::{BLOCK, Fixture, MIB, noise, read, roomy, small, wait_until, write};
use volumes::{Durability, ShrinkPolicy};

/// Contents in every stored form.
fn textures() -> Vec<Vec<u8>> {
    let text: Vec<u8> = b"what shrinks ".iter().copied().cycle().take(4096).collect();
    vec![noise(1), text, vec![0xAB; 4096], vec![0; 4096], noise(2)]
}

#[test]
fn what_was_flushed_is_read_back() {
    let fixture = Fixture::new(small());
    let volume = fixture.create("one");
    for (block, contents) in (0..).zip(textures()) {
        write(&volume, 1000 + block * 3, &contents);
    }
    volume.flush().expect("the disk works");
    let shadow = fixture.recover();
    for (block, contents) in (0..).zip(textures()) {
        assert_eq!(shadow.block(volume.id(), 1000 + block * 3), Some(contents), "{block}");
    }
    assert_eq!(shadow.names(), ["one"]);
}

#[test]
fn the_last_contents_of_a_block_count() {
    let fixture = Fixture::new(small());
    let volume = fixture.create("one");
    for seed in 0..20 {
        write(&volume, 5, &noise(seed));
        volume.flush().expect("the disk works");
    }
    assert_eq!(fixture.recover().block(volume.id(), 5), Some(noise(19)));
}

#[test]
fn a_discarded_block_is_read_back_as_a_hole() {
    let fixture = Fixture::new(small());
    let volume = fixture.create("one");
    (0..8).for_each(|block| write(&volume, block, &noise(block)));
    volume.flush().expect("the disk works");
    volume.discard(ByteRange::new(2 * BLOCK, 4 * BLOCK)).expect("it is there");
    volume.flush().expect("the disk works");
    let shadow = fixture.recover();
    assert_eq!(shadow.block_count(), 4);
    assert_eq!(shadow.block(volume.id(), 6), Some(noise(6)));
}

#[test]
fn a_flush_without_changes_writes_nothing() {
    let fixture = Fixture::new(small());
    let volume = fixture.create("one");
    write(&volume, 0, &noise(1));
    volume.flush().expect("the disk works");
    let before = fixture.journal.status();
    volume.flush().expect("the disk works");
    let after = fixture.journal.status();
    assert_eq!((after.transactions, after.written_bytes), (1, before.written_bytes));
}

#[test]
fn what_was_written_back_leaves_the_flush_nothing_to_write() {
    let fixture = Fixture::new(small());
    let volume = fixture.create("one");
    write(&volume, 0, &noise(1));
    volume.write_back();
    let before = fixture.journal.status();
    assert_eq!((before.unjournaled_blocks, before.transactions, before.flushes), (0, 1, 0));
    volume.flush().expect("the disk works");
    assert_eq!(fixture.journal.status().transactions, 1);
    assert_eq!(fixture.recover().block(volume.id(), 0), Some(noise(1)));
}

#[test]
fn the_status_says_how_many_blocks_a_loss_of_power_would_take() {
    let fixture = Fixture::new(small());
    let (one, other) = (fixture.create("one"), fixture.create_as("memory-only", Durability::Ram));
    (0..5).for_each(|block| write(&one, block, &noise(block)));
    write(&other, 0, &noise(9));
    assert_eq!(fixture.journal.status().unjournaled_blocks, 5);
    one.flush().expect("the disk works");
    write(&one, 0, &noise(10));
    assert_eq!(fixture.journal.status().unjournaled_blocks, 1);
}

#[test]
fn only_volumes_that_are_flushed_are_written() {
    let fixture = Fixture::new(small());
    let (one, two) = (fixture.create("one"), fixture.create("two"));
    write(&one, 0, &noise(1));
    write(&two, 0, &noise(2));
    one.flush().expect("the disk works");
    let shadow = fixture.recover();
    assert_eq!(shadow.block(one.id(), 0), Some(noise(1)));
    assert_eq!(shadow.block(two.id(), 0), Some(vec![0; 4096]));
}

#[test]
fn a_page_that_the_journal_has_is_written_as_a_reference() {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
    (0..32).for_each(|block| write(&volume, block, &noise(block)));
    volume.flush().expect("the disk works");
    let first = fixture.journal.status();
    assert!(first.written_bytes > 32 * BLOCK, "{first:?}");
    (0..32).for_each(|block| write(&volume, 100 + block, &noise(block)));
    volume.flush().expect("the disk works");
    let second = fixture.journal.status();
    assert_eq!(second.references, 32);
    assert_eq!(second.written_bytes - first.written_bytes, BLOCK, "a head without pages");
    let shadow = fixture.recover();
    (0..32).for_each(|block| {
        assert_eq!(shadow.block(volume.id(), 100 + block), Some(noise(block)));
    });
}

#[test]
fn a_slot_that_another_page_took_is_not_taken_for_the_first() {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
    // Pages are replaced repeatedly, so that slots are reused.
    for round in 0..40 {
        (0..8).for_each(|block| write(&volume, block, &noise(round * 8 + block)));
        volume.flush().expect("the disk works");
        fixture.engine.maintain();
    }
    let shadow = fixture.recover();
    (0..8).for_each(|block| {
        assert_eq!(shadow.block(volume.id(), block), Some(noise(39 * 8 + block)));
    });
}

#[test]
fn compressed_pages_are_written_as_they_are_stored() {
    let fixture = Fixture::new(small());
    let volume = fixture.create("one");
    let text = |block: u64| {
        let line = format!("line {block} of a text that shrinks well; ");
        line.bytes().cycle().take(4096).collect::<Vec<_>>()
    };
    (0..64).for_each(|block| write(&volume, block, &text(block)));
    wait_until("compressing ends", || !fixture.engine.maintain());
    volume.flush().expect("the disk works");
    let status = fixture.journal.status();
    assert!(status.written_bytes <= 4 * BLOCK, "{status:?}");
    let shadow = fixture.recover();
    (0..64).for_each(|block| assert_eq!(shadow.block(volume.id(), block), Some(text(block))));
}

#[test]
fn a_large_flush_takes_several_transactions_and_segments() {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
    (0..2000).for_each(|block| write(&volume, block, &noise(block)));
    volume.flush().expect("the disk works");
    let status = fixture.journal.status();
    assert!(status.transactions >= 2000 * BLOCK / (256 << 10), "{status:?}");
    assert_eq!(status.blocks, 2000);
    let shadow = fixture.recover();
    assert!((0..2000).all(|block| shadow.block(volume.id(), block) == Some(noise(block))));
}

#[test]
fn a_fresh_journal_and_an_empty_folder_say_nothing() {
    let fixture = Fixture::new(small());
    let (shadow, recovered) = read(&fixture.disk, Position::START).expect("nothing is damaged");
    assert_eq!((shadow.block_count(), recovered.transactions), (0, 0));
    assert_eq!(recovered.next_sequence, 1);
}

#[test]
fn after_a_restart_the_journal_goes_on() {
    let mut fixture = Fixture::new(roomy());
    fixture.create("one");
    for run in 0..4 {
        let volume = fixture.engine.volume("one").expect("it is there");
        write(&volume, run, &noise(run));
        write(&volume, 50, &noise(100 + run));
        volume.flush().expect("the disk works");
        // Unflushed writes stay in memory and are part of the next flush.
        write(&volume, 60 + run, &noise(run));
        drop(volume);
        fixture.restart(roomy());
    }
    let volume = fixture.engine.volume("one").expect("it is there");
    volume.flush().expect("the disk works");
    let shadow = fixture.recover();
    for run in 0..4 {
        assert_eq!(shadow.block(volume.id(), run), Some(noise(run)));
        assert_eq!(shadow.block(volume.id(), 60 + run), Some(noise(run)));
    }
    assert_eq!(shadow.block(volume.id(), 50), Some(noise(103)));
}

/// Otherwise deleted volumes would reappear from an older image.
#[test]
fn volumes_of_class_image_are_in_the_table_and_their_contents_are_not() {
    let fixture = Fixture::new(small());
    let volume = fixture.create("one");
    let imaged = fixture.create_as("imaged", Durability::Image);
    write(&volume, 0, &noise(1));
    write(&imaged, 0, &noise(2));
    volume.flush().expect("the disk works");
    imaged.flush().expect("nothing is waited for");
    let shadow = fixture.recover();
    assert_eq!((shadow.names(), shadow.block_count()), (vec!["one", "imaged"], 1));
    fixture.engine.set_durability("one", Durability::Image).expect("it is there");
    fixture.engine.delete_volume("imaged").expect("it is there");
    fixture.journal.commit_table().expect("the disk works");
    let shadow = fixture.recover();
    assert_eq!(shadow.names(), ["one"]);
    assert_eq!(shadow.table[0].durability(), Some(Durability::Image));
}

#[test]
fn the_table_follows_what_becomes_of_volumes() {
    let fixture = Fixture::new(small());
    fixture.create("one");
    let two = fixture.create("two");
    fixture.create_as("memory-only", Durability::Ram);
    fixture.journal.commit_table().expect("the disk works");
    assert_eq!(fixture.recover().names(), ["one", "two"]);

    fixture.engine.rename_volume("one", "first".parse().expect("a name")).expect("it is there");
    fixture.engine.resize_volume("two", 128 * MIB, ShrinkPolicy::KeepData).expect("it grows");
    write(&two, 100 * MIB / BLOCK, &noise(1));
    two.flush().expect("the disk works");
    let shadow = fixture.recover();
    assert_eq!(shadow.names(), ["first", "two"]);
    assert_eq!(shadow.table[1].size_bytes, 128 * MIB);
    assert_eq!(shadow.table[1].durability(), Some(Durability::Journal));
    assert_eq!(shadow.block(two.id(), 100 * MIB / BLOCK), Some(noise(1)));

    fixture.engine.delete_volume("two").expect("it is there");
    fixture.journal.commit_table().expect("the disk works");
    let shadow = fixture.recover();
    assert_eq!((shadow.names(), shadow.block_count()), (vec!["first"], 0));
}

#[test]
fn flushes_that_come_while_one_is_written_share_the_next_transaction() {
    const FLUSHERS: u64 = 8;
    let fixture = Fixture::new(roomy());
    let volumes: Vec<_> = (0..FLUSHERS).map(|it| fixture.create(&format!("v{it}"))).collect();
    fixture.journal.commit_table().expect("the disk works");
    let before = fixture.journal.status().transactions;
    let gate = Gate::new();
    fixture.disk.inject(Fault::once(&[StorageAction::WriteDurably], 0, Effect::Hold(gate.clone())));
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
        wait_until("all wait for their turn", || fixture.journal.waiting_flushes() == 7);
        gate.open();
    });
    assert_eq!(fixture.journal.status().transactions - before, 2, "one alone, then all others");
    let shadow = fixture.recover();
    for volume in &volumes {
        assert_eq!(shadow.block(volume.id(), 0), Some(noise(volume.id())));
    }
}

#[test]
fn writers_that_flush_at_the_same_time_lose_nothing() {
    const WRITERS: u64 = 4;
    const ROUNDS: u64 = 50;
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
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
    let shadow = fixture.recover();
    for writer in 0..WRITERS {
        for place in 0..7 {
            let last = (0..ROUNDS).rfind(|round| round % 7 == place).expect("there is one");
            let expected = Some(noise(writer * 1000 + last));
            assert_eq!(shadow.block(volume.id(), writer * 100 + place), expected);
        }
    }
}
