//! State of a disk after a power failure.

use std::collections::{BTreeMap, BTreeSet};

use model::Random;
use storage::BLOCK_BYTES;

use crate::disk::Disk;
use crate::history::{Deed, FileId, FolderId, Moment, NameChanges, Outcome, Record};
use crate::state::State;

/// Size of a sector, which a disk writes atomically.
const SECTOR_BYTES: usize = 512;

/// Number of promises before the cut from which a lie is mostly chosen: older ones are mostly
/// fulfilled by later syncs.
const LATE_PROMISES: usize = 3;

/// Fate of writes and names that are not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All of them arrive, as after a crash of the process only.
    Nothing,
    /// None of them arrives.
    Everything,
    /// Each arrives completely or not at all.
    SomeWrites,
    /// Each sector of each write arrives or not.
    SomeSectors,
    /// Same as [`Loss::SomeSectors`], on a disk that lied about one promise.
    Lie,
}

impl Loss {
    /// All losses of an honest disk.
    pub const HONEST: [Self; 4] =
        [Self::Nothing, Self::Everything, Self::SomeWrites, Self::SomeSectors];
}

/// A power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Calls that had begun by this moment and not ended were in progress.
    pub moment: Moment,
    pub loss: Loss,
    /// Determines the losses, where there is a choice.
    pub seed: u64,
}

impl Cut {
    /// Creates a cut of an honest disk at a random point of the history of `disk` so far.
    pub fn random(seed: u64, disk: &Disk) -> Self {
        let mut random = Random::new(seed);
        let moment = Moment(random.below(disk.now().0 + 1));
        Self { moment, loss: random.pick(&Loss::HONEST), seed: random.number() }
    }
}

/// A disk after a power failure, and its losses. Counts are of writes and name changes that had
/// begun before the cut and were not durable.
#[derive(Clone, Debug)]
pub struct Aftermath {
    /// The disk with power again, no faults, and a new history.
    pub disk: Disk,
    pub arrived: u64,
    pub lost: u64,
    /// Partially arrived.
    pub torn: u64,
    /// Blocks by which files grew and whose bytes are those of another write.
    pub recycled_blocks: u64,
    pub lost_names: u64,
    /// True if there was a promise to lie about.
    pub is_lied_to: bool,
}

impl Disk {
    /// Returns the disk that `cut` leaves. This disk continues unaffected.
    pub fn after(&self, cut: &Cut) -> Aftermath {
        let state = self.state();
        let mut random = Random::new(cut.seed);
        let known = Known::new(&state, cut, &mut random);
        let mut remains = Remains {
            state: &state,
            known,
            random,
            files: BTreeMap::new(),
            aftermath: Aftermath {
                disk: Disk::new(state.capacity_bytes),
                arrived: 0,
                lost: 0,
                torn: 0,
                recycled_blocks: 0,
                lost_names: 0,
                is_lied_to: false,
            },
        };
        let names = remains.names();
        remains.write_all();
        remains.conclude(&names)
    }
}

/// Promises made before the power failure.
struct Known {
    cut: Cut,
    /// The promise that was a lie.
    lie: Option<usize>,
    /// Beginning of the last sync of each file, and of each folder's names.
    file_syncs: BTreeMap<FileId, Moment>,
    name_syncs: BTreeMap<FolderId, Moment>,
}

impl Known {
    fn new(state: &State, cut: &Cut, random: &mut Random) -> Self {
        let records = &state.history.records;
        let promises = (0..records.len()).filter(|&at| records[at].is_barrier_by(cut.moment));
        let promises: Vec<_> = promises.collect();
        let lie = (cut.loss == Loss::Lie && !promises.is_empty()).then(|| {
            let first = match random.one_in(3) {
                true => 0,
                false => promises.len().saturating_sub(LATE_PROMISES),
            };
            random.pick(&promises[first..])
        });
        let mut known =
            Self { cut: *cut, lie, file_syncs: BTreeMap::new(), name_syncs: BTreeMap::new() };
        for &at in promises.iter().filter(|&&at| Some(at) != lie) {
            let begun = records[at].begun;
            let latest = match records[at].deed {
                Deed::Sync { file } => known.file_syncs.entry(file).or_default(),
                Deed::SyncNames { folder } => known.name_syncs.entry(folder).or_default(),
                _ => continue,
            };
            *latest = begun.max(*latest);
        }
        known
    }

    fn is_kept(&self, number: usize, record: &Record) -> bool {
        if !record.is_done_by(self.cut.moment) || record.outcome == Outcome::Forsaken {
            return false;
        }
        let synced = match &record.deed {
            Deed::Write { file, .. } => self.file_syncs.get(file),
            Deed::Names { folder, .. } => self.name_syncs.get(folder),
            Deed::Sync { .. } | Deed::SyncNames { .. } => None,
        };
        let by_itself = record.outcome == Outcome::DoneDurably && self.lie != Some(number);
        by_itself || synced.is_some_and(|&begun| record.ended < begun)
    }
}

/// The new disk under construction.
struct Remains<'disk> {
    state: &'disk State,
    known: Known,
    random: Random,
    files: BTreeMap<FileId, Vec<u8>>,
    aftermath: Aftermath,
}

impl Remains<'_> {
    /// Returns the files of each folder, by name.
    fn names(&mut self) -> Vec<BTreeMap<String, FileId>> {
        let records = self.state.history.records.iter().enumerate();
        let begun = records.take_while(|(_, record)| record.begun <= self.known.cut.moment);
        let changes = begun.filter_map(|(number, record)| match &record.deed {
            Deed::Names { folder, changes } => {
                Some((*folder, changes.clone(), self.known.is_kept(number, record)))
            }
            _ => None,
        });
        let begun: Vec<_> = changes.collect();
        let mut arrives: Vec<_> = begun.iter().map(|(_, _, is_kept)| *is_kept).collect();
        self.choose_names(&mut arrives);
        require_earlier(&begun, &mut arrives);
        let mut names: Vec<_> =
            self.state.folders.iter().map(|folder| folder.at_first.clone()).collect();
        for ((folder, changes, _), arrives) in begun.iter().zip(&arrives) {
            if !arrives {
                self.aftermath.lost_names += 1;
                continue;
            }
            for (name, file) in changes {
                match file {
                    Some(id) => names[folder.0].insert(name.clone(), *id),
                    None => names[folder.0].remove(name),
                };
            }
        }
        names
    }

    /// Chooses the name changes that arrive although they are not durable: those before some
    /// moment, as in a journaling file system, or any.
    fn choose_names(&mut self, arrives: &mut [bool]) {
        let first_lost = self.random.index(arrives.len() + 1);
        let is_ordered = self.random.one_in(2);
        for (at, arrives) in arrives.iter_mut().enumerate() {
            *arrives |= match self.known.cut.loss {
                Loss::Nothing => true,
                Loss::Everything => false,
                _ if is_ordered => at < first_lost,
                _ => self.random.one_in(2),
            };
        }
    }

    fn write_all(&mut self) {
        let moment = self.known.cut.moment;
        let state = self.state;
        for (number, record) in state.history.records.iter().enumerate() {
            if record.begun > moment {
                break;
            }
            let Deed::Write { file, offset, bytes } = &record.deed else { continue };
            let contents = self.files.remove(file);
            let mut contents = contents.unwrap_or_else(|| state.at_first(*file));
            if self.known.is_kept(number, record) {
                self.grow(&mut contents, *offset);
                contents.resize(contents.len().max(offset + bytes.len()), 0);
                contents[*offset..offset + bytes.len()].copy_from_slice(bytes);
            } else {
                self.write_some(&mut contents, *offset, bytes);
            }
            self.files.insert(*file, contents);
        }
    }

    /// Writes the arriving sectors of a write that is not durable.
    fn write_some(&mut self, contents: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
        let sectors = bytes.len() / SECTOR_BYTES;
        let arriving = self.arriving_sectors(sectors);
        let count = arriving.iter().filter(|&&arrives| arrives).count();
        match count {
            0 => self.aftermath.lost += 1,
            _ if count == sectors => self.aftermath.arrived += 1,
            _ => self.aftermath.torn += 1,
        }
        let Some(last) = arriving.iter().rposition(|&arrives| arrives) else { return };
        let end = offset + (last + 1) * SECTOR_BYTES;
        self.grow(contents, end.next_multiple_of(BLOCK_BYTES));
        for (sector, _) in arriving.iter().enumerate().filter(|(_, arrives)| **arrives) {
            let from = sector * SECTOR_BYTES;
            let place = offset + from..offset + from + SECTOR_BYTES;
            contents[place].copy_from_slice(&bytes[from..from + SECTOR_BYTES]);
        }
    }

    fn arriving_sectors(&mut self, count: usize) -> Vec<bool> {
        let random = &mut self.random;
        let all = |arrives| vec![arrives; count];
        match self.known.cut.loss {
            Loss::Nothing => all(true),
            Loss::Everything => all(false),
            Loss::SomeWrites => all(random.one_in(2)),
            Loss::SomeSectors | Loss::Lie => match random.below(5) {
                0 => all(true),
                1 => all(false),
                // A prefix or a suffix.
                2 => {
                    let edge = random.index(count + 1);
                    (0..count).map(|at| at < edge).collect()
                }
                3 => {
                    let edge = random.index(count + 1);
                    (0..count).map(|at| at >= edge).collect()
                }
                _ => {
                    let rarity = 2 + random.below(8);
                    let is_rarely_lost = random.one_in(2);
                    (0..count).map(|_| random.one_in(rarity) != is_rarely_lost).collect()
                }
            },
        }
    }

    /// Extends a file by zeros or, for a torn loss, by bytes written elsewhere before.
    fn grow(&mut self, contents: &mut Vec<u8>, length: usize) {
        let is_torn = matches!(self.known.cut.loss, Loss::SomeSectors | Loss::Lie);
        while contents.len() < length {
            match self.recycled_block().filter(|_| is_torn) {
                Some(block) => {
                    contents.extend_from_slice(block);
                    self.aftermath.recycled_blocks += 1;
                }
                None => contents.resize(contents.len() + BLOCK_BYTES, 0),
            }
        }
    }

    /// Sometimes returns a block that was written before the cut.
    fn recycled_block(&mut self) -> Option<&[u8]> {
        let choice = self.random.number();
        let history = &self.state.history;
        let old = history.old_bytes(choice / 3, self.known.cut.moment)?;
        let at = self.random.index(old.len() / BLOCK_BYTES);
        let is_chosen = choice.is_multiple_of(3);
        is_chosen.then(|| &old[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES])
    }

    fn conclude(mut self, names: &[BTreeMap<String, FileId>]) -> Aftermath {
        self.aftermath.is_lied_to = self.known.lie.is_some();
        let mut state = self.aftermath.disk.state();
        state.folders = self.state.folders.clone();
        let mut moved = BTreeMap::new();
        for folder in &mut state.folders {
            folder.names = BTreeMap::new();
        }
        for (at, names) in names.iter().enumerate() {
            for (name, id) in names {
                let new = *moved.entry(*id).or_insert_with(|| {
                    let written = self.files.remove(id);
                    state.add_file(written.unwrap_or_else(|| self.state.at_first(*id)))
                });
                state.set_name(FolderId(at), name, Some(new));
            }
            state.folders[at].at_first = state.folders[at].names.clone();
        }
        drop(state);
        self.aftermath
    }
}

/// Ensures that the later of two changes of one name never arrives without the earlier.
fn require_earlier(changes: &[(FolderId, NameChanges, bool)], arrives: &mut [bool]) {
    let mut changed_later = BTreeSet::new();
    for ((folder, names, _), arrives) in changes.iter().zip(arrives).rev() {
        *arrives |= names.iter().any(|(name, _)| changed_later.contains(&(*folder, name)));
        if *arrives {
            changed_later.extend(names.iter().map(|(name, _)| (*folder, name)));
        }
    }
}
