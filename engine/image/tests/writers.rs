//! Tests of writer exclusion, and that no kill, failure or power loss destroys an image.

mod made;

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};

use image::{
    ClaimedStore, FolderStore, ImageError, ImageErrorKind, ImageStore, ListedImage, ObjectName,
    PackName, PackWriter, Progress, SaveOptions, StoreWriter, Unwatched, VisitedFolder, Watch,
    list_images, rehearse,
};
use made::{Contents, Made, WRITER, claim, disk, newest, open, options, store_on};
use powercut::{Cut, Disk, Effect, Fault, Loss};
use storage::{AlignedBuffer, StorageAction};
use sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Creates a volume of several leaves, different for each generation.
fn generation(number: u64) -> Made {
    let mut made = Made::one(8 << 20);
    for block in 0..40 {
        made.write(0, block * 50, Contents::Noise(block + 1000 * number));
    }
    made
}

#[test]
fn a_second_writer_fences_the_first() {
    let store = store_on(&disk());
    let mut first = claim(&store);
    let mut made = generation(1);
    made.save(&mut first);
    let mut second = ClaimedStore::claim(Arc::clone(&store), 2).expect("it is claimed");
    let error = first.save(&generation(2), &options(), &Unwatched).expect_err("it is fenced");
    assert_eq!(error.kind, ImageErrorKind::Fenced);
    made.check(&newest(&store).expect("the old one is there"));
    let mut third = generation(3);
    third.save(&mut second);
    let error = first.save(&generation(2), &options(), &Unwatched).expect_err("it stays fenced");
    assert_eq!(error.kind, ImageErrorKind::Fenced);
    third.check(&newest(&store).expect("the new one is there"));
}

#[test]
fn a_fenced_writer_says_who_has_taken_the_store() {
    let store = store_on(&disk());
    let mut first = claim(&store);
    let mut made = generation(1);
    let number = made.save(&mut first).id.number();
    let host = "standby.example".to_owned();
    let mut second = ClaimedStore::claim(
        Arc::clone(&store),
        StoreWriter { id: 2, host, ..StoreWriter::default() },
    )
    .expect("it is claimed");
    let check = |refused: Result<(), ImageError>, expected: &str| {
        let error = refused.expect_err("it is fenced");
        assert!(error.to_string().contains("another daemon has taken over"), "{error}");
        let who = error.source.map(|source| source.to_string());
        assert_eq!(who.as_deref(), Some(expected));
    };
    let taken = number + 1;
    let expected = format!("it took number {taken} on the host standby.example");
    check(first.save(&generation(2), &options(), &Unwatched).map(|_| ()), &expected);
    check(first.delete(number, &[]), &expected);
    // Old claims are forgotten.
    made.save(&mut second);
    for id in 3..40 {
        ClaimedStore::claim(Arc::clone(&store), id).expect("it is claimed");
    }
    let mut last = ClaimedStore::claim(Arc::clone(&store), 40).expect("it is claimed");
    last.collect().expect("the store is sound");
    check(first.delete(number, &[]), &format!("numbers from {taken} on are taken"));
}

#[test]
fn a_fenced_writer_stays_fenced_when_old_images_go() {
    let store = store_on(&disk());
    let mut first = claim(&store);
    generation(1).save(&mut first);
    let mut second = ClaimedStore::claim(Arc::clone(&store), 2).expect("it is claimed");
    for number in 2..6 {
        generation(number).save(&mut second);
        second.retain(1, &[]).expect("the store is sound");
    }
    let error = first.save(&generation(9), &options(), &Unwatched).expect_err("it is fenced");
    assert_eq!(error.kind, ImageErrorKind::Fenced);
    generation(5).check(&newest(&store).expect("one is kept"));
}

#[test]
fn a_fenced_writer_removes_nothing() {
    let store = store_on(&disk());
    let mut first = claim(&store);
    let numbers = [1, 2, 3].map(|it| generation(it).save(&mut first).id.number());
    let _second = ClaimedStore::claim(Arc::clone(&store), 2).expect("it is claimed");
    // While the other writer is saving, its packs exist without a manifest.
    let mut pack = store.begin_pack(PackName { writer: 2, index: 0 }).expect("it is begun");
    pack.append(&AlignedBuffer::zeroed(4096)).expect("there is room");
    pack.finish().expect("there is room");
    let before = (store.images().expect("listed"), store.packs().expect("listed"));
    let errors = [
        first.delete(numbers[0], &[]).expect_err("it is fenced"),
        first.delete(numbers[2], &[]).expect_err("it is fenced"),
        first.retain(1, &[]).map(|_| ()).expect_err("it is fenced"),
        first.collect().map(|_| ()).expect_err("it is fenced"),
    ];
    for error in errors {
        assert_eq!(error.kind, ImageErrorKind::Fenced, "{error:?}");
    }
    assert_eq!((store.images().expect("listed"), store.packs().expect("listed")), before);
}

#[test]
fn a_manifest_that_the_store_does_not_give_keeps_no_other_image_from_being_used() {
    for kind in [ImageErrorKind::Unavailable, ImageErrorKind::Denied] {
        let store = Mute::new(store_on(&disk()));
        let dyn_store = Arc::clone(&store) as Arc<dyn ImageStore>;
        let mut claimed = claim(&dyn_store);
        let mut made = generation(1);
        let ids = [1, 2, 3].map(|round| {
            made.write(0, 0, Contents::Noise(1 << 30 | round));
            made.save(&mut claimed).id
        });
        // An old image that is unreadable, and the newest.
        for broken in [0, 2] {
            let number = ids[broken].number();
            *store.unreadable.lock().expect("no panic") = Some((number, kind));
            let listed = list_images(&dyn_store).expect("the others can be read");
            let is_named = |it: &ListedImage| {
                matches!(it, ListedImage::Unreadable { number: it, error }
                    if *it == number && error.kind == kind)
            };
            assert_eq!(listed.iter().filter(|it| is_named(it)).count(), 1, "{listed:?}");
            let found = newest(&dyn_store).expect("there are others");
            assert!(found.id().number() != number && found.id() >= ids[1]);
            let mut claimed = claim(&dyn_store);
            made.write(0, 1, Contents::Noise(1 << 31));
            let saved = made.save(&mut claimed);
            assert!(saved.id > ids[2]);
            made.check(&open(&dyn_store, saved.id));
            // Its packs may be needed again.
            let packs = store.packs().expect("listed");
            assert_eq!(claimed.collect().expect_err("it is not known").kind, kind);
            assert_eq!(store.packs().expect("listed"), packs);
        }
    }
}

#[test]
fn a_writer_under_the_name_of_another_leaves_its_packs_alone() {
    let store = store_on(&disk());
    let made = generation(1);
    let mut first = ClaimedStore::claim(Arc::clone(&store), 7).expect("it is claimed");
    first.save(&made, &options(), &Unwatched).expect("the store is sound");
    let mut second = ClaimedStore::claim(Arc::clone(&store), 7).expect("it is claimed");
    let error = second.save(&generation(2), &options(), &Unwatched).expect_err("it is taken");
    assert_eq!(error.kind, ImageErrorKind::AlreadyExists);
    made.check(&newest(&store).expect("the first one is there"));
}

#[test]
fn a_folder_that_is_visited_is_not_made_and_may_go_away_and_come_back() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (path, aside) = (folder.path().join("images"), folder.path().join("aside"));
    assert_eq!(FolderStore::open(&path).expect_err("none").kind, ImageErrorKind::NotFound);
    assert_eq!(FolderStore::check_free(&path).expect_err("none").kind, ImageErrorKind::NotFound);
    let visited = Arc::new(VisitedFolder::new(&path));
    let error = visited.check_exists().expect_err("there is none");
    assert_eq!(error.kind, ImageErrorKind::NotFound);
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    let error = visited.images().expect_err("there is none");
    assert_eq!(error.kind, ImageErrorKind::Unavailable);
    assert!(!path.exists(), "nothing is made");
    std::fs::create_dir(&path).expect("there is room");
    visited.check_exists().expect("it is there");
    assert_eq!(visited.images().expect("no daemon has made a store"), []);
    assert_eq!(std::fs::read_dir(&path).expect("it is there").count(), 0, "nothing is made");

    let owned: Arc<dyn ImageStore> = Arc::new(FolderStore::open_alone(&path).expect("it is free"));
    assert_eq!(FolderStore::check_free(&path).expect_err("taken").kind, ImageErrorKind::Locked);
    let mut claimed = claim(&owned);
    let mut made = generation(1);
    made.save(&mut claimed);
    let dyn_visited = Arc::clone(&visited) as Arc<dyn ImageStore>;
    made.check(&newest(&dyn_visited).expect("it is there"));
    std::fs::rename(&path, &aside).expect("it is there");
    let manifest = ObjectName::Image(claimed.head().expect("there is one").number());
    let error = visited.read(manifest, 0, &mut [0; 4096]).expect_err("it is away");
    assert_eq!(error.kind, ImageErrorKind::Unavailable, "the image is not to be blamed");
    let mut other = generation(2);
    other.save(&mut claimed);
    std::fs::rename(&aside, &path).expect("it is there");
    other.check(&newest(&dyn_visited).expect("it is there"));
}

#[test]
fn a_fenced_save_leaves_no_packs() {
    let store = store_on(&disk());
    let mut first = claim(&store);
    let _second = ClaimedStore::claim(Arc::clone(&store), 2).expect("it is claimed");
    first.save(&generation(1), &options(), &Unwatched).expect_err("it is fenced");
    assert_eq!(store.packs().expect("listed"), []);
}

#[test]
fn a_folder_has_one_writer_on_a_host() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("images");
    let alone = FolderStore::open_alone(&path).expect("no other process has it");
    let error = FolderStore::open_alone(&path).expect_err("it is taken");
    assert_eq!(error.kind, ImageErrorKind::Locked);
    FolderStore::open(&path).expect("readers come in");
    drop(alone);
    FolderStore::open_alone(&path).expect("it is free again");
}

#[test]
fn the_next_writer_removes_what_a_killed_one_left_unfinished() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("images");
    drop(FolderStore::open_alone(&path).expect("no other process has it"));
    // Of this version and of those before it.
    let left = [
        "journal/0123456789abcdef0123456789abcdef.new",
        "journal/0123456789abcdef0123456789abcdef-0000000007.new",
        "journal/.new-12-7-extract",
        "images/.new-0000000001",
        "packs/.new-12-7-pack",
    ];
    for name in left {
        std::fs::write(path.join(name), b"half").expect("the folder is writable");
    }
    FolderStore::open(&path).expect("readers come in");
    assert!(left.iter().all(|name| path.join(name).exists()), "a reader removed a file");
    drop(FolderStore::open_alone(&path).expect("no other process has it"));
    for name in left {
        assert!(!path.join(name).exists(), "{name} was left");
    }
}

#[test]
fn a_store_in_a_real_folder_keeps_images() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("images");
    let store: Arc<dyn ImageStore> = Arc::new(FolderStore::open_alone(&path).expect("made"));
    let mut claimed = claim(&store);
    let mut made = generation(1);
    made.save(&mut claimed);
    made.write(0, 0, Contents::Text(7));
    made.save(&mut claimed);
    drop((claimed, store));
    let store: Arc<dyn ImageStore> = Arc::new(FolderStore::open(&path).expect("it is there"));
    let image = newest(&store).expect("two are there");
    made.check(&image);
    assert_eq!(image.verify(&Unwatched).expect("it can be read").chunks_damaged, 0);
}

#[test]
fn numbers_are_never_given_twice() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let first = generation(1).save(&mut claimed);
    claimed.delete(first.id.number(), &[]).expect("it is there");
    drop(claimed);
    let mut claimed = ClaimedStore::claim(Arc::clone(&store), 2).expect("it is claimed");
    let second = generation(2).save(&mut claimed);
    assert!(second.id.number() > first.id.number());
    assert!(second.id.word() > first.id.word(), "the store's salt stays");
}

#[test]
fn stores_give_ids_of_their_own() {
    let one = generation(1).save(&mut claim(&store_on(&disk())));
    let other = store_on(&disk());
    let mut claimed = ClaimedStore::claim(Arc::clone(&other), 77).expect("it is claimed");
    let other = generation(1).save(&mut claimed);
    assert_eq!(one.id.number(), other.id.number());
    assert_ne!(one.id, other.id);
}

#[test]
fn an_image_that_lacks_something_takes_no_other_ones_place() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let mut made = generation(1);
    let whole = made.save(&mut claimed).id.number();
    made.write(0, 0, Contents::Damaged);
    let lacking: Vec<u32> = (0..4).map(|_| made.save(&mut claimed).id.number()).collect();
    let removed = claimed.retain(1, &[]).expect("the store is sound");
    assert_eq!(removed.images, [lacking[2], lacking[1], lacking[0]]);
    made.write(0, 0, Contents::Noise(9));
    let newest = made.save(&mut claimed);
    let removed = claimed.retain(1, &[]).expect("the store is sound");
    assert_eq!(removed.images, [lacking[3], whole]);
    made.check(&open(&store, newest.id));
}

#[test]
fn an_image_whose_pack_is_missing_takes_no_other_ones_place() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let whole = generation(1).save(&mut claimed).id.number();
    let kept: Vec<_> = store.packs().expect("listed").into_iter().map(|(name, _)| name).collect();
    let newer = generation(2).save(&mut claimed).id.number();
    let packs = store.packs().expect("listed").into_iter();
    let lost = packs.map(|(name, _)| name).find(|name| !kept.contains(name));
    store.remove(ObjectName::Pack(lost.expect("it has one of its own"))).expect("it is there");
    let removed = claimed.retain(1, &[]).expect("the store is sound");
    assert_eq!(removed.images, [0; 0], "{whole} and {newer} stay");
}

#[test]
fn nothing_is_removed_while_an_image_that_is_in_use_is_missing() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let gone = generation(1).save(&mut claimed).id;
    store.remove(ObjectName::Image(gone.number())).expect("it is there");
    let packs = store.packs().expect("listed");
    generation(2).save(&mut claimed);
    let error = claimed.retain(1, &[gone]).expect_err("it may come back");
    assert_eq!(error.kind, ImageErrorKind::NotFound);
    let left = store.packs().expect("listed");
    assert!(packs.iter().all(|pack| left.contains(pack)));
}

#[test]
fn the_newest_and_the_labelled_images_are_kept() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let mut ids = Vec::new();
    for number in 0..6 {
        let label = if number == 1 { "before the upgrade".into() } else { String::new() };
        let labelled = SaveOptions { label, ..options() };
        let saved = claimed.save(&generation(number), &labelled, &Unwatched);
        ids.push(saved.expect("the store is sound").id);
    }
    let removed = claimed.retain(2, &[ids[2]]).expect("the store is sound");
    assert_eq!(removed.images, [ids[3].number(), ids[0].number()]);
    assert_eq!(removed.pack_count, 2);
    for number in [1, 2, 4, 5] {
        let kept = ids[usize::try_from(number).expect("small")];
        generation(number).check(&open(&store, kept));
    }
    let listed = list_images(&store).expect("the store can be read");
    assert!(listed.iter().all(|listed| matches!(listed, ListedImage::Whole(_))));
    assert_eq!(listed.len(), 4);
}

#[test]
fn an_image_in_use_is_not_deleted() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let saved = generation(1).save(&mut claimed);
    let error = claimed.delete(saved.id.number(), &[saved.id]).expect_err("it is in use");
    assert_eq!(error.kind, ImageErrorKind::InUse);
    let error = claimed.delete(99, &[]).expect_err("there is none");
    assert_eq!(error.kind, ImageErrorKind::NotFound);
    claimed.delete(saved.id.number(), &[]).expect("it is there");
    assert_eq!(claimed.head(), None);
}

/// Cancels after a number of bytes.
#[derive(Debug)]
struct CancelAfter(AtomicU64);

impl Watch for CancelAfter {
    fn on_progress(&self, progress: Progress) {
        assert!(progress.done_bytes <= progress.total_bytes);
        self.0.fetch_min(u64::MAX - progress.done_bytes, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        u64::MAX - self.0.load(Ordering::Relaxed) >= 20 * 4096
    }
}

#[test]
fn a_cancelled_save_leaves_the_store_as_it_was() {
    let store = store_on(&disk());
    let mut claimed = claim(&store);
    let mut made = generation(1);
    made.save(&mut claimed);
    let packs = store.packs().expect("listed");
    let watch = CancelAfter(AtomicU64::new(u64::MAX));
    let error = claimed.save(&generation(2), &options(), &watch).expect_err("it is cancelled");
    assert_eq!(error.kind, ImageErrorKind::Cancelled);
    assert_eq!(store.packs().expect("listed"), packs);
    made.check(&newest(&store).expect("the old one is there"));
    generation(3).save(&mut claimed);
}

#[test]
fn a_limited_save_takes_the_time_that_its_bytes_are_due_in() {
    let store = store_on(&disk());
    let limited = SaveOptions { bytes_a_second_max: NonZeroU64::new(1 << 20), ..options() };
    let saved = claim(&store).save(&generation(1), &limited, &Unwatched);
    let saved = saved.expect("the store is sound");
    assert!(saved.bytes_written > 160 << 10);
    assert!(saved.bytes_a_second() < 5 << 18, "{saved:?}");
}

#[test]
fn a_rehearsal_measures_and_leaves_nothing() {
    let disk = Disk::new(4 << 30);
    let store = store_on(&disk);
    let rehearsed = rehearse(&*store, WRITER, &Unwatched).expect("the store is sound");
    assert!(rehearsed.bytes_written >= 64 << 20);
    assert!(rehearsed.bytes_a_second() > 0);
    assert_eq!(store.packs().expect("listed"), []);
}

#[test]
fn a_rehearsal_on_a_full_disk_fails_and_leaves_nothing() {
    let disk = Disk::new(32 << 20);
    let store = store_on(&disk);
    let error = rehearse(&*store, WRITER, &Unwatched).expect_err("the disk is full");
    assert_eq!(error.kind, ImageErrorKind::NoSpace);
    assert_eq!(store.packs().expect("listed"), []);
}

/// Checks that the newest image is intact after any power loss now.
fn check_cuts_now(disk: &Disk) {
    for (loss, seed) in Loss::HONEST.into_iter().flat_map(|loss| (0..4).map(move |it| (loss, it))) {
        let after = disk.after(&Cut { moment: disk.now(), loss, seed }).disk;
        let image = newest(&store_on(&after)).expect("there is always one");
        let verified = image.verify(&Unwatched).expect("the disk is sound");
        assert_eq!(verified.chunks_damaged, 0, "{loss:?} {seed}");
    }
}

/// Number of consecutive rounds without an error after which the fault lies past the last call.
/// Some calls may fail without consequence, for example those that only look.
const UNHARMED_MIN: u64 = 40;

/// Fails each storage call in turn until saves and collections succeed. Returns the number of
/// failed rounds.
fn check_failures(effect: &Effect) -> u64 {
    let (mut harmed, mut unharmed) = (0, 0);
    let disk = disk();
    let store = store_on(&disk);
    let mut claimed = claim(&store);
    let mut made = generation(1);
    made.save(&mut claimed);
    for skipped in 0..1000 {
        let mut next = made.clone();
        next.write(0, 50, Contents::Noise((1 << 20) + skipped));
        disk.inject(Fault::once(&[], skipped, effect.clone()));
        let result = claimed.save(&next, &options(), &Unwatched);
        let collected = claimed.retain(1, &[]);
        disk.heal();
        let is_saved = result.is_ok();
        match result {
            Ok(saved) => {
                next.settle(saved.id);
                made = next;
            }
            Err(error) => {
                assert!(
                    matches!(
                        error.kind,
                        ImageErrorKind::Unavailable
                            | ImageErrorKind::NoSpace
                            | ImageErrorKind::Fenced
                    ),
                    "{error:?}"
                );
            }
        }
        let image = newest(&store).expect("there is always one");
        made.check(&image);
        assert_eq!(image.verify(&Unwatched).expect("the disk is sound").chunks_damaged, 0);
        check_cuts_now(&disk);
        if is_saved && collected.is_ok() {
            unharmed += 1;
            if unharmed == UNHARMED_MIN {
                return harmed;
            }
            continue;
        }
        (harmed, unharmed) = (harmed + 1, 0);
        // A writer that failed to create a manifest may find its number taken.
        claimed = ClaimedStore::claim(Arc::clone(&store), u128::from(skipped) + 5)
            .expect("the disk is sound");
        claimed.retain(1, &[]).expect("the disk is sound");
    }
    panic!("the fault never got past the end");
}

#[test]
fn whichever_call_of_storage_fails_the_newest_image_is_whole() {
    let calls = check_failures(&Effect::Io);
    assert!(calls > 12, "{calls}");
}

#[test]
fn whichever_call_finds_no_space_the_newest_image_is_whole() {
    check_failures(&Effect::NoSpace);
}

/// Saves and collects several times. Returns the moment when each save returned.
fn busy_disk(random_seed: u64) -> (Disk, Vec<(powercut::Moment, Made)>) {
    let disk = disk();
    let store = store_on(&disk);
    let mut claimed = claim(&store);
    let mut made = generation(random_seed);
    let mut saves = Vec::new();
    for round in 0..5 {
        made.write(0, round * 50, Contents::Noise((1 << 30) + random_seed * 10 + round));
        made.save(&mut claimed);
        saves.push((disk.now(), made.clone()));
        claimed.retain(1, &[]).expect("the disk is sound");
    }
    (disk, saves)
}

/// Checks that the disk has the last acknowledged image after the cut, or the one being saved.
fn check_cut(disk: &Disk, saves: &[(powercut::Moment, Made)], cut: &Cut) {
    let acknowledged = saves.iter().rposition(|(moment, _)| *moment <= cut.moment);
    let after = disk.after(cut).disk;
    let store = store_on(&after);
    let found = newest(&store);
    let candidates = acknowledged.map_or(0, |last| last)..saves.len();
    match &found {
        None => assert_eq!(acknowledged, None, "{cut:?}"),
        Some(image) => {
            let verified = image.verify(&Unwatched).expect("the disk is sound");
            assert_eq!(verified.chunks_damaged, 0, "{cut:?}");
            let is_one = candidates.take(2).any(|index| {
                let made = &saves[index].1;
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| made.check(image))).is_ok()
            });
            assert!(is_one, "{cut:?} leaves an image that was not saved last");
        }
    }
    let mut claimed = claim_after(&store, cut);
    claimed.collect().expect("the disk is sound");
    let mut next = generation(77);
    next.save(&mut claimed);
    next.check(&newest(&store).expect("just saved"));
}

fn claim_after(store: &Arc<dyn ImageStore>, cut: &Cut) -> ClaimedStore {
    let writer = u128::from(cut.seed) + 1;
    ClaimedStore::claim(Arc::clone(store), writer).unwrap_or_else(|it| panic!("{cut:?}: {it:?}"))
}

#[test]
fn no_power_cut_loses_an_image_that_was_acknowledged() {
    let (disk, saves) = busy_disk(1);
    for seed in 0..400 {
        check_cut(&disk, &saves, &Cut::random(seed, &disk));
    }
}

#[test]
fn a_kill_at_any_call_of_storage_loses_no_image_that_was_acknowledged() {
    let (disk, saves) = busy_disk(2);
    for moment in 0..=disk.now().0 {
        let cut = Cut { moment: powercut::Moment(moment), loss: Loss::Nothing, seed: moment };
        check_cut(&disk, &saves, &cut);
    }
}

#[test]
fn a_disk_that_lies_once_gives_old_contents_or_errors_and_never_wrong_ones() {
    let (disk, saves) = busy_disk(3);
    for seed in 0..200 {
        let cut = Cut { loss: Loss::Lie, ..Cut::random(seed, &disk) };
        let store = store_on(&disk.after(&cut).disk);
        let Some(image) = newest(&store) else { continue };
        let mut collected = made::Collected::default();
        if let Err(error) = image.restore(&mut collected, &Unwatched) {
            let kind = error.kind;
            assert!(
                matches!(kind, ImageErrorKind::Damaged | ImageErrorKind::NotFound),
                "{error:?}"
            );
        }
        for ((_, block), bytes) in &collected.blocks {
            let is_some_generation =
                saves.iter().any(|(_, made)| *bytes == made.contents(0, *block).bytes());
            assert!(is_some_generation, "{cut:?}: block {block} was never this");
        }
    }
}

#[test]
fn a_save_that_finds_no_space_leaves_room_for_others() {
    let disk = Disk::new(1 << 20);
    let store = store_on(&disk);
    let mut claimed = claim(&store);
    let mut made = Made::one(8 << 20);
    for block in 0..1000 {
        made.write(0, block, Contents::Noise(block));
    }
    let error = claimed.save(&made, &options(), &Unwatched).expect_err("the disk is full");
    assert_eq!(error.kind, ImageErrorKind::NoSpace);
    assert_eq!(store.packs().expect("listed"), []);
    generation(1).save(&mut claimed);
}

#[test]
fn a_number_that_an_unfinished_manifest_took_is_left_out() {
    let disk = disk();
    let store = store_on(&disk);
    let mut claimed = claim(&store);
    let mut made = generation(1);
    made.save(&mut claimed);
    // As a kill during the write of the manifest leaves it.
    let images = disk.folder().folder("images").expect("it is there");
    images.create("0000000003", 8192).expect("it is free");
    let error = claimed.save(&generation(2), &options(), &Unwatched).expect_err("it is taken");
    assert_eq!(error.kind, ImageErrorKind::Fenced);
    made.check(&newest(&store).expect("the old one is there"));
    let mut claimed = ClaimedStore::claim(Arc::clone(&store), 9).expect("it is claimed");
    let saved = generation(2).save(&mut claimed);
    assert_eq!(saved.id.number(), 5);
    claimed.collect().expect("the store is sound");
    assert!(store.images().expect("listed").iter().all(|(number, _)| *number != 3));
}

#[test]
fn a_save_goes_on_past_a_manifest_whose_making_failed() {
    let disk = disk();
    let store = store_on(&disk);
    let mut claimed = claim(&store);
    generation(1).save(&mut claimed);
    // The packs that were begun cannot be removed either.
    let actions = [StorageAction::WriteDurably, StorageAction::Remove];
    disk.inject(Fault::always(&actions, Effect::Io));
    let error = claimed.save(&generation(2), &options(), &Unwatched).expect_err("the disk fails");
    assert_eq!(error.kind, ImageErrorKind::Unavailable);
    disk.heal();
    let mut made = generation(3);
    made.save(&mut claimed);
    made.check(&newest(&store).expect("it was saved"));
}

/// Goal: an image whose creation failed replaces no other image before it is durable. Method: a
/// write of its save fails, and so does the removal of its remains, which are still readable. Then
/// the power fails.
#[test]
fn images_are_removed_for_those_only_that_are_durable() {
    let mut failed = 0;
    for skipped in 0..40 {
        let disk = disk();
        let store = store_on(&disk);
        let mut claimed = claim(&store);
        generation(1).save(&mut claimed);
        let writes = [StorageAction::WriteDurably, StorageAction::Sync];
        disk.inject(Fault::once(&writes, skipped, Effect::Io));
        disk.inject(Fault::always(&[StorageAction::Remove], Effect::Io));
        failed += u64::from(claimed.save(&generation(2), &options(), &Unwatched).is_err());
        disk.heal();
        claimed.retain(1, &[]).expect("the disk works");
        check_cuts_now(&disk);
    }
    assert!(failed > 0, "a save failed");
}

/// A store that may once hide the success of creating a manifest, withholds another, and records
/// confirmations.
#[derive(Debug)]
struct Mute {
    store: Arc<dyn ImageStore>,
    is_mute: AtomicBool,
    confirmed: Mutex<Vec<u32>>,
    /// A manifest that exists but fails to be read, with the error kind.
    unreadable: Mutex<Option<(u32, ImageErrorKind)>>,
}

impl Mute {
    fn new(store: Arc<dyn ImageStore>) -> Arc<Self> {
        Arc::new(Self {
            store,
            is_mute: AtomicBool::new(false),
            confirmed: Mutex::default(),
            unreadable: Mutex::default(),
        })
    }

    /// Returns the images confirmed since the last call.
    fn confirmed(&self) -> Vec<u32> {
        std::mem::take(&mut *self.confirmed.lock().expect("no test panics with it locked"))
    }
}

impl ImageStore for Mute {
    fn begin_pack(&self, name: PackName) -> Result<Box<dyn PackWriter>, ImageError> {
        self.store.begin_pack(name)
    }

    fn create_image(&self, number: u32, manifest: &[u8]) -> Result<(), ImageError> {
        self.store.create_image(number, manifest)?;
        match self.is_mute.swap(false, Ordering::Relaxed) {
            true => Err(ImageError::new(ImageErrorKind::Unavailable, "hear an answer")),
            false => Ok(()),
        }
    }

    fn confirm_image(&self, number: u32) -> Result<(), ImageError> {
        self.confirmed.lock().expect("no test panics with it locked").push(number);
        self.store.confirm_image(number)
    }

    fn read(&self, object: ObjectName, offset: u64, into: &mut [u8]) -> Result<(), ImageError> {
        let unreadable = *self.unreadable.lock().expect("no test panics with it locked");
        if let Some((number, kind)) = unreadable
            && object == ObjectName::Image(number)
        {
            return Err(ImageError::new(kind, format!("read {object}")));
        }
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
fn only_images_that_take_the_place_of_others_are_made_sure_of() {
    let store = Mute::new(store_on(&disk()));
    let dyn_store = Arc::clone(&store) as Arc<dyn ImageStore>;
    let mut claimed = claim(&dyn_store);
    let mut numbers = Vec::new();
    for number in 0..6 {
        let label = if number == 1 { "kept".into() } else { String::new() };
        let saved =
            claimed.save(&generation(number), &SaveOptions { label, ..options() }, &Unwatched);
        numbers.push(saved.expect("the store is sound").id.number());
    }
    claimed.retain(5, &[]).expect("the store is sound");
    assert_eq!(store.confirmed(), [], "this claim saved them");
    drop(claimed);
    // The next claim does not know how the saves ended.
    let mut claimed = claim(&dyn_store);
    let removed = claimed.retain(2, &[]).expect("the store is sound");
    assert_eq!(removed.images, [numbers[3], numbers[2]]);
    assert_eq!(store.confirmed(), [numbers[5], numbers[4]]);
    claimed.delete(numbers[4], &[]).expect("it is there");
    assert_eq!(store.confirmed(), [], "the newest is known to be durable");
    claimed.delete(numbers[5], &[]).expect("it is there");
    assert_eq!(store.confirmed(), [numbers[1]], "the only one that is left");
    assert_eq!(claimed.head().map(|head| head.number()), Some(numbers[1]));
}

#[test]
fn a_save_goes_on_past_a_manifest_that_was_made_without_an_answer() {
    let store = store_on(&disk());
    let mute = Mute::new(Arc::clone(&store));
    let mut claimed = claim(&(Arc::clone(&mute) as Arc<dyn ImageStore>));
    generation(1).save(&mut claimed);
    mute.is_mute.store(true, Ordering::Relaxed);
    let unheard = generation(2);
    let error = claimed.save(&unheard, &options(), &Unwatched).expect_err("there is no answer");
    assert_eq!(error.kind, ImageErrorKind::Unavailable);
    let number = claimed.head().expect("there is one").number() + 1;
    unheard.check(&newest(&store).expect("it is there"));
    let mut made = generation(3);
    let saved = made.save(&mut claimed);
    assert_eq!(saved.id.number(), number + 1);
    made.check(&newest(&store).expect("it was saved"));
    claimed.retain(1, &[]).expect("the store is sound");
    made.check(&newest(&store).expect("it is kept"));
    // The same for an image without new data, which has no pack of its own.
    mute.is_mute.store(true, Ordering::Relaxed);
    claimed.save(&made, &options(), &Unwatched).expect_err("there is no answer");
    let saved = claimed.save(&made, &options(), &Unwatched).expect("its number is left out");
    assert_eq!(saved.id.number(), number + 3);
    // Another writer's claim still fences, even if the previous manifest failed.
    mute.is_mute.store(true, Ordering::Relaxed);
    claimed.save(&unheard, &options(), &Unwatched).expect_err("there is no answer");
    let _other = ClaimedStore::claim(Arc::clone(&store), 9).expect("it is claimed");
    let error = claimed.save(&generation(4), &options(), &Unwatched).expect_err("it is fenced");
    assert_eq!(error.kind, ImageErrorKind::Fenced);
}

#[test]
fn files_of_others_are_left_alone() {
    let disk = disk();
    let store = store_on(&disk);
    for folder in ["images", "packs"] {
        let folder = disk.folder().folder(folder).expect("it is there");
        folder.create("lost+found", 4096).expect("it is free");
    }
    let mut claimed = claim(&store);
    generation(1).save(&mut claimed);
    claimed.retain(1, &[]).expect("the store is sound");
    assert_eq!(disk.files().iter().filter(|file| file.name.ends_with("lost+found")).count(), 2);
    let error = store.read(ObjectName::Image(99), 0, &mut [0]).expect_err("there is none");
    assert_eq!(error.kind, ImageErrorKind::NotFound);
}

#[test]
fn a_store_that_refuses_writes_says_so() {
    let disk = disk();
    let store = store_on(&disk);
    let mut claimed = claim(&store);
    disk.inject(Fault::always(&[StorageAction::Write], Effect::Io));
    let error = claimed.save(&generation(1), &options(), &Unwatched).expect_err("the disk fails");
    assert_eq!(error.kind, ImageErrorKind::Unavailable);
    assert!(error.to_string().starts_with("cannot write "), "{error}");
}
