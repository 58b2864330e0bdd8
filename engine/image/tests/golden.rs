//! Tests that stores of all versions are read, or rejected with a clear error.

mod made;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use image::{
    ClaimedStore, FolderStore, ImageErrorKind, ImageStore, ImageVolumeKind, ListedImage, OpenImage,
    SaveOptions, SealedStore, StoreKey, Unwatched, find_store_key, list_images,
};
use made::{Contents, Made, WRITER, disk, image_volume, newest, options, store_on};
use sealing::{DataKey, SetKey, WrappingKey};
use tempfile::TempDir;

const FOLDERS: [&str; 2] = ["images", "packs"];

/// Returns the contents of the golden stores.
fn golden_volumes() -> Made {
    let mut made = Made::one(600 << 20);
    for block in 0..6 {
        made.write(0, block, Contents::Noise(block));
        made.write(0, 1000 + block, Contents::Text(block));
    }
    made.write(0, 300, Contents::Fill(0));
    made.write(0, 301, Contents::Fill(0xCAFE_F00D));
    made.write(0, 302, Contents::Damaged);
    let snapshot = made.add(image_volume(2, "data@first", 4 << 20));
    made.volumes[snapshot].source.volume.kind = ImageVolumeKind::Snapshot;
    made.volumes[snapshot].source.volume.origin = 1;
    for block in 0..4 {
        made.write(snapshot, block, Contents::Noise(block));
    }
    made
}

/// Saves two images. The second changes one block and discards one.
fn save_golden(store: &Arc<dyn ImageStore>) -> Made {
    let mut claimed = ClaimedStore::claim(Arc::clone(store), WRITER).expect("it is claimed");
    let mut made = golden_volumes();
    let labelled = SaveOptions { label: "golden".into(), ..options() };
    let saved = claimed.save(&made, &labelled, &Unwatched).expect("the store is sound");
    made.settle(saved.id);
    made.write(0, 150_000, Contents::Text(99));
    made.discard(0, 3);
    made.save(&mut claimed);
    made
}

fn golden(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version)
}

/// Copies a golden store, so that tests do not modify it.
fn copy_of(version: &str) -> (TempDir, Arc<dyn ImageStore>) {
    let copy = tempfile::tempdir().expect("a temporary folder");
    for folder in FOLDERS {
        let to = copy.path().join(folder);
        fs::create_dir(&to).expect("the folder is new");
        for (name, bytes) in files(&golden(version).join(folder)) {
            fs::write(to.join(name), bytes).expect("there is room");
        }
    }
    let store = FolderStore::open(copy.path()).expect("it is a folder");
    (copy, Arc::new(store))
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let list = fs::read_dir(folder).expect("it is committed");
    let mut files: Vec<_> = list
        .map(|entry| {
            let entry = entry.expect("the folder can be read");
            let name = entry.file_name().into_string().expect("names are ASCII");
            (name, fs::read(entry.path()).expect("the file can be read"))
        })
        .collect();
    files.sort();
    files
}

#[test]
fn images_of_version_1_are_read() {
    let (_copy, store) = copy_of("version-1");
    let expected = save_golden(&store_on(&disk()));
    let image = newest(&store).expect("it is whole");
    expected.check(&image);
    assert_eq!(image.verify(&Unwatched).expect("it can be read").chunks_damaged, 0);
    let first = OpenImage::open(Arc::clone(&store), 2).expect("it is whole");
    golden_volumes().check(&first);
    assert_eq!(first.summary().label, "golden");
}

/// Requests objects in the current encrypted format, in this folder.
const OUT_VARIABLE: &str = "MEMLANE_GOLDEN_OUT";

/// Wraps the store with the key of the golden one.
fn sealed(store: Arc<dyn ImageStore>) -> Arc<dyn ImageStore> {
    let key = SetKey::wrap(DataKey::new([5; 32]), &WrappingKey::new([6; 32]));
    Arc::new(SealedStore::new(store, Arc::new(key.expect("Linux has random bytes"))))
}

#[test]
fn images_of_version_2_are_read_with_their_key_alone() {
    if let Some(out) = std::env::var_os(OUT_VARIABLE) {
        let store = FolderStore::open(Path::new(&out)).expect("it is a folder");
        save_golden(&sealed(Arc::new(store)));
    }
    let (_copy, below) = copy_of("version-2");
    let StoreKey::Wrapped { wrapped, .. } = find_store_key(&*below).expect("it can be read") else {
        panic!("it is encrypted");
    };
    SetKey::open(wrapped, &[WrappingKey::new([6; 32])]).expect("it is the key");
    let store = sealed(Arc::clone(&below));
    let expected = save_golden(&store_on(&disk()));
    let image = newest(&store).expect("it is whole");
    expected.check(&image);
    assert_eq!(image.verify(&Unwatched).expect("it can be read").chunks_damaged, 0);

    let error = OpenImage::open(Arc::clone(&below), 3).expect_err("it is encrypted");
    assert_eq!(error.kind, ImageErrorKind::Key);
    let error = ClaimedStore::claim(below, 5).expect_err("it is encrypted");
    assert_eq!(error.kind, ImageErrorKind::Key);
    let (_copy, plain) = copy_of("version-1");
    let error = ClaimedStore::claim(sealed(plain), 5).expect_err("it is not encrypted");
    assert_eq!(error.kind, ImageErrorKind::Key);
}

#[test]
fn images_of_version_1_are_built_upon() {
    let (_copy, store) = copy_of("version-1");
    let mut made = save_golden(&store_on(&disk()));
    let mut claimed = ClaimedStore::claim(Arc::clone(&store), 5).expect("it is claimed");
    made.write(0, 0, Contents::Noise(1 << 20));
    let saved = made.save(&mut claimed);
    assert_eq!((saved.pages_written, saved.bases_missing.len()), (1, 0));
    made.check(&newest(&store).expect("it is whole"));
}

/// Converts to the format of releases that did not record the number of lost blocks.
fn without_count(mut written: Vec<u8>) -> Vec<u8> {
    if written.starts_with(b"MEMIMAGE") {
        written[176..184].fill(0);
        written[224..256].fill(0);
        let digest = *blake3::hash(&written[..4096]).as_bytes();
        written[224..256].copy_from_slice(&digest);
    }
    written
}

#[test]
fn images_say_how_many_blocks_were_lost_and_those_of_earlier_releases_do_not() {
    let (_copy, earlier) = copy_of("version-1");
    let store = store_on(&disk());
    save_golden(&store);
    let counts = [earlier, store].map(|store| newest(&store).expect("whole").summary().lost_blocks);
    assert_eq!(counts, [0, 1]);
}

/// To change the format deliberately, increment its version and commit the files of this test as a
/// further golden store.
#[test]
fn what_is_written_has_the_golden_bytes() {
    let disk = disk();
    save_golden(&store_on(&disk));
    for folder in FOLDERS {
        for (name, bytes) in files(&golden("version-1").join(folder)) {
            let written = without_count(disk.contents(&format!("{folder}/{name}")));
            assert!(written == bytes, "{folder}/{name} has other bytes");
        }
    }
    let golden_count: usize =
        FOLDERS.iter().map(|folder| files(&golden("version-1").join(folder)).len()).sum();
    assert_eq!(disk.files().len(), golden_count);
}

#[test]
fn a_later_version_is_refused_by_name() {
    let (copy, store) = copy_of("version-1");
    let path = copy.path().join("images/0000000003");
    let mut manifest = fs::read(&path).expect("it is there");
    manifest[8] = 9;
    manifest[224..256].fill(0);
    let digest = *blake3::hash(&manifest[..4096]).as_bytes();
    manifest[224..256].copy_from_slice(&digest);
    fs::write(&path, manifest).expect("there is room");

    let error = OpenImage::open(Arc::clone(&store), 3).expect_err("it is newer");
    assert_eq!(error.kind, ImageErrorKind::Newer);
    let error = ClaimedStore::claim(Arc::clone(&store), 5).expect_err("one is newer");
    assert_eq!(error.kind, ImageErrorKind::Newer);
    assert_eq!(
        error.to_string(),
        "cannot claim a store with a manifest that cannot be read: a newer version wrote it; \
         read it with that version"
    );
    let listed = list_images(&store).expect("the others can be read");
    assert!(matches!(&listed[..], [ListedImage::Whole(_), ListedImage::Unreadable { .. }]));
}
