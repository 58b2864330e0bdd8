//! The daemon as a separate process, in temporary folders, and its command line.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::host;
use crate::interruption::Interruption;
use crate::process::check_for_panics;
use crate::tool::{Tool, ToolOutput};

const START_TIME_LIMIT: Duration = Duration::from_secs(120);
const STOP_TIME_LIMIT: Duration = Duration::from_secs(120);
const ANSWER_TIME_LIMIT: Duration = Duration::from_secs(30);
const SAVE_TIME_LIMIT: Duration = Duration::from_secs(60);
const GOING_TIME_LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Maximum number of bytes of the log shown after a failure.
const LOG_BYTES_SHOWN_MAX: usize = 4000;

/// Options of a daemon.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    pub pool_size: &'static str,
    /// Additional flags, in one line.
    pub flags: &'static str,
}

/// A running daemon, or one that was just killed. Dropping it ends it and removes everything that
/// it created.
pub struct Daemon {
    pool_size: String,
    flags: String,
    folder: TempDir,
    /// Folder of the pool for a daemon that may not mount a file system for it.
    shared_memory: Option<TempDir>,
    child: Option<Child>,
    environment: Vec<(String, String)>,
    /// Prefix of its command line.
    starter: Vec<String>,
    is_finished: bool,
}

impl Daemon {
    /// Starts a daemon in fresh folders and waits until it answers.
    pub fn start(options: DaemonOptions) -> Result<Self> {
        Self::start_sized(options.pool_size.to_owned(), options.flags)
    }

    /// Same, with a computed size of the pool.
    pub fn start_sized(pool_size: String, flags: &'static str) -> Result<Self> {
        Self::start_flagged(pool_size, flags.to_owned())
    }

    /// Same, with computed flags, too.
    pub fn start_flagged(pool_size: String, flags: String) -> Result<Self> {
        let mut daemon = Self::prepare(pool_size, flags)?;
        daemon.start_again()?;
        Ok(daemon)
    }

    /// Creates fresh folders for a daemon without starting it.
    pub fn prepare(pool_size: String, flags: String) -> Result<Self> {
        let folder = temporary_folder(&std::env::temp_dir())?;
        let shared_memory = match rustix::process::geteuid().is_root() {
            true => None,
            false => Some(temporary_folder(Path::new("/dev/shm"))?),
        };
        Ok(Self {
            pool_size,
            flags,
            folder,
            shared_memory,
            child: None,
            environment: Vec::new(),
            starter: Vec::new(),
            is_finished: false,
        })
    }

    /// Sets an environment variable of daemons started from now on.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Sets a prefix of the command line of daemons started from now on, which must finally execute
    /// the daemon.
    pub fn set_starter(&mut self, words: Vec<String>) {
        self.starter = words;
    }

    /// Configures an object store at this address for daemons started from now on.
    pub fn set_object_store(&mut self, address: SocketAddr) {
        self.set_variable("AWS_ENDPOINT_URL", &format!("http://{address}"));
        for (name, value) in [
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_REGION", "here"),
        ] {
            self.set_variable(name, value);
        }
    }

    /// Replaces the flags of daemons started from now on.
    pub fn set_flags(&mut self, flags: &str) {
        self.flags = flags.to_owned();
    }

    /// Starts the daemon after it was killed or stopped, and waits until it answers. Returns the
    /// duration.
    pub fn start_again(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.launch()?;
        self.wait_until_ready()?;
        Ok(start.elapsed())
    }

    /// Starts the daemon without waiting.
    pub fn launch(&mut self) -> Result<()> {
        ensure!(self.child.is_none(), "the daemon runs already");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .context("cannot open the daemon's log")?;
        let pool_path = self.shared_memory.as_ref().map(|folder| folder.path().join("region"));
        let program = product_path("memlaned").into_os_string();
        let mut words = self.starter.iter().map(OsString::from).chain([program]);
        let child = Command::new(words.next().unwrap_or_default())
            .args(words)
            .args(pool_path.iter().flat_map(|path| [OsStr::new("--pool-path"), path.as_ref()]))
            .arg("--state-dir")
            .arg(self.state_dir())
            .arg("--run-dir")
            .arg(self.run_dir())
            .args(["--pool-size", &self.pool_size])
            .args(self.flags.split_whitespace())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share the daemon's log")?)
            .stderr(log)
            // Ctrl-C is for the process that started it, which then stops it cleanly.
            .process_group(0)
            .spawn()
            .context("cannot start memlaned")?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until the daemon reports that it is ready.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIME_LIMIT;
        // A daemon that has not started, or that ends meanwhile, does not answer.
        while !self.ask(api::READINESS_PATH).is_ok_and(|it| it.starts_with("HTTP/1.1 200")) {
            let child = self.child.as_mut().context("the daemon was not started")?;
            if let Some(status) = child.try_wait().context("cannot wait for the daemon")? {
                self.child = None;
                bail!("the daemon ended with {status}:\n{}", self.log_end());
            }
            ensure!(!Interruption::is_asked_for(), "interrupted while the daemon starts");
            if Instant::now() >= deadline {
                bail!("the daemon does not answer:\n{}", self.log_end());
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Kills the daemon with SIGKILL and waits until the kernel has released it. Fails if the
    /// daemon had already ended.
    pub fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("the daemon does not run")?;
        child.kill().context("cannot kill the daemon")?;
        let status = child.wait().context("cannot wait for the killed daemon")?;
        let is_killed = status.signal() == Some(Signal::KILL.as_raw());
        ensure!(is_killed, "the daemon ended with {status} unasked:\n{}", self.log_end());
        Ok(())
    }

    /// Simulates a power failure: kills the daemon, if it runs, and removes the pool's memory.
    pub fn lose_memory(&mut self) -> Result<()> {
        if self.child.is_some() {
            self.kill()?;
        }
        let region = self.pool_file();
        fs::remove_file(&region).with_context(|| format!("cannot remove {}", region.display()))
    }

    /// Path of the pool's file, unless the flags set another.
    pub fn pool_file(&self) -> PathBuf {
        match &self.shared_memory {
            Some(folder) => folder.path().join("region"),
            None => self.run_dir().join("pool").join("region"),
        }
    }

    /// Stops the daemon and waits until it has ended.
    pub fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        self.wait_until_ended()
    }

    /// Waits until a daemon that was asked to stop has ended.
    pub fn wait_until_ended(&mut self) -> Result<()> {
        let mut child = self.child.take().context("the daemon does not run")?;
        let deadline = Instant::now() + STOP_TIME_LIMIT;
        loop {
            if let Some(status) = child.try_wait().context("cannot wait for the daemon")? {
                ensure!(status.success(), "the daemon ended with {status}:\n{}", self.log_end());
                return check_for_panics(&self.log_path());
            }
            if Instant::now() >= deadline {
                child.kill().context("cannot kill the daemon")?;
                child.wait().context("cannot wait for the killed daemon")?;
                bail!("the daemon did not end when asked to:\n{}", self.log_end());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Sets the size of pools created from now on.
    pub fn set_pool_size(&mut self, size: &str) {
        self.pool_size = size.to_owned();
    }

    pub fn pool_size(&self) -> &str {
        &self.pool_size
    }

    pub fn flags(&self) -> &str {
        &self.flags
    }

    /// Sends a signal to the running daemon.
    pub fn signal(&self, sent: Signal) -> Result<()> {
        signal(self.id().context("the daemon does not run")?, sent);
        Ok(())
    }

    /// Detaches all volumes, stops the daemon and checks that nothing is left of it on the host.
    pub fn finish(mut self) -> Result<()> {
        for volume in self.attached_volumes()? {
            self.memlane(&format!("detach {volume}"))?;
        }
        self.stop()?;
        // A detached device disappears when the last process that has it open closes it, such as
        // one that lists all devices of the host.
        let mut devices = Vec::new();
        let is_clean = wait_for("devices that were detached to go", GOING_TIME_LIMIT, || {
            devices = host::leftovers(&self.run_dir().join("volumes"))?;
            devices.retain(|it| it.starts_with("/dev/"));
            Ok(devices.is_empty())
        });
        is_clean.with_context(|| format!("detached, and still there: {devices:#?}"))?;
        self.sweep();
        // A process that ends may keep its sockets for a moment longer.
        let mut left = Vec::new();
        let is_clean = wait_for("all of it to go", GOING_TIME_LIMIT, || {
            left = host::leftovers(self.folder.path())?;
            Ok(left.is_empty())
        });
        is_clean.with_context(|| format!("left on the host: {left:#?}"))?;
        self.is_finished = true;
        Ok(())
    }

    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Processes of the daemon and of others that serve its volumes while they are unused.
    pub fn serving_ids(&self) -> Vec<u32> {
        host::processes_using(&self.run_dir()).into_iter().map(|(id, _)| id).collect()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn state_dir(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub fn run_dir(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    pub fn api_socket(&self) -> PathBuf {
        self.run_dir().join("api.sock")
    }

    pub fn nbd_socket(&self) -> PathBuf {
        self.run_dir().join("nbd.sock")
    }

    /// URI of the volume for NBD clients.
    pub fn nbd_uri(&self, volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket={}", self.nbd_socket().display())
    }

    /// Runs the command line, which must succeed, and returns its output.
    pub fn memlane(&self, words: &str) -> Result<String> {
        self.command_line(words).check()
    }

    /// Runs the command line and returns its result.
    pub fn try_memlane(&self, words: &str) -> Result<ToolOutput> {
        self.command_line(words).run()
    }

    /// Saves an image. The daemon also saves images automatically, one at a time, and then rejects
    /// the request: in that case this waits for the automatic one first, as the error suggests.
    pub fn save_image(&self) -> Result<()> {
        wait_for("the daemon to save an image", SAVE_TIME_LIMIT, || {
            let output = self.try_memlane("image save")?;
            let is_at_another = output.stderr.contains("wait for it");
            let is_done = output.exit_code == Some(0);
            ensure!(is_done || is_at_another, "memlane image save: {output:?}");
            Ok(is_done)
        })
    }

    /// Returns the answer of the daemon's interface to a GET of `path`: head and body, unparsed.
    pub fn ask(&self, path: &str) -> Result<String> {
        self.request(&format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        ))
    }

    /// Returns the answer to a literal request, which must ask to close the connection.
    pub fn request(&self, text: &str) -> Result<String> {
        request_at(&self.api_socket(), text)
    }

    pub fn status(&self) -> Result<api::Status> {
        let text = self.memlane("--json status")?;
        serde_json::from_str(&text).with_context(|| format!("memlane status printed {text}"))
    }

    pub fn volume(&self, name: &str) -> Result<api::Volume> {
        let text = self.memlane(&format!("--json volume show {name}"))?;
        serde_json::from_str(&text).with_context(|| format!("memlane volume show printed {text}"))
    }

    pub fn volumes(&self) -> Result<Vec<api::Volume>> {
        let text = self.memlane("--json volume list")?;
        serde_json::from_str(&text).with_context(|| format!("memlane volume list printed {text}"))
    }

    /// Returns the end of the daemon's log, for messages.
    pub fn log_end(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let start = log.len().saturating_sub(LOG_BYTES_SHOWN_MAX);
        String::from_utf8_lossy(&log[start..]).into_owned()
    }

    fn attached_volumes(&self) -> Result<Vec<String>> {
        let attached = self.volumes()?.into_iter().filter(|volume| volume.device.is_some());
        Ok(attached.map(|volume| volume.name).collect())
    }

    /// Creates a command of the command line with `words`.
    pub fn command_line(&self, words: &str) -> Tool {
        product("memlane").arg("--socket").arg(self.api_socket()).args(words.split_whitespace())
    }

    pub fn log_path(&self) -> PathBuf {
        self.folder.path().join("memlaned.log")
    }

    /// Ends the fd store, detaches devices and unmounts the daemon's mounts, after the daemon has
    /// ended. Each step may find nothing to do.
    fn sweep(&self) {
        for (id, _) in host::processes_using(&self.run_dir()) {
            signal(id, Signal::KILL);
        }
        // A device is identified by the path of its file, which disappears with the mount.
        detach_dead_devices(self.folder.path());
        for folder in ["volumes", "pool"] {
            let folder = self.run_dir().join(folder);
            let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
            if mounts.contains(&*folder.to_string_lossy()) {
                // A failure is reported as a leftover.
                let _ = Tool::new("umount --lazy").arg(folder).run();
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _cleaning_up = Interruption::begin_to_clean_up();
        if !self.is_finished && !Interruption::was_asked_for() {
            eprintln!("the daemon's log:\n{}", self.log_end());
        }
        if self.child.is_some() {
            for volume in self.attached_volumes().unwrap_or_default() {
                // Devices that cannot be detached end with the file system below.
                let _ = self.memlane(&format!("detach {volume}"));
            }
            // A daemon that does not stop is killed. Nothing more can be done here.
            let _ = self.stop();
        }
        self.sweep();
        let checked = check_for_panics(&self.log_path());
        assert!(checked.is_ok() || thread::panicking(), "the daemon panicked: {checked:?}");
    }
}

/// Requests a promotion from a daemon that may be killed meanwhile, so it may remain unanswered.
pub fn ask_to_promote(api_socket: &Path) -> Result<String> {
    let body = r#"{"force": true}"#;
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        api::STANDBY_PROMOTE_PATH,
        body.len()
    );
    request_at(api_socket, &request)
}

fn request_at(api_socket: &Path, text: &str) -> Result<String> {
    let mut connection = UnixStream::connect(api_socket)?;
    connection.set_read_timeout(Some(ANSWER_TIME_LIMIT))?;
    connection.write_all(text.as_bytes())?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Polls until `is_true`, up to `time_limit`.
pub fn wait_for(
    what: &str,
    time_limit: Duration,
    mut is_true: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + time_limit;
    while !is_true()? {
        ensure!(!Interruption::is_asked_for(), "interrupted while waiting for {what}");
        ensure!(Instant::now() < deadline, "waited {time_limit:?} in vain for {what}");
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Creates a command of one of the product's programs: `memlaned`, `memlane`.
pub fn product(name: &str) -> Tool {
    Tool::new(&product_path(name).to_string_lossy())
}

/// Returns the path of a program of the product: in the folder named by `MEMLANE_BIN_DIR`, else
/// beside this one.
pub fn product_path(name: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os("MEMLANE_BIN_DIR") {
        return Path::new(&folder).join(name);
    }
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.parent().map(|folder| folder.join(name)).filter(|path| path.exists());
    // Tests are built into a folder below the programs.
    let above = own.parent().and_then(Path::parent).map(|folder| folder.join(name));
    beside.or(above).unwrap_or_else(|| PathBuf::from(name))
}

fn temporary_folder(inside: &Path) -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix("memlane-").tempdir_in(inside);
    made.with_context(|| format!("cannot make a folder in {}", inside.display()))
}

fn signal(process: u32, signal: Signal) {
    if let Some(id) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        // It may have ended meanwhile.
        let _ = kill_process(id, signal);
    }
}

fn detach_dead_devices(folder: &Path) {
    for line in host::leftovers(folder).unwrap_or_default() {
        if let Some(device) =
            line.split_whitespace().next().filter(|it| it.starts_with("/dev/loop"))
        {
            // The device may be busy: then a mount keeps it, which was reported before.
            let _ = Tool::new("losetup --detach").arg(device).run();
        }
    }
}
