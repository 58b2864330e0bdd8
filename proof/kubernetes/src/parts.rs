//! Programs of a cluster: fetched and built once, in pinned versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use kafka_clients::{Go, Recipe, with_go};
use system::Tool;
use system::debian::unpack_package;

const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

/// Folder of the module that requires all the others.
const MODULE: &str = "go";

const PACKAGES: &[&str] = &[
    "k8s.io/kubernetes/cmd/kube-apiserver",
    "k8s.io/kubernetes/cmd/kube-controller-manager",
    "k8s.io/kubernetes/cmd/kube-scheduler",
    "k8s.io/kubernetes/cmd/kubectl",
    "k8s.io/kubernetes/cmd/kubelet",
    "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner",
    "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer",
    "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter",
    "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller",
];

/// Linker flags for small programs with a version, without which programs of a cluster reject each
/// other.
const LINKED: &str = "-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2";

/// Objects of snapshots, which are not part of Kubernetes.
const SNAPSHOT_OBJECTS: &[(&str, &str, &str)] = &[
    ("github.com/kubernetes-csi/external-snapshotter/client/v8", "config/crd", "kinds"),
    (
        "github.com/kubernetes-csi/external-snapshotter/v8",
        "deploy/kubernetes/snapshot-controller",
        "controller",
    ),
];

/// Packages to unpack.
const DEBIAN: &str = include_str!("../go/debian.txt");

/// Time limit, twice the duration on two busy cores.
const BUILD_TIME_LIMIT: Duration = Duration::from_secs(90 * 60);

/// Folders of all parts of a cluster.
pub(crate) struct Parts {
    /// Static Go programs.
    pub(crate) programs: PathBuf,
    /// Folders of objects.
    pub(crate) objects: PathBuf,
    /// Root of the unpacked packages.
    pub(crate) debian: PathBuf,
}

impl Parts {
    /// Returns the parts, fetched now or in an earlier run.
    ///
    /// # Errors
    /// A registry does not answer, or Go fails.
    pub(crate) fn fetched() -> Result<Self> {
        let debian = Recipe {
            sources: SOURCES,
            name: "debian",
            origin: "Debian",
            made_of: &["go/debian.txt"],
        };
        let debian = debian.folder(|folder| {
            DEBIAN.split_whitespace().try_for_each(|package| unpack_package(package, folder))
        })?;
        let built = Recipe {
            sources: SOURCES,
            name: "built",
            origin: "Go's module proxy, half an hour of building",
            made_of: &["go/go.mod", "go/go.sum"],
        };
        let built = built.folder(|folder| with_go(&module(), folder, |go| build(go, folder)))?;
        Ok(Self { programs: built.join("programs"), objects: built.join("objects"), debian })
    }

    /// Search path for programs.
    pub(crate) fn search_path(&self) -> String {
        let folders =
            [self.programs.clone(), self.debian.join("usr/bin"), self.debian.join("usr/sbin")];
        folders.map(|folder| folder.display().to_string()).join(":")
    }
}

fn module() -> PathBuf {
    Path::new(SOURCES).join(MODULE)
}

fn build(go: &Go<'_>, folder: &Path) -> Result<()> {
    let programs = folder.join("programs");
    let output = format!("-o={}/", programs.display());
    fs::create_dir(&programs).context("cannot make a folder for programs")?;
    let words = [&["build", "-trimpath", LINKED, &output][..], PACKAGES].concat();
    go.run(&words, BUILD_TIME_LIMIT)?;
    fs::create_dir(folder.join("objects")).context("cannot make a folder for objects")?;
    for (module, objects, name) in SNAPSHOT_OBJECTS {
        let found = go.run(&["list", "-m", "-f", "{{.Dir}}", module], BUILD_TIME_LIMIT)?;
        let objects = Path::new(found.trim()).join(objects);
        let copy = folder.join("objects").join(name);
        Tool::new("cp --recursive --no-preserve=mode").arg(objects).arg(copy).check()?;
    }
    Ok(())
}
