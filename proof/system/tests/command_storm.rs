//! The daemon is killed with -9 while writers are at work and commands go on beside them:
//! snapshots, clones, images, other classes, other sizes, other limits of the pool. The writers
//! lose nothing that was acknowledged, and snapshots never change.
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

/// From so many kills on, every kind of command has succeeded.
const KILLS_FOR_ALL_KINDS: u64 = 1000;

const TIME_LIMIT: Duration = Duration::from_secs(120);
const STRIPES_PER_VOLUME: usize = 2;
const RUNS_PER_STRIPE: usize = 48;

/// Commands that are begun before a kill, and how long after the last of them it comes.
const COMMANDS_MAX: u64 = 6;
const DELAY_MICROSECONDS_MAX: u64 = 20_000;

/// Snapshots that are kept, at most.
const SNAPSHOTS_MAX: usize = 6;

const VOLUMES: [(&str, &str); 3] = [("a", "ram"), ("b", "image"), ("c", "journal")];

/// A fingerprint of what each snapshot held when it was first read.
type Snapshots = BTreeMap<String, u64>;

struct Storm {
    random: Random,
    daemon: Daemon,
    stripes: Vec<Stripe>,
    snapshots: Snapshots,
    /// Snapshots whose creation was acknowledged and whose deletion was never begun.
    promised: BTreeSet<String>,
    /// Makes names that were never used.
    number: u64,
    succeeded: BTreeMap<&'static str, u64>,
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
        number: 0,
        succeeded: BTreeMap::new(),
    };
    for _ in 0..kill_count {
        storm.round()?;
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
    /// Lets all stripes verify and write, gives commands meanwhile, and kills the daemon in the
    /// last of them.
    fn round(&mut self) -> Result<()> {
        let mut stripes = std::mem::take(&mut self.stripes);
        let round = Round::default();
        let stripe_count = stripes.len();
        let socket = self.daemon.nbd_socket();
        round.run(&socket, &mut stripes, || {
            wait_for("the stripes to verify", TIME_LIMIT, || {
                Ok(round.verified_count() >= stripe_count || round.has_failed())
            })?;
            for _ in 0..self.random.below(COMMANDS_MAX) {
                let (kind, words) = self.draw();
                self.note_begun(kind, &words);
                let output = self.daemon.try_memlane(&words)?;
                self.judge(kind, &words, &output)?;
            }
            self.kill_in_a_command()
        })?;
        self.stripes = stripes;
        self.daemon.start_again()?;
        self.check_snapshots()
    }

    fn kill_in_a_command(&mut self) -> Result<()> {
        let (kind, words) = self.draw();
        self.note_begun(kind, &words);
        let asking = self.daemon.command_line(&words);
        let delay = Duration::from_micros(self.random.below(DELAY_MICROSECONDS_MAX));
        let begun = Instant::now();
        let asker = thread::spawn(move || asking.run());
        while begun.elapsed() < delay {
            std::hint::spin_loop();
        }
        self.daemon.kill()?;
        let output = asker.join().expect("a tool returns its errors")?;
        let is_cut_short = output.exit_code == Some(5);
        if is_cut_short { Ok(()) } else { self.judge(kind, &words, &output) }
    }

    /// A deletion that was begun may have happened, whatever its answer is.
    fn note_begun(&mut self, kind: &str, words: &str) {
        if kind == "forget" {
            let name = words.rsplit(' ').next().expect("a line of words has a last one");
            self.promised.remove(name);
        }
    }

    fn judge(&mut self, kind: &'static str, words: &str, output: &ToolOutput) -> Result<()> {
        if output.exit_code == Some(0) {
            *self.succeeded.entry(kind).or_default() += 1;
            self.promised.extend(snapshots_made_by(kind, words));
        }
        // Refused, for instance for a clone that was lost in a kill, or for lack of room.
        let is_understood = matches!(output.exit_code, Some(0 | 1 | 3 | 4));
        ensure!(is_understood, "{words}: {output:?}");
        Ok(())
    }

    /// Every acknowledged snapshot is there, and holds what it held when it was seen first.
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
        self.snapshots = found;
        Ok(())
    }

    /// Ends with everything verified, and with every kind of command seen to succeed.
    fn finish(mut self, kill_count: u64) -> Result<()> {
        let last = Round::default();
        last.run(&self.daemon.nbd_socket(), &mut self.stripes, || Ok(()))?;
        let stripe_count = self.stripes.len();
        ensure!(last.verified_count() == stripe_count, "not all stripes were verified at the end");
        self.daemon.save_image()?;
        self.daemon.memlane("image verify")?;
        eprintln!("measured: {kill_count} kills; commands that succeeded: {:?}", self.succeeded);
        let kinds = ["snapshot", "forget", "clone", "resize", "durability", "image", "pool"];
        let missing = kinds.iter().find(|kind| !self.succeeded.contains_key(**kind));
        ensure!(missing.is_none() || kill_count < KILLS_FOR_ALL_KINDS, "never: {missing:?}");
        self.daemon.finish()
    }

    /// A kind of command and its words.
    fn draw(&mut self) -> (&'static str, String) {
        self.number += 1;
        let number = self.number;
        let volume = VOLUMES[self.random.index(VOLUMES.len())].0;
        let snapshots: Vec<_> = self.snapshots.keys().cloned().collect();
        let snapshot = snapshots.get(self.random.index(snapshots.len().max(1)));
        let recent = format!("c{}", number.saturating_sub(1 + self.random.below(8)));
        match (self.random.below(9), snapshot) {
            (0 | 1, Some(name)) if snapshots.len() >= SNAPSHOTS_MAX => {
                ("forget", format!("snapshot delete {name}"))
            }
            (0, _) => ("snapshot", format!("snapshot create {volume} s{number}")),
            (1, _) => ("snapshot", format!("snapshot create a b c s{number}")),
            (2, Some(name)) => ("clone", format!("clone {name} c{number}")),
            (2 | 3, _) => ("clone", format!("clone {volume} c{number}")),
            (4, _) => {
                let size = (1 + self.random.below(16)) << 20;
                ("resize", format!("volume resize {recent} --size {size} --force"))
            }
            (5, _) => ("delete", format!("volume delete {recent}")),
            (6, _) => {
                let class = ["ram", "image", "journal"][self.random.index(3)];
                ("durability", format!("volume set {volume} durability={class}"))
            }
            (7, _) => ("image", "image save".to_owned()),
            _ => {
                let size = 384 + 64 * self.random.below(4);
                ("pool", format!("pool set max-memory={size}MiB"))
            }
        }
    }
}

/// The names of the snapshots that `snapshot create VOLUME... NAME` makes.
fn snapshots_made_by(kind: &str, words: &str) -> Vec<String> {
    if kind != "snapshot" {
        return Vec::new();
    }
    let words: Vec<&str> = words.split(' ').skip(2).collect();
    let (name, volumes) = words.split_last().expect("a snapshot has a name");
    volumes.iter().map(|volume| format!("{volume}@{name}")).collect()
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
