//! Tests of encrypted stores: reads of the store below, and failures of it.

mod made;

use std::sync::Arc;

use image::{ImageError, ImageStore, ObjectName, PackName, PackWriter, SealedStore, Unwatched};
use made::{Collected, Contents, Made, claim, disk, newest, options, store_on};
use powercut::{Effect, Fault};
use sealing::{DataKey, SetKey, WrappingKey};
use storage::StorageAction;
use sync::atomic::{AtomicU64, Ordering};

fn sealed(below: Arc<dyn ImageStore>) -> Arc<dyn ImageStore> {
    let key = SetKey::wrap(DataKey::new([5; 32]), &WrappingKey::new([6; 32]));
    Arc::new(SealedStore::new(below, Arc::new(key.expect("Linux has random bytes"))))
}

/// Creates a volume with this number of leaves, each with one block and thus one chunk.
fn scattered(leaf_count: u64) -> Made {
    let mut made = Made::one(leaf_count << 21);
    for leaf in 0..leaf_count {
        made.write(0, leaf * 512, Contents::Noise(leaf));
    }
    made
}

/// A store that counts bytes read from it.
#[derive(Debug)]
struct Counted {
    store: Arc<dyn ImageStore>,
    bytes_read: AtomicU64,
}

impl ImageStore for Counted {
    fn begin_pack(&self, name: PackName) -> Result<Box<dyn PackWriter>, ImageError> {
        self.store.begin_pack(name)
    }

    fn create_image(&self, number: u32, manifest: &[u8]) -> Result<(), ImageError> {
        self.store.create_image(number, manifest)
    }

    fn read(&self, object: ObjectName, offset: u64, into: &mut [u8]) -> Result<(), ImageError> {
        self.bytes_read.fetch_add(into.len() as u64, Ordering::Relaxed);
        self.store.read(object, offset, into)
    }

    fn reads_at_once(&self) -> usize {
        self.store.reads_at_once()
    }

    fn images(&self) -> Result<Vec<(u32, u64)>, ImageError> {
        self.store.images()
    }

    fn packs(&self) -> Result<Vec<(PackName, u64)>, ImageError> {
        self.store.packs()
    }

    fn remove(&self, object: ObjectName) -> Result<(), ImageError> {
        self.store.remove(object)
    }
}

#[test]
fn chunks_are_read_without_what_lies_before_them() {
    let below = Arc::new(Counted { store: store_on(&disk()), bytes_read: AtomicU64::new(0) });
    let store = sealed(Arc::clone(&below) as Arc<dyn ImageStore>);
    let mut made = scattered(200);
    made.save(&mut claim(&store));
    let image = newest(&store).expect("it is whole");
    let before = below.bytes_read.load(Ordering::Relaxed);
    let mut collected = Collected::default();
    let restored = image.restore(&mut collected, &Unwatched).expect("it can be read");
    let read = below.bytes_read.load(Ordering::Relaxed) - before;
    assert_eq!(collected.blocks.len(), 200);
    assert!(read < 2 * restored.bytes_read, "{read} for {}", restored.bytes_read);
}

#[test]
fn damage_of_a_header_is_noticed_though_it_was_read_before() {
    let disk = disk();
    let store = sealed(store_on(&disk));
    let mut made = scattered(20);
    made.save(&mut claim(&store));
    let image = newest(&store).expect("it is whole");
    assert_eq!(image.verify(&Unwatched).expect("it can be read").chunks_damaged, 0);
    let pack = disk.files().into_iter().find(|file| file.name.starts_with("packs/"));
    disk.flip_bit(&pack.expect("it was saved").name, 8 * 50);
    let verified = image.verify(&Unwatched).expect("it can be read");
    assert_eq!(verified.chunks_damaged, verified.chunk_count, "all are of that group");
}

#[test]
fn a_save_fails_with_whichever_write_of_a_pack() {
    let disk = disk();
    let store = sealed(store_on(&disk));
    let mut claimed = claim(&store);
    let mut before = Made::one(32 << 20);
    before.write(0, 7, Contents::Noise(7));
    before.save(&mut claimed);
    for skipped in 0..4 {
        let mut made = Made::one(32 << 20);
        (0..5000).for_each(|block| made.write(0, block, Contents::Noise(block + skipped)));
        disk.inject(Fault::once(&[StorageAction::Write], skipped, Effect::Io));
        let error = claimed.save(&made, &options(), &Unwatched).expect_err("the disk fails");
        assert!(error.to_string().contains("bytes at"), "{skipped}: {error}");
        before.check(&newest(&store).expect("the one before is there"));
        assert_eq!(store.packs().expect("the disk works").len(), 1, "{skipped}: it is removed");
    }
}
