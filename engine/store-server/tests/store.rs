//! Tests of a served store: all operations of an image store, restarts and limits.
#![forbid(unsafe_code)]

#[path = "../../image/tests/made/mod.rs"]
mod made;
mod pair;
#[path = "../../image/tests/store_cases/mod.rs"]
mod store_cases;

use std::fs;
use std::sync::Arc;
use std::thread;

use image::{
    ClaimedStore, ExtractName, FolderStore, ImageErrorKind, ImageStore, ObjectName, OpenImage,
    PackName, StoreKey, Unwatched, encode_extract, find_store_key, rehearse,
};
use made::{Contents, Made, claim, newest, options};
use pair::Pair;
use storage::AlignedBuffer;
use store_cases::{check_store, sealed, small};

#[test]
fn images_are_kept_in_a_served_directory() {
    let pair = Pair::start();
    check_store(&pair.client());
}

#[test]
fn encrypted_images_are_kept_in_a_served_directory() {
    let pair = Pair::start();
    let store = pair.client();
    check_store(&sealed(Arc::clone(&store)));
    let key = find_store_key(&*store).expect("it can be read");
    assert!(matches!(key, StoreKey::Wrapped { .. }), "{key:?}");
    let error = ClaimedStore::claim(store, 1).expect_err("there is no key");
    assert_eq!(error.kind, ImageErrorKind::Key);
}

#[test]
fn the_directory_is_that_of_a_store_on_this_host() {
    let pair = Pair::start();
    let mut made = small(1);
    made.save(&mut claim(&pair.client()));
    let local: Arc<dyn ImageStore> =
        Arc::new(FolderStore::open(pair.directory()).expect("it can be read"));
    made.check(&newest(&local).expect("it was saved"));
    let error = FolderStore::check_free(pair.directory()).expect_err("the server has it");
    assert_eq!(error.kind, ImageErrorKind::Locked);
}

#[test]
fn this_process_and_a_client_fence_each_other() {
    let pair = Pair::start();
    let served = pair.server.as_ref().expect("it runs").store();
    let local: Arc<dyn ImageStore> = Arc::<FolderStore>::clone(served);
    let mut remote = claim(&pair.client());
    let mut made = small(1);
    made.save(&mut remote);
    let mut promoted = ClaimedStore::claim(Arc::clone(&local), 77).expect("it is claimed");
    let error = remote.save(&small(2), &options(), &Unwatched).expect_err("it is fenced");
    assert_eq!(error.kind, ImageErrorKind::Fenced);
    made.write(0, 7, Contents::Noise(1 << 40));
    made.save(&mut promoted);
    made.check(&newest(&pair.client()).expect("a client follows it"));
    let mut remote = ClaimedStore::claim(pair.client(), 78).expect("it is claimed");
    let error = promoted.save(&small(3), &options(), &Unwatched).expect_err("it is fenced");
    assert_eq!(error.kind, ImageErrorKind::Fenced);
    small(4).save(&mut remote);
}

#[test]
fn of_many_writers_one_gets_a_number() {
    let pair = Pair::start();
    let local: Arc<dyn ImageStore> =
        Arc::<FolderStore>::clone(pair.server.as_ref().expect("it runs").store());
    let stores: Vec<_> = (0..6).map(|_| pair.client()).chain([local]).collect();
    for number in 1..=12 {
        let won = thread::scope(|scope| {
            let create = |(index, store): (usize, &Arc<dyn ImageStore>)| {
                let (store, byte) = (Arc::clone(store), u8::try_from(index).expect("few") + 1);
                scope.spawn(move || match store.create_image(number, &[byte; 8192]) {
                    Ok(()) => Some(byte),
                    Err(error) => {
                        assert_eq!(error.kind, ImageErrorKind::AlreadyExists, "{error:?}");
                        None
                    }
                })
            };
            let threads: Vec<_> = stores.iter().enumerate().map(create).collect();
            let won = threads.into_iter().filter_map(|it| it.join().expect("no panic"));
            won.collect::<Vec<u8>>()
        });
        let [winner] = won[..] else { panic!("{won:?} have number {number}") };
        let mut bytes = [0; 8192];
        stores[0].read(ObjectName::Image(number), 0, &mut bytes).expect("it is there");
        assert_eq!(bytes, [winner; 8192]);
        let repeated = stores[usize::from(winner) - 1].create_image(number, &[winner; 8192]);
        repeated.expect("who repeats what was answered gets the same answer");
    }
}

#[test]
fn large_packs_and_manifests_arrive_in_pieces() {
    let pair = Pair::start();
    let store = pair.client();
    let rehearsed = rehearse(&*store, 77, &Unwatched).expect("the store is sound");
    assert!(rehearsed.bytes_written >= 64 << 20);
    assert_eq!(store.packs().expect("listed"), []);
    let manifest: Vec<u8> = (0..9_u32 << 18).flat_map(u32::to_le_bytes).collect();
    store.create_image(4, &manifest).expect("there is room");
    store.create_image(4, &manifest).expect("it is its own");
    store.confirm_image(4).expect("it is there");
    let mut read = vec![0; manifest.len()];
    store.read(ObjectName::Image(4), 0, &mut read).expect("it is there");
    assert!(read == manifest);
    let [client] = &pair.status().clients[..] else { panic!("there is one client") };
    assert_eq!(client.name, "writer.example");
    assert!(client.received_bytes > 64 << 20 && client.sent_bytes > 8 << 20, "{client:?}");
}

#[test]
fn a_pack_of_whole_parts_and_an_empty_one_are_packs() {
    let pair = Pair::start();
    let store = pair.client();
    for (index, bytes) in [(1, 0), (2, 4 << 20), (3, 8 << 20), (4, (8 << 20) + 4096)] {
        let mut pack = store.begin_pack(PackName { writer: 1, index }).expect("it is begun");
        if bytes > 0 {
            pack.append(&AlignedBuffer::zeroed(bytes)).expect("there is room");
        }
        pack.finish().expect("there is room");
    }
    let sizes: Vec<u64> = store.packs().expect("listed").iter().map(|(_, bytes)| *bytes).collect();
    assert_eq!(sizes, [0, 4 << 20, 8 << 20, (8 << 20) + 4096]);
}

#[test]
fn a_server_that_was_away_is_used_again() {
    let mut pair = Pair::start();
    let store = pair.client();
    let mut claimed = claim(&store);
    let mut made = small(1);
    made.save(&mut claimed);
    drop(pair.server.take());
    let error = store.images().expect_err("there is no server");
    assert_eq!(error.kind, ImageErrorKind::Unavailable);
    pair.start_again();
    made.check(&newest(&store).expect("it is there"));
    small(2).save(&mut claimed);
}

#[test]
fn a_restart_in_the_middle_of_a_save_is_not_seen() {
    let mut pair = Pair::start();
    let store = pair.client();
    let mut pack = store.begin_pack(PackName { writer: 1, index: 1 }).expect("it is begun");
    let mut bytes = AlignedBuffer::zeroed(5 << 20);
    bytes.fill(3);
    pack.append(&bytes).expect("there is room");
    drop(pair.server.take());
    pair.start_again();
    bytes.fill(4);
    pack.append(&bytes).expect("it goes on");
    pack.finish().expect("it goes on");
    let mut read = vec![0; 10 << 20];
    let object = ObjectName::Pack(PackName { writer: 1, index: 1 });
    store.read(object, 0, &mut read).expect("it is whole");
    assert!(read[..5 << 20].iter().all(|it| *it == 3) && read[5 << 20..].iter().all(|it| *it == 4));
}

#[test]
fn a_store_is_limited_in_bytes_and_has_room_again_after_deletions() {
    let pair = Pair::start_with(|spec| spec.bytes_max = Some(1 << 20));
    let store = pair.client();
    let mut claimed = claim(&store);
    let mut made = small(1);
    made.save(&mut claimed);
    let mut large = Made::one(8 << 20);
    for block in 0..400 {
        large.write(0, block, Contents::Noise(block));
    }
    let error = claimed.save(&large, &options(), &Unwatched).expect_err("it is too large");
    assert_eq!(error.kind, ImageErrorKind::NoSpace);
    let told = error.source.as_ref().expect("the server's answer").to_string();
    assert!(told.contains("answered: the store has ") && told.contains("allows 1 MiB"), "{told}");
    assert!(!told.contains("no space left"), "the error itself says so: {told}");
    made.check(&newest(&store).expect("the one before is whole"));
    let mut left = 12;
    while left > 0 {
        made.write(0, 3, Contents::Noise(1 << 33 | left));
        match claimed.save(&made, &options(), &Unwatched) {
            Ok(saved) => made.settle(saved.id),
            Err(error) => assert_eq!(error.kind, ImageErrorKind::NoSpace),
        }
        claimed.retain(1, &[]).expect("removals work");
        left -= 1;
    }
    made.check(&newest(&store).expect("it is whole"));
    assert!(pair.status().used_bytes.expect("counted") <= 1 << 20);
}

#[test]
fn the_limit_counts_files_of_the_journal_at_their_full_length() {
    let pair = Pair::start_with(|spec| spec.bytes_max = Some(3 << 20));
    let store = pair.client();
    let put = |segment, offset| {
        let name = ExtractName { writer: 7, segment, offset };
        let mut payload = AlignedBuffer::new();
        payload.extend_from_slice(&[5; 4096]);
        store.put_extract(name, &encode_extract([3; 16], name, 5, &payload))
    };
    // Each is the first of its segment, and begins a file.
    let refused = (1..10).map(|segment| put(segment, 0)).find_map(Result::err);
    let refused = refused.expect("ten files do not fit");
    assert_eq!(refused.kind, ImageErrorKind::NoSpace);
    let files = fs::read_dir(pair.directory().join("journal")).expect("it is there");
    let lengths = files.map(|file| file.expect("listed").metadata().expect("it is there").len());
    assert!((2 << 20..=3 << 20).contains(&lengths.sum::<u64>()), "the files end at the limit");
    let extracts: Vec<_> =
        store.extracts().expect("listed").iter().map(|(name, _)| *name).collect();
    let (first, rest) = extracts.split_first().expect("there are some");
    store.remove(ObjectName::Extract(*first)).expect("removals work");
    put(20, 0).expect("there is room again");
    put(21, 0).expect_err("it is full again");
    store.remove_extracts(rest).expect("removals work");
    put(21, 0).expect("there is room again");
}

#[test]
fn covered_extracts_are_removed_by_few_requests() {
    let pair = Pair::start();
    let (store, journal) = (pair.client(), pair.directory().join("journal"));
    let name = |segment, offset| ExtractName { writer: 7, segment, offset };
    // As many as two requests remove, each a file of its own, and some that share a file.
    for segment in 1..=5000 {
        fs::write(journal.join(name(segment, 0).to_string()), [1; 100]).expect("there is room");
    }
    for index in 0..20 {
        let name = name(6000, index * 4096);
        let mut payload = AlignedBuffer::new();
        payload.extend_from_slice(&[5; 4096]);
        let put = store.put_extract(name, &encode_extract([3; 16], name, 5, &payload));
        put.expect("there is room");
    }
    let listed = || -> Vec<_> {
        store.extracts().expect("listed").into_iter().map(|(name, _)| name).collect()
    };
    let all = listed();
    assert_eq!(all.len(), 5020);
    let (covered, kept) = all.split_at(5010);
    let requests = || pair.status().clients[0].requests;
    let before = requests();
    store.remove_extracts(covered).expect("removals work");
    assert!(requests() - before <= 3, "{} requests", requests() - before);
    assert_eq!(listed(), kept);
    store.remove_extracts(covered).expect("a repeated request has the same answer");
    store.remove_extracts(&[]).expect("there is nothing to do");
    store.remove_extracts(&kept[..1]).expect("removals work");
    assert_eq!(listed(), kept[1..]);
}

#[test]
fn a_full_disk_is_told_as_such() {
    // A file system of 1 MiB.
    let folder = tempfile::tempdir().expect("there is room");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(folder.path())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this host does not let the test mount a tmpfs");
        assert!(std::env::var_os("CI").is_none(), "CI runs all tests");
        return;
    }
    let mounted = folder.path().to_owned();
    let pair = Pair::start_in(folder, |_| {});
    let store = pair.client();
    let mut claimed = claim(&store);
    let made = small(1);
    let mut large = Made::one(8 << 20);
    for block in 0..400 {
        large.write(0, block, Contents::Noise(block));
    }
    let error = claimed.save(&large, &options(), &Unwatched).expect_err("the disk is full");
    let saved = claimed.save(&made, &options(), &Unwatched);
    drop((claimed, store, pair));
    let _ = std::process::Command::new("umount").arg("-l").arg(&mounted).status();
    assert_eq!(error.kind, ImageErrorKind::NoSpace, "{error:?}");
    saved.expect("what was begun leaves room");
}

#[test]
fn files_of_killed_receptions_are_no_objects() {
    let mut pair = Pair::start();
    let store = pair.client();
    small(1).save(&mut claim(&store));
    drop(pair.server.take());
    for name in ["images/0000000001.new", "images/.new-0000000001.new", "journal/0000000002.new"] {
        fs::write(pair.directory().join(name), [1; 100]).expect("there is room");
    }
    pair.start_again();
    assert!(!pair.directory().join("images/0000000001.new").exists());
    assert!(!pair.directory().join("journal/0000000002.new").exists());
    let images = store.images().expect("listed").len();
    let mut claimed = ClaimedStore::claim(Arc::clone(&store), 9).expect("it is claimed");
    small(2).save(&mut claimed);
    assert_eq!(store.images().expect("listed").len(), images + 2);
    let image = OpenImage::open_newest(store, &mut |_, _| {}).expect("sound").expect("there");
    assert_eq!(image.verify(&Unwatched).expect("it can be read").chunks_damaged, 0);
}
