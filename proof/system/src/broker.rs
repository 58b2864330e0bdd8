//! The broker as a separate process, on volumes of a daemon or with its own pool.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::daemon::product_path;
use crate::interruption::Interruption;
use crate::process::check_for_panics;

const START_TIME_LIMIT: Duration = Duration::from_secs(120);
const STOP_TIME_LIMIT: Duration = Duration::from_secs(30);
const ANSWER_TIME_LIMIT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// First port for listeners, below the kernel's ephemeral ports: a client with an ephemeral port
/// could connect to itself while its server is down.
const PORT_FIRST: u16 = 20_000;
const PORT_COUNT: u16 = 12_000;
const PORT_ATTEMPTS_MAX: usize = 100;

/// Distance between the first ports of two processes that were started consecutively.
const PORT_STEP: u32 = 61;

/// A running broker, or one that was just killed. Dropping it ends it.
pub struct Broker {
    /// Prefix of its command line.
    starter: Vec<String>,
    flags: Vec<String>,
    port: u16,
    folder: TempDir,
    child: Option<Child>,
}

impl Broker {
    /// Starts a broker that stores topics on volumes of the daemon with these sockets.
    pub fn on_daemon(run_dir: &Path, flags: &str) -> Result<Self> {
        Self::start(&format!("--daemon {} {flags}", run_dir.display()))
    }

    /// Starts a broker with these flags, which include the location of topics, and waits until it
    /// is ready. It permits clients of this host.
    pub fn start(flags: &str) -> Result<Self> {
        Self::start_behind(&[], flags)
    }

    /// Same, with a prefix of the command line, such as `taskset` and its arguments.
    pub fn start_behind(starter: &[String], flags: &str) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("memlane-").tempdir()?;
        let port = free_address()?.port();
        let flags = flags.split_whitespace().map(str::to_owned).collect();
        let mut broker = Self { starter: starter.to_vec(), flags, port, folder, child: None };
        broker.start_again()?;
        Ok(broker)
    }

    /// Starts the broker after it was killed or stopped, and waits until it is ready. Returns the
    /// duration.
    pub fn start_again(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.launch()?;
        self.wait_until_ready()?;
        Ok(start.elapsed())
    }

    /// Starts the broker without waiting.
    pub fn launch(&mut self) -> Result<()> {
        ensure!(self.child.is_none(), "the broker runs already");
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let mut words: Vec<OsString> = self.starter.iter().map(OsString::from).collect();
        words.push(product_path("memlane-broker").into());
        let child = Command::new(&words[0])
            .args(&words[1..])
            .args(["--anonymous", "loopback", "--group-initial-rebalance-delay", "0"])
            .args(["--listen", &self.address()])
            .arg("--http-socket")
            .arg(self.http_socket())
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C is for the process that started it, which then stops it cleanly.
            .process_group(0)
            .spawn()
            .context("cannot start memlane-broker")?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until the broker reports that it is ready.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        while !self.is_ready() {
            let child = self.child.as_mut().context("the broker was not started")?;
            if let Some(status) = child.try_wait()? {
                self.child = None;
                bail!("the broker ended with {status}:\n{}", self.log());
            }
            ensure!(!Interruption::is_asked_for(), "interrupted while the broker starts");
            ensure!(start.elapsed() < START_TIME_LIMIT, "no broker is ready:\n{}", self.log());
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.ask("/readyz").is_ok_and(|it| it.starts_with("HTTP/1.1 200"))
    }

    /// Address for clients.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn http_socket(&self) -> PathBuf {
        self.folder.path().join("http.sock")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("memlane-broker.log")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    pub fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(ANSWER_TIME_LIMIT))?;
        Ok(stream)
    }

    /// Returns the answer of the broker's HTTP interface: head and body, unparsed.
    pub fn ask(&self, path: &str) -> Result<String> {
        ask_broker(&self.http_socket(), path)
    }

    /// Id of the process while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Kills the broker with SIGKILL and waits until the kernel has released it. Fails if the
    /// broker had already ended.
    pub fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("the broker does not run")?;
        child.kill().context("cannot kill the broker")?;
        let status = child.wait().context("cannot wait for the killed broker")?;
        let is_killed = status.signal() == Some(Signal::KILL.as_raw());
        ensure!(is_killed, "the broker ended with {status} unasked:\n{}", self.log());
        Ok(())
    }

    /// Sends a signal to the running broker.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("the broker does not run")?;
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(id.context("the broker has no process id")?, signal)?)
    }

    /// Stops the broker and waits until it has ended, which must succeed.
    pub fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        self.wait_until_ended()
    }

    /// Waits until a broker that was asked to stop has ended.
    pub fn wait_until_ended(&mut self) -> Result<()> {
        let mut child = self.child.take().context("the broker does not run")?;
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                ensure!(status.success(), "the broker ended with {status}:\n{}", self.log());
                return check_for_panics(&self.log_path());
            }
            if start.elapsed() >= STOP_TIME_LIMIT {
                child.kill()?;
                child.wait()?;
                bail!("the broker did not end when asked to:\n{}", self.log());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Returns the answer of a broker's HTTP interface at a socket: head and body, unparsed.
pub fn ask_broker(http_socket: &Path, path: &str) -> Result<String> {
    let mut connection = UnixStream::connect(http_socket)?;
    connection.set_read_timeout(Some(ANSWER_TIME_LIMIT))?;
    write!(connection, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer)
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _cleaning_up = Interruption::begin_to_clean_up();
        if self.child.is_some() && self.stop().is_err() {
            eprintln!("the broker's log:\n{}", self.log());
        }
        let checked = check_for_panics(&self.log_path());
        assert!(checked.is_ok() || thread::panicking(), "the broker panicked: {checked:?}");
    }
}

/// Returns a loopback address on which nothing listens now. If another process takes it before it
/// is used, the start of its user fails.
pub fn free_address() -> Result<SocketAddr> {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    // Other processes begin elsewhere.
    let begin = u16::try_from(std::process::id().wrapping_mul(PORT_STEP) % u32::from(PORT_COUNT))?;
    for _ in 0..PORT_ATTEMPTS_MAX {
        // Relaxed: the number carries no data.
        let offset = begin.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed)) % PORT_COUNT;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT_FIRST + offset));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("{PORT_ATTEMPTS_MAX} ports of this host are all in use")
}
