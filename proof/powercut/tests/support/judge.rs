//! Recovers what a cut left and compares it with the truth.

use std::collections::BTreeSet;

use block_device::{BlockDevice, ByteRange, ExtentKind};
use model::observe;
use powercut::{Cut, Disk, Loss, Moment};
use volume::{Durability, Reduction, Volume};

use crate::support::site::Site;
use crate::support::truth::{Listed, Table, Truth, Value};

/// What is asked of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// What was acknowledged is there; everything else is old or new.
    Kept,
    /// Everything is something that it was once.
    NeverWrong,
}

/// What came of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Recovered,
    /// Recovery refused to go on. Only a disk that lied may cause it.
    LossNoticed,
}

/// Recovers after `cut` and fails unless what is there may be there. Returns the pool too.
pub(crate) fn judge(disk: &Disk, truth: &Truth, cut: &Cut) -> (Verdict, Option<Site>) {
    let after = disk.after(cut).disk;
    judge_disk(&after, truth, cut)
}

/// The same for a disk that has gone through the cut already.
pub(crate) fn judge_disk(after: &Disk, truth: &Truth, cut: &Cut) -> (Verdict, Option<Site>) {
    let rule = if cut.loss == Loss::Lie { Rule::NeverWrong } else { Rule::Kept };
    let site = match Site::recover(after) {
        Ok((site, _)) => site,
        Err(_) if rule == Rule::NeverWrong => return (Verdict::LossNoticed, None),
        Err(error) => panic!("{cut:?}: cannot recover: {error} ({error:?})"),
    };
    let found = table_of(&site);
    check_table(truth, cut, rule, &found);
    for volume in site.engine.volumes() {
        check_volume(truth, cut, rule, &volume);
    }
    (Verdict::Recovered, Some(site))
}

fn table_of(site: &Site) -> Table {
    let volumes = site.engine.volumes().into_iter();
    let listed = volumes.map(|volume| {
        assert_eq!(volume.durability(), Durability::Journal);
        let reduction = Reduction::ALL.iter().position(|it| *it == volume.reduction());
        let reduction = reduction.expect("all are listed");
        let size_bytes = volume.geometry().size_bytes;
        (volume.id(), Listed { name: volume.name(), size_bytes, reduction })
    });
    listed.collect()
}

fn check_table(truth: &Truth, cut: &Cut, rule: Rule, found: &Table) {
    let possible = match rule {
        Rule::Kept => truth.possible_tables(cut.moment),
        Rule::NeverWrong => truth.past_tables(cut.moment),
    };
    let is_never = possible.is_empty() && found.is_empty();
    let is_possible = is_never || found.is_empty() && rule == Rule::NeverWrong;
    assert!(
        is_possible || possible.contains(&found),
        "{cut:?}: the volumes are {found:#?} and should be one of {possible:#?}"
    );
}

fn check_volume(truth: &Truth, cut: &Cut, rule: Rule, volume: &Volume) {
    for block in blocks_of(truth, volume) {
        let found: Value = observe(volume, block).map(std::sync::Arc::new);
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
}

fn values(truth: &Truth, rule: Rule, id: u64, block: u64, moment: Moment) -> Vec<Value> {
    match rule {
        Rule::Kept => truth.possible_values(id, block, moment),
        Rule::NeverWrong => truth.past_values(id, block, moment),
    }
}

/// Blocks that held something once or do so now.
fn blocks_of(truth: &Truth, volume: &Volume) -> BTreeSet<u64> {
    let size_bytes = volume.geometry().size_bytes;
    let mut blocks: BTreeSet<u64> = truth.volumes[&volume.id()].known_blocks().collect();
    blocks.retain(|block| block * 4096 < size_bytes);
    let range = ByteRange::new(0, size_bytes);
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
