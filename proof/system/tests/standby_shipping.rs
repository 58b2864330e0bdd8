//! A writer whose journal is shipped between images is killed: everything flushed before the
//! reported lag is present after a promotion, in the order of writing, without a gap. The store is
//! unavailable for a while in one of the rounds.

#[expect(dead_code, reason = "what goes wrong with the server is for the tests of the store")]
#[path = "../../../engine/object-images/tests/server/mod.rs"]
mod server;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use server::Server;
use system::{Daemon, NbdClient, Random, Request, ask_to_promote, seed, wait_for};

const TIME_LIMIT: Duration = Duration::from_secs(60);
const BLOCK_BYTES: u64 = 4096;
/// Number of blocks of the volume, which no round exceeds.
const BLOCKS: u64 = 16 << 10;

/// Number of blocks that a replay must write, and number of blocks in each of their writes.
const REPLAYED_BLOCKS: u64 = 6 << 10;
const BATCH_BLOCKS: u64 = 64;
const PROMOTION_KILLS: u64 = 7;
/// Maximum time from the first promotion request to a kill. It doubles with each kill, so that some
/// are during the replay, however fast the host is.
const PROMOTION_MICROSECONDS_MAX: u64 = 20_000;

const UPLOAD_ROUNDS: u64 = 2;
const UPLOAD_KILLS: u64 = 3;
/// Maximum time from a flush to a kill: a few upload intervals.
const UPLOAD_MICROSECONDS_MAX: u64 = 300_000;

/// Availability of the store during the writer's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    There,
    /// It fails, and recovers before the writer is killed.
    BackInTime,
    /// It fails, and recovers after the writer was killed.
    Away,
}

/// Time of an acknowledged flush, and number of its blocks.
type Flushed = (Instant, u64);

struct Round {
    server: Server,
    writer: Daemon,
    standby: Daemon,
    flushed: Vec<Flushed>,
}

impl Round {
    fn start() -> Result<Self> {
        let server = Server::start();
        let daemon = |flags: &str| -> Result<Daemon> {
            let flags = format!("--no-fuse --images-store s3://bucket/images {flags}");
            let mut daemon = Daemon::prepare("96MiB".to_owned(), flags)?;
            daemon.set_object_store(server.address);
            daemon.start_again()?;
            Ok(daemon)
        };
        let writer = daemon("--images-ship-every 100ms")?;
        let size = BLOCKS * BLOCK_BYTES;
        writer.memlane(&format!("volume create db --size {size} --durability journal"))?;
        let standby = daemon("--standby-follow --standby-every 100ms")?;
        Ok(Self { server, writer, standby, flushed: Vec::new() })
    }

    /// Writes blocks in order, each with its number, and flushes each, for this time.
    fn write(&mut self, time: Duration) -> Result<()> {
        let mut db = NbdClient::connect(&self.writer.nbd_socket(), "db")?;
        let begun = Instant::now();
        while begun.elapsed() < time && (self.flushed.len() as u64) < BLOCKS {
            let block = self.flushed.len() as u64;
            db.ask(&Request::Write { offset: block * BLOCK_BYTES, data: stamped(block) })?;
            db.ask(&Request::Flush)?;
            self.flushed.push((Instant::now(), block));
        }
        Ok(())
    }

    /// Writes this many more blocks, and flushes after every few requests.
    fn write_batches(&mut self, blocks: u64) -> Result<()> {
        let mut db = NbdClient::connect(&self.writer.nbd_socket(), "db")?;
        for _ in 0..blocks / BATCH_BLOCKS {
            let first = self.flushed.len() as u64;
            let batch = first..first + BATCH_BLOCKS;
            let data = batch.clone().flat_map(stamped).collect();
            db.ask(&Request::Write { offset: first * BLOCK_BYTES, data })?;
            db.ask(&Request::Flush)?;
            let now = Instant::now();
            self.flushed.extend(batch.map(|block| (now, block)));
        }
        Ok(())
    }

    /// Returns the number of blocks guaranteed by the writer's current lag, or `None` if it reports
    /// none.
    fn promised(&self) -> Result<Option<u64>> {
        let asked = Instant::now();
        let Some(lag) = self.lag()? else { return Ok(None) };
        let until = asked.checked_sub(lag).context("the host runs for longer")?;
        Ok(Some(self.flushed.iter().filter(|(time, _)| *time < until).count() as u64))
    }

    fn lag(&self) -> Result<Option<Duration>> {
        let images = self.writer.status()?.durability.images.context("there are images")?;
        let shipping = images.shipping.context("the journal is shipped")?;
        Ok(shipping.lag_seconds.map(Duration::from_secs_f64))
    }

    /// Returns the number of blocks before the first missing one, and checks that none follows.
    fn found(&self) -> Result<u64> {
        let mut db = NbdClient::connect(&self.standby.nbd_socket(), "db")?;
        let mut read =
            |block: u64| db.ask(&Request::Read { offset: block * BLOCK_BYTES, length: 4096 });
        let mut count = 0;
        while count < BLOCKS && read(count)? == stamped(count) {
            count += 1;
        }
        for block in count..(self.flushed.len() as u64).min(BLOCKS) {
            ensure!(read(block)?.iter().all(|&byte| byte == 0), "{block} is there, {count} is not");
        }
        Ok(count)
    }
}

fn stamped(block: u64) -> Vec<u8> {
    [block + 1, !block].map(u64::to_le_bytes).concat().repeat(256)
}

fn run(store: Store, random: &mut Random) -> Result<()> {
    let mut round = Round::start()?;
    round.write(Duration::from_millis(100))?;
    wait_for("the journal to be shipped", TIME_LIMIT, || Ok(round.lag()?.is_some()))?;
    round.write(Duration::from_millis(200 + random.below(300)))?;
    if store != Store::There {
        round.server.stop();
        let before = round.flushed.len();
        round.write(Duration::from_millis(500))?;
        ensure!(round.flushed.len() > before, "flushes wait for the store");
    }
    if store == Store::BackInTime {
        let back = Instant::now();
        round.server.start_again();
        wait_for("the rest to be shipped", TIME_LIMIT, || {
            Ok(round.lag()?.is_some_and(|lag| lag < back.elapsed()))
        })?;
        round.write(Duration::from_millis(100 + random.below(200)))?;
    }
    let asked = Instant::now();
    let lag = round.lag()?.context("it was shipped")?;
    let shipped_until = asked.checked_sub(lag).context("the host runs for longer")?;
    round.writer.kill()?;
    if store == Store::Away {
        round.server.start_again();
    }
    let told = round.standby.memlane("--json standby promote --force")?;
    let told: api::Promotion = serde_json::from_str(&told)?;
    ensure!(told.replay_ended.is_none(), "{told:?}");
    let found = round.found()?;
    let promised = round.flushed.iter().filter(|(time, _)| *time < shipped_until).count() as u64;
    eprintln!(
        "measured: {store:?}: lag {lag:?}, {} flushed, {promised} promised, {found} found",
        round.flushed.len()
    );
    ensure!(found >= promised, "{found} of {promised} that were promised");
    let again = round.standby.memlane("--json standby promote")?;
    let again: api::Promotion = serde_json::from_str(&again)?;
    ensure!(again == api::Promotion { is_repeated: true, ..told }, "{again:?}");
    ensure!(round.found()? == found, "a repeated promotion changes nothing");
    round.standby.save_image()?;
    round.standby.kill()?;
    round.standby.start_again()?;
    ensure!(round.found()? == found, "what was replayed stays");
    round.standby.finish()
}

#[test]
fn what_was_flushed_before_the_lag_that_was_shown_outlives_the_writer() -> Result<()> {
    let seed = seed()?;
    let mut random = Random::new(seed);
    for store in [Store::There, Store::BackInTime, Store::Away] {
        run(store, &mut random).with_context(|| {
            format!("{store:?}; MEMLANE_SEED={seed} cargo xtask test standby_shipping")
        })?;
    }
    Ok(())
}

fn kill_while_replaying(random: &mut Random) -> Result<()> {
    let mut round = Round::start()?;
    round.write_batches(BATCH_BLOCKS)?;
    wait_for("the journal to be shipped", TIME_LIMIT, || Ok(round.lag()?.is_some()))?;
    round.write_batches(REPLAYED_BLOCKS)?;
    let all = round.flushed.len() as u64;
    wait_for("all to be shipped", TIME_LIMIT, || Ok(round.promised()? == Some(all)))?;
    round.writer.kill()?;
    let mut promoted_count = 0;
    for kill in 0..PROMOTION_KILLS {
        let socket = round.standby.api_socket();
        let asking = std::thread::spawn(move || ask_to_promote(&socket));
        std::thread::sleep(Duration::from_micros(random.below(PROMOTION_MICROSECONDS_MAX << kill)));
        round.standby.kill()?;
        let answer = asking.join().expect("it does not panic").unwrap_or_default();
        round.standby.start_again()?;
        let is_promoted = round.standby.status()?.standby.is_none();
        ensure!(is_promoted || !answer.starts_with("HTTP/1.1 200"), "not kept: {answer}");
        ensure!(is_promoted || promoted_count == 0, "it was promoted before");
        promoted_count += u64::from(is_promoted);
        if is_promoted {
            let found = round.found()?;
            ensure!(found == all, "{found} of {all} after kill {kill}");
        }
    }
    let begun = Instant::now();
    let told = round.standby.memlane("--json standby promote --force")?;
    let told: api::Promotion = serde_json::from_str(&told)?;
    ensure!(told.is_repeated == (promoted_count > 0), "{told:?}");
    ensure!(told.replay_ended.is_none(), "{told:?}");
    let elapsed = begun.elapsed();
    let found = round.found()?;
    eprintln!(
        "measured: {all} flushed, promoted before {promoted_count} of {PROMOTION_KILLS} kills, \
         {found} found, {:?} transactions replayed, the last promotion took {elapsed:?}",
        told.replayed_transactions
    );
    ensure!(found == all, "{found} of {all}");
    round.standby.finish()
}

fn kill_while_uploading(random: &mut Random) -> Result<()> {
    let mut round = Round::start()?;
    round.write_batches(BATCH_BLOCKS)?;
    wait_for("the journal to be shipped", TIME_LIMIT, || Ok(round.lag()?.is_some()))?;
    // A guarantee given once holds, whatever the writer does afterwards.
    let mut promised = 0;
    for kill in 0..UPLOAD_KILLS {
        round.write_batches((1 + random.below(16)) * BATCH_BLOCKS)?;
        std::thread::sleep(Duration::from_micros(random.below(UPLOAD_MICROSECONDS_MAX)));
        promised = promised.max(round.promised()?.unwrap_or(0));
        round.writer.kill()?;
        if kill + 1 < UPLOAD_KILLS {
            round.writer.start_again()?;
        }
    }
    let told = round.standby.memlane("--json standby promote --force")?;
    let found = round.found()?;
    let flushed = round.flushed.len();
    eprintln!("measured: {flushed} flushed, {promised} promised, {found} found");
    ensure!(found >= promised, "{found} of {promised} that were promised: {told}");
    round.standby.finish()
}

#[test]
fn a_standby_that_is_killed_while_it_replays_is_promoted_to_all_that_was_shipped() -> Result<()> {
    let seed = seed()?;
    kill_while_replaying(&mut Random::new(seed))
        .with_context(|| format!("MEMLANE_SEED={seed} cargo xtask test standby_shipping"))
}

#[test]
fn what_the_lag_promised_outlives_a_writer_that_is_killed_while_it_uploads() -> Result<()> {
    let seed = seed()?;
    let mut random = Random::new(seed);
    for round in 0..UPLOAD_ROUNDS {
        kill_while_uploading(&mut random).with_context(|| {
            format!("round {round}; MEMLANE_SEED={seed} cargo xtask test standby_shipping")
        })?;
    }
    Ok(())
}
