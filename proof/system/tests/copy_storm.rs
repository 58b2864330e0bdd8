//! The daemon is killed with SIGKILL while volumes are created, renamed, resized, cloned, deleted
//! and changed in class, while snapshots are created, renamed, restored and deleted, and while
//! images are saved and restored. Each operation is atomic, and every volume and snapshot has the
//! expected contents.
//!
//! `MEMLANE_KILLS` and `MEMLANE_SEED` as for the kill storm.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use system::{
    BLOCK_BYTES, Contents, Daemon, DaemonOptions, NbdClient, Random, Request, Stamp, seed, wait_for,
};

const KILLS_DEFAULT: u64 = 60;
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// All kinds of operations, in an order in which the requirements of each exist.
const KINDS: [&str; 13] = [
    "create",
    "image",
    "clone",
    "delete",
    "snapshot",
    "snapshots",
    "rename snapshot",
    "restore",
    "rename",
    "resize",
    "durability",
    "capacity",
    "forget",
];

/// Number of attempts to draw an operation of a kind.
const TRIES_MAX: usize = 10_000;

const VOLUMES_MAX: usize = 5;
const SNAPSHOTS_MAX: usize = 8;
const BLOCKS_MAX: u64 = 96;
const RUN_BLOCKS_MAX: u64 = 24;

/// Maximum growth of an emptied pool over a new one: slabs that are kept open.
const LEAK_BYTES_MAX: u64 = 2 << 20;

/// Maximum delay of a kill. The command line takes a part of it to start and connect, and saving an
/// image takes longer.
const DELAY_MICROSECONDS_MAX: u64 = 30_000;

const DURABILITIES: [&str; 3] = ["ram", "image", "journal"];
const CAPACITIES: [&str; 2] = ["thin", "guaranteed"];

/// A volume or snapshot. The classes of a snapshot are those of a clone of it.
#[derive(Clone, Debug, PartialEq)]
struct Copy {
    durability: String,
    capacity: String,
    blocks: Vec<Contents>,
}

/// All volumes and snapshots, by name.
type State = BTreeMap<String, Copy>;

/// An operation, and the state after it.
struct Operation {
    kind: &'static str,
    words: String,
    outcome: State,
}

/// An image and its contents.
struct Saved {
    number: u64,
    state: State,
}

struct Storm {
    random: Random,
    daemon: Daemon,
    /// Memory that the pool uses without a volume.
    empty_bytes: u64,
    known: State,
    saved: Option<Saved>,
    /// Counter for unique names and stamps.
    number: u64,
    /// Numbers of operations by kind: acknowledged, performed without an answer, and not performed.
    acknowledged: BTreeMap<&'static str, u64>,
    happened: BTreeMap<&'static str, u64>,
    prevented: BTreeMap<&'static str, u64>,
}

/// Moment at which the daemon is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// After this delay from the begin of the operation.
    After(Duration),
    /// Immediately after the acknowledgement.
    Acknowledged,
}

#[test]
fn copies_and_classes_change_whole_or_not_at_all() -> Result<()> {
    let seed = seed()?;
    eprintln!("replay: MEMLANE_SEED={seed} cargo test -p system --test copy_storm");
    let kill_count = match std::env::var("MEMLANE_KILLS") {
        Ok(text) => text.parse()?,
        Err(_) => KILLS_DEFAULT,
    };
    let daemon = Daemon::start(DaemonOptions { pool_size: "64MiB", flags: "--no-fuse" })?;
    let empty_bytes = daemon.status()?.pool.used_bytes;
    let mut storm = Storm {
        random: Random::new(seed),
        daemon,
        empty_bytes,
        known: State::new(),
        saved: None,
        number: 0,
        acknowledged: BTreeMap::new(),
        happened: BTreeMap::new(),
        prevented: BTreeMap::new(),
    };
    for kind in KINDS {
        let operation = storm.draw_kind(kind)?;
        storm.round(&operation, Moment::Acknowledged)?;
        storm.save()?;
    }
    for _ in 0..kill_count {
        let operation = storm.draw();
        let delay = Duration::from_micros(storm.random.below(DELAY_MICROSECONDS_MAX));
        storm.round(&operation, Moment::After(delay))?;
        if storm.random.below(3) == 0 {
            storm.save()?;
        }
    }
    storm.finish(kill_count)
}

impl Storm {
    /// Performs an operation, interrupted by a kill or not, determines its effect, and writes.
    fn round(&mut self, operation: &Operation, moment: Moment) -> Result<()> {
        // Open volumes are neither deleted nor restored.
        wait_for("the server to miss its last client", TIME_LIMIT, || {
            Ok(self.daemon.volumes()?.iter().all(|volume| volume.nbd_connections == 0))
        })?;
        let was_acknowledged = self.kill_during(&operation.words, moment)?;
        self.daemon.start_again()?;
        let has_happened = self.compare(operation).with_context(|| operation.words.clone())?;
        ensure!(has_happened || !was_acknowledged, "{}: acknowledged, undone", operation.words);
        let counts = match (was_acknowledged, has_happened) {
            (true, _) => &mut self.acknowledged,
            (false, true) => &mut self.happened,
            (false, false) => &mut self.prevented,
        };
        *counts.entry(operation.kind).or_default() += 1;
        if has_happened {
            self.known.clone_from(&operation.outcome);
        }
        self.write()
    }

    /// Finally saves an image, which must be correct, and checks that every kind of operation has
    /// occurred.
    fn finish(mut self, kill_count: u64) -> Result<()> {
        let (acknowledged, happened) = (&self.acknowledged, &self.happened);
        eprintln!(
            "measured: {kill_count} kills; acknowledged {acknowledged:?}, happened without an \
             answer {happened:?}, prevented {:?}",
            self.prevented
        );
        let missing = KINDS.iter().find(|kind| !acknowledged.contains_key(**kind));
        ensure!(missing.is_none(), "never acknowledged: {missing:?}");
        self.save()?;
        self.daemon.memlane("image verify")?;
        self.delete_all()?;
        self.daemon.finish()
    }

    /// Deletes everything: leaked and deleted memory is freed, and the pool ends as it began.
    fn delete_all(&self) -> Result<()> {
        for name in self.names(true) {
            self.daemon.memlane(&format!("snapshot delete {name}"))?;
        }
        for name in self.names(false) {
            self.daemon.memlane(&format!("volume delete {name}"))?;
        }
        wait_for("the memory of all volumes", TIME_LIMIT, || {
            Ok(self.daemon.status()?.pool.used_bytes <= self.empty_bytes + LEAK_BYTES_MAX)
        })
    }

    /// Returns whether the operation was acknowledged before the kill.
    fn kill_during(&mut self, words: &str, moment: Moment) -> Result<bool> {
        let Moment::After(delay) = moment else {
            self.daemon.memlane(words)?;
            return self.daemon.kill().map(|()| true);
        };
        let asking = self.daemon.command_line(words);
        let start = Instant::now();
        let asker = thread::spawn(move || asking.run());
        while start.elapsed() < delay {
            std::hint::spin_loop();
        }
        self.daemon.kill()?;
        let output = asker.join().expect("a tool returns its errors")?;
        match output.exit_code {
            Some(0) => Ok(true),
            // Unreachable, or disconnected.
            Some(5) => Ok(false),
            // Restores are serialized: the one interrupted by a kill is still being fetched.
            Some(1) if output.stderr.contains("are still being restored") => Ok(false),
            code => bail!("{words} ended with {code:?}: {}{}", output.stdout, output.stderr),
        }
    }

    /// Returns whether the daemon has the state after the operation, or the one before.
    fn compare(&self, operation: &Operation) -> Result<bool> {
        let found = self.found()?;
        let shape_of = |state: &State| -> BTreeMap<String, (String, String, usize)> {
            let shape = |(name, it): (&String, &Copy)| {
                let mut shape = (it.durability.clone(), it.capacity.clone(), it.blocks.len());
                if name.contains('@') {
                    shape = (String::new(), String::new(), shape.2);
                }
                (name.clone(), shape)
            };
            state.iter().map(shape).collect()
        };
        // Some operations change nothing: those count as performed.
        let candidates = [&operation.outcome, &self.known];
        let mut reasons = Vec::new();
        for (state, has_happened) in candidates.into_iter().zip([true, false]) {
            if shape_of(state) != found {
                reasons.push(format!("{found:?} is not {:?}", shape_of(state)));
                continue;
            }
            match self.difference(state)? {
                None => return Ok(has_happened),
                Some(reason) => reasons.push(reason),
            }
        }
        bail!("neither old nor new: {reasons:#?}")
    }

    /// Returns all volumes and snapshots with their classes and sizes in blocks.
    fn found(&self) -> Result<BTreeMap<String, (String, String, usize)>> {
        let mut found = BTreeMap::new();
        let blocks = |bytes: u64| usize::try_from(bytes / BLOCK_BYTES as u64);
        for volume in self.daemon.volumes()? {
            let word = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let durability = word(serde_json::to_value(volume.durability)?);
            let capacity = word(serde_json::to_value(volume.capacity)?);
            found.insert(volume.name, (durability, capacity, blocks(volume.size_bytes)?));
        }
        let listed = self.daemon.memlane("--json snapshot list")?;
        let listed: Vec<api::Snapshot> = serde_json::from_str(&listed)
            .with_context(|| format!("a list of snapshots: {listed}"))?;
        for snapshot in listed {
            let shape = (String::new(), String::new(), blocks(snapshot.size_bytes)?);
            found.insert(snapshot.name, shape);
        }
        Ok(found)
    }

    /// Returns the first copy whose contents differ from `state`.
    fn difference(&self, state: &State) -> Result<Option<String>> {
        for (name, copy) in state {
            let mut client = NbdClient::connect(&self.daemon.nbd_socket(), name)
                .with_context(|| format!("cannot open {name}"))?;
            let length = u32::try_from(copy.blocks.len() * BLOCK_BYTES)?;
            let bytes = client
                .ask(&Request::Read { offset: 0, length })
                .with_context(|| format!("cannot read {name}"))?;
            let blocks = bytes.chunks_exact(BLOCK_BYTES).zip(&copy.blocks);
            let is_other = |(found, expected): (&[u8], &Contents)| found != &expected.block()[..];
            if let Some(block) = blocks.into_iter().position(is_other) {
                return Ok(Some(format!(
                    "block {block} of {name} is not {:?}",
                    copy.blocks[block]
                )));
            }
        }
        Ok(None)
    }

    /// Saves an image that can be restored later.
    fn save(&mut self) -> Result<()> {
        self.daemon.save_image()?;
        let listed = self.daemon.memlane("--json image list")?;
        let listed: Vec<api::Image> =
            serde_json::from_str(&listed).with_context(|| format!("a list of images: {listed}"))?;
        let number = listed.iter().map(|image| image.number).max();
        let number = number.context("no image is there right after one was saved")?;
        let mut state = self.known.clone();
        // A guaranteed volume is guaranteed again only some time after its restore.
        let is_plain = |copy: &Copy| copy.durability != "ram" && copy.capacity == "thin";
        state.retain(|name, copy| !name.contains('@') && is_plain(copy));
        self.saved = Some(Saved { number, state });
        Ok(())
    }

    /// Writes to one volume, without a kill.
    fn write(&mut self) -> Result<()> {
        let names = self.names(false);
        let Some(name) = self.pick(&names) else { return Ok(()) };
        let copy = self.known.get_mut(&name).expect("the name was drawn from them");
        let mut client = NbdClient::connect(&self.daemon.nbd_socket(), &name)?;
        let block_count = copy.blocks.len() as u64;
        let first = self.random.below(block_count);
        let end = block_count.min(first + 1 + self.random.below(RUN_BLOCKS_MAX));
        for block in first..end {
            let stamp = Stamp { volume: self.number, block, sequence: self.number };
            let contents = Contents::draw(&mut self.random, stamp);
            let offset = block * BLOCK_BYTES as u64;
            client.ask(&Request::Write { offset, data: contents.block().to_vec() })?;
            copy.blocks[usize::try_from(block)?] = contents;
        }
        if self.random.below(2) == 0 {
            client.ask(&Request::Flush)?;
        }
        Ok(())
    }

    fn names(&self, of_snapshots: bool) -> Vec<String> {
        let names = self.known.keys().filter(|name| name.contains('@') == of_snapshots);
        names.cloned().collect()
    }

    fn pick(&mut self, names: &[String]) -> Option<String> {
        (!names.is_empty()).then(|| names[self.random.index(names.len())].clone())
    }
}

/// Operations that the expected state permits.
impl Storm {
    /// Draws an operation of this kind that is possible now.
    fn draw_kind(&mut self, kind: &str) -> Result<Operation> {
        for _ in 0..TRIES_MAX {
            let operation = match (kind, self.known.is_empty()) {
                // The first volume must be included in the saved images.
                ("create", true) => self.create_as("image", "thin"),
                _ => self.draw(),
            };
            if operation.kind == kind {
                return Ok(operation);
            }
        }
        bail!("nothing can be done of the kind {kind:?} with {:?}", self.known.keys())
    }

    fn draw(&mut self) -> Operation {
        self.number += 1;
        loop {
            let volumes = self.names(false);
            let snapshots = self.names(true);
            let Some(volume) = self.pick(&volumes) else { return self.create() };
            let has_room = volumes.len() < VOLUMES_MAX;
            let drawn = match self.random.below(14) {
                0 if has_room => Some(self.create()),
                1 if has_room => Some(self.clone_of(&volumes, &snapshots)),
                2 | 3 if snapshots.len() < SNAPSHOTS_MAX => Some(self.snapshot(&volume)),
                4 if snapshots.len() < SNAPSHOTS_MAX => self.snapshot_of_two(&volume, &volumes),
                5 => self.pick(&snapshots).map(|name| self.forget(&name)),
                6 => self.pick(&snapshots).and_then(|name| self.restore(&name)),
                7 => Some(self.resize(&volume)),
                8 => self.delete(&volume, &snapshots),
                9 => Some(self.set_durability(&volume)),
                10 => Some(self.set_capacity(&volume)),
                11 if has_room => self.restore_image(),
                12 => Some(self.rename(&volume)),
                13 => self.pick(&snapshots).and_then(|name| self.rename_snapshot(&name)),
                _ => None,
            };
            if let Some(operation) = drawn {
                return operation;
            }
        }
    }

    fn operation(&self, kind: &'static str, words: String) -> Operation {
        Operation { kind, words, outcome: self.known.clone() }
    }

    fn create(&mut self) -> Operation {
        let durability = DURABILITIES[self.random.index(DURABILITIES.len())];
        let capacity = CAPACITIES[self.random.index(CAPACITIES.len())];
        self.create_as(durability, capacity)
    }

    fn create_as(&mut self, durability: &str, capacity: &str) -> Operation {
        let (durability, capacity) = (durability.to_owned(), capacity.to_owned());
        let name = format!("v{}", self.number);
        let block_count = 1 + self.random.below(BLOCKS_MAX);
        let size = block_count * BLOCK_BYTES as u64;
        let words = format!(
            "volume create {name} --size {size} --durability {durability} --capacity {capacity}"
        );
        let blocks = (0..block_count).map(|_| Contents::Fill(0)).collect();
        let mut operation = self.operation("create", words);
        operation.outcome.insert(name, Copy { durability, capacity, blocks });
        operation
    }

    /// Renames a volume, whose snapshots keep their own names below the new one.
    fn rename(&self, volume: &str) -> Operation {
        let new_name = format!("n{}", self.number);
        let mut operation = self.operation("rename", format!("volume rename {volume} {new_name}"));
        let renamed = |name: String| match name.split_once('@') {
            Some((of, snapshot)) if of == volume => format!("{new_name}@{snapshot}"),
            None if name == volume => new_name.clone(),
            _ => name,
        };
        let outcome = std::mem::take(&mut operation.outcome);
        operation.outcome = outcome.into_iter().map(|(name, it)| (renamed(name), it)).collect();
        operation
    }

    fn rename_snapshot(&self, snapshot: &str) -> Option<Operation> {
        let (volume, _) = snapshot.split_once('@')?;
        let words = format!("snapshot rename {snapshot} n{}", self.number);
        let mut operation = self.operation("rename snapshot", words);
        let copy = operation.outcome.remove(snapshot)?;
        operation.outcome.insert(format!("{volume}@n{}", self.number), copy);
        Some(operation)
    }

    fn clone_of(&mut self, volumes: &[String], snapshots: &[String]) -> Operation {
        let sources = [volumes, snapshots].concat();
        let source = self.pick(&sources).expect("there is a volume");
        let name = format!("c{}", self.number);
        let mut operation = self.operation("clone", format!("clone {source} {name}"));
        // A clone is thin, whatever its source is.
        let capacity = "thin".to_owned();
        let copy = Copy { capacity, ..self.known[&source].clone() };
        operation.outcome.insert(name, copy);
        operation
    }

    fn snapshot(&mut self, volume: &str) -> Operation {
        let words = format!("snapshot create {volume} s{}", self.number);
        let mut operation = self.operation("snapshot", words);
        self.add_snapshot(&mut operation, volume);
        operation
    }

    fn snapshot_of_two(&mut self, volume: &str, volumes: &[String]) -> Option<Operation> {
        let other = self.pick(volumes).filter(|other| other != volume)?;
        let words = format!("snapshot create {volume} {other} s{}", self.number);
        let mut operation = self.operation("snapshots", words);
        self.add_snapshot(&mut operation, volume);
        self.add_snapshot(&mut operation, &other);
        Some(operation)
    }

    fn add_snapshot(&self, operation: &mut Operation, volume: &str) {
        let copy = self.known[volume].clone();
        operation.outcome.insert(format!("{volume}@s{}", self.number), copy);
    }

    fn forget(&self, snapshot: &str) -> Operation {
        let mut operation = self.operation("forget", format!("snapshot delete {snapshot}"));
        operation.outcome.remove(snapshot);
        operation
    }

    fn restore(&self, snapshot: &str) -> Option<Operation> {
        let (volume, name) = snapshot.split_once('@')?;
        let words = format!("snapshot restore {volume} {name}");
        let mut operation = self.operation("restore", words);
        let blocks = self.known[snapshot].blocks.clone();
        operation.outcome.get_mut(volume)?.blocks = blocks;
        Some(operation)
    }

    fn resize(&mut self, volume: &str) -> Operation {
        let block_count = 1 + self.random.below(BLOCKS_MAX);
        let size = block_count * BLOCK_BYTES as u64;
        let words = format!("volume resize {volume} --size {size} --force");
        let mut operation = self.operation("resize", words);
        let copy = operation.outcome.get_mut(volume).expect("the volume is known");
        let block_count = usize::try_from(block_count).expect("it is small");
        copy.blocks.resize(block_count, Contents::Fill(0));
        operation
    }

    /// Deletes a volume, only if it has no snapshots, as required.
    fn delete(&self, volume: &str, snapshots: &[String]) -> Option<Operation> {
        let is_of_it = |name: &String| name.split('@').next() == Some(volume);
        if snapshots.iter().any(is_of_it) {
            return None;
        }
        let mut operation = self.operation("delete", format!("volume delete {volume}"));
        operation.outcome.remove(volume);
        Some(operation)
    }

    fn set_durability(&mut self, volume: &str) -> Operation {
        let class = DURABILITIES[self.random.index(DURABILITIES.len())];
        let words = format!("volume set {volume} durability={class}");
        let mut operation = self.operation("durability", words);
        let copy = operation.outcome.get_mut(volume).expect("the volume is known");
        class.clone_into(&mut copy.durability);
        operation
    }

    fn set_capacity(&mut self, volume: &str) -> Operation {
        let class = CAPACITIES[self.random.index(CAPACITIES.len())];
        let words = format!("volume set {volume} capacity={class}");
        let mut operation = self.operation("capacity", words);
        let copy = operation.outcome.get_mut(volume).expect("the volume is known");
        class.clone_into(&mut copy.capacity);
        operation
    }

    fn restore_image(&mut self) -> Option<Operation> {
        let saved = self.saved.as_ref()?;
        let names: Vec<String> = saved.state.keys().cloned().collect();
        let number = saved.number;
        let volume = self.pick(&names)?;
        let name = format!("r{}", self.number);
        let words = format!("image restore --image {number} {volume} --as {name}");
        let copy = self.saved.as_ref()?.state.get(&volume)?.clone();
        let mut operation = self.operation("image", words);
        operation.outcome.insert(name, copy);
        Some(operation)
    }
}
