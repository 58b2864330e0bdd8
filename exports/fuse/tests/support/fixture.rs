//! Fixture: a server for each test with its environment, cleaned up afterwards.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) const SERVER: &str = env!("CARGO_BIN_EXE_fuse-memory-server");

/// Timeout, far longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Fixture {
    directory: TempDir,
    server: Option<Server>,
    mounted: Option<PathBuf>,
}

struct Server {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Fixture {
    /// Starts a server with volumes of the given names, sector sizes and sizes. `None` if this host
    /// cannot run it, which is reported.
    pub(crate) fn build(volumes: &[(&str, u32, u64)]) -> Option<Self> {
        if let Some(why) = missing() {
            eprintln!("skipped: {why}");
            return None;
        }
        let directory = tempfile::Builder::new()
            .prefix("memlane-fuse-")
            .tempdir_in("/dev/shm")
            .expect("tmpfs has room for a directory");
        let mut fixture = Self { directory, server: None, mounted: None };
        fs::create_dir(fixture.path("backing")).expect("the directory is new");
        for &(name, sector_bytes, size_bytes) in volumes {
            let path = fixture.path("backing").join(format!("{name}.{sector_bytes}"));
            let file = fs::File::create(path).expect("the directory is new");
            file.set_len(size_bytes).expect("holes need no room");
        }
        fixture.start();
        Some(fixture)
    }

    /// Makes the next servers take over as on kernels that cannot resend requests.
    pub(crate) fn resume_from_memory(&self) {
        fs::write(self.path("resume-from-memory"), "").expect("tmpfs has room for a file");
    }

    pub(crate) fn start(&mut self) {
        self.start_without_waiting();
        let ready = self.read_answer();
        assert_eq!(ready, "ready");
    }

    pub(crate) fn start_without_waiting(&mut self) {
        assert!(self.server.is_none(), "one server at a time");
        let mut process = Command::new(SERVER)
            .arg(self.directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cargo has built the server");
        let commands = process.stdin.take().expect("it was asked for");
        let answers = BufReader::new(process.stdout.take().expect("it was asked for"));
        self.server = Some(Server { process, commands, answers });
    }

    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().expect("a server runs");
        server.process.kill().expect("it is our child");
        server.process.wait().expect("it is our child");
    }

    pub(crate) fn stop(&mut self, keep: &str) {
        assert_eq!(self.ask(&format!("stop {keep}")), "ok ");
        let mut server = self.server.take().expect("a server runs");
        assert!(server.process.wait().expect("it is our child").success());
    }

    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.read_answer()
    }

    /// Sends a command without waiting for the response.
    pub(crate) fn tell(&mut self, command: &str) {
        let server = self.server.as_mut().expect("a server runs");
        writeln!(server.commands, "{command}").expect("the server listens");
    }

    fn read_answer(&mut self) -> String {
        let server = self.server.as_mut().expect("a server runs");
        let mut answer = String::new();
        server.answers.read_line(&mut answer).expect("the server answers");
        answer.trim_end_matches('\n').to_owned()
    }

    /// Waits until the server's counter of this name has the expected value.
    #[track_caller]
    pub(crate) fn wait_for_count(&mut self, name: &str, expected: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.count(name) != expected {
            let count = self.count(name);
            assert!(Instant::now() < deadline, "{count} {name}, not {expected}");
            thread::yield_now();
        }
    }

    pub(crate) fn attach(&mut self, name: &str) -> PathBuf {
        self.device_of(&format!("attach {name}"))
    }

    /// Attaches a device that flushes each write.
    pub(crate) fn attach_durable(&mut self, name: &str) -> PathBuf {
        self.device_of(&format!("attach-durable {name}"))
    }

    fn device_of(&mut self, command: &str) -> PathBuf {
        let answer = self.ask(command);
        let device = answer.strip_prefix("ok ");
        device.unwrap_or_else(|| panic!("{command}: {answer}")).into()
    }

    pub(crate) fn mount_point(&self) -> PathBuf {
        self.path("volumes")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.mount_point().join(name)
    }

    pub(crate) fn resize(&self, name: &str, size_bytes: u64) {
        let file = OpenOptions::new().write(true).open(self.backing(name));
        file.expect("the volume exists").set_len(size_bytes).expect("holes need no room");
    }

    /// File that blocks the volume's flushes while it exists.
    pub(crate) fn gate(&self, name: &str) -> PathBuf {
        self.backing(name).with_extension("gate")
    }

    /// File that disables the volume's write cache while it exists.
    pub(crate) fn cacheless(&self, name: &str) -> PathBuf {
        self.backing(name).with_extension("cacheless")
    }

    /// File that makes the volume's flushes fail while it exists.
    pub(crate) fn broken(&self, name: &str) -> PathBuf {
        self.backing(name).with_extension("broken")
    }

    /// File that each writeback of the volume extends, if it exists.
    pub(crate) fn early(&self, name: &str) -> PathBuf {
        self.backing(name).with_extension("early")
    }

    /// File that blocks reads and writes of the volume's first block while it exists.
    pub(crate) fn away(&self, name: &str) -> PathBuf {
        self.backing(name).with_extension("away")
    }

    /// Makes the volume read-only for the next server.
    pub(crate) fn protect(&self, name: &str) {
        let path = self.backing(name);
        let mut permissions = fs::metadata(&path).expect("the volume exists").permissions();
        permissions.set_readonly(true);
        fs::set_permissions(path, permissions).expect("it is ours");
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        let old = self.backing(from);
        let new = old.with_file_name(
            old.file_name().expect("a file").to_string_lossy().replacen(from, to, 1),
        );
        fs::rename(old, new).expect("the volume exists");
    }

    /// Memory that a volume occupies.
    pub(crate) fn allocated_bytes(&self, name: &str) -> u64 {
        fs::metadata(self.backing(name)).expect("the volume exists").blocks() * 512
    }

    pub(crate) fn requests_served(&mut self) -> u64 {
        self.count("reads") + self.count("writes")
    }

    /// Counter of the server with this name.
    pub(crate) fn count(&mut self, name: &str) -> u64 {
        let traffic = self.ask("traffic");
        let (_, rest) = traffic.split_once(&format!(" {name}: ")).expect("it is counted");
        let digits = rest.split(',').next().expect("a number follows");
        digits.parse().expect("a number follows")
    }

    pub(crate) fn mount_file_system(&mut self, device: &Path) -> PathBuf {
        let directory = self.path("mounted");
        fs::create_dir_all(&directory).expect("tmpfs has room for a directory");
        run(tool("mount").arg(device).arg(&directory));
        self.mounted = Some(directory.clone());
        directory
    }

    pub(crate) fn mount_file_system_read_only(&mut self, device: &Path) -> PathBuf {
        let directory = self.path("mounted");
        fs::create_dir_all(&directory).expect("tmpfs has room for a directory");
        // No replay of the file system's own journal, which would write.
        run(tool("mount").args(["-o", "ro,noload"]).arg(device).arg(&directory));
        self.mounted = Some(directory.clone());
        directory
    }

    pub(crate) fn unmount_file_system(&mut self) {
        let directory = self.mounted.take().expect("something is mounted");
        run(tool("umount").arg(directory));
    }

    /// Process whose standard input is the fd store's socket.
    pub(crate) fn holder_pid(&self) -> Option<Pid> {
        let processes = fs::read_dir("/proc").expect("every system has it");
        let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let socket_inode = self.listening_inode()?;
        let mut holders = pids.filter(|&pid: &i32| {
            let stdin = fs::read_link(format!("/proc/{pid}/fd/0")).unwrap_or_default();
            stdin.to_string_lossy() == format!("socket:[{socket_inode}]")
        });
        holders.next().and_then(Pid::from_raw)
    }

    fn listening_inode(&self) -> Option<String> {
        let path = self.path("holder.sock");
        let table = fs::read_to_string("/proc/net/unix").expect("every process may read it");
        let listens = |line: &&str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.get(7).is_some_and(|place| Path::new(place) == path) && fields[3] == "00010000"
        };
        let line = table.lines().find(listens)?;
        line.split_whitespace().nth(6).map(str::to_owned)
    }

    pub(crate) fn kill_holder(&self) {
        let pid = self.holder_pid().expect("a holder runs");
        kill_process(pid, Signal::KILL).expect("it is ours");
        eventually("the holder is gone", || !is_running(pid));
    }

    pub(crate) fn all_threads_sleep(&self) -> bool {
        let pid = self.server.as_ref().expect("a server runs").process.id();
        let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the server runs");
        let sleeps = |thread: PathBuf| {
            let status = fs::read_to_string(thread.join("stat")).unwrap_or_default();
            status.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
        };
        threads.filter_map(|thread| Some(thread.ok()?.path())).all(sleeps)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn backing(&self, name: &str) -> PathBuf {
        let entries = fs::read_dir(self.path("backing")).expect("the directory exists");
        let mut paths = entries.map(|entry| entry.expect("an entry").path());
        // The file name is the volume's name and its sector size.
        let found = paths.find(|path| {
            path.file_stem().is_some_and(|stem| stem == name)
                && path.extension().is_some_and(|end| end == "512" || end == "4096")
        });
        found.expect("the volume exists")
    }

    /// Cleans up after a test, also a failed one, in order of dependencies.
    fn clean_up(&mut self) {
        if let Some(directory) = self.mounted.take() {
            let _ = tool("umount").arg("-l").arg(directory).status();
        }
        if self.server.is_none() {
            self.start();
        }
        let attachments = self.ask("attachments");
        for attachment in attachments.split(' ').skip(1) {
            if let Some((name, _)) = attachment.split_once('=') {
                let _ = self.ask(&format!("detach {name}"));
            }
        }
        self.stop("nothing");
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.clean_up();
    }
}

/// Reason for which this host cannot run the tests, if any.
fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root");
    }
    let needed = ["/dev/fuse", "/dev/loop-control", "/dev/shm"];
    needed.into_iter().find(|path| !Path::new(path).exists())
}

pub(crate) fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

#[track_caller]
pub(crate) fn run(command: &mut Command) {
    let status = command.status().expect("the tool is installed");
    assert!(status.success(), "{command:?} ended with {status}");
}

/// Reads a numeric attribute of a block device from sysfs.
pub(crate) fn read_number(device: &Path, name: &str) -> u64 {
    read_attribute(&attribute(device, name)).parse().expect("it is a number")
}

/// Sysfs path of an attribute of a block device.
pub(crate) fn attribute(device: &Path, name: &str) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().expect("a device path")).join(name)
}

pub(crate) fn read_attribute(path: &Path) -> String {
    fs::read_to_string(path).expect("the kernel shows it").trim().to_owned()
}

/// Returns whether a loop device has a backing file.
pub(crate) fn is_bound(device: &Path) -> bool {
    let name = device.file_name().expect("a device path");
    Path::new("/sys/block").join(name).join("loop/backing_file").exists()
}

pub(crate) fn is_running(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    status.is_ok_and(|status| !status.contains(") Z "))
}

/// Waits until a condition is true, with a timeout.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::yield_now();
    }
}
