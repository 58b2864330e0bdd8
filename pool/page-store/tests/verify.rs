//! Detection of damaged pages in memory.

use std::os::unix::fs::FileExt;

use page_store::{
    Compression, NodeRef, PageRefKind, PageStore, Parent, Policy, Purpose, StoreOptions, Verified,
};
use region::{Region, RegionSpec};

const SIZE_BYTES: u64 = 8 << 20;

struct Pool {
    folder: tempfile::TempDir,
}

impl Pool {
    fn new() -> Self {
        Self { folder: tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder") }
    }

    fn open(&self) -> PageStore {
        let path = self.folder.path().join("region");
        let region = Region::open(&RegionSpec { path, size_bytes: SIZE_BYTES });
        let options = StoreOptions { lane_count: 1, fresh_secret: [7; 32] };
        PageStore::open(region.expect("the region opens"), options).expect("the pool opens").0
    }

    /// Flips a bit at the first occurrence of these bytes in the pool's file.
    fn flip_bit_in(&self, wanted: &[u8]) {
        let path = self.folder.path().join("region");
        let bytes = std::fs::read(&path).expect("the file is there");
        let at = bytes.windows(wanted.len()).position(|window| window == wanted);
        let at = at.expect("the bytes are stored somewhere");
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file opens");
        file.write_all_at(&[wanted[0] ^ 4], at as u64).expect("tmpfs has room");
    }
}

fn noise(seed: u64) -> codec::Block {
    let mut state = seed;
    std::array::from_fn(|_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()[7]
    })
}

fn text(seed: u8) -> codec::Block {
    std::array::from_fn(|index| match index % 64 {
        0 => seed,
        place => b"a page of text that can be made shorter by far, and then some.."[place - 1],
    })
}

fn store(pool: &PageStore, leaf: NodeRef, index: usize, contents: &codec::Block, policy: Policy) {
    let mut lane = pool.lane();
    let pinned = pool.pin();
    let page = lane.store_page(&pinned, contents, policy, || Purpose::NewData);
    lane.replace(leaf, index, page.expect("there is room"), page_store::DirtyBits::NONE);
}

fn leaf(pool: &PageStore) -> NodeRef {
    pool.lane().link(Parent::Root(0), Purpose::NewData).expect("there is room")
}

fn verify_all(pool: &PageStore) -> Verified {
    let verified = pool.verify_slabs(0, u32::MAX);
    assert!(!verified.has_more);
    verified
}

const POLICIES: [Policy; 4] = [
    Policy { shares_duplicates: true, compression: Compression::Later },
    Policy { shares_duplicates: true, compression: Compression::Now },
    Policy { shares_duplicates: false, compression: Compression::Never },
    Policy { shares_duplicates: false, compression: Compression::Now },
];

#[test]
fn pages_of_every_policy_are_verified() {
    let folder = Pool::new();
    let pool = folder.open();
    let leaf = leaf(&pool);
    for (index, policy) in POLICIES.into_iter().enumerate() {
        store(&pool, leaf, 2 * index, &noise(index as u64), policy);
        store(&pool, leaf, 2 * index + 1, &text(b'a' + index.to_le_bytes()[0]), policy);
    }
    let verified = verify_all(&pool);
    assert_eq!((verified.page_count, verified.damaged.len()), (8, 0));
    assert!(verified.bytes > 4 * 4096);
}

#[test]
fn a_flipped_bit_is_found_in_pages_of_every_policy() {
    for (index, policy) in POLICIES.into_iter().enumerate() {
        let folder = Pool::new();
        let pool = folder.open();
        let leaf = leaf(&pool);
        let contents = noise(index as u64 + 1);
        store(&pool, leaf, 0, &contents, policy);
        store(&pool, leaf, 1, &noise(99), policy);
        folder.flip_bit_in(&contents[100..200]);
        let verified = verify_all(&pool);
        assert_eq!((verified.page_count, verified.damaged.len()), (1, 1), "{policy:?}");
        let mut lane = pool.lane();
        verified.damaged.into_iter().for_each(|page| lane.give_back(page));
        drop(lane);
        let pinned = pool.pin();
        let mut into = [0; codec::BLOCK_BYTES];
        let entry = pool.entry(&pinned, leaf, 0);
        assert_eq!(entry.kind(), PageRefKind::Page);
        assert!(pool.read_page(&pinned, entry, &mut into).is_ok(), "it is not verified");
        assert!(pool.read_verified(&pinned, entry, &mut into).is_err(), "{policy:?}");
        let other = pool.entry(&pinned, leaf, 1);
        pool.read_verified(&pinned, other, &mut into).expect("the other page is whole");
    }
}

#[test]
fn a_flipped_bit_is_found_in_an_encoding() {
    let folder = Pool::new();
    let pool = folder.open();
    let leaf = leaf(&pool);
    store(&pool, leaf, 0, &text(b'Q'), POLICIES[1]);
    folder.flip_bit_in(b"a page of text that can");
    let verified = verify_all(&pool);
    assert_eq!((verified.page_count, verified.damaged.len()), (0, 1));
    verified.damaged.into_iter().for_each(|page| pool.lane().give_back(page));
}

#[test]
fn contents_without_dedup_are_not_shared_with_those_that_have_it() {
    let folder = Pool::new();
    let pool = folder.open();
    let leaf = leaf(&pool);
    for index in 0..3 {
        store(&pool, leaf, index, &noise(5), POLICIES[2]);
        store(&pool, leaf, 3 + index, &noise(5), POLICIES[0]);
    }
    assert_eq!(pool.usage().page_count, 4);
}

/// Offset of the slab table, and the words of slabs in use.
const SLAB_TABLE: u64 = 8192 + (256 << 10);

/// Creates a pool with uncompressed pages, packed ones and a node, in at least one slab each.
fn filled() -> (Pool, Vec<codec::Block>) {
    let folder = Pool::new();
    let pool = folder.open();
    let leaf = leaf(&pool);
    let contents: Vec<_> = (0..40).map(noise).chain((b'a'..=b'y').map(text)).collect();
    for (index, contents) in contents.iter().enumerate() {
        store(&pool, leaf, index, contents, POLICIES[1]);
    }
    (folder, contents)
}

fn check_contents(pool: &PageStore, contents: &[codec::Block]) {
    let pinned = pool.pin();
    let leaf = pool.child(&pinned, Parent::Root(0)).expect("the leaf is there");
    for (index, expected) in contents.iter().enumerate() {
        let mut into = [0; codec::BLOCK_BYTES];
        let entry = pool.entry(&pinned, leaf, index);
        pool.read_verified(&pinned, entry, &mut into).expect("the page is whole");
        assert!(into == *expected, "page {index}");
    }
}

/// Stores unshared pages, in separate leaves, until there is no room for another.
fn fill_up(pool: &PageStore) {
    const ENTRIES: usize = 512;
    let (mut leaf, mut contents) = (None, noise(1000));
    for index in 0..SIZE_BYTES / codec::BLOCK_BYTES as u64 {
        let at = usize::try_from(index).expect("small");
        let mut lane = pool.lane();
        if at.is_multiple_of(ENTRIES) {
            leaf = lane.link(Parent::Root(1 + at / ENTRIES), Purpose::NewData).ok();
        }
        let Some(leaf) = leaf else { return };
        contents[..8].copy_from_slice(&index.to_le_bytes());
        let pinned = pool.pin();
        let page = lane.store_page(&pinned, &contents, POLICIES[1], || Purpose::NewData);
        let Ok(page) = page else { return };
        lane.replace(leaf, at % ENTRIES, page, page_store::DirtyBits::NONE);
    }
    panic!("a pool takes as many pages as it has room for");
}

/// Goal: no flip of one bit in the slab table frees memory that is in use.
/// Method: flip bits of each word, one at a time, open the pool, and fill all free memory.
#[test]
fn a_flipped_bit_in_the_slab_table_frees_nothing_that_is_live() {
    let (folder, contents) = filled();
    let path = folder.folder.path().join("region");
    let whole = std::fs::read(&path).expect("the file is there");
    let word_of = |slab: usize| {
        let at = usize::try_from(SLAB_TABLE).expect("small") + 8 * slab;
        (at, u64::from_le_bytes(whole[at..at + 8].try_into().expect("eight bytes")))
    };
    let used: Vec<_> = (0..60).map(word_of).filter(|(_, word)| *word != 0).collect();
    assert!(used.len() >= 4, "{used:?}");
    for (at, word) in used {
        // Bits of the class, the next bit, and some of the many that are zero.
        for bit in [0, 1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 31, 32, 48, 63] {
            let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it opens");
            file.write_all_at(&whole, 0).expect("tmpfs has room");
            file.write_all_at(&(word ^ 1 << bit).to_le_bytes(), at as u64).expect("it has room");
            let pool = folder.open();
            fill_up(&pool);
            check_contents(&pool, &contents);
        }
    }
}

#[test]
fn what_earlier_releases_named_once_is_named_again() {
    let (folder, contents) = filled();
    let path = folder.folder.path().join("region");
    // The second names, which earlier releases did not write.
    let mut whole = std::fs::read(&path).expect("the file is there");
    let mut cleared = 0;
    for word in whole.as_chunks_mut::<8>().0 {
        if word[3..] == [0x4C, 0x53, 0x4D, 0x45, 0x4D] {
            word.fill(0);
            cleared += 1;
        }
    }
    assert!(cleared > 0, "packed slabs and the index have one");
    std::fs::write(&path, whole).expect("tmpfs has room");
    check_contents(&folder.open(), &contents);
    let whole = std::fs::read(&path).expect("the file is there");
    let names = whole.as_chunks::<8>().0.iter();
    assert!(names.filter(|word| word[3..] == [0x4C, 0x53, 0x4D, 0x45, 0x4D]).count() > 0);
}
