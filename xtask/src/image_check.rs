//! Tries the image of `xtask/deb/Containerfile`: built by buildah from packages and a bare Debian,
//! its daemon is killed and started again, and a volume lives through it.
//!
//! Images and containers are kept in a folder of the check; nothing of the host's is touched.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::deb::printed;

const CONTAINERFILE: &str = "xtask/deb/Containerfile";

/// The pool and a little more.
const MEMORY: &str = "size=66M,mode=0700";

const START: &str = "memlaned --no-fuse --pool-size 64MiB & daemon=$!
until memlane status >/dev/null; do kill -0 $daemon; sleep 0.2; done";
const KILLED: &str = "memlane volume create db --size 8MiB; kill -9 $daemon";
const AGAIN: &str = "memlane volume show db; memlane-console --version; memlane-broker --version
kill $daemon; wait $daemon; echo finished";

/// In this folder, which is made and removed. Takes root.
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
    let file = root.join(CONTAINERFILE);
    let words = ["build", "--isolation", "chroot", "--build-arg", "BASE=localhost/bare"];
    let mut build: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    build.extend(["--tag", "memlane", "--file"].map(OsStr::new));
    build.extend([file.as_os_str(), packages.as_os_str()]);
    site.buildah(&build)?;

    let pool = folder.join("run/pool");
    printed(Command::new("mount").args(["-t", "tmpfs", "-o", MEMORY, "memlane"]).arg(&pool))?;
    let used = site.inside(KILLED).and_then(|_| site.inside(AGAIN));
    // What is mounted is unmounted whatever has failed.
    let unmounted = printed(Command::new("umount").arg(&pool));
    let told = used?;
    unmounted?;
    ensure!(told.ends_with("finished"), "the image does not work: {told}");
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}

struct Site {
    folder: PathBuf,
}

impl Site {
    /// Has buildah do something; what it printed.
    fn buildah(&self, words: &[impl AsRef<OsStr>]) -> Result<String> {
        let mut buildah = Command::new("buildah");
        buildah.arg("--root").arg(self.folder.join("images"));
        buildah.arg("--runroot").arg(self.folder.join("state"));
        let told = printed(buildah.args(["--storage-driver", "vfs"]).args(words))?;
        Ok(told.trim().to_owned())
    }

    /// Starts the daemon in a new container, and does what `script` says.
    fn inside(&self, script: &str) -> Result<String> {
        let container = self.buildah(&["from", "localhost/memlane"])?;
        let run = format!("{}:/run/memlane", self.folder.join("run").display());
        let pool = format!("{}:/run/memlane/pool", self.folder.join("run/pool").display());
        let kept = format!("{}:/var/lib/memlane", self.folder.join("kept").display());
        let script = format!("{START}\n{script}");
        let words = ["run", "--isolation", "chroot"];
        let volumes = ["--volume", &run, "--volume", &pool, "--volume", &kept];
        let command = [&container, "--", "sh", "-ec", &script];
        let told = self.buildah(&[&words[..], &volumes, &command].concat());
        self.buildah(&["rm", &container])?;
        told
    }
}
