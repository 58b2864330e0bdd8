//! Kernels of guests: Debian's, downloaded as a package and unpacked, never installed.
//!
//! It is cached in `target/guest`. On hosts other than Debian 12, `MEMLANE_GUEST_KERNEL` names a
//! folder with `boot/vmlinuz…` and `lib/modules/…` to use instead of 6.12, and
//! `MEMLANE_GUEST_KERNEL_6_1` one to use instead of 6.1.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use system::Tool;
use system::debian::{download_package, with_package_lists};

/// A Debian kernel for virtual machines, a third of the size of the generic one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Debian 12's own: no ublk, and FUSE does not resend requests.
    V6_1,
    /// Debian 12's newest from its backports: ublk as a module, and FUSE resends requests.
    V6_12,
}

impl Release {
    /// Package that depends on the newest kernel of the release.
    fn package(self) -> &'static str {
        match self {
            Self::V6_1 => "linux-image-cloud-amd64",
            Self::V6_12 => "linux-image-6.12-cloud-amd64",
        }
    }

    /// Prefix of the name of the package that contains the kernel.
    fn beginning(self) -> &'static str {
        match self {
            Self::V6_1 => "linux-image-6.1.",
            Self::V6_12 => "linux-image-6.12.",
        }
    }

    fn folder_variable(self) -> &'static str {
        match self {
            Self::V6_1 => "MEMLANE_GUEST_KERNEL_6_1",
            Self::V6_12 => "MEMLANE_GUEST_KERNEL",
        }
    }
}

const KEPT_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/guest");

/// A kernel and its modules.
#[derive(Clone, Debug)]
pub struct Kernel {
    image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// Returns the cached kernel, or fetches it.
    pub fn fetched(release: Release) -> Result<Self> {
        let (package, variable) = (release.package(), release.folder_variable());
        if let Some(folder) = std::env::var_os(variable) {
            return Self::in_folder(Path::new(&folder)).with_context(|| variable);
        }
        fs::create_dir_all(KEPT_IN).with_context(|| format!("cannot create {KEPT_IN}"))?;
        let kept_in = Path::new(KEPT_IN);
        // Other tests may use it concurrently.
        let lock = File::create(kept_in.join("lock")).context("cannot create a lock file")?;
        lock.lock().context("cannot lock the folder of the kernel")?;
        let folder = kept_in.join(package);
        if !folder.exists() {
            fetch(release, kept_in, &folder).with_context(|| {
                format!(
                    "guests need the kernel of Debian 12's package {package}; where apt has none, \
                     unpack one into a folder and name that in {variable}"
                )
            })?;
        }
        Self::in_folder(&folder)
    }

    fn in_folder(folder: &Path) -> Result<Self> {
        let image = only_one(&folder.join("boot"), "vmlinuz-")?;
        let modules = only_one(&folder.join("lib/modules"), "")?;
        Ok(Self { image, modules })
    }

    pub(crate) fn image(&self) -> &Path {
        &self.image
    }

    pub(crate) fn modules(&self) -> &Path {
        &self.modules
    }
}

/// Downloads the kernel of a release and unpacks it, completely or not at all.
fn fetch(release: Release, kept_in: &Path, to: &Path) -> Result<()> {
    let folder = tempfile::tempdir_in(kept_in).context("cannot make a folder to download to")?;
    with_package_lists(|| download(release, folder.path()))?;
    let package = only_one(folder.path(), "linux-image-")?;
    let unpacked = folder.path().join("unpacked");
    Tool::new("dpkg-deb --extract").arg(package).arg(&unpacked).check()?;
    let version = only_one(&unpacked.join("lib/modules"), "")?;
    let version = version.file_name().context("a folder has a name")?;
    Tool::new("depmod --basedir").arg(&unpacked).arg(version).check()?;
    fs::rename(&unpacked, to).with_context(|| format!("cannot create {}", to.display()))
}

fn download(release: Release, folder: &Path) -> Result<()> {
    let named = release.package();
    let shown = Tool::new("apt-cache show --no-all-versions").arg(named).check()?;
    let package = dependency_in(&shown).with_context(|| format!("{named} depends on nothing"))?;
    ensure!(package.starts_with(release.beginning()), "{named} is {package} here");
    download_package(package, folder)
}

/// Returns the first package on which the shown one depends.
fn dependency_in(shown: &str) -> Option<&str> {
    let line = shown.lines().find_map(|line| line.strip_prefix("Depends:"))?;
    line.split([',', ' ']).find(|word| !word.is_empty())
}

/// Returns the entry of `folder` whose name begins with `beginning`.
fn only_one(folder: &Path, beginning: &str) -> Result<PathBuf> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let begins = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(beginning))
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|it| it.path()).filter(begins).collect();
    ensure!(found.len() <= 1, "{found:?}: there should be one of them");
    match found.pop() {
        Some(path) => Ok(path),
        None => bail!("{} holds no {beginning}…", folder.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_tells_what_it_depends_on() {
        let shown = "Package: linux\nDepends: linux-1.2 (= 1.2-3), other\nDescription: x\n";
        assert_eq!(dependency_in(shown), Some("linux-1.2"));
        assert_eq!(dependency_in("Package: linux\n"), None);
    }

    #[test]
    fn one_of_a_name_is_found_and_several_are_refused() {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        only_one(folder.path(), "a").expect_err("there is none");
        for name in ["a1", "b1", "b2"] {
            fs::write(folder.path().join(name), "").expect("the folder is there");
        }
        assert_eq!(only_one(folder.path(), "a").ok(), Some(folder.path().join("a1")));
        only_one(folder.path(), "b").expect_err("there are two");
    }
}
