//! Volumes in a full pool: saves give way to writers, and nevertheless complete.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::{Daemon, NBD_NO_SPACE, NbdClient, NbdFailure, Random, Request, wait_for};

const TIME_LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;
const CHUNK: u64 = 256 << 10;

fn client(daemon: &Daemon, volume: &str) -> Result<NbdClient> {
    Ok(NbdClient::connect(&daemon.nbd_socket(), volume)?)
}

/// Returns incompressible bytes.
fn noise(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(CHUNK).expect("a small number")];
    Random::new(seed).fill(&mut bytes);
    bytes
}

/// Writes the chunks of a volume cyclically and flushes after each 4 MiB. A chunk is identified by
/// its number.
fn write_chunks(client: &mut NbdClient, numbers: std::ops::Range<u64>, chunks: u64) -> Result<()> {
    for number in numbers {
        let offset = number % chunks * CHUNK;
        client.ask(&Request::Write { offset, data: noise(number) })?;
        if number % (4 * MIB / CHUNK) == 0 {
            client.ask(&Request::Flush)?;
        }
    }
    client.ask(&Request::Flush)?;
    Ok(())
}

/// Checks that the volume contains the chunks with the last numbers before `end`.
fn check_chunks(client: &mut NbdClient, end: u64, chunks: u64) -> Result<()> {
    for number in end - chunks..end {
        let length = u32::try_from(CHUNK)?;
        let found = client.ask(&Request::Read { offset: number % chunks * CHUNK, length })?;
        ensure!(found == noise(number), "chunk {number} is another");
    }
    Ok(())
}

fn last_image(daemon: &Daemon) -> Result<Option<u64>> {
    Ok(daemon.status()?.durability.images.context("a store")?.last_image)
}

/// Goal: a guaranteed volume that takes most of the pool is flushed, saved, and recovered.
/// Method: it is overwritten several times, flushed beyond the limit of its journal, killed,
/// stopped and restored. Each step needs images, for which there is no second set of pages.
#[test]
fn a_guaranteed_volume_that_takes_most_of_the_pool_is_flushed_and_saved() -> Result<()> {
    let chunks = 40 * MIB / CHUNK;
    let flags = "--no-fuse --journal-max-bytes 16MiB".to_owned();
    let mut daemon = Daemon::start_flagged("64MiB".to_owned(), flags)?;
    daemon.memlane("volume create wal --size 40MiB --durability journal --capacity guaranteed")?;
    let mut wal = client(&daemon, "wal")?;
    write_chunks(&mut wal, 0..3 * chunks, chunks)?;
    ensure!(last_image(&daemon)?.is_some(), "the journal was not cut by an image");
    drop(wal);
    daemon.kill()?;
    daemon.start_again()?;
    let mut wal = client(&daemon, "wal")?;
    check_chunks(&mut wal, 3 * chunks, chunks)?;
    write_chunks(&mut wal, 3 * chunks..4 * chunks, chunks)?;
    // No save is running that could include the next chunk, so the stop has something to save.
    daemon.save_image()?;
    wal.ask(&Request::Write { offset: 0, data: noise(4 * chunks) })?;
    wal.ask(&Request::Flush)?;
    drop(wal);
    let before = last_image(&daemon)?;
    daemon.stop()?;
    daemon.lose_memory()?;
    daemon.start_again()?;
    ensure!(last_image(&daemon)? > before, "the stop saved no image");
    ensure!(daemon.volume("wal")?.capacity == api::Capacity::Guaranteed, "it came back thin");
    let mut wal = client(&daemon, "wal")?;
    check_chunks(&mut wal, 4 * chunks + 1, chunks)?;
    drop(wal);
    daemon.finish()
}

/// Goal: no overwrite in a full thin pool fails while images are saved, and possible failures are
/// announced before.
#[test]
fn a_full_thin_pool_is_overwritten_while_images_are_saved() -> Result<()> {
    let daemon = Daemon::start_flagged("64MiB".to_owned(), "--no-fuse".to_owned())?;
    daemon.memlane("volume create db --size 128MiB --durability image")?;
    let mut db = client(&daemon, "db")?;
    let mut chunks = 0;
    // The chunk that does not fit is rejected. A part of it may be present.
    loop {
        match db.ask(&Request::Write { offset: chunks * CHUNK, data: noise(chunks) }) {
            Ok(_) => chunks += 1,
            Err(NbdFailure::Refused(NBD_NO_SPACE)) => break,
            Err(other) => return Err(other.into()),
        }
    }
    db.ask(&Request::Trim { offset: chunks * CHUNK, length: u32::try_from(CHUNK)? })?;
    ensure!(chunks * CHUNK > 50 * MIB, "{chunks} chunks found memory");
    let is_told = |daemon: &Daemon| -> Result<bool> {
        Ok(daemon.status()?.warnings.iter().any(|one| one.kind == "overwrites_uncovered"))
    };
    ensure!(!is_told(&daemon)?, "all that is there has memory to itself");
    let pool = daemon.status()?.pool;
    ensure!(pool.overwrite_need_bytes <= pool.overwrite_room_bytes, "{pool:?}");
    let is_over = AtomicBool::new(false);
    let saved = thread::scope(|scope| -> Result<u64> {
        let daemon = &daemon;
        let saver = scope.spawn(|| -> Result<u64> {
            let mut saved = 0;
            while !is_over.load(Ordering::Relaxed) {
                daemon.save_image()?;
                saved += 1;
            }
            Ok(saved)
        });
        let written = write_chunks(&mut db, chunks..3 * chunks, chunks);
        is_over.store(true, Ordering::Relaxed);
        let saved = saver.join().expect("no panic")?;
        written?;
        Ok(saved)
    })?;
    ensure!(saved > 0, "no image was saved");
    check_chunks(&mut db, 3 * chunks, chunks)?;
    // A thousand blocks with equal contents.
    db.ask(&Request::Trim { offset: 0, length: u32::try_from(64 * CHUNK)? })?;
    let same: Vec<u8> = noise(1)[..4096].repeat(64);
    for chunk in 0..192 {
        db.ask(&Request::Write { offset: (chunks + chunk) * CHUNK, data: same.clone() })?;
    }
    wait_for("a warning that overwrites may fail", TIME_LIMIT, || is_told(&daemon))?;
    let pool = daemon.status()?.pool;
    ensure!(pool.overwrite_need_bytes > pool.overwrite_room_bytes, "{pool:?}");
    ensure!(daemon.memlane("status")?.contains("may fail: worst case"), "{pool:?}");
    drop(db);
    daemon.finish()
}
