//! Tests with damaged journals: damage is reported precisely and never returned as data.

mod support;

use block_device::BlockDevice;
use journal::{JournalErrorKind, Position, recover, recover_until_damage};
use model::for_each_seed;
use powercut::Disk;
use support::{Fixture, SET, Shadow, key, noise, plain_and_sealed, read, roomy, write};

const HEADER: u64 = 4096;
/// A head and one incompressible page.
const TRANSACTION: u64 = 8192;

/// Flushes ten single pages: ten transactions of equal length in one segment.
fn ten_transactions() -> (Fixture, u64) {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
    for block in 0..10 {
        write(&volume, block, &noise(block));
        volume.flush().expect("the disk works");
    }
    let volume_id = volume.id();
    (fixture, volume_id)
}

fn first_segment(disk: &Disk) -> String {
    disk.files()[0].name.clone()
}

/// Flips a bit in the first segment and expects an error of this kind that names it.
#[track_caller]
fn check_error(byte: u64, kind: JournalErrorKind) {
    let (fixture, _) = ten_transactions();
    let name = first_segment(&fixture.disk);
    fixture.disk.flip_bit(&name, byte * 8 + 3);
    let error = read(&fixture.disk, Position::START).expect_err("it is damaged");
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.to_string().contains(&name), "{error}");
}

#[test]
fn a_damaged_head_before_the_end_is_an_error_that_names_its_segment() {
    check_error(HEADER + 3 * TRANSACTION + 1, JournalErrorKind::Damaged);
    check_error(HEADER + 3 * TRANSACTION + 70, JournalErrorKind::Damaged);
    check_error(HEADER + 4000, JournalErrorKind::Damaged);
}

#[test]
fn what_is_before_a_damaged_head_is_replayed() {
    let (fixture, volume_id) = ten_transactions();
    fixture.disk.flip_bit(&first_segment(&fixture.disk), (HEADER + 3 * TRANSACTION + 1) * 8);
    let mut shadow = Shadow::default();
    let (folder, key) = (fixture.disk.folder(), key());
    let replayed =
        recover_until_damage(&*folder, key.as_deref(), SET, Position::START, &mut shadow);
    let (recovered, damage) = replayed.expect("the disk works");
    assert_eq!(damage.expect("it is damaged").kind, JournalErrorKind::Damaged);
    assert_eq!(recovered.transactions, 3);
    for block in 0..3 {
        assert_eq!(shadow.block(volume_id, block), Some(noise(block)), "block {block}");
    }
}

#[test]
fn a_damaged_header_of_a_segment_in_use_is_an_error_that_names_it() {
    check_error(0, JournalErrorKind::Damaged);
    check_error(50, JournalErrorKind::Damaged);
    check_error(4095, JournalErrorKind::Damaged);
}

#[test]
fn a_damaged_page_takes_one_block_and_no_other() {
    let (fixture, volume_id) = ten_transactions();
    let name = first_segment(&fixture.disk);
    fixture.disk.flip_bit(&name, (HEADER + 3 * TRANSACTION + 4096 + 77) * 8);
    let (shadow, recovered) = read(&fixture.disk, Position::START).expect("the rest is whole");
    assert_eq!((recovered.damaged_blocks, recovered.damaged_segments), (1, vec![name]));
    for block in 0..10 {
        let expected = (block != 3).then(|| noise(block));
        assert_eq!(shadow.block(volume_id, block), expected);
    }
}

#[test]
fn what_is_torn_at_the_end_is_left_out() {
    for byte in [1, 4090, 4096, 8191] {
        let (fixture, volume_id) = ten_transactions();
        fixture.disk.flip_bit(&first_segment(&fixture.disk), (HEADER + 9 * TRANSACTION + byte) * 8);
        let (shadow, recovered) = read(&fixture.disk, Position::START).expect("the rest is whole");
        assert_eq!((recovered.transactions, recovered.damaged_blocks), (9, 0));
        assert_eq!(shadow.block(volume_id, 8), Some(noise(8)));
        assert_eq!(shadow.block(volume_id, 9), Some(vec![0; 4096]));
    }
}

#[test]
fn an_end_that_the_next_segment_knows_is_not_a_torn_one() {
    let (fixture, volume_id) = ten_transactions();
    let first = first_segment(&fixture.disk);
    // A checkpoint moves the journal to a new segment.
    let position = fixture.journal.begin_checkpoint();
    let volume = fixture.engine.volume("one").expect("it is there");
    write(&volume, 20, &noise(20));
    volume.flush().expect("the disk works");
    fixture.disk.flip_bit(&first, (HEADER + 9 * TRANSACTION) * 8);
    let error = read(&fixture.disk, Position::START).expect_err("it is damaged");
    assert_eq!(error.kind, JournalErrorKind::Damaged);
    assert!(error.to_string().contains(&first), "{error}");
    let (shadow, _) = read(&fixture.disk, position).expect("what an image lacks is whole");
    assert_eq!(shadow.block(volume_id, 20), Some(noise(20)));
}

#[test]
fn a_missing_segment_is_named() {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
    for block in 0..100 {
        write(&volume, block, &noise(block));
        volume.flush().expect("the disk works");
    }
    let files = fixture.disk.files();
    assert!(files.len() > 3);
    fixture.disk.folder().remove(&files[1].name).expect("it is there");
    let error = read(&fixture.disk, Position::START).expect_err("a part is missing");
    assert_eq!(error.kind, JournalErrorKind::Missing);
    assert!(error.to_string().contains(&files[1].name), "{error}");
}

#[test]
fn nothing_is_removed_that_a_missing_segment_would_join_again() {
    let fixture = Fixture::new(roomy());
    let volume = fixture.create("one");
    for block in 0..100 {
        write(&volume, block, &noise(block));
        volume.flush().expect("the disk works");
    }
    let files = fixture.disk.files();
    let folder = fixture.disk.folder();
    folder.rename(&files[1].name, "aside").expect("it is there");
    let later = Fixture::on(fixture.disk.clone(), Position::START, roomy());
    later.journal.commit_table().expect("the disk works");
    later.journal.maintain().expect("the disk works");
    folder.rename("aside", &files[1].name).expect("it is there");
    recover(&*folder, None, SET, Position::START, &mut Shadow::default())
        .expect("it is whole again");

    let position = later.journal.begin_checkpoint();
    later.create("another");
    later.journal.commit_table().expect("the disk works");
    later.journal.end_checkpoint(position).expect("the disk works");
    assert!(!fixture.disk.files().contains(&files[0]), "a checkpoint drops them");
}

#[test]
fn other_files_in_the_folder_are_left_alone() {
    let (fixture, _) = ten_transactions();
    for name in ["notes", "journal-99999999"] {
        let file = fixture.disk.folder().create(name, 8192).expect("there is room");
        file.write(0, &[std::io::IoSlice::new(&[1; 4096])]).expect("the disk works");
    }
    let later = Fixture::on(fixture.disk.clone(), Position::START, roomy());
    later.journal.commit_table().expect("the disk works");
    later.journal.maintain().expect("the disk works");
    let names: Vec<_> = fixture.disk.files().into_iter().map(|file| file.name).collect();
    assert!(names.contains(&"notes".to_owned()), "{names:?}");
    assert!(names.contains(&"journal-99999999".to_owned()), "{names:?}");
}

#[test]
fn a_journal_of_another_pool_is_refused() {
    let (fixture, _) = ten_transactions();
    let folder = fixture.disk.folder();
    let other = *b"another pool's..";
    let error = recover(&*folder, None, other, Position::START, &mut Shadow::default());
    let error = error.expect_err("it is of another pool");
    assert_eq!(error.kind, JournalErrorKind::Foreign);
    assert!(error.to_string().contains("612073657420"), "it names both: {error}");
    assert_ne!(SET, other);
}

/// Goal: damage never produces data that was not written, and is never unnoticed. Method: flip one
/// random bit, and compare each block with its permitted values.
#[test]
fn one_flipped_bit_never_gives_wrong_data() {
    plain_and_sealed(flip_bits);
}

fn flip_bits() {
    let (fixture, volume_id) = ten_transactions();
    let used_bytes = HEADER + 10 * TRANSACTION;
    let mut outcomes = std::collections::BTreeMap::new();
    for_each_seed("cargo test -p journal --test damage", 300, |seed| {
        let mut random = model::Random::new(seed);
        let (name, bit) = (first_segment(&fixture.disk), random.below(used_bytes * 8));
        fixture.disk.flip_bit(&name, bit);
        let outcome = match read(&fixture.disk, Position::START) {
            Ok((shadow, recovered)) => {
                let found = (0..10).map(|block| shadow.block(volume_id, block));
                let missing = check_blocks(found, recovered.transactions);
                assert_eq!(missing, recovered.damaged_blocks, "bit {bit}");
                let is_named = recovered.damaged_segments == [name.clone()];
                assert_eq!(is_named, missing > 0, "bit {bit}: {recovered:?}");
                assert!(recovered.transactions >= 9, "bit {bit}: only the last one can be torn");
                if missing > 0 { "a page is lost" } else { "the end is torn" }
            }
            Err(error) => {
                assert!(error.to_string().contains(&name), "bit {bit}: {error}");
                "an error"
            }
        };
        *outcomes.entry(outcome).or_insert(0) += 1;
        fixture.disk.flip_bit(&name, bit);
    });
    eprintln!("measured: {outcomes:?}");
}

/// Checks that each block is as written, missing, or zeros if its transaction is torn. Returns the
/// number of missing blocks.
#[track_caller]
fn check_blocks(found: impl Iterator<Item = Option<Vec<u8>>>, transactions: u64) -> u64 {
    let mut missing = 0;
    for (block, found) in (0..).zip(found) {
        let is_torn = block >= transactions;
        let expected = if is_torn { vec![0; 4096] } else { noise(block) };
        missing += u64::from(found.is_none());
        assert!(found.is_none_or(|found| found == expected), "block {block}");
    }
    missing
}
