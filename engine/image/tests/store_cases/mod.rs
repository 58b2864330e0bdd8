//! Cases that each image store must pass. Test programs include them beside `made`.

use std::sync::Arc;

use image::{
    ExtractName, ImageErrorKind, ImageStore, ObjectName, PackName, SealedStore, Unwatched,
    list_images,
};
use sealing::{DataKey, SetKey, WrappingKey};
use storage::AlignedBuffer;

use crate::made::{Collected, Contents, Made, claim, newest, options};

/// Wraps the store with encryption.
pub(crate) fn sealed(store: Arc<dyn ImageStore>) -> Arc<dyn ImageStore> {
    let key = SetKey::wrap(DataKey::new([3; 32]), &WrappingKey::new([4; 32]));
    Arc::new(SealedStore::new(store, Arc::new(key.expect("Linux has random bytes"))))
}

pub(crate) fn small(generation: u64) -> Made {
    let mut made = Made::one(8 << 20);
    for block in 0..40 {
        made.write(0, block * 50, Contents::Noise(block + 1000 * generation));
        made.write(0, block * 50 + 1, Contents::Text(block));
    }
    made
}

/// Exercises all operations of an image store.
pub(crate) fn check_store(store: &Arc<dyn ImageStore>) {
    let mut claimed = claim(store);
    let mut made = small(1);
    made.save(&mut claimed);
    for round in 0..6 {
        made.write(0, round, Contents::Noise((1 << 30) + round));
        made.save(&mut claimed);
    }
    let image = newest(store).expect("some were saved");
    made.check(&image);
    assert_eq!(image.verify(&Unwatched).expect("it can be read").chunks_damaged, 0);
    assert_eq!(list_images(store).expect("they can be listed").len(), 7);

    let mut second = claim(store);
    let error = claimed.save(&small(2), &options(), &Unwatched).expect_err("it is fenced");
    assert_eq!(error.kind, ImageErrorKind::Fenced);
    let removed = second.retain(1, &[]).expect("the store is sound");
    assert_eq!(removed.images.len(), 6);
    let mut collected = Collected::default();
    let image = newest(store).expect("one is kept");
    image.restore(&mut collected, &Unwatched).expect("it is sound");
    made.check(&image);

    check_objects(&**store);
}

fn check_objects(store: &dyn ImageStore) {
    let missing = PackName { writer: 9, index: 9 };
    let error = store.read(ObjectName::Pack(missing), 0, &mut [0]).expect_err("there is none");
    assert_eq!(error.kind, ImageErrorKind::NotFound);
    store.remove(ObjectName::Pack(missing)).expect("it is gone already");
    let mut pack = store.begin_pack(missing).expect("the name is free");
    pack.append(&AlignedBuffer::zeroed(4096)).expect("there is room");
    pack.finish().expect("there is room");
    for offset in [1, 4096, 8192] {
        let error = store
            .read(ObjectName::Pack(missing), offset, &mut [0; 4096])
            .expect_err("it ends before");
        assert_eq!(error.kind, ImageErrorKind::Damaged, "{offset}: {error:?}");
    }
    store.remove(ObjectName::Pack(missing)).expect("it is there");
    assert!(store.packs().expect("listed").iter().all(|(name, _)| *name != missing));
    let (top_number, _) = *store.images().expect("listed").last().expect("some were saved");
    let extract = ExtractName { writer: 9, segment: 1, offset: 4096 };
    for (number, is_there) in [(top_number, true), (top_number + 1, false)] {
        let bytes = AlignedBuffer::zeroed(8192);
        let found = store.put_extract_and_look(extract, &bytes, number).expect("there is room");
        assert_eq!(found, is_there, "{number}");
        assert_eq!(store.has_image(number).expect("it answers"), is_there, "{number}");
    }
    store.remove(ObjectName::Extract(extract)).expect("it is there");
    check_extracts(store);
}

/// Extracts are replaced as a whole.
fn check_extracts(store: &dyn ImageStore) {
    let name = |offset| ExtractName { writer: 5, segment: 3, offset };
    for offset in [4096, 12288] {
        store.put_extract(name(offset), &AlignedBuffer::zeroed(12 << 10)).expect("there is room");
    }
    let mut bytes = AlignedBuffer::zeroed(8 << 10);
    bytes.fill(7);
    store.put_extract(name(4096), &bytes).expect("there is room");
    let listed = [(name(4096), 8 << 10), (name(12288), 12 << 10)];
    assert_eq!(store.extracts().expect("listed"), listed);
    let mut read = vec![0; 8 << 10];
    store.read(ObjectName::Extract(name(4096)), 0, &mut read).expect("it is there");
    assert!(read.iter().all(|byte| *byte == 7));
    store.remove(ObjectName::Extract(name(4096))).expect("it is there");
    assert_eq!(store.extracts().expect("listed"), listed[1..]);
    store.remove(ObjectName::Extract(name(12288))).expect("it is there");
}
