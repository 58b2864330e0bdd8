//! Debian packages of the programs, made by dpkg-deb from built programs.
//!
//! There are six: the daemon with its command line, the C library, the console, virtual machines,
//! Kubernetes volumes, and the broker. Programs are stripped. Their debug symbols are in a package
//! beside each, NAME-dbgsym. Maintainer scripts are in `xtask/deb`. Manual pages and completions
//! are printed by the programs themselves.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

/// A package and its contents.
struct Package {
    name: &'static str,
    summary: &'static str,
    /// Dependencies besides the C library.
    depends: &'static str,
    /// Recommended packages, without which it starts but does little.
    recommends: &'static str,
    programs: &'static [&'static str],
    libraries: &'static [&'static str],
    /// Unit files, by their paths in the repository.
    units: &'static [&'static str],
    /// Settings, installed in /etc/memlane.
    settings: &'static [&'static str],
    /// Other files of the repository, with their installation folders.
    files: &'static [(&'static str, &'static str)],
}

const PACKAGES: &[Package] = &[
    Package {
        name: "memlane",
        summary: "block volumes in RAM with deduplication, compression and snapshots",
        depends: "passwd, mount",
        recommends: "",
        programs: &["memlaned", "memlane"],
        libraries: &["libmemlane_preload.so"],
        units: &["control/daemon/memlaned.service"],
        settings: &["control/daemon/memlaned.toml"],
        files: &[],
    },
    Package {
        name: "memlane-dev",
        summary: "C library for Memlane volumes (development files)",
        depends: "memlane (= VERSION)",
        recommends: "",
        programs: &[],
        libraries: &["libmemlane.so"],
        units: &[],
        settings: &[],
        files: &[
            ("clients/libmemlane/include/memlane.h", "usr/include/memlane.h"),
            ("clients/libmemlane/memlane.h.3", "usr/share/man/man3/memlane.h.3"),
        ],
    },
    Package {
        name: "memlane-console",
        summary: "web console of Memlane with users, roles and API tokens",
        depends: "passwd, memlane (= VERSION)",
        recommends: "",
        programs: &["memlane-console"],
        libraries: &[],
        units: &["control/console-server/memlane-console.service"],
        settings: &["control/console-server/memlane-console.toml"],
        files: &[],
    },
    Package {
        name: "memlane-machines",
        summary: "libvirt virtual machines on Memlane volumes",
        depends: "passwd, memlane (= VERSION)",
        recommends: "libvirt-daemon-system, qemu-system-x86",
        programs: &["memlane-machines"],
        libraries: &[],
        units: &["control/machines/memlane-machines.service"],
        settings: &["control/machines/memlane-machines.toml"],
        files: &[],
    },
    Package {
        name: "memlane-csi",
        summary: "Kubernetes CSI driver for Memlane volumes",
        depends: "mount",
        recommends: "e2fsprogs, xfsprogs",
        programs: &["memlane-csi"],
        libraries: &[],
        units: &["control/csi/memlane-csi.service"],
        settings: &["control/csi/memlane-csi.toml"],
        files: &[],
    },
    Package {
        name: "memlane-broker",
        summary: "Kafka-compatible message broker with SQL, on Memlane volumes",
        depends: "passwd, memlane (= VERSION)",
        recommends: "",
        programs: &["memlane-broker"],
        libraries: &[],
        units: &["streams/broker/memlane-broker.service"],
        settings: &["streams/broker/memlane-broker.toml"],
        files: &[],
    },
];

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Folder of programs in the unit files of the repository, and in packages.
const PLACE_BY_HAND: &str = "/usr/local/bin/";
const PLACE: &str = "/usr/bin/";

/// Shells, with the path of a program's completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/PROGRAM"),
    ("zsh", "usr/share/zsh/vendor-completions/_PROGRAM"),
    ("fish", "usr/share/fish/vendor_completions.d/PROGRAM.fish"),
];

/// Programs that print completions, with the argument that requests them.
const COMPLETED: [(&str, &str); 2] =
    [("memlane", "completions"), ("memlane-console", "--completions")];

/// Folder of maintainer scripts, descriptions and documents of packages.
const FOLDER: &str = "xtask/deb";

/// Variables that, by Debian's convention, name the maintainer of packages.
const MAINTAINER_VARIABLES: [&str; 2] = ["DEBFULLNAME", "DEBEMAIL"];
const MAINTAINER: [&str; 2] = ["Memlane", "memlane@example.org"];

/// Program that contains a page, which a build without Node.js lacks.
const CONSOLE: &str = "memlane-console";

/// Folder in which debuggers search for the debug symbols of packaged programs.
const DEBUG_FOLDER: &str = "usr/lib/debug/usr/bin";

/// C library of Debian 12, on which packages are built.
const C_LIBRARY: &str = "libc6 (>= 2.36), libgcc-s1";

/// Builds all packages of the programs in `programs` into `made`, with this version.
pub(crate) fn make(
    root: &Path,
    programs: &Path,
    made: &Path,
    version: &str,
) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(made).with_context(|| format!("cannot make {}", made.display()))?;
    let packages = PACKAGES.iter().map(|package| {
        let mut made_of = vec![build(package, root, programs, made, version)?];
        if !package.programs.is_empty() {
            made_of.push(build_debug(package, made, version)?);
        }
        Ok(made_of)
    });
    let packages = packages.collect::<Result<Vec<Vec<_>>>>()?.concat();
    share_no_file(&packages)?;
    Ok(packages)
}

/// Checks that no two packages contain a file of the same name, because they could not be installed
/// together.
fn share_no_file(packages: &[PathBuf]) -> Result<()> {
    let mut owners = BTreeMap::new();
    for package in packages {
        let listed = printed(Command::new("dpkg-deb").arg("--contents").arg(package))?;
        for line in listed.lines().filter(|line| !line.starts_with('d')) {
            let file = line.split_whitespace().nth(5).context("a file of a package has a name")?;
            if let Some(other) = owners.insert(file.to_owned(), package) {
                bail!("{} and {} both hold {file}", other.display(), package.display());
            }
        }
    }
    Ok(())
}

/// Returns the version of the workspace.
pub(crate) fn version(root: &Path) -> Result<String> {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).context("no manifest")?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("version = "));
    Ok(line.context("the manifest has no version")?.trim_matches('"').to_owned())
}

fn build(
    package: &Package,
    root: &Path,
    programs: &Path,
    made: &Path,
    version: &str,
) -> Result<PathBuf> {
    let tree = empty_tree(made, package.name)?;
    let debug = made.join(format!("{}.tree", debug_package(package))).join(DEBUG_FOLDER);
    if !package.programs.is_empty() {
        empty_tree(made, &debug_package(package))?;
        fs::create_dir_all(&debug)?;
    }
    for name in package.programs {
        let path = tree.join("usr/bin").join(name);
        put(&programs.join(name), &path, 0o755)?;
        strip(&path)?;
        keep_debug(&programs.join(name), &path, &debug.join(format!("{name}.debug")))?;
    }
    if package.programs.contains(&CONSOLE) {
        has_page(&tree.join("usr/bin").join(CONSOLE))?;
    }
    for name in package.libraries {
        let path = tree.join("usr/lib/memlane").join(name);
        put(&programs.join(name), &path, 0o644)?;
        strip(&path)?;
    }
    for unit in package.units {
        let text = read(&root.join(unit))?;
        // Leading comments are for manual installation.
        let text: Vec<_> = text.lines().skip_while(|line| line.starts_with('#')).collect();
        let text = text.join("\n").trim_start().replace(PLACE_BY_HAND, PLACE);
        let path = tree.join("usr/lib/systemd/system").join(file_name(unit)?);
        write(&path, &format!("{text}\n"), 0o644)?;
    }
    for setting in package.settings {
        put(&root.join(setting), &tree.join("etc/memlane").join(file_name(setting)?), 0o644)?;
    }
    for (file, place) in package.files {
        put(&root.join(file), &tree.join(place), 0o644)?;
    }
    document(package, root, &tree)?;
    control(package, root, &tree, version)?;
    pack(&tree, package.name, made, version)
}

/// Packs what [`build`] stripped of the programs of a package.
fn build_debug(package: &Package, made: &Path, version: &str) -> Result<PathBuf> {
    let name = debug_package(package);
    let tree = made.join(format!("{name}.tree"));
    let text = format!(
        "Package: {name}\nSource: memlane\nVersion: {version}\nAuto-Built-Package: \
         debug-symbols\nArchitecture: {}\nMaintainer: {}\nSection: debug\nPriority: \
         optional\nDepends: {} (= {version})\nDescription: debug symbols for {}\n",
        architecture()?,
        maintainer(),
        package.name,
        package.name
    );
    write(&tree.join("DEBIAN/control"), &text, 0o644)?;
    // It shares the documents of the package that it depends on.
    let documents = tree.join("usr/share/doc");
    fs::create_dir_all(&documents)?;
    symlink(package.name, documents.join(&name)).context("cannot link documents")?;
    pack(&tree, &name, made, version)
}

/// Builds a package from a tree, and removes the tree.
fn pack(tree: &Path, name: &str, made: &Path, version: &str) -> Result<PathBuf> {
    let deb = made.join(format!("{name}_{version}_{}.deb", architecture()?));
    let mut packing = Command::new("dpkg-deb");
    printed(packing.args(["--root-owner-group", "-Zxz", "--build"]).arg(tree).arg(&deb))?;
    fs::remove_dir_all(tree)?;
    Ok(deb)
}

/// Packs the same contents again into `made`, with another version.
pub(crate) fn pack_again(package: &Path, made: &Path, versions: (&str, &str)) -> Result<()> {
    let tree = made.join("again.tree");
    printed(Command::new("dpkg-deb").arg("--raw-extract").args([package, &tree]))?;
    let control = tree.join("DEBIAN/control");
    write(&control, &read(&control)?.replace(versions.0, versions.1), 0o644)?;
    let name = package.file_name().context("a package is a file")?;
    let mut packing = Command::new("dpkg-deb");
    printed(packing.args(["-Znone", "--build"]).arg(&tree).arg(made.join(name)))?;
    Ok(fs::remove_dir_all(tree)?)
}

fn debug_package(package: &Package) -> String {
    format!("{}-dbgsym", package.name)
}

/// Creates the empty folder from which a package is built.
fn empty_tree(made: &Path, name: &str) -> Result<PathBuf> {
    let tree = made.join(format!("{name}.tree"));
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    fs::create_dir_all(&tree).with_context(|| format!("cannot make {}", tree.display()))?;
    Ok(tree)
}

/// Installs manual pages, completions and the licence.
fn document(package: &Package, root: &Path, tree: &Path) -> Result<()> {
    let manual = tree.join("usr/share/man");
    for name in package.programs {
        fs::create_dir_all(&manual)?;
        let mut command = Command::new(tree.join("usr/bin").join(name));
        command.arg(if *name == "memlane" { "man" } else { "--man" });
        printed(command.arg(&manual))?;
    }
    printed(Command::new("gzip").args(["-9", "-n", "--recursive"]).arg(manual))?;
    for (name, word) in COMPLETED.iter().filter(|(name, _)| package.programs.contains(name)) {
        for (shell, path) in COMPLETIONS {
            let mut printing = Command::new(tree.join("usr/bin").join(name));
            let script = printed(printing.args([word, shell]))?;
            write(&tree.join(path.replace("PROGRAM", name)), &script, 0o644)?;
        }
    }
    let documents = tree.join("usr/share/doc").join(package.name);
    put(&root.join(FOLDER).join("copyright"), &documents.join("copyright"), 0o644)?;
    let changes = read(&root.join(FOLDER).join("changelog"))?.replace("MAINTAINER", &maintainer());
    write(&documents.join("changelog"), &changes, 0o644)?;
    printed(Command::new("gzip").args(["-9", "-n"]).arg(documents.join("changelog"))).map(drop)
}

/// Returns the maintainer of the packages.
fn maintainer() -> String {
    let said = |at: usize| env::var(MAINTAINER_VARIABLES[at]).unwrap_or(MAINTAINER[at].to_owned());
    format!("{} <{}>", said(0), said(1))
}

/// Fails if the console contains no page, because users of the package would not know how to get
/// one.
fn has_page(console: &Path) -> Result<()> {
    printed(Command::new(console).arg("--has-page")).map(drop).context(
        "the console has no page in it: install node and npm, then have it built by make deb",
    )
}

fn control(package: &Package, root: &Path, tree: &Path, version: &str) -> Result<()> {
    let Package { name, summary, depends, recommends, .. } = package;
    let depends = depends.replace("VERSION", version);
    let description = read(&root.join(FOLDER).join(format!("{name}.description")))?;
    let recommends = match recommends.is_empty() {
        true => String::new(),
        false => format!("Recommends: {recommends}\n"),
    };
    let text = format!(
        "Package: {name}\nSource: memlane\nVersion: {version}\nArchitecture: {}\nMaintainer: \
         {}\nSection: admin\nPriority: optional\nDepends: {C_LIBRARY}, \
         {depends}\n{recommends}Description: {summary}\n{description}",
        architecture()?,
        maintainer()
    );
    let folder = tree.join("DEBIAN");
    write(&folder.join("control"), &text, 0o644)?;
    // Without programs there is nothing to start, to stop or to clean up.
    for script in SCRIPTS.iter().filter(|_| !package.programs.is_empty()) {
        let source = root.join(FOLDER).join(format!("{name}.{script}"));
        put(&source, &folder.join(script), 0o755)?;
    }
    let settings: Result<Vec<_>> = package.settings.iter().map(|it| file_name(it)).collect();
    let files = settings?.iter().map(|name| format!("/etc/memlane/{name}\n")).collect::<String>();
    match files.is_empty() {
        true => Ok(()),
        false => write(&folder.join("conffiles"), &files, 0o644),
    }
}

fn architecture() -> Result<String> {
    Ok(printed(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned())
}

/// Removes symbols, which users of a package do not need.
fn strip(path: &Path) -> Result<()> {
    printed(Command::new("strip").arg("--strip-unneeded").arg(path)).map(drop)
}

/// Saves the debug symbols of a program in the file `kept`, and links it from the stripped program.
fn keep_debug(program: &Path, stripped: &Path, kept: &Path) -> Result<()> {
    let keeping = ["--only-keep-debug", "--compress-debug-sections"];
    printed(Command::new("objcopy").args(keeping).args([program, kept]))?;
    let link = format!("--add-gnu-debuglink={}", kept.display());
    printed(Command::new("objcopy").arg(link).arg(stripped)).map(drop)
}

fn file_name(path: &str) -> Result<&str> {
    path.rsplit('/').next().with_context(|| format!("{path} names no file"))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn put(from: &Path, to: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
    fs::copy(from, to).with_context(|| format!("cannot pack {}", from.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

/// Runs a program, which must succeed, and returns its output.
pub(crate) fn printed(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output();
    let output = output.with_context(|| format!("cannot run {name}; is it installed?"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {complaint}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository;

    const LISTED: &str = "NAME  RAM     SNAP-RAM   DURABILITY  DEVICE";

    /// Folder with a fake host's programs and the daemon's run directory.
    struct Host {
        folder: tempfile::TempDir,
    }

    impl Host {
        /// Creates a host with a pool, and a daemon that lists these volumes. `None`: no daemon.
        /// Clients of another run directory find none.
        fn new(volumes: Option<&str>) -> Self {
            let host = Self { folder: tempfile::tempdir().expect("a folder") };
            let answer = match volumes {
                Some(volumes) => format!("printf '{LISTED}\n{volumes}'"),
                None => "exit 5".to_owned(),
            };
            let socket = host.path("run/api.sock").display().to_string();
            let script = format!(
                "#!/bin/sh\ncase \"$1 $2\" in\n\"--socket {socket}\") {answer} ;;\n\
                 --socket*) exit 5 ;;\n*) echo {LISTED} ;;\nesac\n"
            );
            write(&host.path("bin/memlane"), &script, 0o755).expect("a program");
            write(&host.path("run/pool/region"), "", 0o600).expect("a pool");
            fs::create_dir(host.path("state")).expect("a folder");
            host
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        /// Runs the script before a removal, on this host instead of the real one.
        fn remove(&self) -> Result<String> {
            let mut script = read(&repository::root().join(FOLDER).join("memlane.prerm"))?;
            let places = [("/run/memlane", "run"), ("/var/lib/memlane", "state")];
            for (place, here) in places.into_iter().chain([("/etc/memlane", "etc")]) {
                script = script.replace(place, &self.path(here).display().to_string());
            }
            let script = script.replace("/run/systemd", "/nowhere");
            let path = format!("{}:{}", self.path("bin").display(), env::var("PATH")?);
            printed(Command::new("sh").env("PATH", path).args(["-c", &script, "prerm", "remove"]))
        }
    }

    #[track_caller]
    fn check_refused(host: &Host, expected: &[&str]) {
        let refused = format!("{:#}", host.remove().expect_err("refused"));
        assert!(expected.iter().all(|it| refused.contains(it)), "{refused}");
    }

    #[test]
    fn the_daemons_package_is_not_removed_while_there_are_volumes() {
        let volume = "db    1.0MiB  0          ram         -";
        let host = Host::new(Some(volume));
        check_refused(&host, &["these volumes would be lost", volume, "lose-volumes"]);
        write(&host.path("run/lose-volumes"), "", 0o600).expect("a mark");
        host.remove().expect("they were given up");
        let attached = "db    1.0MiB  0          ram         /dev/loop0";
        let host = Host::new(Some(attached));
        write(&host.path("run/lose-volumes"), "", 0o600).expect("a mark");
        check_refused(&host, &["detach", attached]);
        let host = Host::new(Some(""));
        host.remove().expect("no volume is there");
        assert!(host.path("state/no-volumes").exists(), "its journal is of no volume");
    }

    #[test]
    fn a_pool_is_found_where_the_settings_put_it() {
        let host = Host::new(None);
        fs::remove_dir_all(host.path("run/pool")).expect("the usual place is empty");
        let pool = host.path("elsewhere/region");
        write(&pool, "", 0o600).expect("a pool");
        let settings = format!("# pool-path = \"/none\"\npool-path = '{}'\n", pool.display());
        write(&host.path("etc/memlaned.toml"), &settings, 0o644).expect("settings");
        check_refused(&host, &["start memlaned"]);
        let settings = format!("run-dir = \"{}\"\n", host.path("other").display());
        write(&host.path("etc/memlaned.toml"), &settings, 0o644).expect("settings");
        write(&host.path("other/pool/region"), "", 0o600).expect("a pool");
        check_refused(&host, &["start memlaned"]);
    }

    #[test]
    fn the_daemons_package_is_not_removed_while_nobody_knows_what_its_pool_holds() {
        let host = Host::new(None);
        check_refused(&host, &["start memlaned", "lose-volumes"]);
        fs::remove_file(host.path("run/pool/region")).expect("the pool goes");
        host.remove().expect("no pool is there");
    }

    #[test]
    fn packages_that_hold_the_same_file_are_not_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let packed = |name: &str, files: &[&str]| {
            let tree = empty_tree(folder.path(), name).expect("a tree");
            let control = format!(
                "Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: {}\nDescription: a\n",
                maintainer()
            );
            write(&tree.join("DEBIAN/control"), &control, 0o644).expect("a description");
            for file in files {
                write(&tree.join(file), name, 0o644).expect("a file");
            }
            pack(&tree, name, folder.path(), "1").expect("a package")
        };
        let first = packed("first", &["usr/share/man/man1/first.1.gz", "usr/share/doc/first/a"]);
        let second = packed("second", &["usr/share/man/man1/second.1.gz"]);
        let third = packed("third", &["usr/share/man/man1/first.1.gz"]);
        share_no_file(&[first.clone(), second.clone()]).expect("folders are shared");
        let refused = share_no_file(&[first, second, third]).expect_err("they share a file");
        let refused = refused.to_string();
        assert!(["first_1", "third_1", "man1/first.1.gz"].iter().all(|it| refused.contains(it)));
    }

    #[test]
    fn a_console_without_a_page_is_not_packed() {
        let folder = tempfile::tempdir().expect("a folder");
        let console = folder.path().join(CONSOLE);
        write(&console, "#!/bin/sh\nexit 1\n", 0o755).expect("a program");
        let refused = format!("{:#}", has_page(&console).expect_err("refused"));
        assert!(refused.contains("no page"), "{refused}");
        write(&console, "#!/bin/sh\n[ \"$1\" = --has-page ]\n", 0o755).expect("a program");
        has_page(&console).expect("there is one");
    }

    #[test]
    fn the_changes_begin_with_this_version() {
        let root = repository::root();
        let changes = read(&root.join(FOLDER).join("changelog")).expect("it is there");
        let first = format!("memlane ({})", version(&root).expect("a version"));
        assert!(changes.starts_with(&first), "{changes}");
    }
}
