//! Tests the container images of a release. They are built by buildah from packages and a minimal
//! Debian. A daemon and a broker are killed and restarted, and a volume and a topic survive.
//!
//! Images and containers are stored in a folder of the check. Nothing of the host is changed.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::deb::printed;

const CONTAINERFILE: &str = "deploy/containers/Containerfile";

/// Targets of the container file.
const IMAGES: [&str; 4] = ["daemon", "broker", "console", "csi"];

/// Size of the tmpfs: the pool and a little more.
const MEMORY: &str = "size=130M,mode=0700";

/// Runs buildah in a separate network namespace: containers are only a chroot, and ports may be in
/// use.
const APART: [&str; 5] =
    ["--net", "sh", "-c", "ip link set lo up && exec buildah \"$@\"", "buildah"];

const START: &str = "memlaned --no-fuse --pool-size 128MiB & daemon=$!
until memlane status >/dev/null; do kill -0 $daemon; sleep 0.2; done";
const BROKER: &str = "memlane-broker --daemon /run/memlane --anonymous loopback & broker=$!
until memlane topic list >/dev/null; do kill -0 $broker; sleep 0.2; done";
const KILLED: &str = "memlane volume create db --size 8MiB
memlane topic create orders; echo kept | memlane produce orders
kill -9 $broker $daemon";
const AGAIN: &str = "memlane volume show db; [ \"$(memlane consume orders)\" = kept ]
kill $broker; wait $broker; kill $daemon; wait $daemon; echo finished";

/// Tests the images in this folder, which is created and removed. Needs root.
pub(crate) fn check(root: &Path, packages: &Path, bare: &Path, folder: &Path) -> Result<()> {
    let site = Site { folder: folder.to_owned() };
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    for name in ["run/pool", "kept"] {
        fs::create_dir_all(folder.join(name)).context("cannot make a folder for an image")?;
    }
    let base = site.buildah(&["from", "scratch"])?;
    site.buildah(&[OsStr::new("copy"), OsStr::new(&base), bare.as_os_str(), OsStr::new("/")])?;
    site.buildah(&["commit", "--rm", &base, "bare"])?;
    for image in IMAGES {
        site.build(image, &root.join(CONTAINERFILE), packages)?;
    }
    for (image, program) in [("console", "memlane-console"), ("csi", "/usr/bin/memlane-csi")] {
        site.run(image, &[], &[program, "--version"])?;
    }

    let pool = folder.join("run/pool");
    printed(Command::new("mount").args(["-t", "tmpfs", "-o", MEMORY, "memlane"]).arg(&pool))?;
    let used = site.serve(KILLED).and_then(|_| site.serve(AGAIN));
    // Unmounted after any failure.
    let unmounted = printed(Command::new("umount").arg(&pool));
    let told = used?;
    unmounted?;
    ensure!(told.ends_with("finished"), "the images do not work: {told}");
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}

struct Site {
    folder: PathBuf,
}

impl Site {
    /// Runs buildah and returns its output.
    fn buildah(&self, words: &[impl AsRef<OsStr>]) -> Result<String> {
        self.printed_by(Command::new("buildah"), words)
    }

    fn printed_by(&self, mut buildah: Command, words: &[impl AsRef<OsStr>]) -> Result<String> {
        buildah.arg("--root").arg(self.folder.join("images"));
        buildah.arg("--runroot").arg(self.folder.join("state"));
        let told = printed(buildah.args(["--storage-driver", "vfs"]).args(words))?;
        Ok(told.trim().to_owned())
    }

    fn build(&self, image: &str, file: &Path, packages: &Path) -> Result<()> {
        let words = ["build", "--isolation", "chroot", "--build-arg", "BASE=localhost/bare"];
        let mut words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
        words.extend(["--target", image, "--tag", image, "--file"].map(OsStr::new));
        words.extend([file.as_os_str(), packages.as_os_str()]);
        self.buildah(&words)?;
        Ok(())
    }

    /// Starts the daemon and a broker in a new container, and runs `script` there.
    fn serve(&self, script: &str) -> Result<String> {
        let run = format!("{}:/run/memlane", self.folder.join("run").display());
        let pool = format!("{}:/run/memlane/pool", self.folder.join("run/pool").display());
        let kept = format!("{}:/var/lib/memlane", self.folder.join("kept").display());
        let script = format!("{START}\n{BROKER}\n{script}");
        let volumes = ["--volume", &run, "--volume", &pool, "--volume", &kept];
        self.run("broker", &volumes, &["sh", "-ec", &script])
    }

    /// Runs a command in a new container and returns its output.
    fn run(&self, image: &str, options: &[&str], command: &[&str]) -> Result<String> {
        let container = self.buildah(&["from", &format!("localhost/{image}")])?;
        let words = ["run", "--isolation", "chroot"];
        let words = [&words[..], options, &[&container, "--"], command].concat();
        let mut apart = Command::new("unshare");
        apart.args(APART);
        let told = self.printed_by(apart, &words);
        self.buildah(&["rm", &container])?;
        told
    }
}
