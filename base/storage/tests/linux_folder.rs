//! Tests of the guarantees of `Folder` and `StableFile` on a Linux directory, on a disk and on
//! tmpfs.
#![forbid(unsafe_code)]

use std::io::IoSlice;
use std::path::Path;

use storage::{AlignedBuffer, Folder, LinuxFolder, StorageError, StorageErrorKind};
use tempfile::TempDir;

/// Directories on different file systems: that of the build, and tmpfs.
fn places() -> Vec<TempDir> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let memory = Path::new("/dev/shm");
    [target, memory]
        .into_iter()
        .filter(|parent| parent.is_dir())
        .map(|parent| TempDir::new_in(parent).expect("the place is writable"))
        .collect()
}

/// Runs `case` in each directory.
#[track_caller]
fn check(case: impl Fn(&LinuxFolder)) {
    let places = places();
    assert!(!places.is_empty());
    for place in places {
        case(&LinuxFolder::open(place.path()).expect("it was just made"));
    }
}

fn aligned(bytes: &[u8]) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::new();
    buffer.extend_from_slice(bytes);
    buffer
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 31 + at / 253 + seed) % 256).expect("small")).collect()
}

#[track_caller]
fn kind<T>(result: Result<T, StorageError>) -> StorageErrorKind {
    match result {
        Ok(_) => panic!("it should have failed"),
        Err(error) => error.kind,
    }
}

#[track_caller]
fn is_invalid<T>(result: Result<T, StorageError>) {
    assert!(matches!(kind(result), StorageErrorKind::Invalid(_)));
}

#[test]
fn a_new_file_is_all_zeros() {
    check(|folder| {
        let size_bytes = 3 * (1 << 20) + 4096;
        let file = folder.create("segment", size_bytes).expect("there is room");
        assert_eq!(file.size_bytes(), size_bytes);
        let mut contents = vec![1; usize::try_from(size_bytes).expect("it fits")];
        file.read(0, &mut contents).expect("it was written");
        assert!(contents.iter().all(|&byte| byte == 0));
        let files = folder.list().expect("the folder is readable");
        assert_eq!(files.len(), 1);
        assert_eq!((files[0].name.as_str(), files[0].size_bytes), ("segment", size_bytes));
    });
}

#[test]
fn what_was_written_is_read_back_whatever_its_alignment() {
    check(|folder| {
        let file = folder.create("segment", 0).expect("there is room");
        // Longer than the copy buffer, at unaligned addresses.
        let length = (5 << 20) + 8192;
        let contents = pattern(length, 1);
        let (first, second) = contents.split_at(1_234_567);
        file.write(0, &[IoSlice::new(first), IoSlice::new(second)]).expect("there is room");
        assert_eq!(file.size_bytes(), length as u64);
        for (offset, length) in [(0, length), (1, 1), (4095, 2), (4096, 4096), (777, 3 << 20)] {
            let mut found = vec![0; length];
            file.read(offset, &mut found).expect("it lies inside");
            let start = usize::try_from(offset).expect("small");
            assert_eq!(found, contents[start..start + length], "{offset} {length}");
        }
    });
}

#[test]
fn durable_writes_of_any_shape_land_where_they_should() {
    check(|folder| {
        let file = folder.create("segment", 1 << 20).expect("there is room");
        let block = aligned(&pattern(8192, 2));
        file.write_durably(4096, &[IoSlice::new(&block)]).expect("there is room");
        // More parts than one system call accepts, some of them empty.
        let many = pattern(4096 * 2000, 3);
        let page = aligned(&many);
        let mut parts: Vec<_> = page.chunks(4096).map(IoSlice::new).collect();
        parts.push(IoSlice::new(&[]));
        file.write_durably(1 << 20, &parts).expect("there is room");
        let odd = pattern((2 << 20) + 4096, 4);
        let end = file.size_bytes();
        file.write_durably(end, &[IoSlice::new(&odd)]).expect("there is room");
        file.sync().expect("the disk works");

        let mut found = vec![0; 8192];
        file.read(4096, &mut found).expect("it lies inside");
        assert_eq!(found, block[..]);
        let mut found = vec![0; many.len()];
        file.read(1 << 20, &mut found).expect("it lies inside");
        assert_eq!(found, many);
        let mut found = vec![0; odd.len()];
        file.read(end, &mut found).expect("it lies inside");
        assert_eq!(found, odd);
    });
}

#[test]
fn writes_that_cut_blocks_or_leave_gaps_are_refused() {
    check(|folder| {
        let file = folder.create("segment", 4096).expect("there is room");
        is_invalid(file.write(0, &[IoSlice::new(&[0; 100])]));
        is_invalid(file.write(100, &[IoSlice::new(&[0; 4096])]));
        is_invalid(file.write_durably(8192, &[IoSlice::new(&[0; 4096])]));
        is_invalid(file.read(4096, &mut [0]));
        is_invalid(file.read(u64::MAX, &mut [0; 2]));
        is_invalid(folder.create("odd", 100));
    });
}

#[test]
fn names_are_made_renamed_and_removed() {
    check(|folder| {
        let one = folder.create("one", 4096).expect("there is room");
        folder.create("two", 8192).expect("there is room");
        assert_eq!(kind(folder.create("one", 0)), StorageErrorKind::AlreadyExists);
        folder.rename("two", "one").expect("it exists");
        folder.sync_names().expect("the disk works");
        assert_eq!(folder.open("one").expect("it exists").size_bytes(), 8192);
        assert_eq!(kind(folder.open("two")), StorageErrorKind::NotFound);
        assert_eq!(kind(folder.rename("two", "three")), StorageErrorKind::NotFound);
        // The replaced file still exists for the reader that has it open.
        one.read(0, &mut [0; 4096]).expect("it is open");
        folder.remove("one").expect("it exists");
        assert_eq!(kind(folder.remove("one")), StorageErrorKind::NotFound);
        assert_eq!(folder.list().expect("the folder is readable"), []);
    });
}

#[test]
fn a_file_that_is_published_replaces_none() {
    check(|folder| {
        folder.create("one", 4096).expect("there is room");
        folder.create("two", 8192).expect("there is room");
        assert_eq!(kind(folder.publish("two", "one")), StorageErrorKind::AlreadyExists);
        assert_eq!(folder.open("one").expect("it exists").size_bytes(), 4096);
        folder.publish("two", "three").expect("the name is free");
        assert_eq!(folder.open("three").expect("it exists").size_bytes(), 8192);
        assert_eq!(kind(folder.publish("two", "four")), StorageErrorKind::NotFound);
        is_invalid(folder.publish("one", "../two"));
    });
}

#[test]
fn creations_of_one_name_at_once_write_no_zeros_over_what_the_first_put_there() {
    check(|folder| {
        for round in 0..20 {
            let name = format!("extracts-{round}");
            let block = aligned(&pattern(1 << 20, round));
            let create = || -> bool {
                let Ok(file) = folder.create(&name, 1 << 20) else { return false };
                file.write_durably(0, &[IoSlice::new(&block)]).expect("there is room");
                true
            };
            let created = std::thread::scope(|scope| {
                let threads = [(); 4].map(|()| scope.spawn(create));
                threads.map(|thread| thread.join().expect("it does not panic"))
            });
            assert_eq!(created.iter().filter(|&&it| it).count(), 1);
            let mut found = vec![0; block.len()];
            folder.open(&name).expect("it exists").read(0, &mut found).expect("it is whole");
            assert!(found == block[..], "round {round}: the contents were overwritten");
        }
        // Nothing else is left.
        let left = std::fs::read_dir(folder.path()).expect("it is readable");
        assert_eq!(left.count(), 20);
    });
}

#[test]
fn names_that_could_leave_the_folder_are_refused() {
    check(|folder| {
        is_invalid(folder.create("../segment", 0));
        is_invalid(folder.open(".hidden"));
        is_invalid(folder.rename("a", "b/c"));
        is_invalid(folder.remove(""));
        is_invalid(folder.folder(".."));
    });
}

#[test]
fn folders_within_hold_files_of_their_own() {
    check(|folder| {
        let packs = folder.folder("packs").expect("it can be made");
        packs.create("one", 4096).expect("there is room");
        let again = folder.folder("packs").expect("it exists");
        assert_eq!(again.list().expect("it is readable").len(), 1);
        assert_eq!(folder.list().expect("it is readable"), []);
        is_invalid(folder.open("packs"));
        folder.create("file", 0).expect("there is room");
        is_invalid(folder.folder("file"));
    });
}

#[test]
fn a_folder_has_one_owner_who_removes_what_was_never_finished() {
    for place in places() {
        let path = place.path().join("journal");
        let folder = LinuxFolder::open_or_make(&path).expect("it can be made");
        // Of this version and of those before it.
        let left = [".new-12-7-segment", ".new-segment"].map(|name| path.join(name));
        for path in &left {
            std::fs::write(path, b"half").expect("the folder is writable");
        }
        let lock = folder.lock().expect("no other process has it");
        assert!(left.iter().all(|path| !path.exists()));
        let other = LinuxFolder::open_or_make(&path).expect("it exists");
        assert_eq!(kind(other.lock()), StorageErrorKind::Busy);
        drop(lock);
        other.lock().expect("no other process has it any more");
    }
}

#[test]
fn a_folder_that_is_missing_is_named() {
    let error = LinuxFolder::open(Path::new("/nowhere/journal")).expect_err("there is none");
    assert_eq!(error.kind, StorageErrorKind::NotFound);
    assert!(error.to_string().contains("open the directory /nowhere/journal"), "{error}");
    let made = LinuxFolder::open_or_make(Path::new("/nowhere/journal"));
    assert_eq!(kind(made), StorageErrorKind::NotFound);
}

#[test]
fn what_is_no_file_is_not_opened() {
    let devices = LinuxFolder::open(Path::new("/dev")).expect("every Linux has it");
    is_invalid(devices.open("zero"));
}

#[test]
fn a_folder_has_room() {
    check(|folder| assert!(folder.free_bytes().expect("the folder is readable") > 0));
}
