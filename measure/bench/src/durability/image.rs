//! Images of a volume with incompressible data: saved, saved again after small changes, and
//! restored by a daemon that lost the pool's memory, with the disk itself for comparison.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use results::{Row, StoreUse, Suite};
use serde_json::json;
use system::{Daemon, Interruption, NbdClient, Random, Request};

use super::disk::{DirectFile, forget_cached, stored_bytes};
use super::rest::Rest;
use super::setup::{DiskFolder, start_daemon};
use super::writers::BLOCK_BYTES;
use crate::run::{Cost, Plan, Profile, Session, Step, unix_ms};
use crate::targets::OwnDaemon;

pub(super) const VOLUME: &str = "volume of class image";
pub(super) const DISK: &str = "disk, direct I/O";

pub(super) const SAVE: &str = "image save";
pub(super) const SAVE_AGAIN: &str = "image save after 1 % of blocks changed";
pub(super) const FIRST_READ: &str = "first read after the loss of memory";
pub(super) const RESTORE: &str = "image restore";

pub(super) const BYTES_PER_S: &str = "bytes_per_s";
pub(super) const OF_FULL_IMAGE: &str = "bytes_of_full_image_share";
pub(super) const FIRST_READ_NS: &str = "first_read_ns";

/// Inverse of the share of blocks that change before the second save.
const CHANGED_SHARE: u64 = 100;

const PIECE_BYTES: u64 = 1 << 20;
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const FETCH_POLL_INTERVAL: Duration = Duration::from_millis(20);
const RESTORE_TIME_LIMIT: Duration = Duration::from_secs(600);

/// Duration for plans: each byte is written by the client, to the disk and to the image, and read
/// twice.
const SECONDS_A_GIB: f64 = 7.0;
const SETUP_SECONDS: f64 = 5.0;

fn extent(profile: Profile) -> (u32, u64) {
    match profile {
        Profile::Quick => (1, 1 << 30),
        Profile::Standard | Profile::Full => (profile.repeats(), 4 << 30),
    }
}

fn pool_bytes(size_bytes: u64) -> u64 {
    size_bytes + size_bytes / 8 + (256 << 20)
}

/// Adds a step per repeat with all of its rows. Each starts with a new daemon and no image.
pub(super) fn add<'plan>(session: &'plan Session, size_told: Option<u64>, plan: &mut Plan<'plan>) {
    let (repeats, size_bytes) = extent(session.profile);
    let size_bytes = size_told.unwrap_or(size_bytes);
    let gib = size_bytes as f64 / f64::from(1 << 30);
    for repeat in 0..repeats {
        let seed = session.seed.wrapping_add(u64::from(repeat) << 32);
        plan.steps.push(Step {
            suite: Suite::Durability,
            case: "image".to_owned(),
            target: VOLUME.to_owned(),
            repeat,
            cost: Cost {
                seconds: SETUP_SECONDS + SECONDS_A_GIB * gib,
                written_bytes: size_bytes * 3,
                memory_bytes: pool_bytes(size_bytes),
            },
            measure: Box::new(move || Round::new(size_bytes, repeat, seed)?.measure()),
        });
    }
}

/// A round trip of one volume to the image store and back.
struct Round {
    size_bytes: u64,
    repeat: u32,
    seed: u64,
    rows: Vec<Row>,
    disk_file: DirectFile,
    daemon: OwnDaemon,
    folder: DiskFolder,
}

impl Round {
    fn new(size_bytes: u64, repeat: u32, seed: u64) -> Result<Self> {
        let folder = DiskFolder::new()?;
        let daemon = start_daemon(&folder, pool_bytes(size_bytes))?;
        let words = format!("volume create bench --size {size_bytes} --durability image");
        daemon.get().memlane(&words)?;
        let disk_file = DirectFile::new(folder.path().join("direct"), size_bytes);
        Ok(Self { size_bytes, repeat, seed, rows: Vec::new(), disk_file, daemon, folder })
    }

    fn measure(mut self) -> Result<Vec<Row>> {
        self.fill()?;
        let took = self.disk_file.write(self.seed)?;
        self.add_rate(SAVE, DISK, took);
        let full_bytes = self.save()?;
        self.change_and_save(full_bytes)?;
        self.lose_memory_and_restore()?;
        forget_cached(&self.folder.images())?;
        let took = self.disk_file.read()?;
        self.add_rate(RESTORE, DISK, took);
        Ok(self.rows)
    }

    fn client(&self) -> Result<NbdClient> {
        Ok(NbdClient::connect(&self.daemon.get().nbd_socket(), "bench")?)
    }

    /// Returns the contents of a piece of the volume.
    fn piece(&self, number: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(PIECE_BYTES).expect("a constant")];
        Random::new(self.seed ^ (number << 20)).fill(&mut bytes);
        bytes
    }

    fn fill(&self) -> Result<()> {
        let mut client = self.client()?;
        for number in 0..self.size_bytes / PIECE_BYTES {
            ensure!(!Interruption::is_asked_for(), "interrupted while the volume is filled");
            let (offset, data) = (number * PIECE_BYTES, self.piece(number));
            client.ask(&Request::Write { offset, data })?;
        }
        Ok(())
    }

    /// Saves everything. Returns the size of the image in the store.
    fn save(&mut self) -> Result<u64> {
        let took = self.save_once()?;
        let stored = stored_bytes(&self.folder.images())?;
        self.add_rate(SAVE, VOLUME, took);
        let row = self.rows.last_mut().context("a row was just made")?;
        row.store = Some(StoreUse { written_bytes: self.size_bytes, used_bytes: stored });
        Ok(stored)
    }

    fn save_once(&self) -> Result<Duration> {
        let begun = Instant::now();
        self.daemon.get().memlane("image save")?;
        Ok(begun.elapsed())
    }

    /// Overwrites blocks across the volume, except in its last piece, which is verified later.
    fn change_and_save(&mut self, full_bytes: u64) -> Result<()> {
        let blocks = (self.size_bytes - PIECE_BYTES) / BLOCK_BYTES;
        let mut random = Random::new(self.seed ^ 0xC4A);
        let mut client = self.client()?;
        let stride = CHANGED_SHARE;
        for first in (0..blocks - stride).step_by(usize::try_from(stride)?) {
            let offset = (first + random.below(stride)) * BLOCK_BYTES;
            let mut data = vec![0; usize::try_from(BLOCK_BYTES)?];
            random.fill(&mut data);
            client.ask(&Request::Write { offset, data })?;
        }
        drop(client);
        let took = self.save_once()?;
        let added_bytes = stored_bytes(&self.folder.images())?.saturating_sub(full_bytes);
        let share = added_bytes as f64 / full_bytes as f64;
        self.add(SAVE_AGAIN, VOLUME, took, &[(OF_FULL_IMAGE, share)]);
        Ok(())
    }

    fn lose_memory_and_restore(&mut self) -> Result<()> {
        self.daemon.get_mut().lose_memory()?;
        forget_cached(&self.folder.images())?;
        let last = self.size_bytes / PIECE_BYTES - 1;
        let expected = self.piece(last);
        let offset = last * PIECE_BYTES;
        let begun = Instant::now();
        self.daemon.get_mut().launch()?;
        let first = self.wait_for_first_read(offset, &expected, begun)?;
        self.add(FIRST_READ, VOLUME, first, &[(FIRST_READ_NS, first.as_secs_f64() * 1e9)]);
        // Volumes are served before the daemon's interface is ready.
        self.daemon.get_mut().wait_until_ready()?;
        let rest = Rest::of(self.daemon.get());
        while to_fetch_bytes(&rest)? > 0 {
            wait_a_moment(begun, FETCH_POLL_INTERVAL, "contents are fetched")?;
        }
        let took = begun.elapsed();
        self.add_rate(RESTORE, VOLUME, took);
        self.check(self.daemon.get())
    }

    /// Requests a block until it can be read, and verifies it.
    fn wait_for_first_read(&self, offset: u64, piece: &[u8], begun: Instant) -> Result<Duration> {
        let length = u32::try_from(BLOCK_BYTES)?;
        loop {
            // The server refuses connections until the daemon listens.
            if let Ok(mut client) = self.client() {
                let found = client.ask(&Request::Read { offset, length })?;
                ensure!(found == piece[..found.len()], "the restored volume returned wrong data");
                return Ok(begun.elapsed());
            }
            wait_a_moment(begun, POLL_INTERVAL, "the restored volume is served")?;
        }
    }

    /// Verifies the restored contents.
    fn check(&self, daemon: &Daemon) -> Result<()> {
        let mut client = NbdClient::connect(&daemon.nbd_socket(), "bench")?;
        let (length, last) = (u32::try_from(PIECE_BYTES)?, self.size_bytes / PIECE_BYTES - 1);
        let found = client.ask(&Request::Read { offset: last * PIECE_BYTES, length })?;
        ensure!(found == self.piece(last), "the restored volume returned wrong data");
        Ok(())
    }

    fn add_rate(&mut self, case: &str, target: &str, took: Duration) {
        let bytes_per_s = self.size_bytes as f64 / took.as_secs_f64();
        self.add(case, target, took, &[(BYTES_PER_S, bytes_per_s)]);
    }

    fn add(&mut self, case: &str, target: &str, took: Duration, figures: &[(&str, f64)]) {
        let mut row = Row::new(Suite::Durability, case, target);
        row.repeat = self.repeat;
        row.time.duration_s = took.as_secs_f64();
        row.time.started_unix_ms = unix_ms(SystemTime::now() - took);
        row.params = BTreeMap::from([
            ("size_bytes".to_owned(), json!(self.size_bytes)),
            ("data".to_owned(), json!("random")),
        ]);
        row.figures = figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        self.rows.push(row);
    }
}

fn to_fetch_bytes(rest: &Rest) -> Result<u64> {
    let status: api::Status = rest.get(api::STATUS_PATH)?;
    Ok(status.durability.images.context("the daemon has no image store")?.to_fetch_bytes)
}

fn wait_a_moment(begun: Instant, interval: Duration, what: &str) -> Result<()> {
    ensure!(!Interruption::is_asked_for(), "interrupted until {what}");
    ensure!(begun.elapsed() < RESTORE_TIME_LIMIT, "timed out waiting until {what}");
    std::thread::sleep(interval);
    Ok(())
}
