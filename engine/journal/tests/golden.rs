//! Tests with journals of earlier releases: current code reads them, and rejects later versions.
//!
//! `tests/golden/journal-1/` holds the packed segments of a version 1 journal: for each nonzero
//! page of the file its number (4 bytes), a length (2 bytes), and that many bytes in LZ4's block
//! format, or the page as is if the length is 4096. All numbers are little-endian. `journal-2/` is
//! of version 2, which is encrypted. The expected contents below never change. With
//! `MEMLANE_GOLDEN_OUT=FOLDER` the test writes files in the current format there, to create the
//! files for a new version.

mod support;

use std::io::IoSlice;
use std::path::{Path, PathBuf};

use block_device::{BlockDevice, ByteRange, SectorSize};
use codec::{BLOCK_BYTES, Block, Encoder};
use journal::{JournalErrorKind, Position};
use powercut::Disk;
use storage::Folder;
use support::{
    BLOCK, Fixture, MIB, Shadow, key, noise, plain_and_sealed, read, roomy, sealed, wait_until,
    write,
};
use volumes::{Durability, Reduction, ShrinkPolicy};

/// Requests files in the current format, in this folder.
const OUT_VARIABLE: &str = "MEMLANE_GOLDEN_OUT";

const SEGMENT_BYTES: u64 = 256 << 10;

fn text(number: u64) -> Vec<u8> {
    format!("line {number} of a text; ").bytes().cycle().take(BLOCK_BYTES).collect()
}

/// Names and sizes of the golden journals' volumes.
const TABLE: [(&str, u64); 2] = [("beta", 64 * MIB), ("gamma", 96 * MIB)];

/// Expected blocks of the golden journals: index of the volume, block, contents.
fn expected() -> Vec<(usize, u64, Vec<u8>)> {
    let mut blocks = vec![(0, 1, vec![0xCD; BLOCK_BYTES]), (0, 2, vec![0; BLOCK_BYTES])];
    blocks.extend((3..40).map(|block| (0, block, noise(block))));
    blocks.extend((100..110).map(|block| (0, block, text(block))));
    // The same pages as above in other blocks: references.
    blocks.extend((3..10).map(|block| (1, block, noise(block))));
    blocks.push((1, 96 * MIB / BLOCK - 1, noise(77)));
    blocks
}

/// Builds a journal that uses every feature of the format: two runs, several segments, volumes
/// created, renamed, resized and deleted, pages of both forms, references, fills and holes.
fn build() -> Disk {
    let mut fixture = Fixture::new(roomy());
    {
        let (beta, one, gone) =
            (fixture.create("beta"), fixture.create("one"), fixture.create("gone"));
        write(&beta, 1, &noise(1000));
        (3..40).for_each(|block| write(&beta, block, &noise(block)));
        (100..110).for_each(|block| write(&beta, block, &text(block)));
        write(&beta, 2, &noise(2000));
        write(&gone, 5, &noise(3000));
        wait_until("compressing ends", || !fixture.engine.maintain());
        for volume in [&beta, &gone] {
            volume.flush().expect("the disk works");
        }
        (3..10).for_each(|block| write(&one, block, &noise(block)));
        one.flush().expect("the disk works");
    }
    fixture.engine.delete_volume("gone").expect("it is there");
    fixture.restart(roomy());
    fixture.engine.rename_volume("one", "gamma".parse().expect("a name")).expect("it is there");
    fixture.engine.resize_volume("gamma", 96 * MIB, ShrinkPolicy::KeepData).expect("it grows");
    let beta = fixture.engine.volume("beta").expect("it is there");
    let gamma = fixture.engine.volume("gamma").expect("it is there");
    write(&beta, 1, &[0xCD; BLOCK_BYTES]);
    beta.discard(ByteRange::new(2 * BLOCK, BLOCK)).expect("it is there");
    write(&gamma, 96 * MIB / BLOCK - 1, &noise(77));
    beta.flush().expect("the disk works");
    gamma.flush().expect("the disk works");
    fixture.disk.clone()
}

#[track_caller]
fn check(disk: &Disk) {
    let (shadow, recovered) = read(disk, Position::START).expect("it is whole");
    assert_eq!(recovered.damaged_blocks, 0);
    let volumes: Vec<_> =
        shadow.table.iter().map(|record| (record.name.as_str(), record.size_bytes)).collect();
    assert_eq!(volumes, TABLE);
    for record in &shadow.table {
        assert_eq!(record.sector(), SectorSize::Bytes512);
        assert_eq!(record.reduction(), Some(Reduction::Full));
        assert_eq!(record.durability(), Some(Durability::Journal));
    }
    check_blocks(&shadow);
}

#[track_caller]
fn check_blocks(shadow: &Shadow) {
    let expected = expected();
    for (volume, block, contents) in &expected {
        let id = shadow.table[*volume].id;
        assert_eq!(shadow.block(id, *block).as_ref(), Some(contents), "{volume} {block}");
    }
    let hole_count = 1;
    assert_eq!(shadow.block_count(), expected.len() - hole_count);
}

#[test]
fn todays_journal_says_what_the_golden_ones_say() {
    plain_and_sealed(|| {
        let disk = build();
        check(&disk);
        let Some(out) = std::env::var_os(OUT_VARIABLE) else { return };
        let version = if key().is_some() { 2 } else { 1 };
        let out = Path::new(&out).join(format!("journal-{version}"));
        std::fs::create_dir_all(&out).expect("the folder is there");
        for file in disk.files() {
            let packed = pack(&disk.contents(&file.name));
            std::fs::write(out.join(&file.name), packed).expect("the folder is there");
        }
    });
}

#[test]
fn a_journal_of_version_1_is_read() {
    check(&golden(1));
}

#[test]
fn a_journal_of_version_2_is_read_with_its_key_alone() {
    sealed(|| check(&golden(2)));
    let error = read(&golden(2), Position::START).expect_err("it is encrypted");
    assert_eq!(error.kind, JournalErrorKind::Key);
    sealed(|| {
        let error = read(&golden(1), Position::START).expect_err("it is not encrypted");
        assert_eq!(error.kind, JournalErrorKind::Key);
    });
}

#[test]
fn a_journal_of_a_later_version_is_refused_by_name() {
    let disk = golden(1);
    let name = disk.files()[1].name.clone();
    let mut header = disk.contents(&name)[..BLOCK_BYTES].to_vec();
    header[16] = 3;
    let file = disk.folder().open(&name).expect("it is there");
    file.write(0, &[IoSlice::new(&header)]).expect("the disk works");
    let error = read(&disk, Position::START).expect_err("version 3 is not known");
    assert_eq!(error.kind, JournalErrorKind::Newer);
    let told = error.to_string();
    assert!(told.contains(&name) && told.contains("a newer release wrote"), "{told}");
}

/// Unpacks the golden journal of a version onto a disk.
fn golden(version: u32) -> Disk {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let folder = folder.join(format!("tests/golden/journal-{version}"));
    let disk = Disk::new(1 << 30);
    for entry in std::fs::read_dir(folder).expect("the files are there") {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_name().expect("it is a file").to_string_lossy().into_owned();
        let packed = std::fs::read(&path).expect("the file can be read");
        unpack(&packed, &*disk.folder(), &name);
    }
    disk
}

fn pack(contents: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut encoder = Encoder::new();
    let pages: &[Block] = contents.as_chunks().0;
    for (number, page) in (0_u32..).zip(pages) {
        if page.iter().all(|&byte| byte == 0) {
            continue;
        }
        let bytes = encoder.encode(page, BLOCK_BYTES - 1).unwrap_or(page);
        let length = u16::try_from(bytes.len()).expect("a page");
        packed.extend(number.to_le_bytes());
        packed.extend(length.to_le_bytes());
        packed.extend(bytes);
    }
    packed
}

fn unpack(mut packed: &[u8], folder: &dyn Folder, name: &str) {
    let file = folder.create(name, SEGMENT_BYTES).expect("the disk works");
    while let Some((header, rest)) = packed.split_first_chunk::<6>() {
        let number = u32::from_le_bytes(header[..4].try_into().expect("four bytes"));
        let length = usize::from(u16::from_le_bytes(header[4..].try_into().expect("two bytes")));
        let (bytes, rest) = rest.split_at(length);
        let mut page = [0; BLOCK_BYTES];
        match length {
            BLOCK_BYTES => page.copy_from_slice(bytes),
            _ => codec::decode(bytes, &mut page).expect("it was packed"),
        }
        file.write(u64::from(number) * BLOCK, &[IoSlice::new(&page)]).expect("the disk works");
        packed = rest;
    }
}
