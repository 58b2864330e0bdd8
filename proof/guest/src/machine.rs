//! One run of a guest under QEMU, from power-on to power-off or a power cut.

use std::fs::{self, File};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use system::{Background, Interruption, Tool, ToolOutput};
use tempfile::TempDir;

use crate::channel::Channel;
use crate::disk_server::{DiskServer, EXPORT};
use crate::forward::Forward;
use crate::image::Image;
use crate::process::GuestProcess;
use crate::volatile_disk::VolatileDisk;

/// Time limit until a guest's agent is ready, also on a busy host.
const BOOT_TIME_MAX: Duration = Duration::from_secs(240);
const OFF_TIME_MAX: Duration = Duration::from_secs(180);

/// Maximum number of bytes of the console shown after a failure of the guest.
const CONSOLE_BYTES_SHOWN_MAX: usize = 4000;

const QEMU: &str = "qemu-system-x86_64";

/// Serial port of the agent.
const PORT_NAME: &str = "memlane";

const KERNEL_WORDS: &str =
    "console=ttyS0 loglevel=4 panic=-1 oops=panic mitigations=off random.trust_cpu=on tsc=reliable";

/// Last message of the kernel when it cannot continue.
const PANIC_WORDS: &str = "Kernel panic";

/// Number of boot attempts. A kernel on two emulated processors (QEMU 7.2) has panicked in an
/// interrupt two seconds after its start, for an unknown reason, before any program of this project
/// runs or any disk is written.
const BOOT_ATTEMPTS_MAX: u32 = 3;

/// A disk of a guest, in the order `/dev/vda`, `/dev/vdb` and so on.
#[derive(Clone)]
pub enum Disk {
    /// A file. It keeps every acknowledged write.
    File(PathBuf),
    /// A disk whose cache can be lost.
    Volatile(Arc<VolatileDisk>),
}

/// Options of a guest.
pub struct GuestOptions {
    pub memory_mib: u32,
    pub processor_count: u32,
    pub disks: Vec<Disk>,
    /// Additional options of QEMU, for devices that this crate does not know.
    pub qemu_words: Vec<String>,
    /// Additional words for the kernel's command line.
    pub kernel_words: &'static str,
}

impl GuestOptions {
    /// Options sufficient for the daemon with a pool of some hundred MiB.
    pub fn small(disks: Vec<Disk>) -> Self {
        Self {
            memory_mib: 1024,
            processor_count: 2,
            disks,
            qemu_words: Vec::new(),
            kernel_words: "",
        }
    }
}

/// A running guest. Dropping it ends it at once, like a power cut.
pub struct Guest {
    // In the order of dropping: first the machine, then its resources.
    qemu: Background,
    channel: Arc<Channel>,
    forwards: Vec<Forward>,
    disk_servers: Vec<DiskServer>,
    folder: TempDir,
    is_well: bool,
}

impl Guest {
    /// Starts a guest and waits until commands can be run in it. If the kernel panics before that,
    /// the guest is started again, which is reported on standard error.
    pub fn boot(image: &Image, options: &GuestOptions) -> Result<Self> {
        let mut attempt = 1;
        loop {
            let mut guest = Self::power_on(image, options)?;
            let error = match guest.wait_until_ready() {
                Ok(()) => return Ok(guest),
                Err(error) => error,
            };
            let has_panicked = guest.console_end().contains(PANIC_WORDS);
            if !has_panicked || attempt == BOOT_ATTEMPTS_MAX {
                return Err(error);
            }
            eprintln!("the guest's kernel panicked in start {attempt}; it is started again");
            attempt += 1;
        }
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let is_ready = self.channel.wait_until_ready(Instant::now() + BOOT_TIME_MAX)?;
        ensure!(is_ready, "the guest's agent was not ready within {BOOT_TIME_MAX:?}");
        self.is_well = true;
        Ok(())
    }

    fn power_on(image: &Image, options: &GuestOptions) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("memlane-guest-")
            .tempdir()
            .context("cannot make a folder for a guest")?;
        let mut disk_servers = Vec::new();
        let mut tool = base(image, options, folder.path());
        for (index, disk) in options.disks.iter().enumerate() {
            let words = match disk {
                Disk::File(path) => file_words(index, path),
                Disk::Volatile(disk) => {
                    let socket = folder.path().join(format!("disk{index}.sock"));
                    disk_servers.push(DiskServer::start(Arc::clone(disk), socket.clone())?);
                    volatile_words(index, &socket)
                }
            };
            tool = tool.args(words);
        }
        let listener = UnixListener::bind(folder.path().join("agent.sock"))
            .context("cannot listen for a guest's agent")?;
        let log = File::create(folder.path().join("qemu.log")).context("cannot create a log")?;
        let mut qemu =
            Background::start(tool.args(&options.qemu_words).output_to(log)?.own_group())
                .with_context(|| format!("guests need the program {QEMU}"))?;
        let deadline = Instant::now() + BOOT_TIME_MAX;
        let channel = match accept(&listener, &mut qemu, deadline) {
            Ok(socket) => Channel::open(socket)?,
            Err(error) => {
                let said = fs::read_to_string(folder.path().join("qemu.log")).unwrap_or_default();
                return Err(error.context(format!("QEMU said: {said}")));
            }
        };
        let forwards = Vec::new();
        Ok(Self { qemu, channel, forwards, disk_servers, folder, is_well: false })
    }

    /// Runs a line of shell in the guest and returns its result.
    pub fn run(&self, line: &str, time_limit: Duration) -> Result<ToolOutput> {
        self.start(line)?.wait(time_limit)
    }

    /// Runs a line of shell, which must succeed, and returns its standard output.
    pub fn check(&self, line: &str, time_limit: Duration) -> Result<String> {
        let output = self.run(line, time_limit)?;
        if output.exit_code != Some(0) {
            let (code, stdout, stderr) = (output.exit_code, output.stdout, output.stderr);
            bail!("in the guest, {line} failed ({code:?}): {stdout}{stderr}");
        }
        Ok(output.stdout)
    }

    /// Reads a file or device in the guest.
    pub fn read(&self, path: &str, time_limit: Duration) -> Result<Vec<u8>> {
        let process = GuestProcess::start(&self.channel, &["/bin/cat", path])?;
        let (code, bytes, complaints) = process.wait_for_bytes(time_limit)?;
        ensure!(code == 0, "cannot read {path} in the guest: {complaints}");
        Ok(bytes)
    }

    /// Starts a line of shell in the guest.
    pub fn start(&self, line: &str) -> Result<GuestProcess> {
        GuestProcess::start(&self.channel, &["/bin/sh", "-c", line])
    }

    /// Forwards a socket of this host to the one at `in_guest`.
    pub fn forward(&mut self, in_guest: &Path) -> Result<PathBuf> {
        let path = self.folder.path().join(format!("forward{}.sock", self.forwards.len()));
        let forward = Forward::start(&self.channel, path, in_guest)?;
        self.forwards.push(forward);
        Ok(self.forwards.last().context("one was just added")?.path().to_owned())
    }

    /// Cuts the power: nothing in the guest is notified, and nothing more is written.
    /// [`VolatileDisk::cut_power`] then determines the remaining contents of a volatile disk.
    pub fn cut_power(mut self) -> Result<()> {
        self.is_well = false;
        self.disk_servers.iter().for_each(|server| server.disk().fail());
        self.qemu.end(rustix::process::Signal::KILL, OFF_TIME_MAX)?;
        self.disk_servers.iter().for_each(|server| server.disk().fall_silent());
        self.disk_servers.drain(..).for_each(DiskServer::stop);
        self.is_well = true;
        Ok(())
    }

    /// Turns the guest off. File systems that it mounted should be unmounted by now.
    pub fn power_off(mut self) -> Result<()> {
        self.is_well = false;
        self.channel.close();
        let deadline = Instant::now() + OFF_TIME_MAX;
        while self.qemu.has_ended()?.is_none() {
            ensure!(Instant::now() < deadline, "the guest is not off within {OFF_TIME_MAX:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.disk_servers.drain(..).for_each(DiskServer::stop);
        self.is_well = true;
        Ok(())
    }

    /// Returns the last kernel messages on the guest's console, limited for reports.
    pub fn console_end(&self) -> String {
        let console = fs::read(self.folder.path().join("console.log")).unwrap_or_default();
        let start = console.len().saturating_sub(CONSOLE_BYTES_SHOWN_MAX);
        String::from_utf8_lossy(&console[start..]).into_owned()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _cleaning_up = Interruption::begin_to_clean_up();
        if (!self.is_well || std::thread::panicking()) && !Interruption::was_asked_for() {
            eprintln!("the guest's console:\n{}", self.console_end());
        }
        self.channel.close();
    }
}

/// Creates the QEMU command without disks.
fn base(image: &Image, options: &GuestOptions, folder: &Path) -> Tool {
    let socket = folder.join("agent.sock");
    Tool::new(QEMU)
        .args("-nodefaults -no-user-config -display none -no-reboot".split(' '))
        // TCG is explicit, so that hosts with acceleration run the same.
        .args("-machine q35,accel=tcg -cpu max".split(' '))
        .arg("-smp")
        .arg(options.processor_count.to_string())
        .arg("-m")
        .arg(options.memory_mib.to_string())
        .arg("-kernel")
        .arg(image.kernel())
        .arg("-initrd")
        .arg(image.archive())
        .arg("-append")
        .arg(format!("{KERNEL_WORDS} {}", options.kernel_words))
        .arg("-serial")
        .arg(format!("file:{}", folder.join("console.log").display()))
        .arg("-device")
        .arg("virtio-serial-pci")
        .arg("-chardev")
        .arg(format!("socket,id=agent,path={}", socket.display()))
        .arg("-device")
        .arg(format!("virtserialport,chardev=agent,name={PORT_NAME}"))
}

/// The disk announces a write cache, so that the guest flushes.
fn device_words(index: usize) -> [String; 2] {
    ["-device".to_owned(), format!("virtio-blk-pci,drive=disk{index},write-cache=on")]
}

fn file_words(index: usize, path: &Path) -> Vec<String> {
    let drive = format!("if=none,id=disk{index},format=raw,file={}", path.display());
    let drive = ["-drive".to_owned(), drive];
    drive.into_iter().chain(device_words(index)).collect()
}

fn volatile_words(index: usize, socket: &Path) -> Vec<String> {
    let path = socket.display();
    let drive = format!(
        "if=none,id=disk{index},format=raw,discard=unmap,file.driver=nbd,file.export={EXPORT},\
         file.server.type=unix,file.server.path={path}"
    );
    let drive = ["-drive".to_owned(), drive];
    drive.into_iter().chain(device_words(index)).collect()
}

/// Accepts the connection that QEMU opens when it starts.
fn accept(listener: &UnixListener, qemu: &mut Background, deadline: Instant) -> Result<UnixStream> {
    listener.set_nonblocking(true).context("cannot wait for QEMU")?;
    loop {
        match listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(false).context("cannot wait for a guest's agent")?;
                return Ok(socket);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("cannot accept QEMU"),
        }
        if let Some(status) = qemu.has_ended()? {
            bail!("QEMU ended with {status}");
        }
        ensure!(!Interruption::is_asked_for(), "interrupted while a guest starts");
        ensure!(Instant::now() < deadline, "QEMU did not connect within {BOOT_TIME_MAX:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
