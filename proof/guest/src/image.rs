//! Images of guests: a kernel and an archive of all programs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use system::{Tool, product_path};
use tempfile::TempDir;

use crate::archive::Archive;
use crate::kernel::{Kernel, Release};
use crate::libraries::libraries_of;
use crate::modules;

/// Folder of the product's programs in a guest.
const OWN_FOLDER: &str = "/usr/local/bin";

const BUSYBOX: &str = "/bin/busybox";
const AGENT: &str = "guest-agent";

/// Kernel modules of every guest: for the agent's serial port, disks, and attached volumes.
const MODULES: &[&str] = &["virtio_pci", "virtio_console", "virtio_blk", "fuse", "loop"];

/// Configuration of busybox's init: prepare, then start the agent.
const INITTAB: &str = "::sysinit:/etc/prepare\n::once:/usr/local/bin/guest-agent serve\n";

const PREPARE: &str = "#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /mnt /var/tmp /etc
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
ip link set lo up
while read -r module; do
    insmod /lib/modules/$module || echo \"cannot load $module\" >/dev/console
done </lib/modules/order
ln -sf /proc/mounts /etc/mtab
";

/// Init script of a guest whose root is its first disk, with `rdinit=/etc/from-disk` on the
/// kernel's command line. The disk contains a copy of the archive.
const FROM_DISK: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /new
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do
    insmod /lib/modules/$module
done </lib/modules/order
until [ -b /dev/vda ]; do usleep 10000; done
mount -t ext4 /dev/vda /new
umount /dev /sys /proc
exec switch_root /new /init
";

/// Init script of a guest without an agent, whose first disk begins with a script, padded with
/// zeros, to be run: `rdinit=/etc/from-script` on the kernel's command line.
const FROM_SCRIPT: &str = "#!/bin/busybox sh
/etc/prepare
until [ -b /dev/vda ]; do usleep 10000; done
head -c 4096 /dev/vda | tr -d '\\0' >/tmp/script
sh /tmp/script
poweroff -f
";

/// Programs and modules in addition to those of every guest.
#[derive(Clone, Copy, Debug)]
pub struct ImageContents {
    /// Programs of the product, by name.
    pub products: &'static [&'static str],
    /// Programs of the host, by name. Their libraries are included.
    pub programs: &'static [&'static str],
    /// Kernel modules, by name. Their dependencies are included.
    pub modules: &'static [&'static str],
}

/// A kernel and an archive, from which any number of guests can be started.
#[derive(Debug)]
pub struct Image {
    kernel: Kernel,
    folder: TempDir,
}

impl Image {
    /// Builds an image with the kernel 6.12. Takes seconds, and more if the kernel must be fetched.
    pub fn build(contents: ImageContents) -> Result<Self> {
        Self::build_for(Release::V6_12, contents)
    }

    /// Builds an image with another kernel.
    pub fn build_for(release: Release, contents: ImageContents) -> Result<Self> {
        let kernel = Kernel::fetched(release)?;
        let mut archive = Archive::default();
        add_base(&mut archive)?;
        add_modules(&mut archive, &kernel, contents.modules)?;
        for name in [AGENT].iter().chain(contents.products) {
            let path = product_path(name);
            add_program(&mut archive, &path, &format!("{OWN_FOLDER}/{name}"))?;
        }
        for name in contents.programs {
            let path = found_program(name)?;
            add_program(&mut archive, &path, &path.to_string_lossy())?;
        }
        let folder = tempfile::Builder::new()
            .prefix("memlane-guest-")
            .tempdir()
            .context("cannot make a folder for a guest's image")?;
        let image = Self { kernel, folder };
        fs::write(image.archive(), archive.finish()).context("cannot write a guest's archive")?;
        Ok(image)
    }

    /// Path of the kernel, for guests started by other means than [`crate::Guest`].
    pub fn kernel(&self) -> &Path {
        self.kernel.image()
    }

    /// Path of the archive, as the kernel's initial RAM disk.
    pub fn archive(&self) -> PathBuf {
        self.folder.path().join("archive.cpio")
    }
}

fn add_base(archive: &mut Archive) -> Result<()> {
    let busybox = fs::read(BUSYBOX)
        .with_context(|| format!("cannot read {BUSYBOX}; Debian's package is busybox-static"))?;
    archive.add_file(BUSYBOX, &busybox);
    archive.add_link("/init", BUSYBOX);
    archive.add_file("/etc/inittab", INITTAB.as_bytes());
    archive.add_file("/etc/prepare", PREPARE.as_bytes());
    archive.add_file("/etc/from-disk", FROM_DISK.as_bytes());
    archive.add_file("/etc/from-script", FROM_SCRIPT.as_bytes());
    archive.add_file("/etc/passwd", b"root:x:0:0:root:/:/bin/sh\n");
    archive.add_file("/etc/group", b"root:x:0:\n");
    for folder in ["/proc", "/sys", "/dev", "/tmp", "/run", "/mnt"] {
        archive.add_folder(folder);
    }
    Ok(())
}

fn add_modules(archive: &mut Archive, kernel: &Kernel, names: &[&str]) -> Result<()> {
    let mut order = String::new();
    for path in modules::in_order(kernel.modules(), &[MODULES, names].concat())? {
        let name = path.file_name().context("a module has a name")?.to_string_lossy();
        let name = name.trim_end_matches(".xz");
        archive.add_file(&format!("/lib/modules/{name}"), &modules::unpacked(&path)?);
        order.push_str(name);
        order.push('\n');
    }
    archive.add_file("/lib/modules/order", order.as_bytes());
    Ok(())
}

/// Adds a program as `name`, and its libraries where its loader searches for them.
fn add_program(archive: &mut Archive, path: &Path, name: &str) -> Result<()> {
    let read = |path: &Path| {
        fs::read(path).with_context(|| format!("cannot read {} for a guest", path.display()))
    };
    archive.add_file(name, &read(path)?);
    let libraries: BTreeSet<_> = libraries_of(path)?.into_iter().collect();
    for library in libraries {
        let name = library.to_string_lossy().into_owned();
        if !archive.contains(&name) {
            archive.add_file(&name, &read(&library)?);
        }
    }
    Ok(())
}

fn found_program(name: &str) -> Result<PathBuf> {
    let found = Tool::new("sh -c").arg(format!("command -v {name}")).check();
    let found = found.with_context(|| format!("guests need the program {name}"))?;
    Ok(PathBuf::from(found.trim()))
}
