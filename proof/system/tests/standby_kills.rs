//! A standby that is killed at random moments: during start, fetch and promotion. Clients see one
//! complete image, never a part of the next, and a promotion that is repeated until it is
//! acknowledged ends with the newest complete image.

#[expect(dead_code, reason = "what goes wrong with the server is for the tests of the store")]
#[path = "../../../engine/object-images/tests/server/mod.rs"]
mod server;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use server::Server;
use system::{Daemon, NbdClient, NbdFailure, Random, Request, ask_to_promote, seed, wait_for};

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Number of kills during start and fetch, and during promotion.
const FETCH_KILLS: u64 = 14;
const PROMOTION_KILLS: u64 = 6;

/// Number of blocks of the volume. Each begins with the number of its image.
const BLOCKS: u64 = 1500;
const BLOCK_BYTES: u64 = 4096;

/// Maximum time from a start to a kill, in microseconds.
const START_MICROSECONDS_MAX: u64 = 50_000;
/// Maximum time from an image to a kill. Some fetches have ended by then.
const FETCH_MICROSECONDS_MAX: u64 = 300_000;
/// Maximum time from the first promotion request to a kill. It doubles with each kill, so that some
/// are before the claim and some after the last step, however fast the host is.
const PROMOTION_MICROSECONDS_MAX: u64 = 10_000;

/// A writer, its standby, and the saved images.
struct Pair {
    /// An object store, because the standby could not claim a directory while a writer of this host
    /// has it.
    _server: Server,
    writer: Daemon,
    standby: Daemon,
    random: Random,
    /// Number at the beginning of all blocks of the newest image.
    newest: u64,
    /// Minimum number that may be read.
    seen: u64,
}

impl Pair {
    fn start(seed: u64) -> Result<Self> {
        let server = Server::start();
        let daemon = |flags: &str| -> Result<Daemon> {
            let flags = format!("--no-fuse --images-store s3://bucket/images {flags}");
            let mut daemon = Daemon::prepare("96MiB".to_owned(), flags)?;
            daemon.set_object_store(server.address);
            daemon.start_again()?;
            Ok(daemon)
        };
        let writer = daemon("")?;
        writer.memlane("volume create db --size 64MiB --durability image")?;
        let standby = daemon("--standby-follow --standby-every 100ms")?;
        Ok(Self { _server: server, writer, standby, random: Random::new(seed), newest: 0, seen: 0 })
    }

    /// Overwrites all blocks and saves an image of them.
    fn save(&mut self) -> Result<()> {
        let number = self.newest + 1;
        let mut db = NbdClient::connect(&self.writer.nbd_socket(), "db")?;
        for block in 0..BLOCKS {
            // All blocks differ, so that each is fetched.
            let words = [number, block].map(u64::to_le_bytes).concat();
            let data = words.repeat(4096 / words.len());
            db.ask(&Request::Write { offset: block * BLOCK_BYTES, data })?;
        }
        drop(db);
        self.writer.save_image()?;
        self.newest = number;
        Ok(())
    }

    fn sleep(&mut self, microseconds_max: u64) {
        let drawn = self.random.below(microseconds_max);
        std::thread::sleep(Duration::from_micros(drawn));
    }

    /// Reads all blocks, if there is a volume, and checks that they belong to one image, not older
    /// than seen before.
    fn check_whole(&mut self) -> Result<Option<u64>> {
        let connected = NbdClient::connect(&self.standby.nbd_socket(), "db");
        // Before the first image is complete there is none.
        let Ok(mut db) = connected else { return Ok(None) };
        let first = number_of(&mut db, 0)?;
        for block in 1..BLOCKS {
            let number = number_of(&mut db, block)?;
            ensure!(number == first, "block {block} is of {number}, the first of {first}");
        }
        let Self { seen, newest, .. } = *self;
        ensure!((seen..=newest).contains(&first), "{first} is not in {seen}..={newest}");
        self.seen = first;
        Ok(Some(first))
    }
}

fn number_of(db: &mut NbdClient, block: u64) -> Result<u64, NbdFailure> {
    let found = db.ask(&Request::Read { offset: block * BLOCK_BYTES, length: 4096 })?;
    let word = |index: usize| {
        u64::from_le_bytes(found[8 * index..8 * (index + 1)].try_into().expect("eight bytes"))
    };
    assert!(word(1) == block && found.chunks(16).all(|it| it == &found[..16]), "block {block}");
    Ok(word(0))
}

#[test]
fn a_standby_that_is_killed_at_any_moment_serves_whole_images_and_is_promoted_to_the_newest()
-> Result<()> {
    let seed = seed()?;
    let replay = format!("MEMLANE_SEED={seed} cargo xtask test standby_kills");
    run(seed).with_context(|| replay)
}

fn run(seed: u64) -> Result<()> {
    let mut pair = Pair::start(seed)?;
    for round in 0..FETCH_KILLS {
        pair.save()?;
        if pair.random.below(2) == 0 {
            pair.sleep(FETCH_MICROSECONDS_MAX);
            pair.check_whole()?;
            pair.standby.kill()?;
        } else {
            pair.standby.kill()?;
            pair.standby.launch()?;
            pair.sleep(START_MICROSECONDS_MAX);
            pair.standby.kill()?;
        }
        pair.standby.start_again()?;
        pair.check_whole()?;
        if round % 4 == 3 {
            wait_for("the newest image to be read", TIME_LIMIT, || {
                Ok(pair.check_whole()? == Some(pair.newest))
            })?;
        }
    }
    pair.save()?;
    let mut promoted_count = 0;
    for round in 0..PROMOTION_KILLS {
        let socket = pair.standby.api_socket();
        let asking = std::thread::spawn(move || ask_to_promote(&socket));
        pair.sleep(PROMOTION_MICROSECONDS_MAX << round);
        pair.standby.kill()?;
        let answer = asking.join().expect("it does not panic").unwrap_or_default();
        pair.standby.start_again()?;
        let is_promoted = pair.standby.status()?.standby.is_none();
        ensure!(is_promoted || !answer.starts_with("HTTP/1.1 200"), "not kept: {answer}");
        ensure!(is_promoted || promoted_count == 0, "it was promoted before");
        promoted_count += u64::from(is_promoted);
        pair.check_whole()?;
    }
    let told = pair.standby.memlane("--json standby promote --force")?;
    let told: api::Promotion = serde_json::from_str(&told)?;
    ensure!(told.is_repeated == (promoted_count > 0), "{told:?}");
    ensure!(pair.check_whole()? == Some(pair.newest), "the newest image is what was promoted");
    eprintln!("measured: promoted before {promoted_count} of {PROMOTION_KILLS} kills");
    let stale = pair.writer.try_memlane("image save")?;
    ensure!(stale.stderr.contains("another daemon has taken over"), "{stale:?}");
    pair.writer.kill()?;
    pair.standby.save_image()?;
    pair.standby.finish()
}
