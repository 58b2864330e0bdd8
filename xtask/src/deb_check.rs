//! Tests the packages in a container: a minimal Debian boots in its own namespaces
//! (`xtask/deb/boot.sh`), where `xtask/deb/check.sh` installs, uses, upgrades and purges them. Then
//! images are built from them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{deb, image_check};

const SUITE: &str = "bookworm";
const INCLUDED: &str = "systemd,systemd-sysv,mount,passwd";

/// Time limit in seconds for all steps in the container.
const TIME_LIMIT: &str = "600";

const UNIT: &str = "[Unit]\nAfter=basic.target\n[Service]\nType=simple\n\
    ExecStart=/bin/sh -c 'sh /trial/check.sh >/trial/result 2>&1; systemctl poweroff'\n";

/// Tests the packages of the programs in this folder. Needs root, the network for the first run,
/// and Debian's mmdebstrap and buildah.
pub(crate) fn check(root: &Path, programs: &Path) -> Result<()> {
    let folder = root.join("target/deb");
    let bare = folder.join("bare");
    if !bare.exists() {
        // Under another name until it is complete.
        let begun = folder.join("bare.begun");
        fs::create_dir_all(&folder)?;
        remove(&begun)?;
        let include = format!("--include={INCLUDED}");
        deb::printed(
            Command::new("mmdebstrap").args(["--variant=minbase", &include, SUITE]).arg(&begun),
        )?;
        fs::rename(&begun, &bare)?;
    }
    let container = folder.join("container");
    remove(&container)?;
    deb::printed(Command::new("cp").arg("-a").args([&bare, &container]))?;
    let version = deb::version(root)?;
    let trial = container.join("trial");
    fs::create_dir_all(trial.join("new"))?;
    for package in deb::make(root, programs, &trial.join("old"), &version)? {
        deb::pack_again(&package, &trial.join("new"), (&version, &format!("{version}+next")))?;
    }
    fs::copy(root.join("xtask/deb/check.sh"), trial.join("check.sh"))?;
    let units = container.join("etc/systemd/system");
    fs::create_dir_all(units.join("multi-user.target.wants"))?;
    fs::write(units.join("check.service"), UNIT)?;
    let wanted = units.join("multi-user.target.wants/check.service");
    std::os::unix::fs::symlink("../check.service", wanted)?;
    let mut boot = Command::new("sh");
    boot.arg(root.join("xtask/deb/boot.sh")).arg(&container).arg(TIME_LIMIT);
    // The exit status of the boot is irrelevant: the last output of its script counts.
    let booted = boot.output().context("cannot run sh")?;
    let said = fs::read_to_string(trial.join("result")).with_context(|| {
        format!("the container did not boot: {}", String::from_utf8_lossy(&booted.stderr))
    })?;
    ensure!(said.trim_end().ends_with("finished"), "the packages do not work:\n{said}");
    image_check::check(root, &trial.join("old"), &bare, &folder.join("image"))?;
    remove(&container)
}

fn remove(folder: &Path) -> Result<()> {
    match folder.exists() {
        true => fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display())),
        false => Ok(()),
    }
}
