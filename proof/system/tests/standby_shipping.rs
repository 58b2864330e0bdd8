//! A writer whose journal is shipped between images is killed: what was flushed before the lag that
//! was shown is there after a promotion, in the order in which it was written, without a gap. The
//! store is away for a while in one of the rounds.

#[expect(dead_code, reason = "what goes wrong with the server is for the tests of the store")]
#[path = "../../../engine/object-images/tests/server/mod.rs"]
mod server;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use server::Server;
use system::{Daemon, NbdClient, Random, Request, seed, wait_for};

const TIME_LIMIT: Duration = Duration::from_secs(60);
const BLOCK_BYTES: u64 = 4096;
/// Blocks of the volume: no round writes more.
const BLOCKS: u64 = 16 << 10;

/// The store while the writer is at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    There,
    /// It goes, and is back before the writer is killed.
    BackInTime,
    /// It goes, and is back after the writer was killed.
    Away,
}

/// A flush that was acknowledged, and when.
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

    /// Writes blocks in order, each with its number, and flushes each, for a while.
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

    fn lag(&self) -> Result<Option<Duration>> {
        let images = self.writer.status()?.durability.images.context("there are images")?;
        let shipping = images.shipping.context("the journal is shipped")?;
        Ok(shipping.lag_seconds.map(Duration::from_secs_f64))
    }

    /// Blocks that are there: those before the first that is not, and none after.
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
