//! Interface to stable storage: changes that it lacks, and contents that it restores.

mod support;

use std::sync::{Arc, Mutex};

use block_device::{BlockDevice, ByteRange, DeviceErrorKind, Extent, ExtentKind, Zeroes};
use support::Pool;
use volumes::{
    BlockView, CapturedContents, Durability, Engine, FetchedPages, FilledBlock, FlushTarget, Found,
    GivenUp, HookError, ImageBase, LeftBlock, PageSource, Recovery, SavedVolume, Settles,
    SourceError, SourceErrorKind, StoredBytes, Volume, VolumeMap, VolumeSpec,
};

const BLOCK: u64 = block_device::BLOCK_BYTES as u64;
const MIB: u64 = 1 << 20;

fn spec(name: &str, durability: Durability) -> VolumeSpec {
    VolumeSpec { durability, ..VolumeSpec::new(name.parse().expect("a good name"), 64 * MIB) }
}

fn noise(seed: u8) -> Vec<u8> {
    let mut random = model::Random::new(u64::from(seed));
    (0..BLOCK).map(|_| random.below(256).to_le_bytes()[0]).collect()
}

/// Returns the blocks that a walk finds, with descriptions of their contents.
fn walk(volume: &Volume) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    let Some(mut walk) = volume.walk_unjournaled() else { return found };
    while let Some(capture) = walk.capture(3) {
        for (block, contents) in capture.blocks() {
            found.push((block, describe(contents)));
        }
    }
    found
}

fn settle(volume: &Volume) {
    let mut walk = volume.walk_unjournaled().expect("leaves are marked");
    while let Some(capture) = walk.capture(7) {
        capture.settle(u64::MAX);
    }
    walk.end();
}

/// Records that the volume's base image contains the copy.
fn note_saved(engine: &Engine, volume: &Arc<Volume>, copy: &Arc<Volume>) {
    let (volume, copy) = (Arc::clone(volume), Arc::clone(copy));
    engine.note_saved(&[SavedVolume { volume, copy, settles: Settles::Image }]);
}

fn describe(contents: CapturedContents<'_>) -> String {
    match contents {
        CapturedContents::Hole => "hole".to_owned(),
        CapturedContents::Lost => "lost".to_owned(),
        CapturedContents::Fill(pattern) => format!("fill {pattern:x}"),
        CapturedContents::Page(page) => {
            let kind = match page.bytes {
                StoredBytes::Raw(bytes) => format!("raw {:x}", bytes[0]),
                StoredBytes::Encoded(_) => "encoded".to_owned(),
            };
            if page.is_journaled { format!("{kind} again") } else { kind }
        }
    }
}

fn blocks(found: &[(u64, String)]) -> Vec<u64> {
    found.iter().map(|&(block, _)| block).collect()
}

#[test]
fn what_is_written_is_captured_until_it_is_settled() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let volume = engine.create_volume(spec("one", Durability::Journal)).expect("there is room");
    let far = 600 * BLOCK;
    volume.write(0, &noise(1)).expect("it is there");
    volume.write(far, &[7; 4096]).expect("it is there");
    assert_eq!(blocks(&walk(&volume)), [0, 600]);
    assert_eq!(blocks(&walk(&volume)), [0, 600], "what is not settled is found again");
    settle(&volume);
    assert_eq!(walk(&volume), []);
    volume.write(far, &[8; 4096]).expect("it is there");
    assert_eq!(walk(&volume), [(600, "fill 8080808".to_owned())]);
}

#[test]
fn what_is_overwritten_after_its_capture_is_captured_again() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let volume = engine.create_volume(spec("one", Durability::Journal)).expect("there is room");
    volume.write(0, &[noise(1), noise(2)].concat()).expect("it is there");
    let mut walking = volume.walk_unjournaled().expect("leaves are marked");
    let capture = walking.capture(9).expect("two blocks");
    volume.write(BLOCK, &noise(3)).expect("it is there");
    capture.settle(u64::MAX);
    walking.end();
    let first = noise(3)[0];
    assert_eq!(walk(&volume), [(1, format!("raw {first:x}"))]);
}

#[test]
fn captured_contents_stay_while_the_block_is_overwritten_and_the_pool_is_full() {
    let pool = Pool::new(8 * MIB, 1);
    let engine = pool.open();
    let volume = engine.create_volume(spec("one", Durability::Journal)).expect("there is room");
    volume.write(0, &noise(1)).expect("it is there");
    let mut walking = volume.walk_unjournaled().expect("leaves are marked");
    let capture = walking.capture(1).expect("a block");
    for turn in 0..4000_u64 {
        let contents = noise((turn % 251 + 2).to_le_bytes()[0]);
        volume.write(turn % 16 * BLOCK, &contents).expect("it is there");
    }
    let (_, contents) = capture.blocks().next().expect("a block");
    let CapturedContents::Page(page) = contents else { panic!("{contents:?}") };
    let StoredBytes::Raw(bytes) = page.bytes else { panic!("{page:?}") };
    assert!(bytes[..] == noise(1)[..]);
}

/// Returns the position of the page of the first block that the journal lacks.
fn page_number(volume: &Volume) -> Option<u64> {
    let capture = volume.walk_unjournaled()?.capture(1)?;
    match capture.blocks().next()? {
        (0, CapturedContents::Page(page)) => page.number,
        _ => None,
    }
}

/// Goal: a block whose page accepts no more references is settled only while it is unchanged.
/// Method: one page with the maximum number of references, which is freed and its slot reused.
#[test]
fn a_capture_that_could_hold_no_page_settles_nothing_else() {
    let pool = Pool::new(16 * MIB, 1);
    let engine = pool.open();
    let size_bytes = 512 * MIB;
    let volume =
        engine.create_volume(VolumeSpec { size_bytes, ..spec("one", Durability::Journal) });
    let volume = volume.expect("there is room");
    let filler = engine.create_volume(spec("filler", Durability::Ram)).expect("there is room");
    volume.write(0, &noise(1)).expect("there is room");
    let place = page_number(&volume);
    let many = noise(1).repeat(256);
    for at in (0..320 * MIB).step_by(many.len()) {
        volume.write(at, &many).expect("there is room");
    }
    let mut walking = volume.walk_unjournaled().expect("leaves are marked");
    let capture = walking.capture(1).expect("a block");
    volume.discard(ByteRange::new(0, size_bytes)).expect("it is there");
    while engine.maintain() {}
    let finds_the_place = (0..2000_u64).any(|block| {
        let mut contents = noise(2);
        contents[..8].copy_from_slice(&block.to_le_bytes());
        volume.write(0, &contents).expect("there is room");
        contents[8] ^= 1;
        filler.write(block * BLOCK, &contents).expect("there is room");
        page_number(&volume) == place
    });
    assert!(finds_the_place, "free memory is used again");
    capture.settle(u64::MAX);
    drop(walking);
    assert!(blocks(&walk(&volume)).contains(&0), "what was written last is not in the journal");
}

#[test]
fn a_page_that_went_into_the_journal_is_known_by_its_number() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let volume = engine.create_volume(spec("one", Durability::Journal)).expect("there is room");
    volume.write(0, &noise(1)).expect("it is there");
    settle(&volume);
    volume.write(5 * BLOCK, &noise(1)).expect("it is there");
    let first = noise(1)[0];
    assert_eq!(walk(&volume), [(5, format!("raw {first:x} again"))]);
}

#[test]
fn a_discard_is_captured_and_then_leaves_nothing() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let volume = engine.create_volume(spec("one", Durability::Journal)).expect("there is room");
    volume.write(0, &noise(1)).expect("it is there");
    settle(&volume);
    let with_leaf = engine.usage().map_bytes;
    volume.write_zeroes(ByteRange::new(0, BLOCK), Zeroes::Unmap).expect("it is there");
    assert_eq!(walk(&volume), [(0, "hole".to_owned())]);
    settle(&volume);
    assert_eq!(walk(&volume), []);
    while engine.maintain() {}
    assert!(engine.usage().map_bytes < with_leaf, "the leaf is gone");
}

#[test]
fn a_kill_forgets_nothing_of_what_the_journal_lacks() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let volume = engine.create_volume(spec("one", Durability::Journal)).expect("there is room");
    volume.write(0, &noise(1)).expect("it is there");
    volume.write(9 * BLOCK, &noise(2)).expect("it is there");
    settle(&volume);
    volume.write(9 * BLOCK, &noise(3)).expect("it is there");
    volume.discard(ByteRange::new(0, BLOCK)).expect("it is there");
    drop(volume);
    drop(engine);
    let engine = pool.open();
    let volume = engine.volume("one").expect("it is there");
    assert_eq!(volume.durability(), Durability::Journal);
    assert!(volume.map().is_anchored());
    assert_eq!(blocks(&walk(&volume)), [0, 9]);
    while engine.maintain() {}
    assert_eq!(volume.map().unjournaled_blocks(), 2);
}

#[test]
fn a_volume_that_becomes_journaled_has_to_be_anchored_also_when_it_is_empty() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    for (name, is_written) in [("empty", false), ("written", true)] {
        let volume = engine.create_volume(spec(name, Durability::Ram)).expect("there is room");
        if is_written {
            volume.write(0, &noise(1)).expect("it is there");
        }
        let version = engine.table_version();
        engine.set_durability(name, Durability::Journal).expect("it is there");
        assert!(!volume.map().is_anchored(), "{name}");
        assert!(engine.table_version() > version);
        assert_eq!(walk(&volume).len(), usize::from(is_written), "{name}");
    }
}

#[test]
fn what_an_image_has_of_a_volume_says_nothing_of_a_snapshot_that_it_was_restored_from() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let volume = engine.create_volume(spec("one", Durability::Image)).expect("there is room");
    volume.write(0, &noise(1)).expect("it is there");
    let snapshot = "snap".parse().expect("a good name");
    engine.create_snapshots(&["one"], &snapshot, 1).expect("there is room");
    let frozen = engine.freeze(&[Arc::clone(&volume)]).expect("there is room");
    let copy = &frozen.volumes()[0];
    let base = ImageBase { image: 7, volume_id: volume.id() };
    assert!(engine.adopt_image(&volume, copy, base));
    // Its base is now the base of the snapshot, which has none.
    engine.restore_snapshot("one", "snap").expect("it is there");
    note_saved(&engine, &volume, copy);
    assert_eq!((volume.map().image_base(), volume.map().unsaved_blocks()), (None, 1));
}

#[derive(Debug, Default)]
struct Flushes(Mutex<Vec<String>>);

impl FlushTarget for Flushes {
    fn flush(&self, volume: &VolumeMap) -> Result<(), HookError> {
        self.0.lock().expect("no thread panics with it locked").push(volume.name());
        match volume.name().as_str() {
            "bad" => Err("the disk is on fire".into()),
            _ => Ok(()),
        }
    }

    fn write_back(&self, volume: &VolumeMap) {
        self.0
            .lock()
            .expect("no thread panics with it locked")
            .push(format!("{} early", volume.name()));
    }
}

#[test]
fn only_flushes_of_journaled_volumes_go_to_the_journal() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let flushes = Arc::new(Flushes::default());
    engine.set_flush_target(Arc::<Flushes>::clone(&flushes));
    for durability in Durability::ALL {
        let volume = engine.create_volume(spec(durability.name(), durability));
        let volume = volume.expect("there is room");
        volume.write_back();
        volume.flush().expect("it is durable");
    }
    let bad = engine.create_volume(spec("bad", Durability::Journal)).expect("there is room");
    let error = bad.flush().expect_err("it cannot be durable");
    assert_eq!(error.kind, DeviceErrorKind::NotDurable);
    assert_eq!(*flushes.0.lock().expect("no thread panics"), ["journal early", "journal", "bad"]);
}

#[test]
fn without_a_journal_no_flush_is_acknowledged() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let volume = engine.create_volume(spec("one", Durability::Journal)).expect("there is room");
    let error = volume.flush().expect_err("there is no journal");
    assert_eq!(error.kind, DeviceErrorKind::NotDurable);
}

/// An image of noise: page n has the noise of seed n; multiples of ten are damaged. Pages of one
/// ten are fetched together.
#[derive(Debug, Default)]
struct Image {
    fetches: Mutex<Vec<u64>>,
}

#[derive(Debug)]
struct Ten(u64);

impl PageSource for Image {
    fn fetch(&self, number: u64) -> Result<Arc<dyn FetchedPages>, SourceError> {
        self.fetches.lock().expect("no thread panics").push(number);
        if number.is_multiple_of(10) {
            return Err(SourceError { kind: SourceErrorKind::Gone, source: None });
        }
        Ok(Arc::new(Ten(number / 10)))
    }
}

impl FetchedPages for Ten {
    fn read(&self, number: u64, into: &mut [u8; 4096]) -> Result<Found, SourceError> {
        if number / 10 != self.0 || number.is_multiple_of(10) {
            return Ok(Found::Elsewhere);
        }
        into.copy_from_slice(&noise(number.to_le_bytes()[0]));
        Ok(Found::Here)
    }
}

/// Creates a volume that begins with a hole, a pattern, and pages 11, 12, 20, 21 of the image.
fn filled(engine: &Engine) -> (Arc<Volume>, Arc<Image>) {
    let image = Arc::new(Image::default());
    engine.set_page_source(Some((3, Arc::<Image>::clone(&image))));
    let volume = engine.begin_filling(spec("one", Durability::Image), Some(77));
    let volume = volume.expect("there is room");
    let absent = [11, 12, 20, 21].map(FilledBlock::Absent);
    let leaf = [&[FilledBlock::Hole, FilledBlock::Fill(0x0707_0707)][..], &absent].concat();
    volume.map().fill_leaf(0, &leaf).expect("there is room");
    engine.end_filling(&volume).expect("the name is free");
    (volume, image)
}

fn read(volume: &Volume, block: u64) -> Result<Vec<u8>, DeviceErrorKind> {
    let mut into = vec![0; 4096];
    volume.read(block * BLOCK, &mut into).map(|()| into).map_err(|error| error.kind)
}

#[test]
fn an_absent_block_is_fetched_when_it_is_read_and_kept_with_its_neighbours() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let (volume, image) = filled(&engine);
    assert_eq!((volume.id(), engine.absent_image()), (77, Some(3)));
    assert_eq!(volume.map().absent_blocks(), 4);
    assert_eq!(read(&volume, 0), Ok(vec![0; 4096]));
    assert_eq!(read(&volume, 1), Ok(vec![7; 4096]));
    assert_eq!(read(&volume, 2), Ok(noise(11)));
    assert_eq!(read(&volume, 3), Ok(noise(12)));
    assert_eq!(*image.fetches.lock().expect("no thread panics"), [11]);
    assert_eq!(volume.map().absent_blocks(), 2);
    assert_eq!(walk(&volume), [], "what an image has is not new");
}

#[test]
fn a_long_read_finds_absent_blocks_too() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let (volume, _image) = filled(&engine);
    let all = [vec![0; 4096], vec![7; 4096], noise(11), noise(12)].concat();
    let mut into = vec![0; 4 * 4096 - 512];
    volume.read(512, &mut into).expect("all is there");
    assert!(into == all[512..]);
    let error = volume.read(512, &mut vec![0; 5 * 4096]).expect_err("one is damaged");
    assert_eq!(error.kind, DeviceErrorKind::Corrupt);
    let mut scratch = vec![0; 4 * 4096];
    let mut shown = Vec::new();
    let range = ByteRange::new(BLOCK, 3 * BLOCK);
    let mut show = |slices: &[std::io::IoSlice<'_>]| {
        slices.iter().for_each(|slice| shown.extend_from_slice(slice));
    };
    volume.read_in_place(range, &mut scratch, &mut show).expect("all is there");
    assert!(shown == all[4096..]);
}

#[test]
fn a_part_of_an_absent_block_can_be_written() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let (volume, _image) = filled(&engine);
    volume.write(2 * BLOCK + 512, &[9; 512]).expect("it can be fetched");
    volume.write_zeroes(ByteRange::new(3 * BLOCK, 512), Zeroes::KeepAllocated).expect("fetched");
    let mut expected = noise(11);
    expected[512..1024].fill(9);
    assert!(read(&volume, 2) == Ok(expected));
    let mut expected = noise(12);
    expected[..512].fill(0);
    assert!(read(&volume, 3) == Ok(expected));
    let error = volume.write(4 * BLOCK, &[1; 512]).expect_err("its copy is damaged");
    assert_eq!(error.kind, DeviceErrorKind::Corrupt);
}

#[test]
fn a_whole_absent_block_is_overwritten_without_being_fetched() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let (volume, image) = filled(&engine);
    volume.write(4 * BLOCK, &noise(5)).expect("there is room");
    assert!(read(&volume, 4) == Ok(noise(5)));
    assert!(image.fetches.lock().expect("no thread panics").is_empty());
}

#[test]
fn what_cannot_be_fetched_stays_absent_until_it_is_given_up() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let (volume, _image) = filled(&engine);
    let done = volume.bring_in_leaf(0).expect("there is room");
    let left = LeftBlock { block: 4, number: 20, kind: SourceErrorKind::Gone };
    assert_eq!((done.present, done.left), (3, vec![left]));
    assert_eq!(volume.map().absent_blocks(), 1);
    assert_eq!(read(&volume, 4), Err(DeviceErrorKind::Corrupt));
    let kept = volume.give_up_absent(|kind| kind == SourceErrorKind::Unreachable);
    assert_eq!(kept.expect("there is room"), GivenUp { lost: 0, present: 0, left: 1 });
    let given_up = volume.give_up_absent(|kind| kind == SourceErrorKind::Gone);
    assert_eq!(given_up.expect("there is room"), GivenUp { lost: 1, present: 0, left: 0 });
    assert_eq!(volume.map().absent_blocks(), 0);
    assert_eq!(read(&volume, 4), Err(DeviceErrorKind::Corrupt));
    volume.write(4 * BLOCK, &noise(4)).expect("there is room");
    assert!(read(&volume, 4) == Ok(noise(4)));
    let extents = volume.extents(ByteRange::new(0, 6 * BLOCK), 9).expect("it is there");
    let first = Extent { range: ByteRange::new(0, BLOCK), kind: ExtentKind::Hole };
    assert_eq!(extents.first(), Some(&first));
}

#[test]
fn what_a_volume_gives_up_its_snapshots_and_clones_keep() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let (volume, _image) = filled(&engine);
    engine.create_snapshots(&["one"], &"snap".parse().expect("a name"), 1).expect("there is room");
    let clone = engine.clone_volume("one", "two".parse().expect("a name")).expect("there is room");
    let snapshot = engine.volume("one@snap").expect("it is there");
    let given_up = volume.give_up_absent(|kind| kind == SourceErrorKind::Gone);
    assert_eq!(given_up.expect("there is room").lost, 1);
    assert_eq!(volume.map().absent_number(4), None);
    for copy in [&snapshot, &clone] {
        assert_eq!((copy.map().absent_number(4), copy.map().lost_blocks()), (Some(20), 0));
    }
    // The same for a loss that the journal reports.
    clone.declare_lost(2).expect("there is room");
    assert_eq!(read(&clone, 2), Err(DeviceErrorKind::Corrupt));
    assert!(read(&snapshot, 2) == Ok(noise(11)) && read(&volume, 2) == Ok(noise(11)));
}

#[test]
fn absent_blocks_are_absent_after_a_kill() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let (volume, image) = filled(&engine);
    drop(volume);
    drop(engine);
    let engine = pool.open();
    assert_eq!(engine.absent_image(), Some(3));
    let volume = engine.volume("one").expect("it is there");
    assert_eq!(read(&volume, 2), Err(DeviceErrorKind::Corrupt), "the image is not connected");
    engine.set_page_source(Some((3, image)));
    assert!(read(&volume, 2) == Ok(noise(11)));
    while engine.maintain() {}
    assert_eq!(volume.map().absent_blocks(), 2);
    assert_eq!(engine.damaged_entries(), 0);
}

#[test]
fn a_volume_that_was_being_filled_goes_with_a_kill() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let volume = engine.begin_filling(spec("one", Durability::Image), None).expect("room");
    volume.map().fill_leaf(0, &[FilledBlock::Fill(1)]).expect("there is room");
    assert!(engine.volume("one").is_err(), "it is not listed");
    drop(volume);
    drop(engine);
    let engine = pool.open();
    while engine.maintain() {}
    assert!(engine.volume("one").is_err());
    engine.create_volume(spec("one", Durability::Ram)).expect("the name is free");
}

#[test]
fn what_an_image_has_is_not_unsaved_until_it_changes() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let volume = engine.create_volume(spec("one", Durability::Image)).expect("there is room");
    volume.write(0, &[noise(1), noise(2), vec![3; 4096]].concat()).expect("there is room");
    assert_eq!(volume.map().unsaved_blocks(), 3);
    let mut views = [BlockView::Hole; 512];
    volume.map().view_leaf(0, &mut views);
    let page = |is_unsaved| BlockView::Page { is_unsaved, is_shared: false };
    assert_eq!(views[..4], [page(true), page(true), BlockView::Fill(0x0303_0303), BlockView::Hole]);
    let mut shown = Vec::new();
    volume.map().show_leaf(0, &[0, 1, 2, 9], &mut |index, bytes| {
        let StoredBytes::Raw(bytes) = bytes else { panic!("noise is stored as it is") };
        shown.push((index, bytes.to_vec()));
    });
    assert!(shown == [(0, noise(1)), (1, noise(2))]);
    // The volume itself is saved, which does not change meanwhile.
    note_saved(&engine, &volume, &volume);
    assert_eq!(volume.map().unsaved_blocks(), 0);
    volume.write(BLOCK, &noise(4)).expect("there is room");
    volume.map().view_leaf(0, &mut views);
    assert_eq!(views[..2], [page(false), page(true)]);
    assert_eq!(volume.map().unjournaled_blocks(), 3);
}

#[test]
fn what_stable_storage_lacks_is_counted_after_a_clean_end_too() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let volume = engine.create_volume(spec("one", Durability::Image)).expect("there is room");
    volume.write(0, &[noise(1), noise(2)].concat()).expect("there is room");
    drop(volume);
    engine.close();
    let engine = pool.open();
    while engine.maintain() {}
    let volume = engine.volume("one").expect("it is there");
    assert_eq!(volume.map().unsaved_blocks(), 2);
    // If stable storage lacks nothing, a clean end keeps the counts.
    note_saved(&engine, &volume, &volume);
    drop(volume);
    engine.close();
    let engine = pool.open();
    assert_eq!(engine.recovery(), Recovery::Complete);
    assert_eq!(engine.volume("one").expect("it is there").map().unsaved_blocks(), 0);
}

#[test]
fn a_kill_does_not_hide_that_a_pool_was_being_restored() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    assert!(!engine.is_restoring());
    engine.begin_restoring();
    engine.join_set([9; 16]);
    drop(engine);
    let engine = pool.open();
    assert!(engine.is_restoring());
    engine.end_restoring();
    assert_eq!((engine.is_restoring(), engine.set_id()), (false, Some([9; 16])));
}

#[test]
fn what_was_lost_before_it_was_saved_is_lost_when_it_is_back() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let volume = engine.begin_filling(spec("one", Durability::Image), None).expect("it is free");
    volume
        .map()
        .fill_leaf(0, &[FilledBlock::Fill(1), FilledBlock::Damaged])
        .expect("there is room");
    engine.end_filling(&volume).expect("the name is free");
    let mut block = [0; 4096];
    volume.read(0, &mut block).expect("it is there");
    let error = volume.read(BLOCK, &mut block).expect_err("it is lost");
    assert_eq!(error.kind, DeviceErrorKind::Corrupt);
    volume.write(BLOCK, &noise(3)).expect("there is room");
    volume.read(BLOCK, &mut block).expect("it is there again");
}

#[test]
fn volumes_of_class_journal_take_no_changes_while_the_owner_says_so() {
    let pool = Pool::new(16 * MIB, 2);
    let engine = pool.open();
    let volume = engine.create_volume(spec("one", Durability::Journal)).expect("there is room");
    let other = engine.create_volume(spec("two", Durability::Ram)).expect("there is room");
    volume.write(0, &noise(1)).expect("it takes changes");
    engine.take_journaled_changes(false);
    let range = ByteRange::new(0, BLOCK);
    for refused in [volume.write(0, &noise(2)), volume.discard(range)] {
        assert_eq!(refused.expect_err("it is read-only").kind, DeviceErrorKind::ReadOnly);
    }
    let mut found = vec![0; 4096];
    volume.read(0, &mut found).expect("reads go on");
    assert!(found == noise(1));
    other.write(0, &noise(2)).expect("it is of another class");
    engine.take_journaled_changes(true);
    volume.write(0, &noise(2)).expect("it takes changes again");
}

#[test]
fn snapshots_that_come_back_are_older_than_all_that_are_made_later() {
    let mut pool = Pool::new(16 * MIB, 2);
    for old in [1, 1 << 50, (1 << 53) - (1 << 40)] {
        let engine = pool.open();
        let filling = engine.begin_filling(spec("one", Durability::Image), Some(old));
        engine.end_filling(&filling.expect("there is room")).expect("there is room");
        let name = |name: &str| name.parse().expect("a good name");
        engine.create_snapshot_again("one", &name("old"), 5, old + 1).expect("there is room");
        engine.create_snapshots(&["one"], &name("new"), 5).expect("there is room");
        let id = |name: &str| engine.volume(name).expect("it is there").id();
        assert!(id("one@old") < id("one@new"), "{} {}", id("one@old"), id("one@new"));
        assert!(id("one@new") < 1 << 53, "programs that keep numbers in 53 bits can name it");
        drop(engine);
        pool = Pool::new(16 * MIB, 2);
    }
}
