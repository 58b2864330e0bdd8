//! Idle compression, observed from outside.

use std::time::Duration;

use anyhow::{Result, ensure};
use system::{Daemon, NbdClient, Random, Request, wait_for};

const TIME_LIMIT: Duration = Duration::from_secs(60);
const BLOCK: u64 = block_device::BLOCK_BYTES as u64;
const BLOCK_COUNT: u64 = 2048;

/// Returns data that LZ4 compresses, and zstd much more.
fn letters(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let few = b"etaoin shrdlu etaoin etao eeee  tttaaa";
    let letter = |index: usize| match index % 16 {
        0..6 => b"volume"[index % 16],
        _ => few[usize::try_from(random.below(few.len() as u64)).expect("it is short")],
    };
    (0..4096).map(letter).collect()
}

fn write(daemon: &Daemon, volume: &str, blocks: std::ops::Range<u64>, seed: u64) -> Result<()> {
    let mut client = NbdClient::connect(&daemon.nbd_socket(), volume)?;
    for block in blocks {
        let data = letters(seed + block);
        client.ask(&Request::Write { offset: block * BLOCK, data })?;
    }
    Ok(())
}

fn check(daemon: &Daemon, volume: &str, blocks: std::ops::Range<u64>, seed: u64) -> Result<()> {
    let mut client = NbdClient::connect(&daemon.nbd_socket(), volume)?;
    for block in blocks {
        let found = client.ask(&Request::Read { offset: block * BLOCK, length: 4096 })?;
        ensure!(found == letters(seed + block), "block {block} of {volume} is another");
    }
    Ok(())
}

fn daemon(flags: &str) -> Result<Daemon> {
    Daemon::start_flagged("96MiB".to_owned(), format!("--no-fuse {flags}"))
}

fn wait_for_idle_pages(daemon: &Daemon, count: u64) -> Result<()> {
    wait_for("idle data to be compressed", TIME_LIMIT, || {
        Ok(daemon.status()?.pool.idle_page_count >= count)
    })
}

#[test]
fn idle_data_is_compressed_once_more_and_brought_back_by_reads() -> Result<()> {
    let daemon = daemon("--idle-compress-after 1s --idle-cpu-percent 100")?;
    daemon.memlane("volume create v --size 16MiB")?;
    write(&daemon, "v", 0..BLOCK_COUNT, 1)?;
    wait_for("the first compression", TIME_LIMIT, || Ok(daemon.status()?.pool.pending_bytes == 0))?;
    wait_for_idle_pages(&daemon, BLOCK_COUNT)?;
    let pool = daemon.status()?.pool;
    ensure!(pool.idle_saved_bytes > BLOCK_COUNT * 200, "{pool:?}");
    let shown = daemon.memlane("status")?;
    ensure!(shown.contains("idle") && shown.contains("2048 pages"), "{shown}");
    check(&daemon, "v", 0..8, 1)?;
    wait_for("what was read to come back", TIME_LIMIT, || {
        Ok(daemon.status()?.pool.idle_page_count <= BLOCK_COUNT - 8)
    })?;
    check(&daemon, "v", 0..BLOCK_COUNT, 1)?;
    daemon.finish()
}

#[test]
fn idle_data_survives_kills_while_it_is_compressed() -> Result<()> {
    // Slow, so that the kill occurs during the work.
    let mut daemon = daemon("--idle-compress-after 1s --idle-cpu-percent 10")?;
    daemon.memlane("volume create v --size 16MiB --durability journal")?;
    for round in 0..3 {
        write(&daemon, "v", 0..BLOCK_COUNT, round * 10_000)?;
        wait_for_idle_pages(&daemon, 20 + 50 * round)?;
        daemon.kill()?;
        daemon.start_again()?;
        check(&daemon, "v", 0..BLOCK_COUNT, round * 10_000)?;
    }
    wait_for_idle_pages(&daemon, 100)?;
    daemon.save_image()?;
    daemon.lose_memory()?;
    daemon.start_again()?;
    check(&daemon, "v", 0..BLOCK_COUNT, 20_000)?;
    let verified = daemon.memlane("image verify")?;
    ensure!(!verified.contains("damaged"), "{verified}");
    daemon.finish()
}

#[test]
fn idle_compression_can_be_switched_off() -> Result<()> {
    let daemon = daemon("--idle-compress-after 0s")?;
    daemon.memlane("volume create v --size 16MiB")?;
    write(&daemon, "v", 0..64, 1)?;
    wait_for("the first compression", TIME_LIMIT, || Ok(daemon.status()?.pool.pending_bytes == 0))?;
    let pool = daemon.status()?.pool;
    ensure!((pool.idle_page_count, pool.idle_saved_bytes) == (0, 0), "{pool:?}");
    check(&daemon, "v", 0..64, 1)?;
    daemon.finish()
}
