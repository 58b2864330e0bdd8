//! In-memory servers of others: nbdkit, qemu-nbd and QEMU's storage daemon.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use system::{Background, Interruption, Tool, wait_for};

use super::files::OwnFile;
use crate::targets::target::{Access, AfterKill, Backing, Durability, Traits};

const START_TIME_LIMIT: Duration = Duration::from_secs(30);
const STOP_TIME_LIMIT: Duration = Duration::from_secs(10);

/// A server with the folder of its socket, log and file. Dropping it stops the server.
struct Server {
    process: Background,
    /// Mount point, if it mounted something.
    mount: Option<PathBuf>,
    file: OwnFile,
    /// True if the data is in the file and not in the server.
    holds_data: bool,
    command: String,
}

impl Server {
    /// Starts the tool and waits until it is ready.
    fn start(tool: Tool, file: OwnFile, is_ready: impl Fn() -> Result<bool>) -> Result<Self> {
        let log_path = file.folder().join("log");
        let log = File::create(&log_path).context("cannot make a file for a log")?;
        let command = tool.command_line();
        let process = Background::start(tool.output_to(log)?.own_group())?;
        let mut server = Self { process, mount: None, file, holds_data: true, command };
        wait_for("a server to be ready", START_TIME_LIMIT, || {
            if let Some(status) = server.process.has_ended()? {
                let said = fs::read_to_string(&log_path).unwrap_or_default();
                bail!("the server ended with {status}: {}", said.trim());
            }
            is_ready()
        })?;
        Ok(server)
    }
}

impl Backing for Server {
    fn used_bytes(&self) -> Result<Option<u64>> {
        match self.holds_data {
            // The mount hides the file below.
            true if self.mount.is_none() => self.file.used_bytes(),
            _ => Ok(None),
        }
    }

    fn server_ids(&self) -> Vec<u32> {
        vec![self.process.id()]
    }

    fn server_command(&self) -> Option<String> {
        Some(self.command.clone())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _cleaning_up = Interruption::begin_to_clean_up();
        if let Err(error) = self.process.end(Signal::TERM, STOP_TIME_LIMIT) {
            eprintln!("killing a server that did not stop: {error:#}");
        }
        if let Some(mount) = self.mount.as_deref().filter(|mount| is_mounted(mount)) {
            // A killed server leaves its mount.
            let unmounted = Tool::new("umount --lazy").arg(mount).check();
            if let Err(error) = unmounted {
                eprintln!("cannot unmount {}: {error:#}", mount.display());
            }
        }
    }
}

fn accepts(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    table.lines().any(|line| line.split(' ').nth(1).map(Path::new) == Some(path))
}

fn traits(access: Access, after_kill: AfterKill) -> Traits {
    let durability = Durability { after_kill, survives_power_loss: false };
    Traits { access, durability, reduces: false, device: None }
}

fn nbd_access(export: &str, socket: &Path) -> Access {
    Access::Nbd { uri: format!("nbd+unix:///{export}?socket={}", socket.display()) }
}

pub(super) fn nbdkit(size_bytes: u64) -> Result<(Traits, Box<dyn Backing>)> {
    let file = OwnFile::on_tmpfs(0)?;
    let socket = file.folder().join("socket");
    let tool = Tool::new("nbdkit --foreground --unix")
        .arg(&socket)
        .arg("memory")
        .arg(size_bytes.to_string());
    let mut server = Server::start(tool, file, || Ok(accepts(&socket)))?;
    server.holds_data = false;
    Ok((traits(nbd_access("", &socket), AfterKill::DataLost), Box::new(server)))
}

pub(super) fn qemu_nbd(size_bytes: u64) -> Result<(Traits, Box<dyn Backing>)> {
    let file = OwnFile::on_tmpfs(size_bytes)?;
    let socket = file.folder().join("socket");
    let tool = Tool::new("qemu-nbd --format=raw --persistent --shared=64 --export-name=bench")
        .arg("--socket")
        .arg(&socket)
        .arg(file.path());
    // Probing by a connection would leave a silent client.
    let server = Server::start(tool, file, || Ok(socket.exists()))?;
    Ok((traits(nbd_access("bench", &socket), AfterKill::DataStays), Box::new(server)))
}

/// Returns the command of QEMU's storage daemon with a raw file as node `data`.
fn storage_daemon(file: &OwnFile) -> Tool {
    storage_daemon_over(file, "threads")
}

/// Returns the same with this I/O method: `threads` or `io_uring`.
fn storage_daemon_over(file: &OwnFile, aio: &str) -> Tool {
    let path = file.path();
    let node = format!("driver=file,node-name=data,aio={aio},filename={}", path.display());
    Tool::new("qemu-storage-daemon --blockdev").arg(node)
}

/// Thread and I/O method of QEMU's storage daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Threads {
    Main,
    Own,
    OwnUring,
}

pub(super) fn qemu_export_nbd(size_bytes: u64) -> Result<(Traits, Box<dyn Backing>)> {
    let file = OwnFile::on_tmpfs(size_bytes)?;
    let socket = file.folder().join("socket");
    let tool = storage_daemon(&file)
        .arg("--nbd-server")
        .arg(format!("addr.type=unix,addr.path={},max-connections=64", socket.display()))
        .args(["--export", "type=nbd,id=bench,node-name=data,name=bench,writable=on"]);
    let server = Server::start(tool, file, || Ok(accepts(&socket)))?;
    Ok((traits(nbd_access("bench", &socket), AfterKill::DataStays), Box::new(server)))
}

pub(super) fn qemu_export_fuse(size_bytes: u64) -> Result<(Traits, Box<dyn Backing>)> {
    let file = OwnFile::on_tmpfs(size_bytes)?;
    let path = file.path();
    // The daemon mounts its file over the one that it opened.
    let export =
        format!("type=fuse,id=bench,node-name=data,mountpoint={},writable=on", path.display());
    let tool = storage_daemon(&file).arg("--export").arg(export);
    let mut server = Server::start(tool, file, || Ok(is_mounted(&path)))?;
    server.mount = Some(path.clone());
    let access = Access::File { path, direct: true };
    Ok((traits(access, AfterKill::DataStays), Box::new(server)))
}

pub(super) fn qemu_export_vhost(
    size_bytes: u64,
    threads: Threads,
) -> Result<(Traits, Box<dyn Backing>)> {
    let file = OwnFile::on_tmpfs(size_bytes)?;
    let socket = file.folder().join("socket");
    let address = format!("addr.type=unix,addr.path={}", socket.display());
    let mut export = format!("type=vhost-user-blk,id=bench,node-name=data,writable=on,{address}");
    let mut tool = match threads {
        Threads::Main | Threads::Own => storage_daemon(&file),
        Threads::OwnUring => storage_daemon_over(&file, "io_uring"),
    };
    if threads != Threads::Main {
        tool = tool.args(["--object", "iothread,id=own"]);
        export += ",iothread=own";
    }
    let tool = tool.arg("--export").arg(export);
    let server = Server::start(tool, file, || Ok(socket.exists()))?;
    Ok((traits(Access::VhostUser { socket }, AfterKill::DataStays), Box::new(server)))
}
