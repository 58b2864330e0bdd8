//! The repository for the rules of tidy: its tracked files and its crates.
//!
//! Read once, never written. Files ignored by git are not included.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// One file. `path` is relative to the root and uses `/`. The text of a binary file is empty.
#[derive(Debug, Clone)]
pub(crate) struct TextFile {
    pub path: String,
    pub text: String,
}

impl TextFile {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns the `folder/crate` of the file, or `None` for files at the root.
    pub(crate) fn crate_path(&self) -> Option<&str> {
        let second_slash = self.path.match_indices('/').nth(1)?.0;
        Some(&self.path[..second_slash])
    }
}

/// Kind of a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DependencyUse {
    Product,
    TestsOnly,
}

/// A dependency on a crate of this workspace, by its path, such as `base/sync`.
#[derive(Debug, Clone)]
pub(crate) struct Dependency {
    pub crate_path: String,
    pub dependency_use: DependencyUse,
}

/// A crate of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Package {
    pub name: String,
    /// Path relative to the root, such as `base/sync`.
    pub path: String,
    /// Root files of its libraries and binaries, relative to the root of the repository.
    pub roots: Vec<String>,
    pub dependencies: Vec<Dependency>,
}

/// Input of the rules.
#[derive(Debug, Default)]
pub(crate) struct Repository {
    pub files: Vec<TextFile>,
    pub packages: Vec<Package>,
    /// Names and licences of third-party packages.
    pub licences: Vec<(String, String)>,
}

impl Repository {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let (packages, licences) = (read_packages(root)?, read_licences(root)?);
        Ok(Self { files: read_files(root)?, packages, licences })
    }

    pub(crate) fn file(&self, path: &str) -> Option<&TextFile> {
        self.files.iter().find(|file| file.path == path)
    }

    pub(crate) fn rust_files(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(|file| file.is_rust())
    }
}

/// Returns the root of the repository: the folder above this crate.
pub(crate) fn root() -> PathBuf {
    let own_folder = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    match own_folder.as_deref().and_then(Path::parent) {
        Some(root) => root.to_owned(),
        None => PathBuf::from("."),
    }
}

fn read_files(root: &Path) -> Result<Vec<TextFile>> {
    let listing =
        output(root, "git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    let mut files = Vec::new();
    for path in listing.split('\0').filter(|path| !path.is_empty()) {
        // Listed but deleted: irrelevant to all rules.
        let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
        let text = String::from_utf8(bytes).unwrap_or_default();
        files.push(TextFile { path: path.to_owned(), text });
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files.dedup_by(|one, other| one.path == other.path);
    Ok(files)
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
}

#[derive(Deserialize)]
struct LicenceMetadata {
    packages: Vec<LicencePackage>,
}

#[derive(Deserialize)]
struct LicencePackage {
    name: String,
    /// `None` for packages of the workspace.
    source: Option<String>,
    license: Option<String>,
}

#[derive(Deserialize)]
struct MetadataPackage {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<MetadataDependency>,
    targets: Vec<MetadataTarget>,
}

#[derive(Deserialize)]
struct MetadataDependency {
    kind: Option<String>,
    path: Option<PathBuf>,
}

#[derive(Deserialize)]
struct MetadataTarget {
    kind: Vec<String>,
    src_path: PathBuf,
}

fn read_packages(root: &Path) -> Result<Vec<Package>> {
    let root = root.canonicalize().context("cannot find the root of the project")?;
    let text = output(&root, "cargo", &["metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: Metadata = serde_json::from_str(&text).context("cannot read cargo metadata")?;
    Ok(metadata.packages.into_iter().map(|package| package_of(&root, package)).collect())
}

/// Reads the licences of all packages in a build for this machine, without those of the workspace.
fn read_licences(root: &Path) -> Result<Vec<(String, String)>> {
    let rustc = output(root, "rustc", &["-vV"])?;
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc does not say for which machine it builds")?;
    let arguments = ["metadata", "--format-version", "1", "--filter-platform", host];
    let text = output(root, "cargo", &arguments)?;
    let metadata: LicenceMetadata =
        serde_json::from_str(&text).context("cannot read cargo metadata")?;
    let others = metadata.packages.into_iter().filter(|package| package.source.is_some());
    Ok(others.map(|package| (package.name, package.license.unwrap_or_default())).collect())
}

fn package_of(root: &Path, package: MetadataPackage) -> Package {
    let is_own_crate = |target: &&MetadataTarget| {
        target.kind.iter().any(|kind| matches!(kind.as_str(), "lib" | "bin" | "cdylib"))
    };
    let use_of = |kind: &Option<String>| match kind.as_deref() {
        Some("dev") => DependencyUse::TestsOnly,
        _ => DependencyUse::Product,
    };
    Package {
        path: relative(root, package.manifest_path.parent().unwrap_or(root)),
        roots: package
            .targets
            .iter()
            .filter(is_own_crate)
            .map(|target| relative(root, &target.src_path))
            .collect(),
        dependencies: package
            .dependencies
            .iter()
            .filter_map(|dependency| {
                let path = dependency.path.as_ref()?;
                let dependency_use = use_of(&dependency.kind);
                Some(Dependency { crate_path: relative(root, path), dependency_use })
            })
            .collect(),
        name: package.name,
    }
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

fn output(folder: &Path, program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {} failed: {complaint}", arguments.join(" "));
    String::from_utf8(output.stdout).with_context(|| format!("{program} printed no UTF-8"))
}
