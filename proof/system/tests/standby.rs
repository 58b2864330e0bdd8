//! A standby follows the images of another daemon and takes over from it: two daemons with one
//! image store. The data lost with the writer is at most that of the reported lag.

#[expect(dead_code, reason = "what goes wrong with the server is for the tests of the store")]
#[path = "../../../engine/object-images/tests/server/mod.rs"]
mod server;

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use system::{Daemon, NBD_NOT_PERMITTED, NbdClient, NbdFailure, Request, wait_for};

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Time limit, because a standby waits up to 30 s before it retries a failing store, and requests
/// are repeated as long.
const RETRY_TIME_LIMIT: Duration = Duration::from_secs(240);

/// Image store shared by two daemons.
enum Store {
    Folder(tempfile::TempDir),
    Server(server::Server),
}

impl Store {
    fn folder() -> Result<Self> {
        Ok(Self::Folder(tempfile::tempdir()?))
    }

    fn address(&self) -> std::net::SocketAddr {
        match self {
            Self::Server(server) => server.address,
            Self::Folder(_) => unreachable!("a folder has no address"),
        }
    }

    fn daemon(&self, flags: &str) -> Result<Daemon> {
        let place = match self {
            Self::Folder(folder) => folder.path().join("images").display().to_string(),
            Self::Server(_) => "s3://bucket/images".to_owned(),
        };
        let flags = format!("--no-fuse --images-store {place} {flags}");
        let mut daemon = Daemon::prepare("96MiB".to_owned(), flags)?;
        if let Self::Server(server) = self {
            daemon.set_object_store(server.address);
        }
        daemon.start_again()?;
        Ok(daemon)
    }

    /// Starts a daemon that saves an image each second, and a standby that follows it.
    fn pair(&self) -> Result<(Daemon, Daemon)> {
        Ok((
            self.daemon("--images-every 1s")?,
            self.daemon("--standby-follow --standby-every 100ms")?,
        ))
    }
}

fn client(daemon: &Daemon, volume: &str) -> Result<NbdClient> {
    Ok(NbdClient::connect(&daemon.nbd_socket(), volume)?)
}

fn unix_seconds() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

/// Writes a block with the current time.
fn stamp(client: &mut NbdClient, block: u64) -> Result<f64> {
    let now = unix_seconds()?;
    let data = now.to_le_bytes().repeat(512);
    client.ask(&Request::Write { offset: block * 4096, data })?;
    Ok(now)
}

fn read_stamp(client: &mut NbdClient, block: u64) -> Result<f64> {
    let found = client.ask(&Request::Read { offset: block * 4096, length: 4096 })?;
    let first = found[..8].try_into().context("a stamp has eight bytes")?;
    ensure!(found.chunks(8).all(|it| it == &found[..8]), "block {block} is torn");
    Ok(f64::from_le_bytes(first))
}

fn standby(daemon: &Daemon) -> Result<api::Standby> {
    daemon.status()?.standby.context("it is a standby")
}

fn promote(daemon: &Daemon, flags: &str) -> Result<api::Promotion> {
    let told = daemon.memlane(&format!("--json standby promote {flags}"))?;
    Ok(serde_json::from_str(&told)?)
}

fn wait_until_read(daemon: &Daemon, is_it: impl Fn(&mut NbdClient) -> Result<bool>) -> Result<()> {
    wait_for("the standby to have it", TIME_LIMIT, || {
        // Before the first image there is no volume.
        let Ok(mut db) = client(daemon, "db") else { return Ok(false) };
        is_it(&mut db)
    })
}

#[test]
fn what_is_lost_with_the_writer_is_at_most_the_lag_that_was_shown() -> Result<()> {
    let server = Store::Server(server::Server::start());
    for (store, class) in [(Store::folder()?, "image"), (server, "journal")] {
        let (mut writer, standby) = store.pair()?;
        writer.memlane(&format!("volume create db --size 64MiB --durability {class}"))?;
        let mut db = client(&writer, "db")?;
        let first = stamp(&mut db, 0)?;
        wait_until_read(&standby, |db| Ok(read_stamp(db, 0)? >= first))?;
        let mut stamps = vec![(first, first)];
        for block in 0..2000 {
            let stamp = stamp(&mut db, block % 100)?;
            stamps.push((stamp, unix_seconds()?));
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(db);
        writer.kill()?;
        let shown_at = unix_seconds()?;
        let shown = self::standby(&standby)?.lag_seconds.context("the lag is known")?;
        let told = promote(&standby, "--force")?;
        let mut db = client(&standby, "db")?;
        let mut newest = 0.0;
        for block in 0..100 {
            newest = read_stamp(&mut db, block)?.max(newest);
        }
        let (last, _) = stamps[stamps.len() - 1];
        ensure!(last <= shown_at, "the clock was set");
        // Lost writes were acknowledged after the image began.
        let lost = stamps.iter().find(|(stamp, _)| *stamp > newest);
        let promised = shown_at - shown;
        ensure!(
            lost.is_none_or(|(_, answered)| *answered >= promised),
            "{lost:?} is lost, of {last}: {shown} s were shown at {shown_at}"
        );
        ensure!(told.lost_seconds.is_some_and(|lost| lost >= last - newest), "{told:?}");
        stamp(&mut db, 7)?;
        db.ask(&Request::Flush)?;
        drop(db);
        standby.save_image()?;
        standby.finish()?;
    }
    Ok(())
}

#[test]
fn volumes_of_a_standby_are_read_only_until_it_is_promoted() -> Result<()> {
    let store = Store::folder()?;
    let (writer, standby) = store.pair()?;
    writer.memlane("volume create db --size 64MiB --durability image")?;
    let first = stamp(&mut client(&writer, "db")?, 0)?;
    wait_until_read(&standby, |db| Ok(read_stamp(db, 0)? >= first))?;
    let mut db = client(&standby, "db")?;
    let written = db.ask(&Request::Write { offset: 0, data: vec![1; 4096] });
    let is_refused = matches!(written, Err(NbdFailure::Refused(NBD_NOT_PERMITTED)));
    ensure!(is_refused, "{written:?}");
    drop(db);
    for words in [
        "volume create other --size 1MiB",
        "volume delete db --force",
        "volume resize db --size 128MiB",
        "volume set db label.a=b",
        "snapshot create db@now",
        "clone db copy",
        "image save",
        "export vhost-user db",
        "attach db",
    ] {
        let refused = standby.try_memlane(words)?;
        ensure!(refused.stderr.contains("this daemon is a standby"), "{words}: {refused:?}");
    }
    ensure!(!self::standby(&standby)?.store.is_empty());
    let metrics = standby.ask(api::METRICS_PATH)?;
    for family in ["memlane_standby 1", "memlane_standby_lag_seconds", "memlane_standby_image"] {
        ensure!(metrics.contains(family), "{metrics}");
    }
    writer.finish()?;
    standby.finish()
}

#[test]
fn a_writer_that_runs_is_not_taken_over_from_and_one_that_comes_back_is_refused() -> Result<()> {
    let store = Store::Server(server::Server::start());
    let (mut writer, mut standby) = store.pair()?;
    writer.memlane("volume create db --size 64MiB --durability image")?;
    let first = stamp(&mut client(&writer, "db")?, 0)?;
    wait_until_read(&standby, |db| Ok(read_stamp(db, 0)? >= first))?;
    writer.save_image()?;
    let refused = standby.try_memlane("standby promote")?;
    ensure!(refused.stderr.contains("seems to be running"), "{refused:?}");
    standby.memlane("standby promote --force")?;
    stamp(&mut client(&writer, "db")?, 1)?;
    let stale = writer.try_memlane("image save")?;
    ensure!(!stale.stderr.contains("exists already"), "{stale:?}");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    for part in ["another daemon has taken over this image store", host.trim()] {
        ensure!(stale.stderr.contains(part), "{part} in {stale:?}");
    }
    for _ in 0..2 {
        writer.kill()?;
        writer.start_again()?;
        let again = writer.try_memlane("image save")?;
        for part in ["another daemon on the host", host.trim(), "make this daemon a standby"] {
            ensure!(again.stderr.contains(part), "{part} in {again:?}");
        }
    }
    writer.kill()?;
    standby.save_image()?;
    standby.kill()?;
    standby.start_again()?;
    standby.save_image()?;
    standby.finish()
}

#[test]
fn a_standby_of_a_folder_that_does_not_exist_is_refused_and_makes_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let right = folder.path().join("images");
    std::fs::create_dir(&right)?;
    let flags = |path: &Path| {
        format!(
            "--no-fuse --standby-follow --standby-every 100ms --images-store {}",
            path.display()
        )
    };
    let wrong = folder.path().join("imagse");
    let mut daemon = Daemon::prepare("96MiB".to_owned(), flags(&wrong))?;
    let refused = daemon.start_again().expect_err("there is no such folder");
    let refused = format!("{refused:#}");
    for part in [&*wrong.display().to_string(), "does not exist", "a standby does not create it"] {
        ensure!(refused.contains(part), "{part} in {refused}");
    }
    ensure!(!wrong.exists(), "it was made");
    daemon.set_flags(&flags(&right));
    daemon.start_again()?;
    wait_for("the empty store to be seen", TIME_LIMIT, || {
        Ok(standby(&daemon)?.state == api::StandbyState::Waiting)
    })?;
    ensure!(std::fs::read_dir(&right)?.count() == 0, "something was made");
    daemon.finish()
}

#[test]
fn a_writer_does_not_become_a_standby_with_its_pool() -> Result<()> {
    let store = Store::Server(server::Server::start());
    let mut daemon = store.daemon("--images-every 1s")?;
    daemon.memlane("volume create db --size 64MiB --durability image")?;
    let first = stamp(&mut client(&daemon, "db")?, 0)?;
    daemon.save_image()?;
    let flags = daemon.flags().to_owned();
    daemon.stop()?;
    daemon.set_flags(&format!("{flags} --standby-follow"));
    // After a power loss during such a start, the next one would delete the journal if the file
    // rejoining.json existed even for a moment. It cannot be written, and need not be.
    let note = daemon.state_dir().join("rejoining.json.new");
    std::fs::create_dir(&note)?;
    for _ in 0..2 {
        let refused = daemon.start_again().expect_err("its pool is not that of a standby");
        let refused = format!("{refused:#}");
        for part in ["the pool has volumes", "delete them", "rejoin = true", "such as db"] {
            ensure!(refused.contains(part), "{part} in {refused}");
        }
    }
    std::fs::remove_dir(&note)?;
    std::fs::remove_file(daemon.pool_file())?;
    std::fs::remove_dir_all(daemon.state_dir().join("journal"))?;
    daemon.start_again()?;
    wait_until_read(&daemon, |db| Ok(read_stamp(db, 0)? == first))?;
    ensure!(standby(&daemon)?.image.is_some());
    daemon.finish()
}

#[test]
fn a_former_writer_rejoins_with_its_pool_and_takes_over_again() -> Result<()> {
    let store = Store::Server(server::Server::start());
    let (mut writer, mut other) = store.pair()?;
    writer.memlane("volume create db --size 64MiB --durability journal")?;
    let first = stamp(&mut client(&writer, "db")?, 0)?;
    writer.save_image()?;
    wait_until_read(&other, |db| Ok(read_stamp(db, 0)? == first))?;
    let as_writer = writer.flags().to_owned();
    let as_standby = format!("{as_writer} --standby-follow --standby-every 100ms --standby-rejoin");
    writer.stop()?;
    writer.set_flags(&as_standby);
    let refused = writer.start_again().expect_err("nobody has taken over");
    ensure!(format!("{refused:#}").contains("no other daemon has taken over"), "{refused:#}");
    // The refused start has changed nothing, and a later one deletes no journal.
    ensure!(
        !writer.state_dir().join("rejoining.json").exists(),
        "a start would delete the journal"
    );
    writer.set_flags(&as_writer);
    writer.start_again()?;
    stamp(&mut client(&writer, "db")?, 1)?;
    writer.save_image()?;
    promote(&other, "--force")?;
    // Lost: the store is another's.
    stamp(&mut client(&writer, "db")?, 2)?;
    writer.kill()?;
    let third = stamp(&mut client(&other, "db")?, 3)?;
    other.save_image()?;
    writer.set_flags(&as_standby);
    for _ in 0..2 {
        writer.start_again()?;
        wait_until_read(&writer, |db| Ok(read_stamp(db, 3)? == third))?;
        writer.kill()?;
    }
    writer.start_again()?;
    // What it wrote last is discarded.
    wait_until_read(&writer, |db| Ok(read_stamp(db, 2)? == 0.0))?;
    ensure!(!writer.state_dir().join("rejoining.json").exists(), "it is not done");
    other.kill()?;
    promote(&writer, "--force")?;
    let mut db = client(&writer, "db")?;
    ensure!(read_stamp(&mut db, 0)? == first && read_stamp(&mut db, 3)? == third);
    stamp(&mut db, 4)?;
    db.ask(&Request::Flush)?;
    writer.save_image()?;
    writer.finish()
}

#[test]
fn a_daemon_without_volumes_becomes_a_standby_and_is_promoted() -> Result<()> {
    let store = Store::Server(server::Server::start());
    let (mut writer, other) = (store.daemon("--images-every 1s")?, Store::folder()?);
    writer.memlane("volume create db --size 64MiB --durability journal")?;
    let first = stamp(&mut client(&writer, "db")?, 0)?;
    writer.save_image()?;
    let mut daemon = other.daemon("")?;
    // Journal and images of its own.
    daemon.memlane("volume create old --size 16MiB --durability journal")?;
    stamp(&mut client(&daemon, "old")?, 0)?;
    client(&daemon, "old")?.ask(&Request::Flush)?;
    daemon.save_image()?;
    daemon.memlane("volume delete old --force")?;
    let as_writer = daemon.flags().to_owned();
    daemon.stop()?;
    daemon.set_flags(&format!("{as_writer} --standby-follow"));
    let refused = daemon.start_again().expect_err("the images are its own");
    let refused = format!("{refused:#}");
    ensure!(refused.contains("this pool's deleted volumes"), "{refused}");
    ensure!(
        !daemon.state_dir().join("rejoining.json").exists(),
        "a start would delete the journal"
    );
    let as_standby = "--no-fuse --standby-follow --standby-every 100ms";
    daemon.set_object_store(store.address());
    daemon.set_flags(&format!("{as_standby} --images-store s3://bucket/images"));
    for _ in 0..2 {
        daemon.start_again()?;
        wait_until_read(&daemon, |db| Ok(read_stamp(db, 0)? == first))?;
        daemon.kill()?;
    }
    daemon.start_again()?;
    wait_until_read(&daemon, |db| Ok(read_stamp(db, 0)? == first))?;
    writer.kill()?;
    promote(&daemon, "--force")?;
    let mut db = client(&daemon, "db")?;
    ensure!(read_stamp(&mut db, 0)? == first);
    stamp(&mut db, 1)?;
    db.ask(&Request::Flush)?;
    daemon.finish()
}

#[test]
fn a_standby_with_the_journal_of_other_volumes_says_so_and_is_not_promoted() -> Result<()> {
    let store = Store::Server(server::Server::start());
    let mut writer = store.daemon("--images-every 1s")?;
    writer.memlane("volume create db --size 64MiB --durability journal")?;
    let first = stamp(&mut client(&writer, "db")?, 0)?;
    writer.save_image()?;
    let mut daemon = Store::folder()?.daemon("")?;
    daemon.memlane("volume create old --size 16MiB --durability journal")?;
    stamp(&mut client(&daemon, "old")?, 0)?;
    client(&daemon, "old")?.ask(&Request::Flush)?;
    daemon.kill()?;
    daemon.lose_memory()?;
    daemon.set_object_store(store.address());
    let flags = "--no-fuse --standby-follow --standby-every 100ms";
    daemon.set_flags(&format!("{flags} --images-store s3://bucket/images"));
    daemon.start_again()?;
    wait_for("the journal to be reported", TIME_LIMIT, || {
        let cause = standby(&daemon)?.cause;
        Ok(cause.is_some_and(|cause| cause.contains("the journal of other volumes")))
    })?;
    // The writer goes on, and the store is not claimed.
    let refused = promote(&daemon, "--force").expect_err("it could not start afterwards");
    ensure!(format!("{refused:#}").contains("the journal of other volumes"), "{refused:#}");
    writer.save_image()?;
    let journal = daemon.state_dir().join("journal");
    for file in std::fs::read_dir(&journal)? {
        std::fs::remove_file(file?.path())?;
    }
    wait_for("the standby to follow", RETRY_TIME_LIMIT, || Ok(standby(&daemon)?.cause.is_none()))?;
    writer.kill()?;
    promote(&daemon, "--force")?;
    ensure!(read_stamp(&mut client(&daemon, "db")?, 0)? == first);
    daemon.finish()
}

/// Kinds of outages of a store.
#[derive(Clone, Copy, Debug)]
enum Absence {
    /// The folder is renamed.
    Renamed,
    /// An empty folder is in its place, as if nothing were mounted.
    Unmounted,
    /// The server does not run.
    Stopped,
}

impl Absence {
    /// Starts the outage. Returns the expected message of the standby.
    fn begin(self, store: &mut Store) -> Result<&'static str> {
        match (self, store) {
            (Self::Stopped, Store::Server(server)) => {
                server.stop();
                Ok("error sending request")
            }
            (_, Store::Folder(folder)) => {
                std::fs::rename(folder.path().join("images"), folder.path().join("aside"))?;
                if let Self::Renamed = self {
                    return Ok("does not exist");
                }
                std::fs::create_dir(folder.path().join("images"))?;
                Ok("it had images before")
            }
            (_, Store::Server(_)) => anyhow::bail!("{self:?} is of folders"),
        }
    }

    fn end(self, store: &mut Store) -> Result<()> {
        match store {
            Store::Server(server) => server.start_again(),
            Store::Folder(folder) => {
                // Replaces an empty folder. Fails if something was created in it.
                std::fs::rename(folder.path().join("aside"), folder.path().join("images"))?;
            }
        }
        Ok(())
    }
}

#[test]
fn a_store_that_goes_away_and_comes_back_is_followed_again() -> Result<()> {
    for absence in [Absence::Renamed, Absence::Unmounted, Absence::Stopped] {
        let mut store = match absence {
            Absence::Stopped => Store::Server(server::Server::start()),
            _ => Store::folder()?,
        };
        let (writer, standby) = store.pair()?;
        writer.memlane("volume create db --size 64MiB --durability image")?;
        let first = stamp(&mut client(&writer, "db")?, 0)?;
        wait_until_read(&standby, |db| Ok(read_stamp(db, 0)? >= first))?;
        let mut reader = client(&standby, "db")?;
        let expected = absence.begin(&mut store)?;
        wait_for("the cause to be told", RETRY_TIME_LIMIT, || {
            let shown = self::standby(&standby)?;
            let is_failing = shown.state == api::StandbyState::Failing;
            Ok(is_failing && shown.cause.is_some_and(|cause| cause.contains(expected)))
        })?;
        check_age(&standby)?;
        let second = stamp(&mut client(&writer, "db")?, 0)?;
        ensure!(read_stamp(&mut reader, 0)? >= first, "{absence:?}: it is read on");
        ensure!(read_stamp(&mut client(&standby, "db")?, 0)? >= first, "{absence:?}: anew too");
        let refused = standby.try_memlane("standby promote --force")?;
        ensure!(refused.exit_code != Some(0), "{absence:?}: {refused:?}");
        ensure!(self::standby(&standby)?.state == api::StandbyState::Failing, "{absence:?}");
        absence.end(&mut store)?;
        wait_for("the standby to follow again", RETRY_TIME_LIMIT, || {
            Ok(read_stamp(&mut client(&standby, "db")?, 0)? >= second)
        })?;
        wait_for("the failure to be over", RETRY_TIME_LIMIT, || {
            let shown = self::standby(&standby)?;
            Ok(shown.state == api::StandbyState::Following && shown.cause.is_none())
        })?;
        check_age(&standby)?;
        standby.finish()?;
        wait_for("the writer to save images again", RETRY_TIME_LIMIT, || {
            Ok(writer.try_memlane("image save")?.exit_code == Some(0))
        })?;
        writer.finish()?;
    }
    Ok(())
}

/// Checks that the reported lag is the age of the reported image.
fn check_age(daemon: &Daemon) -> Result<()> {
    let now = || -> Result<f64> { Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64()) };
    let before = now()?;
    let shown = standby(daemon)?;
    let after = now()?;
    let saved = shown.newest_saved_unix_seconds.context("an image was seen")? as f64;
    let lag = shown.lag_seconds.context("the lag is known")?;
    ensure!((before - saved..=after - saved).contains(&lag), "{lag} of {shown:?}");
    Ok(())
}

#[test]
fn a_promotion_that_is_repeated_gets_the_same_answer() -> Result<()> {
    let store = Store::folder()?;
    let (mut writer, mut standby) = store.pair()?;
    let refused = writer.try_memlane("standby promote --force")?;
    ensure!(refused.stderr.contains("this daemon is not a standby"), "{refused:?}");
    writer.memlane("volume create db --size 64MiB --durability image")?;
    let first = stamp(&mut client(&writer, "db")?, 0)?;
    wait_until_read(&standby, |db| Ok(read_stamp(db, 0)? >= first))?;
    writer.kill()?;
    let told = promote(&standby, "--force")?;
    ensure!(!told.is_repeated, "{told:?}");
    let expected = api::Promotion { is_repeated: true, ..told };
    ensure!(promote(&standby, "")? == expected);
    standby.save_image()?;
    standby.kill()?;
    standby.start_again()?;
    ensure!(promote(&standby, "")? == expected, "after a kill");
    let flags = standby.flags().replace("--standby-follow", "");
    standby.stop()?;
    standby.set_flags(&flags);
    standby.start_again()?;
    ensure!(promote(&standby, "--force")? == expected, "with a configuration of a writer");
    let text = standby.memlane("standby promote")?;
    ensure!(text.starts_with(&format!("was promoted before, from image {}", expected.image)));
    standby.finish()
}

#[test]
fn of_two_standbys_that_are_promoted_at_the_same_time_one_takes_over() -> Result<()> {
    let store = Store::Server(server::Server::start());
    let (mut writer, one) = store.pair()?;
    let both = [one, store.daemon("--standby-follow --standby-every 100ms")?];
    writer.memlane("volume create db --size 64MiB --durability image")?;
    let first = stamp(&mut client(&writer, "db")?, 0)?;
    for standby in &both {
        wait_until_read(standby, |db| Ok(read_stamp(db, 0)? >= first))?;
    }
    writer.kill()?;
    for daemon in &both {
        wait_for("the writer to be considered stopped", TIME_LIMIT, || {
            Ok(standby(daemon)?.lag_seconds.is_some_and(|seconds| seconds > 12.0))
        })?;
    }
    let told = std::thread::scope(|scope| {
        let asking =
            both.each_ref().map(|it| scope.spawn(move || it.try_memlane("standby promote")));
        asking.map(|asking| asking.join().expect("a command does not panic"))
    });
    let mut promoted = Vec::new();
    for (daemon, told) in both.into_iter().zip(told) {
        let told = told?;
        if told.exit_code == Some(0) {
            ensure!(told.stdout.starts_with("promoted from image"), "{told:?}");
            promoted.push(daemon);
            continue;
        }
        let reasons =
            ["has claimed the image store meanwhile", "has saved no image", "seems to be running"];
        ensure!(reasons.iter().any(|reason| told.stderr.contains(reason)), "{told:?}");
        ensure!(daemon.status()?.standby.is_some(), "it is still a standby");
        daemon.finish()?;
    }
    ensure!(promoted.len() == 1, "{} daemons have taken over", promoted.len());
    for daemon in promoted {
        stamp(&mut client(&daemon, "db")?, 1)?;
        daemon.save_image()?;
        daemon.finish()?;
    }
    Ok(())
}

#[test]
fn a_promotion_that_is_asked_for_twice_at_the_same_time_is_done_once() -> Result<()> {
    let store = Store::folder()?;
    let (mut writer, standby) = store.pair()?;
    writer.memlane("volume create db --size 64MiB --durability image")?;
    let first = stamp(&mut client(&writer, "db")?, 0)?;
    wait_until_read(&standby, |db| Ok(read_stamp(db, 0)? >= first))?;
    writer.kill()?;
    let told = std::thread::scope(|scope| {
        let asking = [(); 4].map(|()| scope.spawn(|| promote(&standby, "--force")));
        asking.map(|asking| asking.join().expect("a command does not panic"))
    });
    let mut done = 0;
    for told in &told {
        match told {
            Ok(promotion) => done += usize::from(!promotion.is_repeated),
            // It restarts as the writer.
            Err(error) => ensure!(format!("{error:#}").contains("failed (Some(5))"), "{error:#}"),
        }
    }
    ensure!(done == 1, "{told:?}");
    standby.save_image()?;
    standby.finish()
}

#[test]
fn a_standby_that_is_killed_again_and_again_follows_and_a_promoted_one_stays_so() -> Result<()> {
    let store = Store::folder()?;
    let (mut writer, mut standby) = store.pair()?;
    writer.memlane("volume create db --size 64MiB --durability image")?;
    let mut db = client(&writer, "db")?;
    for round in 0..6 {
        let mut last = 0.0;
        for block in 0..1000 {
            last = stamp(&mut db, block)?;
        }
        // At some moment during the next image.
        std::thread::sleep(Duration::from_millis(230 * round));
        standby.kill()?;
        standby.start_again()?;
        if round % 3 == 2 {
            wait_until_read(&standby, |db| Ok(read_stamp(db, 999)? >= last))?;
        }
    }
    drop(db);
    writer.save_image()?;
    writer.kill()?;
    standby.memlane("standby promote --force")?;
    let kept = stamp(&mut client(&standby, "db")?, 0)?;
    standby.kill()?;
    standby.start_again()?;
    ensure!(standby.status()?.standby.is_none(), "it was promoted");
    ensure!(read_stamp(&mut client(&standby, "db")?, 0)? >= kept);
    standby.save_image()?;
    standby.lose_memory()?;
    standby.start_again()?;
    ensure!(read_stamp(&mut client(&standby, "db")?, 0)? >= kept, "it does not follow itself");
    standby.finish()
}

#[test]
fn an_encrypted_store_is_followed_with_its_key_and_another_key_is_told_of() -> Result<()> {
    let store = Store::folder()?;
    let keys = tempfile::tempdir()?;
    let key = write_key(&keys.path().join("key"), 7)?;
    let other = write_key(&keys.path().join("other"), 8)?;
    let mut writer = store.daemon(&format!("--images-every 1s --encryption-key-file {key}"))?;
    let follow = format!("--standby-follow --standby-every 100ms --encryption-key-file {key}");
    let mut standby = store.daemon(&follow)?;
    writer.memlane("volume create db --size 64MiB --durability journal")?;
    let first = stamp(&mut client(&writer, "db")?, 0)?;
    wait_until_read(&standby, |db| Ok(read_stamp(db, 0)? >= first))?;
    let flags = standby.flags().to_owned();
    standby.stop()?;
    standby.set_flags(&flags.replace(&key, &other));
    standby.start_again()?;
    wait_for("the wrong key to be told of", TIME_LIMIT, || {
        let shown = self::standby(&standby)?;
        let is_failing = shown.state == api::StandbyState::Failing;
        Ok(is_failing && shown.cause.is_some_and(|cause| cause.contains("key")))
    })?;
    standby.stop()?;
    standby.set_flags(&flags);
    standby.start_again()?;
    wait_until_read(&standby, |db| Ok(read_stamp(db, 0)? >= first))?;
    writer.save_image()?;
    writer.kill()?;
    standby.memlane("standby promote --force")?;
    let mut db = client(&standby, "db")?;
    stamp(&mut db, 3)?;
    db.ask(&Request::Flush)?;
    drop(db);
    standby.finish()
}

fn write_key(path: &Path, seed: u8) -> Result<String> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, [seed; 32])?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(path.display().to_string())
}
