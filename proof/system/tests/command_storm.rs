//! The daemon is killed with SIGKILL during writes and commands: snapshots, clones, images, changes
//! of classes, sizes and the pool's limits. Writers lose nothing that was acknowledged, snapshots
//! never change, and deleted ones stay deleted.
//!
//! `MEMLANE_KILLS` and `MEMLANE_SEED` as for the kill storm.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use system::{
    Daemon, DaemonOptions, NbdClient, Random, Request, Round, Stripe, StripeSpec, ToolOutput, seed,
    wait_for,
};

const KILLS_DEFAULT: u64 = 60;

/// All kinds of commands, in an order in which the requirements of each exist.
const KINDS: [&str; 8] =
    ["snapshot", "clone", "resize", "delete", "durability", "image", "pool", "forget"];

const TIME_LIMIT: Duration = Duration::from_secs(120);
const STRIPES_PER_VOLUME: usize = 2;
const RUNS_PER_STRIPE: usize = 16;

/// Maximum number of commands begun before a kill, and of the delay after the last.
const COMMANDS_MAX: u64 = 6;
const DELAY_MICROSECONDS_MAX: u64 = 20_000;

/// Clones to resize and delete are among this many recent ones.
const RECENT_MAX: usize = 8;

/// Maximum number of snapshots kept.
const SNAPSHOTS_MAX: usize = 6;

const VOLUMES: [(&str, &str); 3] = [("a", "ram"), ("b", "image"), ("c", "journal")];

/// Fingerprint of the contents of each snapshot at its first read.
type Snapshots = BTreeMap<String, u64>;

struct Storm {
    random: Random,
    daemon: Daemon,
    stripes: Vec<Stripe>,
    snapshots: Snapshots,
    /// Snapshots whose creation was acknowledged and whose deletion never began.
    promised: BTreeSet<String>,
    /// Snapshots whose deletion was acknowledged.
    gone: BTreeSet<String>,
    /// Counter for unique names.
    number: u64,
    /// Requested clones, the newest last.
    clones: Vec<String>,
    tallies: BTreeMap<&'static str, Tally>,
}

/// Results of the commands of one kind.
#[derive(Debug, Default)]
struct Tally {
    done: u64,
    refused: u64,
    /// Interrupted by the kill: they may have happened.
    cut_short: u64,
}

#[test]
fn writers_lose_nothing_while_commands_are_cut_short() -> Result<()> {
    let seed = seed()?;
    eprintln!("replay: MEMLANE_SEED={seed} cargo test -p system --test command_storm");
    let kill_count = match std::env::var("MEMLANE_KILLS") {
        Ok(text) => text.parse()?,
        Err(_) => KILLS_DEFAULT,
    };
    let mut random = Random::new(seed);
    let daemon = Daemon::start(DaemonOptions { pool_size: "512MiB", flags: "--no-fuse" })?;
    let stripes = stripes(&mut random);
    for (volume, durability) in VOLUMES {
        let size = stripes[0].spec().volume_bytes();
        daemon
            .memlane(&format!("volume create {volume} --size {size} --durability {durability}"))?;
    }
    let snapshots = Snapshots::new();
    let mut storm = Storm {
        random,
        daemon,
        stripes,
        snapshots,
        promised: BTreeSet::new(),
        gone: BTreeSet::new(),
        number: 0,
        clones: Vec::new(),
        tallies: BTreeMap::new(),
    };
    for round in 0..kill_count.max(KINDS.len() as u64) {
        storm.round(KINDS.get(usize::try_from(round)?).copied())?;
    }
    storm.finish(kill_count)
}

fn stripes(random: &mut Random) -> Vec<Stripe> {
    let mut stripes = Vec::new();
    for (number, (volume, _)) in (0..).zip(VOLUMES) {
        for stripe in 0..STRIPES_PER_VOLUME {
            stripes.push(Stripe::new(StripeSpec {
                volume: volume.to_owned(),
                volume_number: number,
                sector_bytes: 4096,
                stripe,
                stripe_count: STRIPES_PER_VOLUME,
                run_count: RUNS_PER_STRIPE,
                seed: random.number(),
            }));
        }
    }
    stripes
}

impl Storm {
    /// Lets all stripes verify and write, runs commands meanwhile, among them one of the kind
    /// `planned` until it is acknowledged, and kills the daemon during the last one.
    fn round(&mut self, planned: Option<&'static str>) -> Result<()> {
        let mut stripes = std::mem::take(&mut self.stripes);
        let round = Round::default();
        let stripe_count = stripes.len();
        let socket = self.daemon.nbd_socket();
        round.run(&socket, &mut stripes, || {
            wait_for("the stripes to verify", TIME_LIMIT, || {
                Ok(round.verified_count() >= stripe_count || round.has_failed())
            })?;
            if let Some(kind) = planned {
                self.acknowledge(kind)?;
            }
            for _ in 0..self.random.below(COMMANDS_MAX) {
                let (kind, words) = self.draw();
                self.command(kind, &words)?;
            }
            self.kill_in_a_command(&round)
        })?;
        self.stripes = stripes;
        self.daemon.start_again()?;
        self.check_snapshots()
    }

    /// Runs commands of this kind until one is acknowledged.
    fn acknowledge(&mut self, kind: &'static str) -> Result<()> {
        wait_for("a command to be acknowledged", TIME_LIMIT, || {
            if matches!(kind, "resize" | "delete") {
                let words = self.words_of("clone");
                self.command("clone", &words)?;
            }
            let words = self.words_of(kind);
            self.command(kind, &words)
        })
        .with_context(|| format!("of the kind {kind}"))
    }

    /// Runs a command to its end. Returns whether it was acknowledged.
    fn command(&mut self, kind: &'static str, words: &str) -> Result<bool> {
        self.note_begun(kind, words);
        let output = self.daemon.try_memlane(words)?;
        self.judge(kind, words, &output)
    }

    fn kill_in_a_command(&mut self, round: &Round) -> Result<()> {
        let (kind, words) = self.draw();
        self.note_begun(kind, &words);
        let asking = self.daemon.command_line(&words);
        let delay = Duration::from_micros(self.random.below(DELAY_MICROSECONDS_MAX));
        let begun = Instant::now();
        let asker = thread::spawn(move || asking.run());
        while begun.elapsed() < delay {
            std::hint::spin_loop();
        }
        round.kill(&mut self.daemon)?;
        let output = asker.join().expect("a tool returns its errors")?;
        if output.exit_code == Some(5) {
            self.tallies.entry(kind).or_default().cut_short += 1;
            return Ok(());
        }
        self.judge(kind, &words, &output).map(|_| ())
    }

    /// Records that a deletion has begun, which may happen whatever its answer is.
    fn note_begun(&mut self, kind: &str, words: &str) {
        if let Some(name) = snapshot_deleted_by(kind, words) {
            self.promised.remove(&name);
        }
    }

    /// Records the result of a command. Returns whether it was acknowledged.
    fn judge(&mut self, kind: &'static str, words: &str, output: &ToolOutput) -> Result<bool> {
        let tally = self.tallies.entry(kind).or_default();
        if output.exit_code == Some(0) {
            tally.done += 1;
            self.promised.extend(snapshots_made_by(kind, words));
            if let Some(name) = snapshot_deleted_by(kind, words) {
                self.snapshots.remove(&name);
                self.gone.insert(name);
            }
            return Ok(true);
        }
        tally.refused += 1;
        let is_understood = match kind {
            // A kill may have interrupted the creation or the deletion.
            "forget" | "delete" | "resize" => output.exit_code == Some(3),
            // The daemon also saves images automatically.
            "image" => output.stderr.contains("wait for it"),
            _ => false,
        };
        ensure!(is_understood, "{words}: {output:?}");
        Ok(false)
    }

    /// Checks that every acknowledged snapshot exists with the contents of its first read.
    fn check_snapshots(&mut self) -> Result<()> {
        let socket = self.daemon.nbd_socket();
        let mut found = Snapshots::new();
        for name in snapshot_names(&self.daemon)? {
            let fingerprint = fingerprint(&socket, &name)?;
            let before = self.snapshots.get(&name).copied().unwrap_or(fingerprint);
            ensure!(before == fingerprint, "{name} holds something else than before");
            found.insert(name, fingerprint);
        }
        let lost = self.promised.iter().find(|name| !found.contains_key(*name));
        ensure!(lost.is_none(), "acknowledged, and lost by a kill: {lost:?}");
        let back = self.gone.iter().find(|name| found.contains_key(*name));
        ensure!(back.is_none(), "deleted, and back after a kill: {back:?}");
        self.snapshots = found;
        Ok(())
    }

    /// Finally verifies everything, and checks that every kind of command has succeeded.
    fn finish(mut self, kill_count: u64) -> Result<()> {
        let last = Round::default();
        last.run(&self.daemon.nbd_socket(), &mut self.stripes, || Ok(()))?;
        let stripe_count = self.stripes.len();
        ensure!(last.verified_count() == stripe_count, "not all stripes were verified at the end");
        self.daemon.save_image()?;
        self.daemon.memlane("image verify")?;
        eprintln!("measured: {kill_count} kills; commands by kind: {:?}", self.tallies);
        let is_missing = |kind: &&&str| self.tallies.get(**kind).is_none_or(|it| it.done == 0);
        let missing: Vec<_> = KINDS.iter().filter(is_missing).collect();
        ensure!(missing.is_empty(), "never acknowledged: {missing:?}");
        self.daemon.finish()
    }

    /// Returns a kind of command and its arguments.
    fn draw(&mut self) -> (&'static str, String) {
        let kind = match self.random.below(9) {
            0 | 1 if self.snapshots.len() >= SNAPSHOTS_MAX => "forget",
            0 | 1 => "snapshot",
            2 | 3 => "clone",
            4 => "resize",
            5 => "delete",
            6 => "durability",
            7 => "image",
            _ => "pool",
        };
        (kind, self.words_of(kind))
    }

    fn words_of(&mut self, kind: &str) -> String {
        self.number += 1;
        let number = self.number;
        let volume = VOLUMES[self.random.index(VOLUMES.len())].0;
        let names: Vec<_> = self.snapshots.keys().cloned().collect();
        let snapshot = names.get(self.random.index(names.len().max(1))).cloned();
        let recent = &self.clones[self.clones.len().saturating_sub(RECENT_MAX)..];
        let recent = recent.get(self.random.index(recent.len().max(1))).cloned();
        // A missing one causes an error.
        let recent = recent.unwrap_or_else(|| "none".to_owned());
        match kind {
            "forget" => format!("snapshot delete {}", snapshot.unwrap_or_else(|| "a@none".into())),
            "snapshot" if self.random.below(2) == 0 => {
                format!("snapshot create {volume} s{number}")
            }
            "snapshot" => format!("snapshot create a b c s{number}"),
            "clone" => {
                self.clones.push(format!("c{number}"));
                let of_snapshot = snapshot.filter(|_| self.random.below(2) == 0);
                let source = of_snapshot.unwrap_or_else(|| volume.to_owned());
                format!("clone {source} c{number}")
            }
            "resize" => {
                let size = (1 + self.random.below(16)) << 20;
                format!("volume resize {recent} --size {size} --force")
            }
            "delete" => format!("volume delete {recent}"),
            "durability" => {
                let class = ["ram", "image", "journal"][self.random.index(3)];
                format!("volume set {volume} durability={class}")
            }
            "image" => "image save".to_owned(),
            _ => format!("pool set max-memory={}MiB", 384 + 64 * self.random.below(4)),
        }
    }
}

/// Returns the names of the snapshots that `snapshot create VOLUME... NAME` creates.
fn snapshots_made_by(kind: &str, words: &str) -> Vec<String> {
    if kind != "snapshot" {
        return Vec::new();
    }
    let words: Vec<&str> = words.split(' ').skip(2).collect();
    let (name, volumes) = words.split_last().expect("a snapshot has a name");
    volumes.iter().map(|volume| format!("{volume}@{name}")).collect()
}

/// Returns the name of the snapshot that `snapshot delete NAME` deletes.
fn snapshot_deleted_by(kind: &str, words: &str) -> Option<String> {
    (kind == "forget").then(|| words.rsplit(' ').next().map(str::to_owned)).flatten()
}

fn snapshot_names(daemon: &Daemon) -> Result<Vec<String>> {
    let listed = daemon.memlane("--json snapshot list")?;
    let listed: Vec<api::Snapshot> =
        serde_json::from_str(&listed).with_context(|| format!("a list of snapshots: {listed}"))?;
    Ok(listed.into_iter().map(|snapshot| snapshot.name).collect())
}

fn fingerprint(socket: &Path, name: &str) -> Result<u64> {
    let mut client = NbdClient::connect(socket, name).with_context(|| format!("opening {name}"))?;
    let mut fingerprint = 0xcbf2_9ce4_8422_2325_u64;
    let mut offset = 0;
    while offset < client.size_bytes() {
        let length = u32::try_from((client.size_bytes() - offset).min(1 << 20))?;
        let bytes = client.ask(&Request::Read { offset, length })?;
        for word in bytes.chunks_exact(8) {
            let word = u64::from_le_bytes(word.try_into().expect("a chunk has 8 bytes"));
            fingerprint = (fingerprint ^ word).wrapping_mul(0x0100_0000_01b3);
        }
        offset += u64::from(length);
    }
    Ok(fingerprint)
}
