//! libvirt and `memlane-machines` in folders of a test, mounted over the host's folders, so that
//! the host's own libvirt is not affected.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use system::{Background, Daemon, NbdClient, Request, Tool, check_for_panics, product, wait_for};
use tempfile::TempDir;

use crate::{Image, ImageContents};

const TIME_LIMIT: Duration = Duration::from_secs(180);
const STOP_TIME_LIMIT: Duration = Duration::from_secs(30);

/// User of QEMU: not root, so that the permissions of sockets matter.
const MACHINE_USER: &str = "65534";

/// Command that starts libvirtd. Machines of tests are emulated on every host: a file that QEMU's
/// user may not open hides /dev/kvm. If /dev/kvm existed but was unusable, libvirt would query
/// QEMU's capabilities again, for seconds, at each use.
const LIBVIRTD: &str = "mkdir -p /run/libvirt /etc/libvirt /var/lib/libvirt /var/cache/libvirt \
                        /var/log/libvirt && mount --bind run /run/libvirt && \
                        mount --bind etc /etc/libvirt && mount --bind lib /var/lib/libvirt && \
                        mount --bind cache /var/cache/libvirt && \
                        mount --bind log /var/log/libvirt && \
                        mount --bind passwd /etc/passwd && mount --bind group /etc/group && \
                        { [ ! -e /dev/kvm ] || mount --bind no-kvm /dev/kvm; } && \
                        exec libvirtd --pid-file run/libvirtd.pid --config etc/libvirtd.conf";

const SCRIPT_BYTES: usize = 4096;

/// Options of the machine for [`MachinesHost::volume_with_text`], which runs the text as a script.
pub const FROM_SCRIPT: &[&str] = &[
    "--memory",
    "256MiB",
    "--kernel",
    "vmlinuz",
    "--initrd",
    "initrd",
    "--kernel-args",
    FROM_SCRIPT_KERNEL_ARGS,
];

/// Arguments of its kernel.
pub const FROM_SCRIPT_KERNEL_ARGS: &str = "console=ttyS0 quiet panic=-1 mitigations=off \
                                           random.trust_cpu=on rdinit=/etc/from-script";

/// Host of machines on volumes of a daemon. Must be dropped before the daemon, and ends all
/// processes that it started.
pub struct MachinesHost {
    // In the order of dropping.
    machines: Option<Background>,
    libvirtd: Background,
    folder: TempDir,
    image: Image,
}

impl MachinesHost {
    /// Starts libvirt and `memlane-machines` for volumes of `daemon`. Machines may boot `vmlinuz`
    /// and `initrd` of an image with these contents.
    ///
    /// # Errors
    /// If the image cannot be built, or one of them does not start.
    pub fn start(contents: ImageContents, daemon: &Daemon) -> Result<Self> {
        let image = Image::build(contents)?;
        let folder = tempfile::Builder::new().prefix("memlane-machines-").tempdir()?;
        for path in [folder.path(), daemon.folder()] {
            // QEMU's user needs access to the folder.
            fs::set_permissions(path, Permissions::from_mode(0o755))?;
        }
        for name in ["run", "etc", "lib", "cache", "log", "log/qemu", "boot"] {
            fs::create_dir(folder.path().join(name))?;
        }
        fs::copy(image.kernel(), folder.path().join("boot/vmlinuz"))?;
        fs::copy(image.archive(), folder.path().join("boot/initrd"))?;
        let libvirtd = start_libvirtd(folder.path())?;
        let mut host = Self { machines: None, libvirtd, folder, image };
        host.start_machines(daemon)?;
        Ok(host)
    }

    fn start_machines(&mut self, daemon: &Daemon) -> Result<()> {
        let log = File::create(self.folder.path().join("machines.log"))?;
        let tool = product("memlane-machines")
            .arg("--socket")
            .arg(self.socket())
            .arg("--daemon-socket")
            .arg(daemon.api_socket())
            .arg("--libvirt-socket")
            .arg(self.folder.path().join("run/libvirt-sock"))
            .args(["--machine-user", MACHINE_USER])
            .arg("--boot-dir")
            .arg(self.folder.path().join("boot"))
            .arg("--console-dir")
            .arg(self.console_folder())
            .output_to(log)?;
        self.machines = Some(Background::start(tool)?);
        let socket = self.socket();
        wait_for("memlane-machines to serve", TIME_LIMIT, || Ok(socket.exists()))
    }

    /// Path of the socket of `memlane-machines`.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("machines.sock")
    }

    fn console_folder(&self) -> PathBuf {
        self.folder.path().join("log/qemu")
    }

    /// Creates a volume of 16 MiB that begins with a text, such as a script for the guest.
    ///
    /// # Errors
    /// If the text is longer than 4096 bytes, or the daemon refuses.
    pub fn volume_with_text(daemon: &Daemon, name: &str, text: &str) -> Result<()> {
        daemon.memlane(&format!("volume create {name} --size 16MiB"))?;
        Self::write_text(daemon, name, text)
    }

    /// Writes a text to the beginning of a volume.
    ///
    /// # Errors
    /// If the text is longer than 4096 bytes, or the volume cannot be written.
    pub fn write_text(daemon: &Daemon, name: &str, text: &str) -> Result<()> {
        ensure!(text.len() <= SCRIPT_BYTES, "the text is too long");
        let mut block = text.as_bytes().to_vec();
        block.resize(SCRIPT_BYTES, 0);
        let mut client = NbdClient::connect(&daemon.nbd_socket(), name)?;
        client.ask(&Request::Write { offset: 0, data: block })?;
        Ok(())
    }

    /// Folder of the test.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file to the folder of boot files.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn boot_file(&self, name: &str, contents: &[u8]) -> Result<()> {
        Ok(fs::write(self.folder.path().join("boot").join(name), contents)?)
    }

    /// Runs libvirt's command line.
    ///
    /// # Errors
    /// If it fails.
    pub fn virsh(&self, words: &str) -> Result<String> {
        let socket = self.folder.path().join("run/libvirt-sock");
        let address = format!("qemu+unix:///system?socket={}", socket.display());
        Tool::new("virsh --connect").arg(address).args(words.split_whitespace()).check()
    }

    /// Returns the guest's output to its serial port so far.
    pub fn console(&self, machine: &str) -> String {
        let path = self.console_folder().join(format!("{machine}-console.log"));
        String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
    }

    /// Returns whether the machine has a console log.
    pub fn has_console(&self, machine: &str) -> bool {
        self.console_folder().join(format!("{machine}-console.log")).exists()
    }

    /// Waits until the guest has written `text` this many times.
    ///
    /// # Errors
    /// If it does not in time. The error contains the console's text.
    pub fn wait_for_console(&self, machine: &str, text: &str, times: usize) -> Result<()> {
        let waited = wait_for(&format!("{machine} to write {text:?}"), TIME_LIMIT, || {
            Ok(self.console(machine).matches(text).count() >= times)
        });
        waited.with_context(|| format!("{}\n{}", self.console(machine), self.log()))
    }

    /// Log of `memlane-machines` and QEMU.
    pub fn log(&self) -> String {
        let mut log = fs::read_to_string(self.folder.path().join("machines.log"));
        for entry in fs::read_dir(self.console_folder()).into_iter().flatten().flatten() {
            if let (Ok(log), Ok(more)) = (&mut log, fs::read_to_string(entry.path())) {
                log.push_str(&more);
            }
        }
        log.unwrap_or_default()
    }

    /// Returns the running QEMU processes that libvirt started.
    pub fn qemu_ids(&self) -> Vec<i32> {
        let entries = fs::read_dir(self.folder.path().join("run/qemu")).into_iter().flatten();
        let files = entries.flatten().map(|entry| entry.path());
        files
            // Besides the machines' there is a file of the driver, with the process of libvirtd.
            .filter(|path| path.extension().is_some_and(|it| it == "pid"))
            .filter(|path| path.file_stem().is_some_and(|it| it != "driver"))
            .filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok())
            .collect()
    }

    /// Ends `memlane-machines` and checks that nothing is left.
    ///
    /// # Errors
    /// If a machine or the socket is left, or it fails.
    pub fn finish(mut self) -> Result<()> {
        ensure!(self.qemu_ids().is_empty(), "machines are left: {:?}", self.qemu_ids());
        let mut machines = self.machines.take().context("it runs")?;
        let ended = machines.end(Signal::TERM, STOP_TIME_LIMIT)?;
        ensure!(ended.success(), "memlane-machines ended with {ended}: {}", self.log());
        ensure!(!self.socket().exists(), "its socket is left");
        Ok(())
    }
}

impl Drop for MachinesHost {
    fn drop(&mut self) {
        for id in self.qemu_ids() {
            if let Some(id) = Pid::from_raw(id) {
                // It may have ended meanwhile.
                let _ = kill_process(id, Signal::KILL);
            }
        }
        if let Err(error) = self.libvirtd.end(Signal::TERM, STOP_TIME_LIMIT) {
            eprintln!("libvirtd is killed: {error:#}");
        }
        let checked = check_for_panics(&self.folder.path().join("machines.log"));
        assert!(checked.is_ok() || thread::panicking(), "memlane-machines panicked: {checked:?}");
        let _image_outlives_guests = &self.image;
    }
}

fn start_libvirtd(folder: &Path) -> Result<Background> {
    let qemu = format!(
        "user = \"+{MACHINE_USER}\"\ngroup = \"+{MACHINE_USER}\"\nstdio_handler = \"file\"\n\
         security_driver = \"none\"\ncgroup_controllers = []\nnamespaces = []\n"
    );
    fs::write(folder.join("etc/qemu.conf"), qemu)?;
    // libvirtd does not start without this user, even if QEMU runs as another one.
    for (name, fields) in [("passwd", "65533:65533::/:/bin/false"), ("group", "65533:")] {
        let mut list = fs::read_to_string(Path::new("/etc").join(name))?;
        if !list.lines().any(|line| line.starts_with("libvirt-qemu:")) {
            list.push_str(&format!("libvirt-qemu:x:{fields}\n"));
        }
        fs::write(folder.join(name), list)?;
    }
    let no_kvm = folder.join("no-kvm");
    File::create(&no_kvm)?.set_permissions(Permissions::from_mode(0o600))?;
    let daemon = "auth_unix_ro = \"none\"\nauth_unix_rw = \"none\"\n";
    fs::write(folder.join("etc/libvirtd.conf"), daemon)?;
    let log = File::create(folder.join("libvirtd.log"))?;
    let tool = Tool::new("unshare --mount sh -c").arg(LIBVIRTD).current_dir(folder);
    let libvirtd = Background::start(tool.output_to(log)?)?;
    let socket = folder.join("run/libvirt-sock");
    wait_for("libvirtd", TIME_LIMIT, || Ok(socket.exists()))
        .with_context(|| fs::read_to_string(folder.join("libvirtd.log")).unwrap_or_default())?;
    Ok(libvirtd)
}
