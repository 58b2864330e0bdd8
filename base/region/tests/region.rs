//! Tests of regions in real files on tmpfs.

use region::{Region, RegionErrorKind, RegionSpec, SIZE_UNIT_BYTES, existing_size_bytes};
use sync::atomic::Ordering;

const SIZE_BYTES: u64 = 4 << 20;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder")
}

fn spec(folder: &tempfile::TempDir, size_bytes: u64) -> RegionSpec {
    RegionSpec { path: folder.path().join("region"), size_bytes }
}

#[track_caller]
fn check_refused(spec: &RegionSpec, kind: RegionErrorKind) {
    let error = Region::open(spec).expect_err("the region is refused");
    assert_eq!(error.kind, kind);
    assert!(error.to_string().contains(&*spec.path.to_string_lossy()));
}

#[test]
fn what_is_stored_is_there_when_the_region_is_opened_again() {
    let folder = folder();
    let spec = spec(&folder, SIZE_BYTES);
    let region = Region::open(&spec).expect("a region can be made");
    region.word_to_store(8).store(7, Ordering::Release);
    // SAFETY:
    // - exclusive: no other thread knows the region.
    unsafe { region.store_bytes(4096, &[9; 100]) };
    drop(region);
    let region = Region::open(&spec).expect("a region can be opened again");
    assert_eq!(region.word(8).load(Ordering::Acquire), 7);
    // SAFETY:
    // - exclusive: no other thread knows the region.
    assert_eq!(unsafe { region.bytes(4096, 101) }, [&[9; 100][..], &[0]].concat());
    assert_eq!(existing_size_bytes(&spec.path).expect("it can be asked"), Some(SIZE_BYTES));
}

#[test]
fn a_second_opener_is_refused() {
    let folder = folder();
    let spec = spec(&folder, SIZE_BYTES);
    let _first = Region::open(&spec).expect("a region can be made");
    check_refused(&spec, RegionErrorKind::Busy);
}

#[test]
fn a_region_of_another_size_is_refused() {
    let folder = folder();
    drop(Region::open(&spec(&folder, SIZE_BYTES)).expect("a region can be made"));
    let kind =
        RegionErrorKind::SizeDiffers { found_bytes: SIZE_BYTES, asked_bytes: 2 * SIZE_BYTES };
    check_refused(&spec(&folder, 2 * SIZE_BYTES), kind);
}

#[test]
fn a_size_that_is_no_multiple_of_two_mebibytes_is_refused() {
    let folder = folder();
    let asked_bytes = SIZE_BYTES + 4096;
    check_refused(&spec(&folder, asked_bytes), RegionErrorKind::InvalidSize { asked_bytes });
}

#[test]
fn more_memory_than_there_is_is_refused_at_once_and_leaves_an_empty_file() {
    let folder = folder();
    let spec = spec(&folder, 1 << 50);
    let error = Region::open(&spec).expect_err("a pebibyte is too much");
    assert!(matches!(error.kind, RegionErrorKind::NotEnoughMemory { .. }), "{error}");
    assert_eq!(existing_size_bytes(&spec.path).expect("it can be asked"), None);
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let folder = folder();
    let path = folder.path().join("missing").join("region");
    let spec = RegionSpec { path, size_bytes: SIZE_BYTES };
    check_refused(&spec, RegionErrorKind::System { call: "open" });
}

fn capacity(size_bytes: u64) -> u64 {
    16 * size_bytes
}

#[test]
fn a_growable_region_has_the_memory_that_was_taken_and_no_more() {
    let folder = folder();
    let region = Region::open_growable(&spec(&folder, SIZE_BYTES), capacity(SIZE_BYTES));
    let region = region.expect("a region can be made");
    assert_eq!(region.capacity_bytes(), capacity(SIZE_BYTES));
    assert_eq!(region.asked_bytes(), SIZE_BYTES);
    let unit = SIZE_UNIT_BYTES;
    assert_eq!(region.held_bytes().expect("it can be asked"), 0, "all of it are holes");
    region.take_memory(&[0..unit, 3 * unit..4 * unit], 2 * unit).expect("there is memory");
    assert_eq!(region.held_bytes().expect("it can be asked"), 2 * unit);
    region.word_to_store(3 * unit).store(7, Ordering::Release);
    region.give_back_memory(3 * unit..4 * unit).expect("it has memory there");
    assert_eq!(region.held_bytes().expect("it can be asked"), unit);
    assert_eq!(region.word(3 * unit).load(Ordering::Acquire), 0, "a hole reads as zeros");
}

#[test]
fn a_growable_region_keeps_its_capacity() {
    let folder = folder();
    let spec = spec(&folder, SIZE_BYTES);
    let region = Region::open_growable(&spec, capacity(SIZE_BYTES)).expect("it can be made");
    region
        .take_memory(std::slice::from_ref(&(0..SIZE_BYTES)), SIZE_BYTES)
        .expect("there is memory");
    region.word_to_store(8).store(7, Ordering::Release);
    drop(region);
    let region = Region::open_growable(&spec, 2 * SIZE_BYTES).expect("it can be opened");
    assert_eq!(region.capacity_bytes(), capacity(SIZE_BYTES));
    assert_eq!(region.word(8).load(Ordering::Acquire), 7);
}

#[test]
fn a_region_grows_no_further_than_memory_reaches() {
    let folder = folder();
    let region = Region::open_growable(&spec(&folder, SIZE_BYTES), 1 << 50);
    let region = region.expect("holes cost nothing");
    let all = 0..region.capacity_bytes();
    let error =
        region.take_memory(std::slice::from_ref(&all), all.end).expect_err("that is too much");
    assert!(matches!(error.kind, RegionErrorKind::NotEnoughMemory { .. }), "{error}");
    assert_eq!(region.held_bytes().expect("it can be asked"), 0);
}

#[test]
fn what_cannot_be_a_region_is_refused_and_left_alone() {
    for length in [1000_usize, (4 << 20) + 4096] {
        let folder = folder();
        let spec = spec(&folder, SIZE_BYTES);
        std::fs::write(&spec.path, vec![7; length]).expect("tmpfs has room");
        let error = Region::open_growable(&spec, SIZE_BYTES).expect_err("it is something else");
        let found_bytes = length as u64;
        assert_eq!(error.kind, RegionErrorKind::NotARegion { found_bytes });
        let found = std::fs::read(&spec.path).expect("it is there");
        assert!(found == vec![7; length], "it is what it was");
    }
}

#[test]
fn looking_at_a_region_takes_no_memory() {
    let folder = folder();
    let region = Region::open_growable(&spec(&folder, SIZE_BYTES), SIZE_BYTES);
    let region = region.expect("a region can be made");
    assert_eq!(region.peek(4096, 3).expect("it can be read"), [0; 3]);
    assert_eq!(region.held_bytes().expect("it can be asked"), 0);
}

#[test]
fn a_region_that_others_can_reach_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let spec = spec(&folder, SIZE_BYTES);
    drop(Region::open_growable(&spec, SIZE_BYTES).expect("a region can be made"));
    for mode in [0o604, 0o602, 0o640, 0o620] {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&spec.path, permissions).expect("it is ours");
        let error = Region::open_growable(&spec, SIZE_BYTES).expect_err("it is not private");
        let found =
            matches!(error.kind, RegionErrorKind::NotPrivate { mode: found, .. } if found == mode);
        assert!(found && error.to_string().contains("chmod 600"), "{error}");
    }
    let permissions = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&spec.path, permissions).expect("it is ours");
    Region::open_growable(&spec, SIZE_BYTES).expect("it is private again");
}
