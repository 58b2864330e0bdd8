//! The daemon as a service manager sees it: what it is told at the start and the end, and that a
//! stop loses no image.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use system::{Daemon, NbdClient, Random, Request, wait_for};

const TIME_LIMIT: Duration = Duration::from_secs(60);

const FLAGS: &str = "--no-fuse --journal-max-bytes 16MiB";

/// The socket that a service manager would listen at.
struct Manager {
    socket: UnixDatagram,
    _folder: tempfile::TempDir,
}

impl Manager {
    /// Of a daemon that is not started yet.
    fn of(daemon: &mut Daemon) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path)?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        daemon.set_variable("NOTIFY_SOCKET", path.to_str().context("a path in UTF-8")?);
        Ok(Self { socket, _folder: folder })
    }

    /// The next message, if one has come.
    fn next(&self) -> Result<Option<String>> {
        let mut message = [0; 256];
        match self.socket.recv(&mut message) {
            Ok(length) => Ok(Some(String::from_utf8_lossy(&message[..length]).trim().to_owned())),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for a message that begins so.
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

/// A client that asks for much and takes nothing, so that its connection does not drain.
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
    let manager = Manager::of(&mut daemon)?;
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
    drop(hanging);
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
