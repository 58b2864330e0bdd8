//! Two hosts without an object store: the standby serves the store to which the writer saves. It is
//! killed during saves, promoted, and hands the volumes back.

#[path = "../../../engine/store-server/tests/authority/mod.rs"]
mod authority;

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use authority::Authority;
use rustix::process::Signal;
use system::{Daemon, NbdClient, Request, wait_for};

/// Time limit of waits. A standby waits up to 30 s before it retries a failed store, and requests
/// are retried for about as long.
const TIME_LIMIT: Duration = Duration::from_secs(240);

/// Host of the standby, whose daemon serves the store, and host of the writer.
struct Hosts {
    folder: tempfile::TempDir,
    authority: Authority,
    standby: Daemon,
    writer: Daemon,
    place: String,
}

impl Hosts {
    fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let authority = Authority::new();
        let listen = "--store-server-listen 127.0.0.1:0";
        let flags = format!("{} {listen} {FOLLOW}", served_flags(&folder, &authority));
        let mut standby = Daemon::prepare("96MiB".to_owned(), flags)?;
        standby.start_again()?;
        let server = standby.status()?.store_server.context("it serves a store")?;
        let (_, port) = server.address.rsplit_once(':').context("it has a port")?;
        let listen = format!("--store-server-listen 127.0.0.1:{port}");
        standby.set_flags(&format!("{} {listen} {FOLLOW}", served_flags(&folder, &authority)));
        let place = format!("memlane://localhost:{port}");
        let flags = format!("{} {SAVE}", client_flags(&place, &authority));
        let mut writer = Daemon::prepare("96MiB".to_owned(), flags)?;
        writer.start_again()?;
        Ok(Self { folder, authority, standby, writer, place })
    }
}

const FOLLOW: &str = "--standby-follow --standby-every 100ms --no-fuse";
const SAVE: &str = "--images-every 1s --images-ship-every 100ms --no-fuse";

fn served_flags(folder: &tempfile::TempDir, authority: &Authority) -> String {
    let (certificate, key) = authority.issue("localhost");
    let directory = folder.path().join("store");
    format!(
        "--images-store {0} --store-server-directory {0} --store-server-certificate {1} \
         --store-server-key {2} --store-server-client-ca {3} --store-server-clients host-a.example",
        directory.display(),
        certificate.display(),
        key.display(),
        authority.own_file.display()
    )
}

fn client_flags(place: &str, authority: &Authority) -> String {
    client_flags_of("host-a.example", place, authority)
}

fn client_flags_of(name: &str, place: &str, authority: &Authority) -> String {
    let (certificate, key) = authority.issue(name);
    format!(
        "--images-store {place} --images-store-certificate {} --images-store-key {} \
         --images-store-ca {}",
        certificate.display(),
        key.display(),
        authority.own_file.display()
    )
}

fn unix_seconds() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

/// Writes the time into a block, and flushes.
fn stamp(daemon: &Daemon, block: u64) -> Result<f64> {
    let now = unix_seconds()?;
    let mut db = NbdClient::connect(&daemon.nbd_socket(), "db")?;
    let data = now.to_le_bytes().repeat(512);
    db.ask(&Request::Write { offset: block * 4096, data })?;
    db.ask(&Request::Flush)?;
    Ok(now)
}

fn read_stamp(daemon: &Daemon, block: u64) -> Result<f64> {
    let mut db = NbdClient::connect(&daemon.nbd_socket(), "db")?;
    let found = db.ask(&Request::Read { offset: block * 4096, length: 4096 })?;
    Ok(f64::from_le_bytes(found[..8].try_into().context("a stamp has eight bytes")?))
}

fn wait_until_read(daemon: &Daemon, block: u64, stamp: f64) -> Result<()> {
    // Before the first image there is no volume.
    let is_there = || Ok(read_stamp(daemon, block).is_ok_and(|found| found >= stamp));
    wait_for("the standby to have it", TIME_LIMIT, is_there)
}

#[test]
fn a_standby_that_serves_the_store_takes_over_and_hands_back() -> Result<()> {
    let Hosts { folder: _folder, authority, mut standby, mut writer, place } = Hosts::start()?;
    writer.memlane("volume create db --size 64MiB --durability journal")?;
    let first = stamp(&writer, 0)?;
    wait_until_read(&standby, 0, first)?;
    let server = standby.status()?.store_server.context("it serves a store")?;
    let client = server.clients.first().context("it has a client")?;
    ensure!(client.name == "host-a.example" && client.received_bytes > 0, "{client:?}");
    ensure!(standby.memlane("status")?.contains("host-a.example"), "the client is shown");
    let metrics = standby.ask("/metrics")?;
    ensure!(metrics.contains("memlane_store_server_received_bytes_total"), "{metrics}");

    // Killed while the writer saves.
    let mut last = first;
    for round in 1..=3 {
        for block in 0..20 {
            last = stamp(&writer, round * 20 + block)?;
        }
        standby.kill()?;
        stamp(&writer, round)?;
        standby.start_again()?;
        wait_until_read(&standby, round * 20 + 19, last)?;
    }

    // Flushed and shipped data survives the end of the writer.
    let flushed = stamp(&writer, 5)?;
    let answered = unix_seconds()?;
    wait_for("the journal to be shipped", TIME_LIMIT, || {
        let asked = unix_seconds()?;
        let images = writer.status()?.durability.images.context("it saves images")?;
        let shipping = images.shipping.context("it ships its journal")?;
        Ok(shipping.lag_seconds.is_some_and(|lag| asked - lag > answered))
    })?;
    writer.kill()?;
    standby.memlane("standby promote --force")?;
    ensure!(read_stamp(&standby, 5)? >= flushed, "what was shipped is lost");
    ensure!(read_stamp(&standby, 79)? >= last, "what was saved is lost");
    let after = stamp(&standby, 6)?;
    standby.save_image()?;

    // The former writer follows the store that its former standby writes to and serves.
    fs::remove_file(writer.pool_file())?;
    fs::remove_dir_all(writer.state_dir().join("journal"))?;
    writer.set_flags(&format!("{} {FOLLOW}", client_flags(&place, &authority)));
    writer.start_again()?;
    wait_until_read(&writer, 6, after)?;

    // It takes the volumes back while the other daemon serves the store.
    writer.memlane("standby promote --force")?;
    ensure!(read_stamp(&writer, 6)? >= after, "what was saved is lost");
    stamp(&writer, 7)?;
    writer.save_image()?;
    let fenced = standby.try_memlane("image save")?;
    ensure!(fenced.stderr.contains("taken over"), "{fenced:?}");
    writer.finish()?;
    standby.kill()
}

#[test]
fn a_daemon_of_another_authority_is_refused_and_says_why() -> Result<()> {
    let hosts = Hosts::start()?;
    let foreign = Authority::new();
    let (certificate, key) = foreign.issue("host-a.example");
    let flags = format!(
        "--no-fuse --images-store {} --images-store-certificate {} --images-store-key {} \
         --images-store-ca {}",
        hosts.place,
        certificate.display(),
        key.display(),
        hosts.authority.own_file.display()
    );
    let mut stranger = Daemon::prepare("64MiB".to_owned(), flags)?;
    ensure!(stranger.start_again().is_err(), "it started");
    let log = fs::read_to_string(stranger.log_path())?;
    ensure!(log.contains("the server refused store-certificate"), "{log}");
    wait_for("the refusal to be told", TIME_LIMIT, || {
        Ok(hosts.standby.memlane("events")?.contains("store_client_refused"))
    })
}

#[test]
fn a_daemon_that_clients_does_not_name_is_refused_also_after_a_reload() -> Result<()> {
    let hosts = Hosts::start()?;
    let flags = client_flags_of("host-b.example", &hosts.place, &hosts.authority);
    let mut stranger = Daemon::prepare("64MiB".to_owned(), format!("--no-fuse {flags}"))?;
    let mut told = 0;
    for round in 1..=2 {
        ensure!(stranger.start_again().is_err(), "it started, round {round}");
        let log = fs::read_to_string(stranger.log_path())?;
        let why = "the certificate is for host-b.example, which is not in clients";
        let told_before = std::mem::replace(&mut told, log.matches(why).count());
        ensure!(told > told_before, "round {round}: {log}");
        wait_for("the refusal to be told", TIME_LIMIT, || {
            let events = hosts.standby.memlane("events")?;
            Ok(events.contains("its certificate is for host-b.example"))
        })?;
        hosts.standby.signal(Signal::HUP)?;
        wait_for("the configuration to be reloaded", TIME_LIMIT, || {
            Ok(hosts.standby.memlane("events")?.contains("configuration_read"))
        })?;
    }
    hosts.writer.memlane("volume create db --size 16MiB --durability image")?;
    hosts.writer.save_image()?;
    hosts.writer.finish()?;
    hosts.standby.finish()
}

#[test]
fn the_served_directory_is_locked_against_daemons_of_its_host() -> Result<()> {
    let hosts = Hosts::start()?;
    let directory = hosts.folder.path().join("store");
    let flags = format!("--no-fuse --images-store {}", directory.display());
    let mut other = Daemon::prepare("64MiB".to_owned(), flags)?;
    ensure!(other.start_again().is_err(), "it started");
    let log = fs::read_to_string(other.log_path())?;
    ensure!(log.contains("another daemon of this host writes to this image store"), "{log}");
    hosts.writer.finish()?;
    hosts.standby.finish()
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Issues the server's certificate so that it expires in `time`, or that long ago.
fn expiring(authority: &Authority, time: Duration, is_over: bool) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let at = if is_over { now - time } else { now + time };
    let files = authority.issue_with("localhost", |params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + at;
    });
    ensure!(files.0.exists());
    Ok(())
}

/// Checks what a server reports of its certificate, which it has just read.
fn check_certificate(server: &Daemon, kind: Option<&str>, verdict: &str) -> Result<()> {
    if let Some(kind) = kind {
        wait_for(kind, TIME_LIMIT, || Ok(server.memlane("events")?.contains(kind)))?;
    }
    let warnings = server.status()?.warnings;
    let told = warnings.iter().find(|it| it.kind.starts_with("certificate_"));
    let told_kind = told.map(|it| it.kind.as_str()).filter(|_| kind.is_some());
    ensure!(told.map(|it| it.kind.as_str()) == told_kind, "{warnings:?}");
    if verdict != "good" {
        let told = told.context("there is a warning")?;
        ensure!(Some(&*told.kind) == kind && told.message.contains("localhost.pem"), "{told:?}");
    }
    let doctor = server.try_memlane("--json doctor")?;
    let findings: Vec<serde_json::Value> = serde_json::from_str(&doctor.stdout)?;
    let finding = findings.iter().find(|it| it["check"] == "certificates");
    let finding = finding.context("certificates are checked")?;
    ensure!(finding["state"] == verdict, "{finding}");
    ensure!(finding["what"].as_str().is_some_and(|it| it.contains(".pem")), "{finding}");
    ensure!((doctor.exit_code != Some(0)) == (verdict == "missing"), "{doctor:?}");
    let metrics = server.ask("/metrics")?;
    ensure!(metrics.contains("memlane_certificate_expiry_timestamp_seconds{"), "{metrics}");
    Ok(())
}

#[test]
fn certificates_are_warned_of_before_they_expire_and_after() -> Result<()> {
    let (folder, authority) = (tempfile::tempdir()?, Authority::new());
    let listen = "--store-server-listen 127.0.0.1:0 --no-fuse";
    let flags = format!("{} {listen}", served_flags(&folder, &authority));
    expiring(&authority, 10 * DAY, false)?;
    let mut server = Daemon::prepare("64MiB".to_owned(), flags)?;
    server.start_again()?;
    check_certificate(&server, Some("certificate_expiring"), "lacking")?;
    // A file that was replaced counts once the server reads it.
    expiring(&authority, DAY, true)?;
    check_certificate(&server, Some("certificate_expiring"), "lacking")?;
    server.signal(Signal::HUP)?;
    check_certificate(&server, Some("certificate_expired"), "missing")?;
    expiring(&authority, 300 * DAY, false)?;
    server.signal(Signal::HUP)?;
    check_certificate(&server, Some("certificate_renewed"), "good")?;
    server.finish()
}
