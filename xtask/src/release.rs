//! Files of a release in one folder: packages, container files, bill of materials, notes, build
//! information, and checksums of all of them.
//!
//! It packs built programs, and never builds, tags or publishes. `make release` sets
//! `SOURCE_DATE_EPOCH` to the time of the commit, so that packages contain no build date.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{deb, sbom};

const CONTAINERFILE: &str = "deploy/containers/Containerfile";
const MANIFESTS: &str = "deploy/kubernetes";
const CHANGES: &str = "CHANGELOG.md";
const SUMS: &str = "SHA256SUMS";

/// Creates the release folder of `crates`, whose programs are in `programs`.
pub(crate) fn make(root: &Path, programs: &Path, crates: &[&str]) -> Result<PathBuf> {
    let version = deb::version(root)?;
    let folder = root.join("target/release-files").join(&version);
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let put = |name: &str, text: String| {
        fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))
    };
    let changes = fs::read_to_string(root.join(CHANGES)).context("cannot read the changelog")?;
    put("NOTES.md", notes(&changes, &version)?)?;
    put(&format!("memlane-{version}.cdx.json"), sbom::document(root, crates, &version)?)?;
    put("BUILD", built_by(root)?)?;
    let copied = fs::copy(root.join(CONTAINERFILE), folder.join("Containerfile"));
    copied.with_context(|| format!("cannot copy {CONTAINERFILE}"))?;
    for name in ["driver.yaml", "classes.yaml"] {
        let copied = fs::copy(root.join(MANIFESTS).join(name), folder.join(name));
        copied.with_context(|| format!("cannot copy {MANIFESTS}/{name}"))?;
    }
    deb::make(root, programs, &folder, &version)?;
    write_sums(&folder)?;
    Ok(folder)
}

/// Fails unless the sources are those of their version's tag, unchanged.
pub(crate) fn check_tag(root: &Path) -> Result<()> {
    let tag = format!("v{}", deb::version(root)?);
    let git = |words: &[&str]| deb::printed(Command::new("git").args(words).current_dir(root));
    let changed = git(&["status", "--porcelain"])?;
    ensure!(
        changed.is_empty(),
        "a release is built of unchanged sources, and these differ from \
         the commit:\n{changed}"
    );
    let tags = git(&["tag", "--points-at", "HEAD"])?;
    ensure!(
        tags.lines().any(|it| it == tag),
        "a release is built of a tagged commit: check out {tag}, or tag this commit with git tag \
         --annotate {tag}"
    );
    Ok(())
}

/// Returns the changelog section of this version, without its heading.
fn notes(changes: &str, version: &str) -> Result<String> {
    let start = format!("## {version}");
    let is_start = |line: &&str| line.split(" - ").next() == Some(&start);
    let lines = changes.lines().skip_while(|line| !is_start(line)).skip(1);
    let text: Vec<_> = lines.take_while(|line| !line.starts_with("## ")).collect();
    let text = text.join("\n").trim().to_owned();
    ensure!(!text.is_empty(), "{CHANGES} has no section {start:?}, or it is empty");
    Ok(text + "\n")
}

/// Returns the commit and the tools, which a reproducible build needs.
fn built_by(root: &Path) -> Result<String> {
    let commit = deb::printed(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root))?;
    let rustc = deb::printed(Command::new("rustc").arg("-vV").current_dir(root))?;
    let dpkg = deb::printed(Command::new("dpkg-deb").arg("--version"))?;
    let dpkg = dpkg.lines().next().unwrap_or_default();
    Ok(format!("commit: {}\npath: {}\n{rustc}{dpkg}\n", commit.trim(), root.display()))
}

/// Writes the checksums of all files of the folder, in the format of `sha256sum --check`.
fn write_sums(folder: &Path) -> Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name());
    }
    names.retain(|name| name != SUMS);
    names.sort();
    let sums = deb::printed(Command::new("sha256sum").args(&names).current_dir(folder))?;
    fs::write(folder.join(SUMS), sums).context("cannot write the checksums")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGES: &str = "# Changelog\n\n## 0.2.0 - 2026-11-28\n\n### Added\n\n- New.\n\n\
        ## 0.1.0\n\nOld.\n";

    #[test]
    fn notes_are_the_section_of_the_version() {
        assert_eq!(notes(CHANGES, "0.2.0").expect("a section"), "### Added\n\n- New.\n");
        assert_eq!(notes(CHANGES, "0.1.0").expect("a section"), "Old.\n");
        assert!(notes(CHANGES, "0.2").is_err(), "another version");
    }

    #[test]
    fn manifests_name_the_image_of_this_version() {
        let root = crate::repository::root();
        let version = deb::version(&root).expect("a version");
        let driver = fs::read_to_string(root.join(MANIFESTS).join("driver.yaml")).expect("a file");
        assert!(driver.contains(&format!("image: memlane-csi:{version}\n")), "{version}");
    }

    #[test]
    fn only_unchanged_sources_of_the_tag_are_released() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let git = |words: &str| {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]);
            deb::printed(git.args(words.split(' ')).current_dir(root)).expect("git does it")
        };
        let manifest = "[workspace.package]\nversion = \"1.2.3\"\n";
        fs::write(root.join("Cargo.toml"), manifest).expect("a file");
        git("init --quiet");
        git("add Cargo.toml");
        git("commit --quiet --message=first");
        let refused = format!("{:#}", check_tag(root).expect_err("no tag"));
        assert!(refused.contains("git tag --annotate v1.2.3"), "{refused}");
        git("tag v1.2.30");
        check_tag(root).expect_err("the tag of another version");
        git("tag v1.2.3");
        check_tag(root).expect("its tag");
        fs::write(root.join("new"), "").expect("a file");
        let refused = format!("{:#}", check_tag(root).expect_err("changed"));
        assert!(refused.contains("new"), "{refused}");
    }

    #[test]
    fn checksums_cover_every_file_and_prove_it() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["b", "a"] {
            fs::write(folder.path().join(name), name).expect("a file");
        }
        write_sums(folder.path()).expect("sums");
        write_sums(folder.path()).expect("sums, again");
        let check = || {
            let mut check = Command::new("sha256sum");
            deb::printed(check.args(["--check", SUMS]).current_dir(folder.path()))
        };
        assert_eq!(check().expect("they are right"), "a: OK\nb: OK\n");
        fs::write(folder.path().join("a"), "other").expect("a file");
        check().expect_err("a file was changed");
    }
}
