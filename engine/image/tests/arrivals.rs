//! Tests of objects that arrive in a served folder, on simulated disks that lose power and fail.
#![forbid(unsafe_code)]

use image::{ExtractName, FolderStore, ImageErrorKind, ImageStore, ObjectName, PackName};
use powercut::{Cut, Disk, Effect, Fault, Loss, Moment};
use storage::AlignedBuffer;

const IMAGE_COUNT: u32 = 4;

fn store_on(disk: &Disk) -> FolderStore {
    FolderStore::serving(&*disk.folder()).expect("the disk is sound")
}

fn bytes(seed: u32, length: usize) -> AlignedBuffer {
    let mut bytes = AlignedBuffer::zeroed(length);
    for (place, piece) in bytes.chunks_exact_mut(4).enumerate() {
        let word = seed.wrapping_mul(0x9E37_79B9).wrapping_add(u32::try_from(place).expect("few"));
        piece.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn manifest(number: u32) -> AlignedBuffer {
    bytes(number, 4096 * (1 + number as usize))
}

fn extract() -> ExtractName {
    ExtractName { writer: 7, segment: 1, offset: 0 }
}

fn read(store: &FolderStore, object: ObjectName, length: usize) -> Vec<u8> {
    let mut found = vec![0; length];
    store.read(object, 0, &mut found).unwrap_or_else(|error| panic!("{object}: {error:?}"));
    found
}

/// Stores manifests, one of them twice, an extract that is replaced, and a pack in two parts.
/// Returns the moments at which the calls were answered.
fn fill(store: &FolderStore, disk: &Disk) -> Vec<Moment> {
    let mut answered = Vec::new();
    for number in 1..=IMAGE_COUNT {
        store.create_image(number, &manifest(number)).expect("the disk is sound");
        answered.push(disk.now());
        store.put_extract(extract(), &bytes(100 + number, 8192)).expect("the disk is sound");
    }
    store.create_image(1, &manifest(1)).expect("it is the sender's own");
    let pack = ObjectName::Pack(PackName { writer: 7, index: 0 });
    for (offset, length) in [(0, None), (8192, Some(16384))] {
        let mut part = store.receive(pack, offset).expect("the disk is sound");
        part.append(&bytes(200, 8192)).expect("the disk is sound");
        part.finish(length).expect("the disk is sound");
    }
    answered.push(disk.now());
    answered
}

fn check(disk: &Disk, answered: &[Moment], cut: &Cut) {
    let after = disk.after(cut).disk;
    let store = store_on(&after);
    let images = store.images().expect("the disk is sound");
    for number in 1..=IMAGE_COUNT {
        let is_answered = answered[number as usize - 1] <= cut.moment;
        let is_there = images.iter().any(|(found, _)| *found == number);
        assert!(is_there || !is_answered, "{cut:?}: image {number} is lost");
    }
    for (number, size_bytes) in images {
        let expected = manifest(number);
        assert_eq!(size_bytes, expected.len() as u64, "{cut:?}: image {number} is not whole");
        assert!(read(&store, ObjectName::Image(number), expected.len()) == expected[..], "{cut:?}");
    }
    for (name, size_bytes) in store.extracts().expect("the disk is sound") {
        assert_eq!(size_bytes, 8192, "{cut:?}");
        let found = read(&store, ObjectName::Extract(name), 8192);
        let is_one = (1..=IMAGE_COUNT).any(|number| found == bytes(100 + number, 8192)[..]);
        assert!(is_one, "{cut:?}: the extract is torn");
    }
    let whole = answered[IMAGE_COUNT as usize] <= cut.moment;
    if whole {
        let found = read(&store, ObjectName::Pack(PackName { writer: 7, index: 0 }), 16384);
        assert!(found[..8192] == bytes(200, 8192)[..] && found[8192..] == found[..8192], "{cut:?}");
    }
    // Repeated requests succeed, and no other writer gets the same numbers.
    fill(&store, &after);
    let error = store.create_image(2, &manifest(9)).expect_err("it is taken");
    assert_eq!(error.kind, ImageErrorKind::AlreadyExists);
}

#[test]
fn no_power_cut_loses_what_was_acknowledged_or_shows_a_part() {
    let disk = Disk::new(64 << 20);
    let answered = fill(&store_on(&disk), &disk);
    for seed in 0..300 {
        check(&disk, &answered, &Cut::random(seed, &disk));
    }
    for moment in 0..=disk.now().0 {
        // A kill loses no data that was passed to the kernel.
        let cut = Cut { moment: Moment(moment), loss: Loss::Nothing, seed: moment };
        check(&disk, &answered, &cut);
    }
}

#[test]
fn whichever_call_of_storage_fails_a_repeated_request_is_answered_truly() {
    for effect in [Effect::Io, Effect::NoSpace] {
        for skipped in 0..40 {
            let disk = Disk::new(64 << 20);
            let store = store_on(&disk);
            disk.inject(Fault::once(&[], skipped, effect.clone()));
            let first = store.create_image(1, &manifest(1));
            disk.heal();
            if let Err(error) = &first {
                assert_ne!(error.kind, ImageErrorKind::AlreadyExists, "{skipped}: {error:?}");
            }
            store.create_image(1, &manifest(1)).expect("its number is still its own");
            for (loss, seed) in Loss::HONEST.into_iter().zip(0..) {
                let after = disk.after(&Cut { moment: disk.now(), loss, seed }).disk;
                let found = read(&store_on(&after), ObjectName::Image(1), manifest(1).len());
                assert!(found == manifest(1)[..], "{loss:?} after {skipped}");
            }
        }
    }
}

#[test]
fn what_was_not_finished_leaves_nothing_visible() {
    let disk = Disk::new(64 << 20);
    let store = store_on(&disk);
    for object in [ObjectName::Image(1), ObjectName::Extract(extract())] {
        let mut arrival = store.receive(object, 0).expect("the disk is sound");
        arrival.append(&manifest(1)).expect("the disk is sound");
    }
    assert_eq!(store.images().expect("listed"), []);
    assert_eq!(store.extracts().expect("listed"), []);
    for folder in ["images", "journal"] {
        let folder = disk.folder().folder(folder).expect("it is there");
        assert_eq!(folder.list().expect("listed"), []);
    }
}

#[test]
fn a_part_that_does_not_fit_is_refused() {
    let disk = Disk::new(64 << 20);
    let store = store_on(&disk);
    let pack = ObjectName::Pack(PackName { writer: 1, index: 1 });
    let error = store.receive(pack, 4096).expect_err("there is no beginning");
    assert_eq!(error.kind, ImageErrorKind::NotFound);
    let mut part = store.receive(pack, 0).expect("it begins");
    part.append(&bytes(1, 4096)).expect("there is room");
    let error = part.finish(Some(8192)).expect_err("it is shorter");
    assert_eq!(error.kind, ImageErrorKind::Damaged);
    let mut part = store.receive(pack, 8192).expect("it is there");
    let error = part.append(&bytes(1, 4096)).expect_err("a part is missing");
    assert_eq!(error.kind, ImageErrorKind::Invalid);
    let plain = FolderStore::new(&*disk.folder()).expect("the disk is sound");
    let error = plain.receive(pack, 0).expect_err("it is not served");
    assert_eq!(error.kind, ImageErrorKind::Invalid);
}
