//! Colliding contents: equal fingerprints, different bytes.

use std::collections::HashMap;

use codec::{BLOCK_BYTES, Block};
use page_store::{Compression, OwnedPageRef, PageRef, PageStore, Policy, Purpose, StoreOptions};
use region::{Region, RegionSpec};

fn open(folder: &tempfile::TempDir) -> PageStore {
    let path = folder.path().join("region");
    let region = Region::open(&RegionSpec { path, size_bytes: 16 << 20 }).expect("it opens");
    let options = StoreOptions { lane_count: 1, fresh_secret: [3; 32] };
    PageStore::open(region, options).expect("a fresh region is a pool").0
}

fn block(number: u64) -> Block {
    let mut block = [0x5A; BLOCK_BYTES];
    block[100..108].copy_from_slice(&number.to_le_bytes());
    block
}

/// Finds two blocks with equal fingerprints. By the birthday bound some 80,000 blocks suffice for
/// 32 bits.
fn find_collision(store: &PageStore) -> [Block; 2] {
    let mut seen = HashMap::new();
    for number in 0..2_000_000 {
        let fingerprint = store.step_fingerprint(&block(number));
        if let Some(other) = seen.insert(fingerprint, number) {
            return [block(other), block(number)];
        }
    }
    panic!("two million blocks without a collision of 32 bits");
}

fn store_page(store: &PageStore, contents: &Block) -> OwnedPageRef {
    let mut lane = store.lane();
    let policy = Policy { shares_duplicates: true, compression: Compression::Later };
    let pinned = store.pin();
    let page = lane.store_page(&pinned, contents, policy, || Purpose::NewData);
    page.expect("the pool has room")
}

fn read(store: &PageStore, entry: PageRef) -> Block {
    let mut contents = [0; BLOCK_BYTES];
    store.read_page(&store.pin(), entry, &mut contents).expect("the page is whole");
    contents
}

#[test]
fn contents_with_equal_fingerprints_are_kept_apart() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
    let store = open(&folder);
    let [first, second] = find_collision(&store);
    assert!(first != second);
    let pages = [&first, &second, &first, &second].map(|contents| store_page(&store, contents));
    assert_eq!(store.usage().page_count, 2, "equal contents are shared, others are not");
    for (page, contents) in pages.iter().zip([&first, &second, &first, &second]) {
        assert!(read(&store, page.page_ref()) == *contents);
    }
    let mut lane = store.lane();
    pages.into_iter().for_each(|page| lane.give_back(page));
    drop(lane);
    assert_eq!(store.usage().page_count, 0);
}
