//! The daemon under a service manager: notifications at the start and the end, and stops that lose
//! no image.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use system::{Ability, Daemon, NbdClient, Random, Request, Tool, leftovers, missing, wait_for};

const TIME_LIMIT: Duration = Duration::from_secs(60);

const FLAGS: &str = "--no-fuse --journal-max-bytes 16MiB";

/// Notification socket of a service manager.
struct NotifySocket {
    socket: UnixDatagram,
    _folder: tempfile::TempDir,
}

impl NotifySocket {
    /// Creates the socket of a daemon that is not started yet.
    fn of(daemon: &mut Daemon) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path)?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        daemon.set_variable("NOTIFY_SOCKET", path.to_str().context("a path in UTF-8")?);
        Ok(Self { socket, _folder: folder })
    }

    /// Returns the next message, if one has arrived.
    fn next(&self) -> Result<Option<String>> {
        let mut message = [0; 256];
        match self.socket.recv(&mut message) {
            Ok(length) => Ok(Some(String::from_utf8_lossy(&message[..length]).trim().to_owned())),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for a message with this prefix.
    fn wait_for(&self, beginning: &str) -> Result<String> {
        let deadline = Instant::now() + TIME_LIMIT;
        while Instant::now() < deadline {
            if let Some(message) = self.next()?.filter(|it| it.starts_with(beginning)) {
                return Ok(message);
            }
        }
        anyhow::bail!("no {beginning} within {TIME_LIMIT:?}")
    }
}

fn daemon(flags: &str) -> Result<Daemon> {
    Daemon::prepare("96MiB".to_owned(), format!("{FLAGS} {flags}"))
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Random::new(seed).fill(&mut bytes);
    bytes
}

fn client(daemon: &Daemon, volume: &str) -> Result<NbdClient> {
    Ok(NbdClient::connect(&daemon.nbd_socket(), volume)?)
}

/// Creates a client that sends many requests and reads no answers, so that its connection does not
/// drain.
fn client_that_hangs(daemon: &Daemon, volume: &str) -> Result<NbdClient> {
    let mut client = client(daemon, volume)?;
    for _ in 0..64 {
        client.send(&Request::Read { offset: 0, length: 1 << 20 })?;
    }
    Ok(client)
}

#[test]
fn the_last_image_is_saved_although_clients_hang_and_more_time_is_asked_for_first() -> Result<()> {
    let mut daemon = daemon("")?;
    let manager = NotifySocket::of(&mut daemon)?;
    daemon.start_again()?;
    manager.wait_for("READY=1")?;
    daemon.memlane("volume create db --size 64MiB --durability image")?;
    let mut writer = client(&daemon, "db")?;
    writer.ask(&Request::Write { offset: 4096, data: noise(7, 4096) })?;
    drop(writer);
    let hanging = [client_that_hangs(&daemon, "db")?, client_that_hangs(&daemon, "db")?];
    daemon.signal(Signal::TERM)?;
    let first = loop {
        if let Some(message) = manager.next()? {
            break message;
        }
    };
    ensure!(first.starts_with("EXTEND_TIMEOUT_USEC="), "the first message is {first}");
    manager.wait_for("STOPPING=1")?;
    daemon.wait_until_ended()?;
    // Its messages would wait for a receiver.
    drop((hanging, manager));
    daemon.lose_memory()?;
    daemon.start_again()?;
    let mut reader = client(&daemon, "db")?;
    let found = reader.ask(&Request::Read { offset: 4096, length: 4096 })?;
    ensure!(found == noise(7, 4096), "what the last image should have is not there");
    drop(reader);
    daemon.finish()
}

#[test]
fn a_daemon_that_stops_says_that_it_is_alive_and_not_ready() -> Result<()> {
    let mut daemon = daemon("")?;
    daemon.start_again()?;
    ensure!(daemon.ask("/readyz")?.starts_with("HTTP/1.1 200"), "a daemon that serves is ready");
    daemon.memlane("volume create db --size 64MiB")?;
    let hanging = client_that_hangs(&daemon, "db")?;
    daemon.signal(Signal::TERM)?;
    wait_for("the daemon to say that it stops", TIME_LIMIT, || {
        let answer = daemon.ask("/readyz")?;
        Ok(answer.starts_with("HTTP/1.1 503") && answer.contains("shutting_down"))
    })?;
    let health = daemon.ask("/healthz")?;
    ensure!(health.starts_with("HTTP/1.1 200") && health.contains("stopping"), "{health}");
    drop(hanging);
    daemon.wait_until_ended()?;
    daemon.start_again()?;
    daemon.finish()
}

#[test]
fn the_interface_answers_while_a_start_waits_and_the_start_can_be_stopped() -> Result<()> {
    // A store that accepts connections and never answers.
    let store = std::net::TcpListener::bind("127.0.0.1:0")?;
    let mut daemon = daemon("--images-store s3://bucket/images")?;
    daemon.set_object_store(store.local_addr()?);
    daemon.launch()?;
    wait_for("the daemon to say that it reads what is stored", TIME_LIMIT, || {
        Ok(daemon.ask("/readyz").is_ok_and(|it| it.contains("the images in s3://bucket/images")))
    })?;
    let refused = daemon.ask("/v1/volumes")?;
    ensure!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after"), "{refused}");
    let health = daemon.ask("/healthz")?;
    ensure!(health.starts_with("HTTP/1.1 200") && health.contains("starting"), "{health}");
    ensure!(daemon.try_memlane("status")?.exit_code == Some(5), "it is not there yet");
    daemon.stop()?;
    let left = leftovers(&daemon.run_dir())?;
    ensure!(left.is_empty() && !daemon.api_socket().exists(), "left on the host: {left:#?}");
    daemon.set_flags(FLAGS);
    daemon.start_again()?;
    let died = events(&daemon)?.into_iter().find(|event| event.kind == "daemon_died");
    ensure!(died.is_none(), "it was stopped: {died:?}");
    daemon.finish()
}

#[test]
fn a_start_that_is_stopped_at_any_time_leaves_no_devices_sockets_or_processes() -> Result<()> {
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let mut daemon = Daemon::prepare("96MiB".to_owned(), String::new())?;
    daemon.start_again()?;
    daemon.memlane("volume create db --size 16MiB")?;
    daemon.memlane("export vhost-user db")?;
    daemon.stop()?;
    let run_dir = daemon.run_dir();
    for name in ["api.sock", "volumes", "nbd.sock", "vhost/db.sock", "ring.sock"] {
        // Those of the last daemon.
        for socket in ["nbd.sock", "vhost/db.sock", "ring.sock"] {
            fs::remove_file(run_dir.join(socket)).ok();
        }
        daemon.launch()?;
        wait_for(name, TIME_LIMIT, || is_made(&run_dir, name))?;
        daemon.stop()?;
        ensure!(!daemon.api_socket().exists(), "{name}: the socket of the interface is left");
        let left = || {
            let mut left = leftovers(&run_dir)?;
            // The pool outlives the daemon.
            left.retain(|it| !it.contains("/run/pool "));
            Ok::<_, anyhow::Error>(left)
        };
        // A process that ends may keep its sockets for a moment longer.
        let gone = wait_for("all of it to go", TIME_LIMIT, || Ok(left()?.is_empty()));
        gone.with_context(|| format!("{name}: left on the host: {:#?}", left()))?;
    }
    daemon.start_again()?;
    daemon.memlane("export delete db")?;
    daemon.finish()
}

/// Returns whether a start has made what has this name in the run directory. `volumes` is a mount
/// point whose directory may be left from an earlier start.
fn is_made(run_dir: &Path, name: &str) -> Result<bool> {
    let path = run_dir.join(name);
    if name != "volumes" {
        return Ok(path.exists());
    }
    Ok(fs::read_to_string("/proc/self/mounts")?.contains(&format!(" {} ", path.display())))
}

#[test]
fn the_service_manager_learns_each_step_and_is_asked_for_more_time_during_a_start() -> Result<()> {
    // A store that accepts connections and never answers.
    let store = std::net::TcpListener::bind("127.0.0.1:0")?;
    let mut daemon = daemon("--images-store s3://bucket/images")?;
    daemon.set_object_store(store.local_addr()?);
    let manager = NotifySocket::of(&mut daemon)?;
    daemon.set_variable("WATCHDOG_USEC", "1000000");
    daemon.launch()?;
    manager.wait_for("STATUS=starting: reading the journal in")?;
    for _ in 0..3 {
        manager.wait_for("EXTEND_TIMEOUT_USEC=")?;
        manager.wait_for("WATCHDOG=1")?;
    }
    daemon.stop()?;
    daemon.set_flags(FLAGS);
    daemon.launch()?;
    manager.wait_for("STATUS=starting: opening the pool")?;
    manager.wait_for("READY=1\nSTATUS=serving")?;
    daemon.signal(Signal::TERM)?;
    manager.wait_for("STATUS=stopping: saving the last image")?;
    daemon.wait_until_ended()?;
    drop(manager);
    daemon.start_again()?;
    daemon.finish()
}

/// A configuration file of the daemon.
struct ConfigFile {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl ConfigFile {
    fn new(text: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = Self { path: folder.path().join("memlaned.toml"), _folder: folder };
        file.set(text)?;
        Ok(file)
    }

    fn set(&self, text: &str) -> Result<()> {
        Ok(fs::write(&self.path, text)?)
    }

    fn flags(&self) -> String {
        format!("--config {}", self.path.display())
    }
}

fn events(daemon: &Daemon) -> Result<Vec<api::Event>> {
    Ok(serde_json::from_str(&daemon.memlane("--json events")?)?)
}

/// Makes the daemon reload its configuration, and waits until it reports the result.
fn reload(daemon: &Daemon, outcome: &str) -> Result<api::Event> {
    let last_id = events(daemon)?.last().map_or(0, |event| event.id);
    daemon.signal(Signal::HUP)?;
    let mut found = None;
    wait_for(outcome, TIME_LIMIT, || {
        let new = events(daemon)?.into_iter().filter(|event| event.id > last_id);
        found = new.into_iter().find(|event| event.kind.starts_with("configuration_"));
        Ok(found.is_some())
    })?;
    found.filter(|event| event.kind == outcome).with_context(|| format!("{:?}", events(daemon)))
}

fn thresholds(daemon: &Daemon) -> Result<Vec<u64>> {
    let pool: api::Pool = serde_json::from_str(&daemon.memlane("--json pool show")?)?;
    Ok(pool.thresholds_percent)
}

#[test]
fn a_hang_up_reads_the_configuration_again_and_one_that_is_wrong_changes_nothing() -> Result<()> {
    let config = ConfigFile::new("[capacity]\nthresholds = [70]\n")?;
    let mut daemon = daemon(&config.flags())?;
    let manager = NotifySocket::of(&mut daemon)?;
    daemon.start_again()?;
    manager.wait_for("READY=1")?;
    let id = daemon.id();
    daemon.memlane("volume create db --size 16MiB")?;
    config.set("log = \"debug\"\n[capacity]\nthresholds = [30, 20]\n")?;
    reload(&daemon, "configuration_read")?;
    manager.wait_for("RELOADING=1")?;
    manager.wait_for("READY=1")?;
    ensure!(thresholds(&daemon)? == [20, 30], "{:?}", thresholds(&daemon)?);
    drop(client(&daemon, "db")?);
    wait_for("a line for debugging", TIME_LIMIT, || Ok(daemon.log_end().contains("DEBUG")))?;
    for wrong in ["[capacity]\nthresholds = [300]", "log = \"info=what=\"", "no-such-key = 1"] {
        config.set(wrong)?;
        let refused = reload(&daemon, "configuration_refused")?;
        ensure!(refused.level == api::EventLevel::Error, "{refused:?}");
        ensure!(thresholds(&daemon)? == [20, 30], "{wrong}: {:?}", thresholds(&daemon)?);
    }
    // Its messages would wait for a receiver.
    drop(manager);
    config.set("[capacity]\nthresholds = [30]\n")?;
    let list = daemon.folder().join("state/users.json");
    daemon.memlane("volume set db users=65534")?;
    let before = fs::read_to_string(&list)?;
    fs::write(&list, before.replace("65534", "65533"))?;
    reload(&daemon, "configuration_read")?;
    ensure!(daemon.volume("db")?.users == ["65533"], "{:?}", daemon.volume("db")?.users);
    config.set("[capacity]\nthresholds = [40]\n")?;
    fs::write(&list, "no list")?;
    reload(&daemon, "configuration_refused")?;
    ensure!(daemon.volume("db")?.users == ["65533"], "{:?}", daemon.volume("db")?.users);
    ensure!(thresholds(&daemon)? == [30], "{:?}", thresholds(&daemon)?);
    ensure!(daemon.id() == id, "the daemon did not go on");
    config.set("")?;
    daemon.finish()
}

#[test]
fn a_reload_names_the_settings_that_took_effect_and_those_that_need_a_restart() -> Result<()> {
    let config = ConfigFile::new("lanes = 2\n[capacity]\nthresholds = [70]\n")?;
    let mut daemon = daemon(&config.flags())?;
    daemon.start_again()?;
    let steps = [
        ("lanes = 2\n[capacity]\nthresholds = [70]\n", "no other value takes effect"),
        (
            "lanes = 2\nlog = \"debug\"\n[capacity]\nthresholds = [60]\n",
            "in effect now: log, thresholds in [capacity]",
        ),
        (
            "lanes = 3\nlog = \"debug\"\n[images]\nevery = \"1h\"\n[capacity]\nthresholds = [50]\n",
            "in effect now: thresholds in [capacity]; restart the daemon to apply: lanes, every in \
          [images]",
        ),
        (
            "lanes = 3\n[capacity]\nthresholds = [50]\n",
            "in effect now: log; restart the daemon to apply: lanes",
        ),
        ("lanes = 2\n[capacity]\nthresholds = [50]\n", "no other value takes effect"),
    ];
    for (text, expected) in steps {
        config.set(text)?;
        let read = reload(&daemon, "configuration_read")?;
        ensure!(read.message == format!("configuration reloaded; {expected}"), "{}", read.message);
    }
    config.set("")?;
    daemon.finish()
}

#[test]
fn a_promoted_standby_keeps_the_settings_that_were_reloaded() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let store = format!("--images-store {}", folder.path().join("images").display());
    let mut writer = daemon(&store)?;
    writer.start_again()?;
    writer.memlane("volume create db --size 16MiB --durability image")?;
    writer.save_image()?;
    let config = ConfigFile::new("[capacity]\nthresholds = [70]\n")?;
    let mut standby = daemon(&format!("{store} --standby-follow {}", config.flags()))?;
    standby.start_again()?;
    config.set("[capacity]\nthresholds = [60]\n")?;
    reload(&standby, "configuration_read")?;
    writer.stop()?;
    standby.memlane("standby promote --force")?;
    ensure!(thresholds(&standby)? == [60], "the restart as the writer has undone the reload");
    config.set("")?;
    standby.finish()
}

/// Creates a server certificate for this name, and its key, in `folder`.
fn make_certificate(folder: &Path, name: &str) -> Result<()> {
    Tool::new("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2")
        .args(["-subj", &format!("/CN={name}")])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .arg("-keyout")
        .arg(folder.join("key.pem"))
        .arg("-out")
        .arg(folder.join("cert.pem"))
        .check()?;
    Ok(())
}

/// Begins NBD, starts TLS, prints the server's certificate, and lists its exports.
const SHOW_CERTIFICATE: &str = "
import socket, ssl, struct, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60)
hello = s.recv(18, socket.MSG_WAITALL)
s.sendall(struct.pack('>I', 3) + b'IHAVEOPT' + struct.pack('>II', 5, 0))
reply = s.recv(20, socket.MSG_WAITALL)
assert struct.unpack('>I', reply[12:16])[0] == 1, reply
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
tls = context.wrap_socket(s)
print(ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True)))
try:
    tls.sendall(b'IHAVEOPT' + struct.pack('>II', 3, 0))
    assert tls.recv(1)
except (OSError, AssertionError):
    print('refused')
";

fn shown_certificate(address: &str) -> Result<String> {
    let (host, port) = address.rsplit_once(':').context("an address has a port")?;
    let shown = Tool::new("python3 -c").args([SHOW_CERTIFICATE, host, port]).check()?;
    Ok(shown.trim().to_owned())
}

#[test]
fn clients_are_asked_for_certificates_until_a_restart_although_that_is_read_twice() -> Result<()> {
    if let Some(reason) = missing(&[Ability::Program("openssl"), Ability::Program("python3")]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let place = folder.path().display();
    make_certificate(folder.path(), "one")?;
    let open = format!(
        "nbd-tcp = \"127.0.0.1:0\"\nnbd-tls-cert = \"{place}/cert.pem\"\n\
         nbd-tls-key = \"{place}/key.pem\"\n"
    );
    let asking = format!("{open}nbd-tls-client-ca = \"{place}/cert.pem\"\n");
    let config = ConfigFile::new(&asking)?;
    let mut daemon = daemon(&config.flags())?;
    daemon.start_again()?;
    let nbd = daemon.status()?.exports.nbd.context("NBD is served")?;
    let address = nbd.tcp.context("also over TCP")?;
    let is_refused = || Ok::<_, anyhow::Error>(shown_certificate(&address)?.ends_with("refused"));
    ensure!(is_refused()?, "a client without a certificate was let in");
    config.set(&format!("{open}nbd-insecure = true\n"))?;
    for round in 0..3 {
        let read = reload(&daemon, "configuration_read")?;
        ensure!(is_refused()?, "a client without a certificate was let in, round {round}");
        let told = "restart the daemon to apply: nbd-tls-client-ca, nbd-insecure";
        ensure!(read.message.ends_with(told), "round {round}: {}", read.message);
        ensure!(read.level == api::EventLevel::Warning, "{read:?}");
        ensure!(daemon.log_end().matches(told).count() == round + 1, "it is not in the log");
    }
    config.set("")?;
    daemon.finish()
}

#[test]
fn clients_over_tcp_are_shown_the_certificate_that_was_read_last() -> Result<()> {
    if let Some(reason) = missing(&[Ability::Program("openssl"), Ability::Program("python3")]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let place = folder.path();
    make_certificate(place, "one")?;
    let flags = format!(
        "--nbd-tcp 127.0.0.1:0 --nbd-insecure --nbd-tls-cert {0}/cert.pem \
         --nbd-tls-key {0}/key.pem",
        place.display()
    );
    let mut daemon = daemon(&flags)?;
    daemon.start_again()?;
    let nbd = daemon.status()?.exports.nbd.context("NBD is served")?;
    let address = nbd.tcp.context("also over TCP")?;
    let now =
        || Ok::<_, anyhow::Error>(fs::read_to_string(place.join("cert.pem"))?.trim().to_owned());
    ensure!(shown_certificate(&address)? == now()?, "another certificate was shown");
    make_certificate(place, "two")?;
    reload(&daemon, "configuration_read")?;
    ensure!(shown_certificate(&address)? == now()?, "the new certificate was not shown");
    let before = now()?;
    fs::write(place.join("cert.pem"), "no certificate")?;
    reload(&daemon, "configuration_refused")?;
    ensure!(shown_certificate(&address)? == before, "a certificate that is none was taken");
    daemon.finish()
}

#[test]
fn that_a_daemon_died_is_an_event_of_the_next_and_ids_grow() -> Result<()> {
    let mut daemon = daemon("")?;
    daemon.start_again()?;
    daemon.stop()?;
    daemon.start_again()?;
    let before = events(&daemon)?;
    ensure!(before.iter().all(|event| event.kind != "daemon_died"), "{before:?}");
    let last_id = before.last().context("there are events")?.id;
    daemon.kill()?;
    daemon.start_again()?;
    let new: Vec<api::Event> =
        serde_json::from_str(&daemon.memlane(&format!("--json events --after {last_id}"))?)?;
    let kinds: Vec<&str> = new.iter().map(|event| &*event.kind).collect();
    ensure!(kinds == ["daemon_died", "daemon_started"], "{new:?}");
    let ids: Vec<u64> = events(&daemon)?.iter().map(|event| event.id).collect();
    let do_grow = ids.is_sorted_by(|earlier, later| earlier < later);
    ensure!(do_grow && ids.len() == before.len() + new.len(), "{ids:?}");
    let old: Vec<u64> = before.iter().map(|event| event.id).collect();
    ensure!(ids.starts_with(&old), "{old:?} and then {ids:?}");
    daemon.finish()
}

#[test]
fn the_service_manager_hears_that_the_daemon_is_alive() -> Result<()> {
    let mut daemon = daemon("")?;
    let manager = NotifySocket::of(&mut daemon)?;
    daemon.set_variable("WATCHDOG_USEC", "4000000");
    daemon.start_again()?;
    manager.wait_for("READY=1")?;
    for _ in 0..3 {
        manager.wait_for("WATCHDOG=1")?;
    }
    drop(manager);
    daemon.finish()
}

#[test]
fn lines_have_priorities_only_where_the_journal_reads_them() -> Result<()> {
    let mut daemon = daemon("")?;
    daemon.start_again()?;
    ensure!(!daemon.log_end().contains("<6>"), "a file is no journal");
    daemon.stop()?;
    let log = fs::metadata(daemon.log_path())?;
    daemon.set_variable("JOURNAL_STREAM", &format!("{}:{}", log.dev(), log.ino()));
    daemon.start_again()?;
    let marked = |line: &str| line.starts_with("<6>") && line.contains("pool opened");
    ensure!(daemon.log_end().lines().any(marked), "{}", daemon.log_end());
    daemon.finish()
}
