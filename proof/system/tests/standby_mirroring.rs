//! Mirrored flushes: a promotion loses no acknowledged flush, whenever the writer is killed. Also
//! tests each policy while the store is unavailable, the return of the former writer, and removal
//! of the setting.

#[expect(dead_code, reason = "what goes wrong with the server is for the tests of the store")]
#[path = "../../../engine/object-images/tests/server/mod.rs"]
mod server;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use server::Server;
use system::{Daemon, NBD_IO_ERROR, NbdClient, NbdFailure, Random, Request, seed, wait_for};

const TIME_LIMIT: Duration = Duration::from_secs(120);
const BLOCK_BYTES: u64 = 4096;
const BLOCKS: u64 = 16 << 10;
const ROUNDS: u64 = 4;

/// Duration that a flush exceeds only while it waits for an unavailable store.
const HUNG: Duration = Duration::from_secs(3);

/// Wait for an unavailable store, long enough for a store on a loaded machine to answer.
const PATIENCE: &str = "--images-mirror-timeout 8s";

fn daemon(server: &Server, flags: &str) -> Result<Daemon> {
    let flags = format!("--no-fuse --images-store s3://bucket/images {flags}");
    let mut daemon = Daemon::prepare("96MiB".to_owned(), flags)?;
    daemon.set_object_store(server.address);
    daemon.start_again()?;
    Ok(daemon)
}

/// Starts a writer with a volume of class `journal`, and its store. Flushes succeed on return.
fn writer(flags: &str) -> Result<(Server, Daemon)> {
    let server = Server::start();
    let writer = daemon(&server, flags)?;
    let size = BLOCKS * BLOCK_BYTES;
    writer.memlane(&format!("volume create db --size {size} --durability journal"))?;
    flush(&writer, 0)?;
    Ok((server, writer))
}

fn standby(server: &Server) -> Result<Daemon> {
    daemon(server, "--standby-follow --standby-every 100ms")
}

fn stamped(block: u64) -> Vec<u8> {
    [block + 1, !block].map(u64::to_le_bytes).concat().repeat(256)
}

fn write_and_flush(db: &mut NbdClient, block: u64) -> Result<(), NbdFailure> {
    db.ask(&Request::Write { offset: block * BLOCK_BYTES, data: stamped(block) })?;
    db.ask(&Request::Flush).map(drop)
}

fn flush(daemon: &Daemon, block: u64) -> Result<()> {
    let mut db = NbdClient::connect(&daemon.nbd_socket(), "db")?;
    Ok(write_and_flush(&mut db, block)?)
}

fn is_failed(flushed: &Result<(), NbdFailure>) -> bool {
    matches!(flushed, Err(NbdFailure::Refused(NBD_IO_ERROR)))
}

/// Writes and flushes one block on another thread.
fn flush_aside(daemon: &Daemon, block: u64) -> JoinHandle<Result<(), NbdFailure>> {
    let socket = daemon.nbd_socket();
    thread::spawn(move || write_and_flush(&mut NbdClient::connect(&socket, "db")?, block))
}

fn mirror(daemon: &Daemon) -> Result<api::MirrorStatus> {
    let images = daemon.status()?.durability.images.context("there are images")?;
    images.mirror.context("flushes are mirrored")
}

fn wait_for_state(daemon: &Daemon, state: api::MirrorState) -> Result<()> {
    wait_for(&format!("{state:?}"), TIME_LIMIT, || Ok(mirror(daemon)?.state == state))
}

fn wait_for_event(daemon: &Daemon, kind: &str) -> Result<()> {
    wait_for(kind, TIME_LIMIT, || Ok(daemon.memlane("events")?.contains(kind)))
}

/// Promotes, and checks that nothing was lost and all blocks are present.
fn promote(standby: &Daemon, blocks: u64) -> Result<()> {
    let told = standby.memlane("--json standby promote --force")?;
    let told: api::Promotion = serde_json::from_str(&told)?;
    ensure!(told.is_complete && told.replay_ended.is_none(), "{told:?}");
    check(standby, blocks)
}

fn check(daemon: &Daemon, blocks: u64) -> Result<()> {
    let mut db = NbdClient::connect(&daemon.nbd_socket(), "db")?;
    for block in 0..blocks {
        let read = db.ask(&Request::Read { offset: block * BLOCK_BYTES, length: 4096 })?;
        ensure!(read == stamped(block), "block {block} of {blocks} is not there");
    }
    Ok(())
}

/// Writes and flushes blocks in order until the writer is killed. Counts those acknowledged.
fn write_until_killed(socket: PathBuf, next: &Arc<AtomicU64>) -> JoinHandle<()> {
    let next = Arc::clone(next);
    thread::spawn(move || {
        let Ok(mut db) = NbdClient::connect(&socket, "db") else { return };
        while next.load(Ordering::SeqCst) < BLOCKS
            && write_and_flush(&mut db, next.load(Ordering::SeqCst)).is_ok()
        {
            next.fetch_add(1, Ordering::SeqCst);
        }
    })
}

fn kill_at_random(random: &mut Random, round: u64) -> Result<()> {
    let (server, mut writer) = writer("--images-mirror-flushes wait --images-every 1s")?;
    let standby = standby(&server)?;
    let acknowledged = Arc::new(AtomicU64::new(1));
    // The writer is killed and started again before it is killed for good.
    for kill in 0..=round % 2 {
        let writing = write_until_killed(writer.nbd_socket(), &acknowledged);
        thread::sleep(Duration::from_millis(100 + random.below(1500)));
        writer.kill()?;
        writing.join().expect("no panic");
        if kill < round % 2 {
            writer.start_again()?;
        }
    }
    let count = acknowledged.load(Ordering::SeqCst);
    eprintln!("measured: {count} flushes acknowledged");
    ensure!(count > 1, "nothing was flushed");
    promote(&standby, count)?;
    // The former writer acknowledges nothing any more.
    writer.start_again()?;
    wait_for_state(&writer, api::MirrorState::TakenOver)?;
    ensure!(is_failed(&flush_aside(&writer, 1).join().expect("no panic")));
    writer.kill()?;
    standby.finish()
}

#[test]
fn every_acknowledged_flush_outlives_a_writer_that_is_killed_at_random() -> Result<()> {
    let seed = seed()?;
    let mut random = Random::new(seed);
    for round in 0..ROUNDS {
        kill_at_random(&mut random, round).with_context(|| {
            format!("round {round}; MEMLANE_SEED={seed} cargo xtask test standby_mirroring")
        })?;
    }
    Ok(())
}

#[test]
fn flushes_wait_for_a_store_that_is_away_and_nothing_else_does() -> Result<()> {
    let (mut server, mut writer) = writer("--images-mirror-flushes wait")?;
    writer.memlane("volume create scratch --size 1MiB")?;
    server.stop();
    let flushed = flush_aside(&writer, 1);
    wait_for_state(&writer, api::MirrorState::Waiting)?;
    let mut scratch = NbdClient::connect(&writer.nbd_socket(), "scratch")?;
    scratch.ask(&Request::Write { offset: 0, data: stamped(7) })?;
    scratch.ask(&Request::Flush)?;
    let mut db = NbdClient::connect(&writer.nbd_socket(), "db")?;
    db.ask(&Request::Write { offset: 2 * BLOCK_BYTES, data: stamped(2) })?;
    ensure!(db.ask(&Request::Read { offset: BLOCK_BYTES, length: 4096 })? == stamped(1));
    wait_for_event(&writer, "mirror_waiting")?;
    ensure!(!flushed.is_finished(), "a flush did not wait");
    server.start_again();
    ensure!(flushed.join().expect("no panic").is_ok());
    wait_for_state(&writer, api::MirrorState::InSync)?;
    db.ask(&Request::Flush)?;
    writer.kill()?;
    let standby = standby(&server)?;
    promote_when_ready(&standby, 3)?;
    standby.finish()
}

/// Waits for an image, and promotes.
fn promote_when_ready(standby: &Daemon, blocks: u64) -> Result<()> {
    let is_ready = || {
        let shown = standby.status()?.standby.context("it is a standby")?;
        Ok(shown.image.is_some() && shown.mirroring == api::StandbyMirroring::Always)
    };
    wait_for("the standby to have an image", TIME_LIMIT, is_ready)?;
    promote(standby, blocks)
}

#[test]
fn flushes_fail_in_time_with_the_policy_fail() -> Result<()> {
    let (mut server, writer) = writer(&format!("--images-mirror-flushes fail {PATIENCE}"))?;
    server.stop();
    ensure!(is_failed(&flush_aside(&writer, 1).join().expect("no panic")));
    let refused = writer.try_memlane("volume create other --size 1MiB --durability journal")?;
    ensure!(refused.stderr.contains("not in the image store"), "{refused:?}");
    server.start_again();
    wait_for("flushes to work", TIME_LIMIT, || Ok(flush(&writer, 1).is_ok()))?;
    let metrics = writer.ask(api::METRICS_PATH)?;
    ensure!(metrics.contains("memlane_mirror_failed_total"), "{metrics}");
    writer.finish()
}

#[test]
fn volumes_that_the_store_does_not_have_yet_are_complete_on_their_host() -> Result<()> {
    let (mut server, writer) = writer(&format!("--images-mirror-flushes fail {PATIENCE}"))?;
    server.stop();
    for (name, command) in [
        ("made", "volume create made --size 1MiB --durability journal --owner tests"),
        ("copy", "clone db copy"),
    ] {
        let told = writer.try_memlane(command)?;
        ensure!(told.stderr.contains("not in the image store"), "{told:?}");
        let mut client = NbdClient::connect(&writer.nbd_socket(), name)?;
        client.ask(&Request::Write { offset: 0, data: stamped(7) })?;
        let counted = format!("memlane_volume_write_bytes_total{{volume={name:?}}} {BLOCK_BYTES}");
        let metrics = writer.ask(api::METRICS_PATH)?;
        ensure!(metrics.contains(&counted), "exports do not know {name}: {metrics}");
    }
    ensure!(writer.volume("made")?.owner.as_deref() == Some("tests"), "its owner is lost");
    server.start_again();
    wait_for("flushes to work", TIME_LIMIT, || Ok(flush(&writer, 1).is_ok()))?;
    writer.finish()
}

#[test]
fn a_writer_that_may_go_on_alone_is_replaced_only_if_the_loss_is_accepted() -> Result<()> {
    let (mut server, mut writer) = writer(&format!("--images-mirror-flushes alone {PATIENCE}"))?;
    let standby = standby(&server)?;
    server.stop();
    flush(&writer, 1)?;
    ensure!(mirror(&writer)?.state == api::MirrorState::Alone);
    let begun = Instant::now();
    flush(&writer, 2)?;
    ensure!(begun.elapsed() < HUNG, "flushes are not acknowledged alone");
    wait_for_event(&writer, "mirror_alone")?;
    server.start_again();
    wait_for_state(&writer, api::MirrorState::InSync)?;
    flush(&writer, 3)?;
    writer.kill()?;
    let refused = standby.try_memlane("standby promote --force")?;
    ensure!(refused.stderr.contains("--accept-loss"), "{refused:?}");
    let told = standby.memlane("--json standby promote --force --accept-loss")?;
    let told: api::Promotion = serde_json::from_str(&told)?;
    ensure!(!told.is_complete, "{told:?}");
    check(&standby, 4)?;
    standby.finish()
}

#[test]
fn a_volume_that_is_not_mirrored_is_flushed_without_the_store_and_named_by_a_promotion()
-> Result<()> {
    let (mut server, mut writer) = writer("--images-mirror-flushes wait")?;
    writer.memlane("volume create scratch --size 1MiB --durability journal --mirror no")?;
    let standby = standby(&server)?;
    server.stop();
    let flush_scratch = |writer: &Daemon| -> Result<()> {
        let mut scratch = NbdClient::connect(&writer.nbd_socket(), "scratch")?;
        Ok(write_and_flush(&mut scratch, 1)?)
    };
    flush_scratch(&writer)?;
    writer.kill()?;
    writer.start_again()?;
    flush_scratch(&writer)?;
    let flushed = flush_aside(&writer, 1);
    wait_for("a flush to wait", TIME_LIMIT, || Ok(mirror(&writer)?.waiting > 0))?;
    server.start_again();
    ensure!(flushed.join().expect("no panic").is_ok());
    writer.kill()?;
    promote_when_ready(&standby, 2)?;
    let told = standby.memlane("standby promote")?;
    ensure!(told.contains("not mirrored: scratch"), "{told}");
    ensure!(standby.volume("scratch")?.mirror == api::VolumeMirror::No);
    standby.finish()
}

#[test]
fn a_start_without_the_setting_tells_the_store_before_it_acknowledges() -> Result<()> {
    let (mut server, mut writer) = writer("--images-mirror-flushes wait")?;
    server.stop();
    writer.kill()?;
    writer.set_flags("--no-fuse --images-store s3://bucket/images");
    writer.start_again()?;
    let flushed = flush_aside(&writer, 1);
    thread::sleep(HUNG);
    ensure!(!flushed.is_finished(), "it was acknowledged without the store");
    server.start_again();
    ensure!(flushed.join().expect("no panic").is_ok());
    server.stop();
    flush(&writer, 2)?;
    writer.kill()?;
    Ok(())
}

#[test]
fn a_stop_while_flushes_wait_for_the_store_ends_in_time() -> Result<()> {
    let flags = "--images-mirror-flushes wait --images-save-at-stop false";
    let (mut server, mut writer) = writer(flags)?;
    server.stop();
    let flushed = flush_aside(&writer, 1);
    wait_for("a flush to wait", TIME_LIMIT, || Ok(mirror(&writer)?.waiting > 0))?;
    writer.stop()?;
    ensure!(flushed.join().expect("no panic").is_err());
    Ok(())
}
