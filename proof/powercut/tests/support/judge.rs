//! Recovery after a cut, and comparison with the expected state.

use std::collections::BTreeSet;
use std::sync::Arc;

use block_device::{BlockDevice, ByteRange, ExtentKind};
use model::observe;
use powercut::{Cut, Disk, Loss, Moment};
use volumes::{CapacityClass, Durability, Volume};

use crate::support::History;
use crate::support::fixture::Fixture;
use crate::support::truth::{
    Listed, NamedSnapshot, PossibleSnapshot, SnapshotTruth, Snapshots, Step, Table, Truth, Value,
};

/// Rule for a recovered state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Acknowledged changes are present. Everything else is old or new.
    Kept,
    /// All contents are some that existed once.
    NeverWrong,
}

/// Verdict on a recovered state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Recovered,
    /// Recovery failed, or blocks cannot be read. Permitted only for a disk that lied, or after
    /// damage.
    LossNoticed,
}

/// Recovers after `cut`, and fails unless the state is possible. Also returns the pool.
pub(crate) fn judge(history: &History, cut: &Cut) -> (Verdict, Option<Fixture>) {
    let rule = if cut.loss == Loss::Lie { Rule::NeverWrong } else { Rule::Kept };
    judge_disk(&history.fixture.disk.after(cut).disk, history, cut, rule)
}

/// Same for a disk that was already cut.
pub(crate) fn judge_disk(
    after: &Disk,
    history: &History,
    cut: &Cut,
    rule: Rule,
) -> (Verdict, Option<Fixture>) {
    let truth = &history.truth;
    let fixture = match Fixture::recover(after, history.fixture.place) {
        Ok(fixture) => fixture,
        Err(_) if rule == Rule::NeverWrong => return (Verdict::LossNoticed, None),
        Err(error) => panic!("{cut:?}: cannot recover: {error} ({error:?})"),
    };
    let found = table_of(&fixture);
    check_table(truth, cut, rule, &found);
    let mut verdict = Verdict::Recovered;
    for volume in fixture.engine.volumes() {
        if check_volume(truth, cut, rule, &volume) > 0 {
            verdict = Verdict::LossNoticed;
        }
    }
    check_snapshots(truth, cut, rule, &fixture, &found);
    if rule == Rule::Kept {
        check_instant(truth, cut, &fixture);
    }
    (verdict, Some(fixture))
}

fn table_of(fixture: &Fixture) -> Table {
    let volumes = fixture.engine.volumes().into_iter();
    let listed = volumes.map(|volume| {
        let mut listed = Listed::of(&volume);
        if fixture.guarantees_lost.contains(&listed.name) {
            // It was guaranteed and does not fit any more, which was reported.
            listed.capacity = CapacityClass::Guaranteed;
        }
        (volume.id(), listed)
    });
    listed.collect()
}

fn check_table(truth: &Truth, cut: &Cut, rule: Rule, found: &Table) {
    let possible = match rule {
        Rule::Kept => truth.possible_tables(cut.moment),
        Rule::NeverWrong => truth.past_tables(cut.moment),
    };
    // Before the first one there is none.
    let is_possible = possible.is_empty() && found.is_empty()
        || possible.iter().any(|table| is_kept(truth, cut, rule, found, table));
    let is_lost = found.is_empty() && rule == Rule::NeverWrong;
    assert!(
        is_possible || is_lost,
        "{cut:?}: the volumes are {found:#?} and should be one of {possible:#?}"
    );
}

/// Returns whether the volumes found are those of a table. Volumes of class `image` that are in no
/// image yet may be missing, and those of class `journal` whose flushes wait for one.
fn is_kept(truth: &Truth, cut: &Cut, rule: Rule, found: &Table, table: &Table) -> bool {
    let may_be_missing = |id: &u64, listed: &Listed| {
        let is_imaged = rule == Rule::Kept && truth.is_imaged(*id, cut.moment);
        let is_of_image = match listed.durability {
            Durability::Ram => false,
            Durability::Image => true,
            Durability::Journal => truth.may_be_unanchored(*id, cut.moment),
        };
        is_of_image && !is_imaged
    };
    found.iter().all(|(id, listed)| table.get(id) == Some(listed))
        && table.iter().all(|(id, listed)| found.contains_key(id) || may_be_missing(id, listed))
}

/// Returns all snapshots with their contents.
pub(crate) fn snapshots_of(fixture: &Fixture) -> Snapshots {
    let snapshots = fixture.engine.snapshots().into_iter();
    snapshots.map(|snapshot| (snapshot.id(), named(&snapshot))).collect()
}

fn named(snapshot: &Volume) -> NamedSnapshot {
    let volume = snapshot.origin_id().expect("a snapshot is of a volume");
    NamedSnapshot { volume, name: snapshot.snapshot_name(), truth: held_by(snapshot) }
}

fn held_by(snapshot: &Volume) -> SnapshotTruth {
    let size_bytes = snapshot.geometry().size_bytes;
    let blocks = blocks_that_hold(snapshot).into_iter();
    let blocks = blocks.filter_map(|block| Some((block, Arc::new(observe(snapshot, block)?))));
    SnapshotTruth { size_bytes, blocks: Arc::new(blocks.collect()) }
}

/// Checks that the snapshots are those of one image, for all volumes that still exist.
fn check_snapshots(truth: &Truth, cut: &Cut, rule: Rule, fixture: &Fixture, volumes: &Table) {
    if rule == Rule::NeverWrong {
        return fixture
            .engine
            .snapshots()
            .iter()
            .for_each(|it| check_past_snapshot(truth, cut, it));
    }
    let found = snapshots_of(fixture);
    let mut possible = truth.possible_snapshots(cut.moment);
    possible
        .iter_mut()
        .for_each(|all| all.retain(|one| volumes.contains_key(&one.snapshot.volume)));
    let is_of = |all: &Vec<PossibleSnapshot<'_>>| {
        let is_expected = |id: &u64| all.iter().any(|one| one.id == *id);
        found.keys().all(is_expected)
            && all.iter().all(|one| match found.get(&one.id) {
                Some(found) => found.name == one.name && found.truth == one.snapshot.truth,
                None => one.may_be_missing,
            })
    };
    assert!(
        possible.iter().any(is_of),
        "{cut:?}: the snapshots {:?} differ from those of each image that may be the newest: {:?}",
        found.iter().map(|(id, found)| (id, &found.name)).collect::<Vec<_>>(),
        possible.iter().map(|all| differences(&found, all)).collect::<Vec<_>>()
    );
}

/// Describes the differences for a failure.
fn differences(found: &Snapshots, all: &[PossibleSnapshot<'_>]) -> Vec<String> {
    let of_one = |one: &PossibleSnapshot<'_>| {
        let name = format!("{} ({:?})", one.id, one.name);
        let Some(found) = found.get(&one.id) else { return format!("{name} is missing") };
        let (name, found) = (format!("{name}, found as {:?}", found.name), &found.truth);
        let truth = &one.snapshot.truth;
        let blocks: BTreeSet<_> = found.blocks.keys().chain(truth.blocks.keys()).collect();
        let differing: Vec<_> = blocks
            .into_iter()
            .map(|block| (block, found.blocks.get(block), truth.blocks.get(block)))
            .filter(|(_, found, expected)| found != expected)
            .map(|(block, found, expected)| {
                let [found, expected] = [found, expected].map(|it| describe(&it.cloned()));
                format!("{block}: {found} instead of {expected}")
            })
            .collect();
        let sizes = (found.size_bytes, truth.size_bytes);
        format!("{name}, {sizes:?} bytes, differs in {differing:?}")
    };
    all.iter().map(of_one).collect()
}

/// Checks that the readable contents of a snapshot belong to one that existed.
fn check_past_snapshot(truth: &Truth, cut: &Cut, snapshot: &Volume) {
    let readable = |block: &u64| is_readable(snapshot, *block);
    let blocks: Vec<u64> = blocks_that_hold(snapshot).into_iter().filter(readable).collect();
    let is_of = |past: &SnapshotTruth| {
        past.size_bytes == snapshot.geometry().size_bytes
            && blocks.iter().all(|block| {
                let found: Value = observe(snapshot, *block).map(Arc::new);
                found.as_ref() == past.blocks.get(block)
            })
    };
    let (id, name) = (snapshot.id(), snapshot.name());
    let mut past = truth.past_snapshots(cut.moment).filter(|(of, _)| **of == id);
    assert!(
        past.any(|(_, past)| is_of(&past.truth)),
        "{cut:?}: the snapshot {name:?} is none of before"
    );
}

/// Checks that volumes of class `image` are in their state at the instant of one image.
fn check_instant(truth: &Truth, cut: &Cut, fixture: &Fixture) {
    let mut volumes = fixture.engine.volumes();
    volumes.retain(|volume| {
        let is_unchanged = truth.volumes[&volume.id()].is_unchanged;
        volume.durability() == Durability::Image && is_unchanged
    });
    let is_of = |step: Step| {
        let is_of = |volume: &Volume| {
            blocks_of(truth, volume).into_iter().all(|block| {
                let found: Value = observe(volume, block).map(Arc::new);
                found == truth.value_before(volume.id(), block, step)
            })
        };
        volumes.iter().all(|volume| is_of(volume))
    };
    let possible = truth.possible_images(cut.moment);
    assert!(
        volumes.is_empty() || possible.iter().any(|&step| is_of(step)),
        "{cut:?}: volumes of class image are those of no image of {possible:?}"
    );
}

/// Returns the number of unreadable blocks, which must be zero unless data may be lost.
fn check_volume(truth: &Truth, cut: &Cut, rule: Rule, volume: &Volume) -> u64 {
    let mut unreadable = 0;
    for block in blocks_of(truth, volume) {
        if rule == Rule::NeverWrong && !is_readable(volume, block) {
            unreadable += 1;
            continue;
        }
        let found: Value = observe(volume, block).map(Arc::new);
        let possible = values(truth, rule, volume.id(), block, cut.moment);
        assert!(
            possible.contains(&found),
            "{cut:?}: block {block} of {} (id {}) is {} and should be one of {:?}",
            volume.name(),
            volume.id(),
            describe(&found),
            possible.iter().map(describe).collect::<Vec<_>>()
        );
    }
    unreadable
}

fn values(truth: &Truth, rule: Rule, id: u64, block: u64, moment: Moment) -> Vec<Value> {
    match rule {
        Rule::Kept => truth.possible_values(id, block, moment),
        Rule::NeverWrong => truth.past_values(id, block, moment),
    }
}

/// Returns whether the block is readable. Lost blocks cause an error.
fn is_readable(volume: &Volume, block: u64) -> bool {
    volume.read(block * 4096, &mut [0; 4096]).is_ok()
}

/// Returns the blocks that have or had contents.
fn blocks_of(truth: &Truth, volume: &Volume) -> BTreeSet<u64> {
    let size_bytes = volume.geometry().size_bytes;
    let mut blocks: BTreeSet<u64> = truth.volumes[&volume.id()].known_blocks().collect();
    blocks.retain(|block| block * 4096 < size_bytes);
    blocks.extend(blocks_that_hold(volume));
    blocks
}

fn blocks_that_hold(volume: &Volume) -> BTreeSet<u64> {
    let mut blocks = BTreeSet::new();
    let range = ByteRange::new(0, volume.geometry().size_bytes);
    for extent in volume.extents(range, usize::MAX).expect("the extents are listed") {
        if extent.kind != ExtentKind::Hole {
            let end = extent.range.start + extent.range.length;
            blocks.extend(extent.range.start / 4096..end / 4096);
        }
    }
    blocks
}

fn describe(value: &Value) -> String {
    match value {
        None => "a hole".to_owned(),
        Some(block) => format!("{:02x?}…", &block[..6]),
    }
}
