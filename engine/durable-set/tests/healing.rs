//! Tests that damaged memory is healed from the journal.

mod support;

use block_device::{BlockDevice, DeviceErrorKind};
use support::{BLOCK, Fixture, noise, read};
use volumes::{CopyPlace, Durability, Volume};

/// Scrubs the pool's memory once. Returns the number of damaged pages.
fn scrub(fixture: &Fixture) -> u64 {
    let mut damaged = 0;
    loop {
        let scrubbed = fixture.engine.scrub();
        damaged += scrubbed.damaged_pages;
        if scrubbed.is_round {
            return damaged;
        }
    }
}

fn reports(fixture: &Fixture) -> Vec<(u64, Option<CopyPlace>)> {
    fixture.engine.take_damage_reports().iter().map(|it| (it.block, it.healed_from)).collect()
}

/// A block with a quarter of incompressible data and zeros.
fn compressible(seed: u8) -> Vec<u8> {
    let mut bytes = noise(seed);
    bytes[1024..].fill(0);
    bytes
}

fn write_and_flush(volume: &Volume, block: u64, contents: &[u8]) {
    volume.write(block * BLOCK, contents).expect("there is room");
    volume.flush().expect("the disk works");
}

#[test]
fn a_scrub_heals_from_the_journal_what_no_image_has() {
    let fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    write_and_flush(&volume, 0, &noise(1));
    write_and_flush(&volume, 7, &noise(2));
    fixture.flip_bits_in_memory(&noise(1)[100..200]);
    assert_eq!(scrub(&fixture), 1);
    assert_eq!(reports(&fixture), [(0, Some(CopyPlace::Journal))]);
    assert!(read(&volume, 0) == Ok(noise(1)) && read(&volume, 7) == Ok(noise(2)));
    assert_eq!(scrub(&fixture), 0, "no block has the damaged page any more");
}

#[test]
fn a_reader_that_verifies_gets_what_the_journal_has() {
    let fixture = Fixture::new();
    fixture.engine.set_verify_reads(true);
    let volume = fixture.create("one", Durability::Journal);
    write_and_flush(&volume, 3, &noise(1));
    fixture.flip_bits_in_memory(&noise(1)[100..200]);
    assert!(read(&volume, 3) == Ok(noise(1)));
    assert_eq!(reports(&fixture), [(3, Some(CopyPlace::Journal))]);
}

#[test]
fn a_page_that_was_compressed_since_is_found_by_its_block() {
    let fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    write_and_flush(&volume, 3, &compressible(1));
    while fixture.engine.maintain() {}
    assert!(fixture.engine.usage().page_bytes < BLOCK, "it is compressed");
    fixture.flip_bits_in_memory(&compressible(1)[100..200]);
    assert_eq!(scrub(&fixture), 1);
    assert_eq!(reports(&fixture), [(3, Some(CopyPlace::Journal))]);
    assert!(read(&volume, 3) == Ok(compressible(1)));
}

#[test]
fn what_an_earlier_run_wrote_is_found_too() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    write_and_flush(&volume, 3, &noise(1));
    write_and_flush(&volume, 3, &noise(2));
    // The same page again, as a reference to its location.
    write_and_flush(&volume, 9, &noise(2));
    drop(volume);
    fixture.kill();
    fixture.flip_bits_in_memory(&noise(2)[100..200]);
    assert_eq!(scrub(&fixture), 1);
    let from_journal = Some(CopyPlace::Journal);
    assert_eq!(reports(&fixture), [(3, from_journal), (9, from_journal)]);
    let volume = fixture.volume("one");
    assert!(read(&volume, 3) == Ok(noise(2)) && read(&volume, 9) == Ok(noise(2)));
}

#[test]
fn snapshots_are_healed_with_what_their_volume_journaled() {
    let fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    write_and_flush(&volume, 3, &noise(1));
    let name = "snap".parse().expect("a good name");
    fixture.engine.create_snapshots(&["one"], &name, 1).expect("there is room");
    fixture.flip_bits_in_memory(&noise(1)[100..200]);
    assert_eq!(scrub(&fixture), 1);
    assert!(read(&volume, 3) == Ok(noise(1)));
    assert!(read(&fixture.volume("one@snap"), 3) == Ok(noise(1)));
}

#[test]
fn what_is_damaged_in_the_journal_too_is_an_error_and_told() {
    let fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    write_and_flush(&volume, 3, &noise(1));
    fixture.damage_pack(&noise(1)[100..200]);
    fixture.flip_bits_in_memory(&noise(1)[100..200]);
    assert_eq!(scrub(&fixture), 1);
    assert_eq!(reports(&fixture), [(3, None)]);
    assert_eq!(read(&volume, 3), Err(DeviceErrorKind::Corrupt));
}

#[test]
fn what_the_journal_has_is_not_taken_for_what_was_written_since() {
    let fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    write_and_flush(&volume, 3, &noise(1));
    volume.write(3 * BLOCK, &noise(2)).expect("there is room");
    fixture.flip_bits_in_memory(&noise(2)[100..200]);
    assert_eq!(scrub(&fixture), 1);
    assert_eq!(reports(&fixture), [(3, None)]);
    assert_eq!(read(&volume, 3), Err(DeviceErrorKind::Corrupt));
}

#[test]
fn what_is_flushed_after_it_was_damaged_is_not_taken_for_right() {
    let fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    volume.write(3 * BLOCK, &noise(1)).expect("there is room");
    fixture.flip_bits_in_memory(&noise(1)[100..200]);
    volume.flush().expect("the disk works");
    assert_eq!(reports(&fixture), [(3, None)]);
    assert_eq!(read(&volume, 3), Err(DeviceErrorKind::Corrupt));
}

#[test]
fn the_image_heals_what_the_journal_has_dropped() {
    let fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    write_and_flush(&volume, 3, &noise(1));
    fixture.save();
    // The copy in the journal is dropped with the segment that this write begins.
    write_and_flush(&volume, 4, &noise(2));
    fixture.save();
    fixture.flip_bits_in_memory(&noise(1)[100..200]);
    fixture.flip_bits_in_memory(&noise(2)[100..200]);
    assert_eq!(scrub(&fixture), 2);
    let places: Vec<_> = reports(&fixture).into_iter().map(|(_, place)| place).collect();
    assert!(places.iter().all(Option::is_some) && places.contains(&Some(CopyPlace::Image)));
    assert!(read(&volume, 3) == Ok(noise(1)) && read(&volume, 4) == Ok(noise(2)));
}

/// Creates a volume with an older version of block 3 on stable storage, and a newer, damaged one in
/// memory.
fn damaged_since(fixture: &Fixture, class: Durability) -> std::sync::Arc<Volume> {
    let volume = fixture.create("one", class);
    write_and_flush(&volume, 3, &noise(1));
    fixture.save();
    volume.write(3 * BLOCK, &noise(2)).expect("there is room");
    fixture.flip_bits_in_memory(&noise(2)[100..200]);
    volume
}

#[test]
fn what_was_damaged_before_it_was_flushed_does_not_come_back_older() {
    let mut fixture = Fixture::new();
    let volume = damaged_since(&fixture, Durability::Journal);
    volume.flush().expect("the disk works");
    assert_eq!(reports(&fixture), [(3, None)]);
    assert_eq!(volume.map().unjournaled_blocks(), 0, "the journal knows");
    drop(volume);
    fixture.lose_memory();
    assert_eq!(read(&fixture.volume("one"), 3), Err(DeviceErrorKind::Corrupt));
    fixture.volume("one").write(3 * BLOCK, &noise(4)).expect("there is room");
    fixture.volume("one").flush().expect("the disk works");
    fixture.lose_memory();
    assert!(read(&fixture.volume("one"), 3) == Ok(noise(4)));
}

#[test]
fn what_a_scrub_lost_does_not_come_back_older() {
    let mut fixture = Fixture::new();
    let volume = damaged_since(&fixture, Durability::Journal);
    assert_eq!(scrub(&fixture), 1);
    volume.flush().expect("the disk works");
    drop(volume);
    fixture.lose_memory();
    assert_eq!(read(&fixture.volume("one"), 3), Err(DeviceErrorKind::Corrupt));
}

#[test]
fn what_was_damaged_before_it_was_saved_is_not_saved_as_good() {
    let mut fixture = Fixture::new();
    let volume = damaged_since(&fixture, Durability::Image);
    assert_eq!(fixture.save().lost_blocks, 1);
    assert_eq!(reports(&fixture), [(3, None)]);
    drop(volume);
    fixture.lose_memory();
    assert_eq!(read(&fixture.volume("one"), 3), Err(DeviceErrorKind::Corrupt));
}

#[test]
fn a_save_mends_what_the_journal_has() {
    let mut fixture = Fixture::new();
    let volume = fixture.create("one", Durability::Journal);
    write_and_flush(&volume, 3, &noise(1));
    write_and_flush(&volume, 4, &compressible(2));
    while fixture.engine.maintain() {}
    fixture.flip_bits_in_memory(&noise(1)[100..200]);
    fixture.flip_bits_in_memory(&compressible(2)[100..200]);
    assert_eq!(fixture.save().lost_blocks, 0);
    assert!(read(&volume, 3) == Ok(noise(1)) && read(&volume, 4) == Ok(compressible(2)));
    drop(volume);
    fixture.lose_memory();
    let volume = fixture.volume("one");
    assert!(read(&volume, 3) == Ok(noise(1)) && read(&volume, 4) == Ok(compressible(2)));
}
