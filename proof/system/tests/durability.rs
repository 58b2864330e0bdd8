//! Recovery after the loss of the pool's memory, as after a power failure.

#[expect(dead_code, reason = "what goes wrong with the server is for the tests of the store")]
#[path = "../../../engine/object-images/tests/server/mod.rs"]
mod server;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::{
    Ability, Daemon, NBD_IO_ERROR, NBD_NOT_PERMITTED, NbdClient, NbdFailure, Random, Request, Tool,
    attach, missing, wait_for,
};

const TIME_LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// Starts a daemon with a small journal and small images.
fn daemon(flags: &str) -> Result<Daemon> {
    let flags = format!("--no-fuse --journal-max-bytes 16MiB {flags}");
    Daemon::start_flagged("96MiB".to_owned(), flags)
}

fn client(daemon: &Daemon, volume: &str) -> Result<NbdClient> {
    Ok(NbdClient::connect(&daemon.nbd_socket(), volume)?)
}

/// Returns incompressible bytes.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Random::new(seed).fill(&mut bytes);
    bytes
}

fn write(client: &mut NbdClient, block: u64, seed: u64) -> Result<()> {
    client.ask(&Request::Write { offset: block * 4096, data: noise(seed, 4096) })?;
    Ok(())
}

#[track_caller]
fn check_block(client: &mut NbdClient, block: u64, seed: u64) {
    let found = client.ask(&Request::Read { offset: block * 4096, length: 4096 });
    assert!(found.expect("it can be read") == noise(seed, 4096), "block {block} is another");
}

#[test]
fn what_was_flushed_to_a_journal_volume_survives_the_loss_of_memory() -> Result<()> {
    let mut daemon = daemon("")?;
    daemon.memlane("volume create db --size 64MiB --durability journal")?;
    daemon.memlane("volume create scratch --size 64MiB")?;
    let mut db = client(&daemon, "db")?;
    for round in 0..8 {
        for block in 0..200 {
            write(&mut db, block, round * 1000 + block)?;
        }
        db.ask(&Request::Trim { offset: 300 * 4096, length: 4096 })?;
        write(&mut db, 300 + round, round)?;
        db.ask(&Request::Flush)?;
    }
    drop(db);
    daemon.memlane("volume rename db base")?;
    daemon.lose_memory()?;
    daemon.start_again()?;
    let volumes = daemon.volumes()?;
    ensure!(volumes.len() == 1, "a volume of class ram came back: {volumes:?}");
    ensure!(volumes[0].durability == api::Durability::Journal, "{volumes:?}");
    let mut base = client(&daemon, "base")?;
    (0..200).for_each(|block| check_block(&mut base, block, 7000 + block));
    (1..8).for_each(|round| check_block(&mut base, 300 + round, round));
    let hole = base.ask(&Request::Read { offset: 300 * 4096, length: 4096 })?;
    ensure!(hole.iter().all(|byte| *byte == 0), "what was trimmed came back");
    drop(base);
    daemon.finish()
}

#[test]
fn a_journal_is_cut_by_images_and_both_together_have_everything() -> Result<()> {
    let mut daemon = daemon("")?;
    daemon.memlane("volume create db --size 64MiB --durability journal")?;
    let mut db = client(&daemon, "db")?;
    // Several times the size limit of the journal.
    let mut last = [0; 512];
    let mut random = Random::new(5);
    for write_number in 1..=12_000 {
        let block = random.below(512);
        write(&mut db, block, write_number)?;
        last[usize::try_from(block)?] = write_number;
        if write_number % 100 == 0 {
            db.ask(&Request::Flush)?;
        }
    }
    drop(db);
    let durability = daemon.status()?.durability;
    ensure!(durability.images.context("a store")?.last_image.is_some(), "no image was saved");
    let journal = durability.journal.context("a journal")?;
    ensure!(journal.used_bytes <= 16 * MIB, "the journal takes {}", journal.used_bytes);
    daemon.lose_memory()?;
    daemon.start_again()?;
    let mut db = client(&daemon, "db")?;
    for (block, seed) in last.into_iter().enumerate().filter(|(_, seed)| *seed > 0) {
        check_block(&mut db, block as u64, seed);
    }
    drop(db);
    daemon.finish()
}

#[test]
fn volumes_of_an_image_are_served_at_once_when_memory_is_gone() -> Result<()> {
    let server = server::Server::start();
    let flags = "--no-fuse --images-store s3://bucket/images".to_owned();
    let mut daemon = Daemon::prepare("96MiB".to_owned(), flags)?;
    daemon.set_object_store(server.address);
    daemon.start_again()?;
    daemon.memlane("volume create db --size 64MiB --durability image --reduction compress")?;
    daemon.memlane("volume set db owner=shop label.rack=7")?;
    let mut db = client(&daemon, "db")?;
    (0..2000).try_for_each(|block| write(&mut db, block, block))?;
    drop(db);
    daemon.save_image()?;
    let is_pack = |key: &&String| key.contains("/packs/");
    let first_packs: Vec<_> = server.bucket().objects.keys().filter(is_pack).cloned().collect();
    let mut db = client(&daemon, "db")?;
    // The maps of both change, so that the next image contains them. Most contents are in this
    // image.
    write(&mut db, 2000, 2000)?;
    daemon.memlane("snapshot create db before")?;
    (0..100).try_for_each(|block| write(&mut db, block, 5000 + block))?;
    drop(db);
    daemon.save_image()?;
    let mut db = client(&daemon, "db")?;
    write(&mut db, 1, 9999)?;
    drop(db);
    daemon.lose_memory()?;
    // Most of the contents cannot be fetched, but are not known to be lost.
    server.bucket().held.clone_from(&first_packs);
    daemon.start_again()?;
    let mut db = client(&daemon, "db")?;
    (0..100).for_each(|block| check_block(&mut db, block, 5000 + block));
    let to_fetch_bytes = || -> Result<u64> {
        Ok(daemon.status()?.durability.images.context("a store")?.to_fetch_bytes)
    };
    let left_bytes = to_fetch_bytes()?;
    ensure!(left_bytes >= 1900 * 4096, "only {left_bytes} bytes were still to be fetched");
    server.bucket().held.clear();
    wait_for("all contents to be fetched", TIME_LIMIT, || Ok(to_fetch_bytes()? == 0))?;
    (0..100).for_each(|block| check_block(&mut db, block, 5000 + block));
    (100..2001).for_each(|block| check_block(&mut db, block, block));
    let mut before = client(&daemon, "db@before")?;
    (0..2001).for_each(|block| check_block(&mut before, block, block));
    drop((db, before));
    let volume = daemon.volume("db")?;
    ensure!(volume.owner.as_deref() == Some("shop") && volume.labels["rack"] == "7", "{volume:?}");
    // A copy from an image is another volume, without an owner.
    daemon.memlane("image restore db --as copy")?;
    ensure!(daemon.volume("copy")?.owner.is_none(), "the copy belongs to somebody");
    daemon.finish()
}

#[test]
fn what_was_done_with_volumes_of_images_stays_done_when_memory_is_gone() -> Result<()> {
    let mut daemon = daemon("")?;
    for volume in ["deleted", "old", "cut"] {
        daemon.memlane(&format!("volume create {volume} --size 64MiB --durability image"))?;
        write(&mut client(&daemon, volume)?, 9000, 1)?;
    }
    for snapshot in ["gone", "kept"] {
        daemon.memlane(&format!("snapshot create old {snapshot}"))?;
    }
    daemon.save_image()?;
    for words in [
        "volume delete deleted",
        "snapshot delete old@gone",
        "snapshot rename old@kept other",
        "volume rename old new",
        "volume resize cut --size 1MiB --force",
        "volume resize cut --size 64MiB",
    ] {
        daemon.memlane(words)?;
    }
    daemon.lose_memory()?;
    daemon.start_again()?;
    let volumes = daemon.volumes()?;
    let names: Vec<_> = volumes.iter().map(|volume| volume.name.as_str()).collect();
    assert_eq!(names, ["cut", "new"]);
    let snapshots: Vec<api::Snapshot> =
        serde_json::from_str(&daemon.memlane("--json snapshot list")?).context("the snapshots")?;
    let names: Vec<_> = snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect();
    assert_eq!(names, ["new@other"]);
    check_block(&mut client(&daemon, "new")?, 9000, 1);
    let cut = client(&daemon, "cut")?.ask(&Request::Read { offset: 9000 * 4096, length: 4096 })?;
    ensure!(cut == vec![0; 4096], "what was cut off is back");
    daemon.finish()
}

#[test]
fn a_pool_without_durable_volumes_is_created_again_without_a_warning() -> Result<()> {
    let mut daemon = daemon("")?;
    daemon.memlane("volume create db --size 16MiB --durability journal")?;
    daemon.memlane("volume delete db")?;
    daemon.kill()?;
    daemon.lose_memory()?;
    daemon.start_again()?;
    let restored = daemon.memlane("--json events")?;
    let restored: Vec<serde_json::Value> = serde_json::from_str(&restored)?;
    let restored = restored.iter().find(|event| event["kind"] == "restored");
    let restored = restored.context("the start says what it found")?;
    ensure!(restored["level"] == "info", "{restored}");
    let message = "the pool is new: the journal and the images have no volume to restore";
    ensure!(restored["message"] == message, "{restored}");
    daemon.finish()
}

#[test]
fn what_was_removed_while_the_daemon_was_down_is_told_of_and_saved_anew() -> Result<()> {
    let mut daemon = daemon("")?;
    daemon.memlane("volume create db --size 64MiB --durability journal")?;
    daemon.memlane("volume create cache --size 64MiB --durability image")?;
    for name in ["db", "cache"] {
        let mut client = client(&daemon, name)?;
        (0..20).try_for_each(|block| write(&mut client, block, block))?;
        client.ask(&Request::Flush)?;
    }
    daemon.memlane("image save")?;
    for lost in [&["journal", "images"][..], &["images"], &["journal"]] {
        daemon.stop()?;
        for name in lost {
            std::fs::remove_dir_all(daemon.state_dir().join(name))?;
        }
        daemon.start_again()?;
        let told = daemon.memlane("events")?;
        let kind = if lost.contains(&"images") { "image_gone" } else { "journal_gone" };
        ensure!(told.contains(kind), "{told}");
        let mut db = client(&daemon, "db")?;
        db.ask(&Request::Flush)?;
        wait_for("an image that has all", TIME_LIMIT, || {
            let risk = daemon.status()?.durability.at_risk;
            Ok(risk.image_bytes == 0 && risk.journal_bytes == 0)
        })?;
    }
    daemon.lose_memory()?;
    daemon.start_again()?;
    for name in ["db", "cache"] {
        let mut client = client(&daemon, name)?;
        (0..20).for_each(|block| check_block(&mut client, block, block));
    }
    daemon.finish()
}

#[test]
fn a_start_before_the_disks_are_mounted_begins_nothing_anew() -> Result<()> {
    let mut daemon = daemon("")?;
    daemon.memlane("volume create db --size 64MiB --durability journal")?;
    let mut db = client(&daemon, "db")?;
    write(&mut db, 1, 1)?;
    daemon.save_image()?;
    write(&mut db, 2, 2)?;
    db.ask(&Request::Flush)?;
    drop(db);
    let record = daemon.state_dir().join("durable-set.json");
    wait_for("the record of the set", TIME_LIMIT, || {
        let recorded = std::fs::read_to_string(&record).unwrap_or_default();
        Ok(recorded.contains("\"has_flushes\": true") && !recorded.contains("\"newest_image\": 0"))
    })?;
    let move_away = |daemon: &Daemon, name: &str, is_away: bool| {
        let (there, away) = (daemon.state_dir().join(name), daemon.folder().join(name));
        let (from, to) = if is_away { (&there, &away) } else { (&away, &there) };
        // What the refused start made.
        let _none = std::fs::remove_dir_all(to);
        std::fs::rename(from, to).context("it is moved")
    };
    for away in [&["journal", "images"][..], &["journal"], &["images"]] {
        daemon.lose_memory()?;
        away.iter().try_for_each(|name| move_away(&daemon, name, true))?;
        let refusal = daemon.start_again().expect_err("flushes would be lost").to_string();
        let place = daemon.state_dir().join(away[0]).display().to_string();
        for part in ["file system", &place, "--accept-loss NUMBER"] {
            ensure!(refusal.contains(part), "no {part} in {refusal}");
        }
        away.iter().try_for_each(|name| move_away(&daemon, name, false))?;
        daemon.start_again()?;
        let mut db = client(&daemon, "db")?;
        check_block(&mut db, 1, 1);
        check_block(&mut db, 2, 2);
    }
    // The owner knows that it is lost for good.
    daemon.lose_memory()?;
    for name in ["journal", "images"] {
        std::fs::remove_dir_all(daemon.state_dir().join(name))?;
    }
    let flags = daemon.flags().to_owned();
    daemon.set_flags(&format!("{flags} --accept-loss 0"));
    daemon.start_again()?;
    ensure!(daemon.memlane("events")?.contains("loss_accepted"), "the loss is not told of");
    ensure!(daemon.volumes()?.is_empty(), "{:?}", daemon.volumes()?);
    daemon.set_flags(&flags);
    daemon.lose_memory()?;
    daemon.start_again()?;
    daemon.finish()
}

#[test]
fn a_store_that_does_not_answer_keeps_no_memory_from_being_served() -> Result<()> {
    let server = server::Server::start();
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let flags = "--no-fuse --images-store s3://bucket/images".to_owned();
    let mut daemon = Daemon::prepare("96MiB".to_owned(), flags)?;
    daemon.set_object_store(server.address);
    daemon.start_again()?;
    daemon.memlane("volume create db --size 64MiB --durability journal")?;
    write(&mut client(&daemon, "db")?, 1, 1)?;
    daemon.save_image()?;
    daemon.kill()?;
    daemon.set_object_store(silent.local_addr()?);
    daemon.start_again()?;
    let warnings = daemon.status()?.warnings;
    ensure!(warnings.iter().any(|it| it.kind == "image_unreachable"), "{warnings:?}");
    let mut db = client(&daemon, "db")?;
    check_block(&mut db, 1, 1);
    write(&mut db, 2, 2)?;
    db.ask(&Request::Flush)?;
    drop(db);
    daemon.lose_memory()?;
    daemon.set_object_store(server.address);
    daemon.start_again()?;
    let mut db = client(&daemon, "db")?;
    [1, 2].into_iter().for_each(|block| check_block(&mut db, block, block));
    drop(db);
    daemon.finish()
}

#[test]
fn a_second_daemon_with_the_same_store_is_refused_and_told_what_to_do() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let directory = folder.path().display().to_string();
    let flags = format!("--no-fuse --images-store {directory}");
    let mut first = Daemon::prepare("64MiB".to_owned(), flags.clone())?;
    first.start_again()?;
    first.memlane("volume create db --size 16MiB --durability image")?;
    let mut second = Daemon::prepare("64MiB".to_owned(), flags)?;
    ensure!(second.start_again().is_err(), "it started");
    let log = std::fs::read_to_string(second.log_path())?;
    for word in [&*directory, "another daemon of this host", "store in [images]"] {
        ensure!(log.contains(word), "{word} is missing: {log}");
    }
    first.save_image()?;
    first.stop()?;
    // Now it takes over, with the volumes of the first.
    second.start_again()?;
    ensure!(second.volume("db")?.durability == api::Durability::Image);
    second.finish()
}

#[test]
fn an_image_is_saved_before_the_daemon_ends() -> Result<()> {
    let mut daemon = daemon("")?;
    daemon.memlane("volume create db --size 64MiB --durability image")?;
    write(&mut client(&daemon, "db")?, 7, 7)?;
    daemon.stop()?;
    daemon.lose_memory()?;
    daemon.start_again()?;
    check_block(&mut client(&daemon, "db")?, 7, 7);
    daemon.finish()
}

#[test]
fn a_volume_that_changes_its_class_loses_nothing_that_was_flushed() -> Result<()> {
    let mut daemon = daemon("")?;
    daemon.memlane("volume create db --size 64MiB")?;
    write(&mut client(&daemon, "db")?, 1, 1)?;
    daemon.memlane("volume set db durability=journal")?;
    let mut db = client(&daemon, "db")?;
    write(&mut db, 2, 2)?;
    db.ask(&Request::Flush)?;
    drop(db);
    daemon.lose_memory()?;
    daemon.start_again()?;
    let mut db = client(&daemon, "db")?;
    (1..3).for_each(|block| check_block(&mut db, block, block));
    drop(db);
    for (block, class) in [(3, "image"), (4, "journal"), (5, "image")] {
        write(&mut client(&daemon, "db")?, block, block)?;
        client(&daemon, "db")?.ask(&Request::Flush)?;
        daemon.memlane(&format!("volume set db durability={class}"))?;
        if class == "journal" {
            // A flush makes everything durable from now on, including earlier writes.
            client(&daemon, "db")?.ask(&Request::Flush)?;
        }
        daemon.lose_memory()?;
        daemon.start_again()?;
        let mut db = client(&daemon, "db")?;
        (1..=block).for_each(|block| check_block(&mut db, block, block));
        drop(db);
    }
    daemon.finish()
}

#[test]
fn a_journal_or_images_of_another_pool_are_refused_with_both_names() -> Result<()> {
    let mut daemon = daemon("")?;
    let (state, kept) = (daemon.folder().join("state"), daemon.folder().join("kept"));
    std::fs::create_dir(&kept)?;
    daemon.memlane("volume create db --size 16MiB --durability journal")?;
    write(&mut client(&daemon, "db")?, 1, 1)?;
    client(&daemon, "db")?.ask(&Request::Flush)?;
    daemon.save_image()?;
    daemon.kill()?;
    for folder in ["journal", "images"] {
        std::fs::rename(state.join(folder), kept.join(folder))?;
    }
    daemon.lose_memory()?;
    daemon.start_again()?;
    daemon.memlane("volume create own --size 16MiB --durability journal")?;
    write(&mut client(&daemon, "own")?, 1, 2)?;
    client(&daemon, "own")?.ask(&Request::Flush)?;
    daemon.save_image()?;
    daemon.kill()?;
    let aside = daemon.folder().join("aside");
    for folder in ["journal", "images"] {
        std::fs::rename(state.join(folder), &aside)?;
        std::fs::rename(kept.join(folder), state.join(folder))?;
        let refusal = daemon.start_again().expect_err("it is another set").to_string();
        ensure!(refusal.contains("belong to different sets"), "{folder}: {refusal}");
        ensure!(refusal.contains(folder) && refusal.contains("pool"), "{folder}: {refusal}");
        std::fs::rename(state.join(folder), kept.join(folder))?;
        std::fs::rename(&aside, state.join(folder))?;
    }
    daemon.start_again()?;
    let events = daemon.memlane("events")?;
    let cause_leads = "the daemon does not start: cannot combine a journal of durable set";
    ensure!(events.matches(cause_leads).count() == 2, "{events}");
    ensure!(daemon.volumes()?.len() == 1, "something was mixed in: {:?}", daemon.volumes()?);
    check_block(&mut client(&daemon, "own")?, 1, 2);
    daemon.finish()
}

/// A small file system for the journal, almost filled by another file.
struct SmallDisk<'it> {
    folder: &'it Path,
}

impl<'it> SmallDisk<'it> {
    fn mount(folder: &'it Path) -> Result<Self> {
        std::fs::create_dir(folder)?;
        Tool::new("mount -t tmpfs -o size=6m memlane-test").arg(folder).check()?;
        Ok(Self { folder })
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        // A failure is reported as a leftover.
        let _ = Tool::new("umount --lazy").arg(self.folder).run();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn journal_state(daemon: &Daemon) -> Result<api::JournalStatus> {
    daemon.status()?.durability.journal.context("there is a journal")
}

#[test]
fn a_full_disk_of_the_journal_is_relieved_by_images_without_anybodys_help() -> Result<()> {
    if !is_root() {
        eprintln!("skipped: a small file system takes root");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let dir = folder.path().join("journal");
    let disk = SmallDisk::mount(&dir)?;
    // The journal's limit may exceed the space on the disk.
    let mut daemon = daemon(&format!("--journal-dir {}", dir.display()))?;
    daemon.memlane("volume create db --size 64MiB --durability journal")?;
    let mut db = client(&daemon, "db")?;
    for block in 0..3000 {
        write(&mut db, block, 7000 + block)?;
        if block % 50 == 0 {
            db.ask(&Request::Flush)?;
        }
    }
    db.ask(&Request::Flush)?;
    ensure!(daemon.status()?.durability.images.is_some_and(|it| it.last_image.is_some()));
    drop(db);
    daemon.lose_memory()?;
    daemon.start_again()?;
    let mut db = client(&daemon, "db")?;
    (0..3000).for_each(|block| check_block(&mut db, block, 7000 + block));
    drop(db);
    daemon.finish()?;
    drop(disk);
    Ok(())
}

#[test]
fn flushes_wait_while_the_disk_is_full_and_go_on_when_it_is_not() -> Result<()> {
    if !is_root() {
        eprintln!("skipped: a small file system takes root");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let dir = folder.path().join("journal");
    let disk = SmallDisk::mount(&dir)?;
    let flags = format!("--journal-dir {0}/journal --images-store {0}/images", dir.display());
    let mut daemon = daemon(&flags)?;
    daemon.memlane("volume create db --size 64MiB --durability journal")?;
    let mut db = client(&daemon, "db")?;
    write(&mut db, 0, 1)?;
    db.ask(&Request::Flush)?;
    let stuffing = dir.join("stuffing");
    let _until_full = std::fs::write(&stuffing, vec![1; 8 << 20]);
    (0..1024).try_for_each(|block| write(&mut db, block, 7000 + block))?;
    db.send(&Request::Flush)?;
    wait_for("the journal to say that it waits", TIME_LIMIT, || {
        let journal = journal_state(&daemon)?;
        Ok(journal.state == api::JournalState::Waiting && journal.cause.is_some())
    })?;
    let status = daemon.status()?;
    let warning = status.warnings.iter().find(|it| it.kind == "journal_failing");
    let message = &warning.with_context(|| format!("{status:?}"))?.message;
    ensure!(message.contains("disk is full") && message.contains("free space"), "{message}");
    let place = format!("the journal in {}/journal", dir.display());
    ensure!(message.contains(&place), "where to make it: {message}");
    // Reads and writes continue meanwhile.
    let mut other = client(&daemon, "db")?;
    check_block(&mut other, 3, 7003);
    write(&mut other, 2000, 5)?;
    std::fs::remove_file(&stuffing)?;
    ensure!(db.receive()?.error == 0, "the flush failed");
    wait_for("the journal to go on", TIME_LIMIT, || {
        Ok(journal_state(&daemon)?.state == api::JournalState::Ok)
    })?;
    drop((db, other));
    daemon.lose_memory()?;
    daemon.start_again()?;
    let mut db = client(&daemon, "db")?;
    (0..1024).for_each(|block| check_block(&mut db, block, 7000 + block));
    drop(db);
    daemon.finish()?;
    drop(disk);
    Ok(())
}

#[test]
fn a_volume_that_the_full_disk_of_the_journal_cannot_note_is_refused_and_not_made() -> Result<()> {
    if !is_root() {
        eprintln!("skipped: a small file system takes root");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let dir = folder.path().join("journal");
    let disk = SmallDisk::mount(&dir)?;
    let daemon = daemon(&format!("--journal-dir {}/journal", dir.display()))?;
    let stuffing = dir.join("stuffing");
    let _until_full = std::fs::write(&stuffing, vec![1; 8 << 20]);
    for class in ["journal", "image"] {
        let words = format!("volume create db --size 64MiB --durability {class}");
        let refusal = daemon.try_memlane(&words)?;
        let message = &refusal.stderr;
        ensure!(refusal.exit_code == Some(1), "{refusal:?}");
        ensure!(message.contains("disk is full") && message.contains("free space"), "{message}");
        ensure!(!daemon.memlane("volume list")?.contains("db"), "it was made all the same");
    }
    daemon.memlane("volume create scratch --size 1MiB")?;
    std::fs::remove_file(&stuffing)?;
    daemon.memlane("volume create db --size 64MiB --durability journal")?;
    let mut db = client(&daemon, "db")?;
    write(&mut db, 0, 1)?;
    db.ask(&Request::Flush)?;
    drop(db);
    daemon.finish()?;
    drop(disk);
    Ok(())
}

/// Returns whether a write is acknowledged, and not rejected as one to a read-only volume.
fn is_written(client: &mut NbdClient) -> Result<bool> {
    match client.ask(&Request::Write { offset: 4096, data: noise(1, 4096) }) {
        Ok(_) => Ok(true),
        Err(NbdFailure::Refused(NBD_NOT_PERMITTED)) => Ok(false),
        Err(other) => Err(other.into()),
    }
}

#[test]
fn by_policy_volumes_are_read_only_while_the_journals_disk_is_full() -> Result<()> {
    if !is_root() {
        eprintln!("skipped: a small file system takes root");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let dir = folder.path().join("journal");
    let disk = SmallDisk::mount(&dir)?;
    let flags = format!("--journal-on-failure read-only --journal-dir {}", dir.display());
    let daemon = daemon(&flags)?;
    daemon.memlane("volume create db --size 64MiB --durability journal")?;
    let mut db = client(&daemon, "db")?;
    write(&mut db, 0, 1)?;
    db.ask(&Request::Flush)?;
    let stuffing = dir.join("stuffing");
    let _until_full = std::fs::write(&stuffing, vec![1; 8 << 20]);
    (0..1024).try_for_each(|block| write(&mut db, block, 7000 + block))?;
    let flushed = db.ask(&Request::Flush).map(|_| "acknowledged");
    ensure!(matches!(flushed, Err(NbdFailure::Refused(NBD_IO_ERROR))), "a flush: {flushed:?}");
    wait_for("the volume to be read-only", TIME_LIMIT, || Ok(!is_written(&mut db)?))?;
    check_block(&mut db, 5, 7005);
    ensure!(journal_state(&daemon)?.state == api::JournalState::ReadOnly, "the state is another");
    std::fs::remove_file(&stuffing)?;
    wait_for("the volume to take writes again", TIME_LIMIT, || is_written(&mut db))?;
    db.ask(&Request::Flush)?;
    drop(db);
    daemon.finish()?;
    drop(disk);
    Ok(())
}

#[test]
fn an_attached_journal_volume_keeps_a_file_that_was_synced() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let flags = "--journal-max-bytes 64MiB".to_owned();
    let mut daemon = Daemon::start_flagged("96MiB".to_owned(), flags)?;
    daemon.memlane("volume create db --size 64MiB --durability journal")?;
    let device = attach(&daemon, "db")?;
    let file = std::fs::OpenOptions::new().write(true).open(&device)?;
    std::os::unix::fs::FileExt::write_all_at(&file, &noise(3, 1 << 20), MIB)?;
    file.sync_all()?;
    drop(file);
    daemon.memlane("detach db")?;
    daemon.lose_memory()?;
    daemon.start_again()?;
    let mut db = client(&daemon, "db")?;
    let found = db.ask(&Request::Read { offset: MIB, length: 1 << 20 })?;
    ensure!(found == noise(3, 1 << 20), "what was synced is another");
    drop(db);
    daemon.finish()
}
