//! Debian packages of the programs, made by dpkg-deb from what was built.
//!
//! Four of them: the daemon with its command line, the console, virtual machines, and the broker.
//! Programs are stripped; what debuggers want of them is in a package beside each, NAME-dbgsym.
//! Their scripts lie in `xtask/deb`; manual pages and completions are what the programs themselves
//! print.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A package and what is in it.
struct Package {
    name: &'static str,
    summary: &'static str,
    /// Beside the C library.
    depends: &'static str,
    /// It serves without them, and does little then.
    recommends: &'static str,
    programs: &'static [&'static str],
    libraries: &'static [&'static str],
    /// From the folder of the repository.
    units: &'static [&'static str],
    /// Become files of /etc/memlane.
    settings: &'static [&'static str],
}

const PACKAGES: &[Package] = &[
    Package {
        name: "memlane",
        summary: "volumes in RAM: deduplicated, compressed, alive when their daemon is killed",
        depends: "passwd, mount",
        recommends: "",
        programs: &["memlaned", "memlane"],
        libraries: &["libmemlane_preload.so"],
        units: &["control/daemon/memlaned.service"],
        settings: &["control/daemon/memlaned.toml"],
    },
    Package {
        name: "memlane-console",
        summary: "users, tokens, HTTPS and a page before Memlane's daemon",
        depends: "passwd, memlane (= VERSION)",
        recommends: "",
        programs: &["memlane-console"],
        libraries: &[],
        units: &["control/console-server/memlane-console.service"],
        settings: &[],
    },
    Package {
        name: "memlane-machines",
        summary: "virtual machines of libvirt on Memlane's volumes",
        depends: "passwd, memlane (= VERSION)",
        recommends: "libvirt-daemon-system, qemu-system-x86",
        programs: &["memlane-machines"],
        libraries: &[],
        units: &["control/machines/memlane-machines.service"],
        settings: &[],
    },
    Package {
        name: "memlane-broker",
        summary: "message log on Memlane's volumes for clients of Kafka and PostgreSQL",
        depends: "passwd, memlane (= VERSION)",
        recommends: "",
        programs: &["memlane-broker"],
        libraries: &[],
        units: &["streams/broker/memlane-broker.service"],
        settings: &["streams/broker/memlane-broker.toml"],
    },
];

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// What the units of the repository name, and where packages put programs.
const PLACE_BY_HAND: &str = "/usr/local/bin/";
const PLACE: &str = "/usr/bin/";

/// Shells, with the file of a program's completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/PROGRAM"),
    ("zsh", "usr/share/zsh/vendor-completions/_PROGRAM"),
    ("fish", "usr/share/fish/vendor_completions.d/PROGRAM.fish"),
];

/// Programs that print completions, with the word that asks for them.
const COMPLETED: [(&str, &str); 2] =
    [("memlane", "completions"), ("memlane-console", "--completions")];

const MAINTAINER: &str = "Memlane <memlane@localhost>";

/// Where debuggers look for what was stripped of the programs of packages.
const DEBUG_FOLDER: &str = "usr/lib/debug/usr/bin";

/// The C library of Debian 12, on which packages are made.
const C_LIBRARY: &str = "libc6 (>= 2.36), libgcc-s1";

/// Makes all packages of the programs in `programs` into `made`, with this version.
pub(crate) fn make(
    root: &Path,
    programs: &Path,
    made: &Path,
    version: &str,
) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(made).with_context(|| format!("cannot make {}", made.display()))?;
    let packages = PACKAGES.iter().map(|package| {
        let deb = build(package, root, programs, made, version)?;
        Ok([deb, build_debug(package, made, version)?])
    });
    Ok(packages.collect::<Result<Vec<_>>>()?.concat())
}

/// The version of the workspace.
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
    let debug = empty_tree(made, &debug_package(package))?.join(DEBUG_FOLDER);
    fs::create_dir_all(&debug)?;
    for name in package.programs {
        let path = tree.join("usr/bin").join(name);
        put(&programs.join(name), &path, 0o755)?;
        strip(&path)?;
        keep_debug(&programs.join(name), &path, &debug.join(format!("{name}.debug")))?;
    }
    for name in package.libraries {
        let path = tree.join("usr/lib").join(name);
        put(&programs.join(name), &path, 0o644)?;
        strip(&path)?;
    }
    for unit in package.units {
        let text = fs::read_to_string(root.join(unit)).with_context(|| format!("no {unit}"))?;
        // Comments in front are for those who install by hand.
        let text: Vec<_> = text.lines().skip_while(|line| line.starts_with('#')).collect();
        let text = text.join("\n").trim_start().replace(PLACE_BY_HAND, PLACE);
        let path = tree.join("usr/lib/systemd/system").join(file_name(unit)?);
        write(&path, &format!("{text}\n"), 0o644)?;
    }
    for setting in package.settings {
        put(&root.join(setting), &tree.join("etc/memlane").join(file_name(setting)?), 0o644)?;
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
        "Package: {name}\nVersion: {version}\nArchitecture: {}\nMaintainer: {MAINTAINER}\nSection: \
         debug\nPriority: optional\nDepends: {} (= {version})\nDescription: debug symbols of {}\n",
        architecture()?,
        package.name,
        package.name
    );
    write(&tree.join("DEBIAN/control"), &text, 0o644)?;
    pack(&tree, &name, made, version)
}

/// Makes a package of a tree, which is removed.
fn pack(tree: &Path, name: &str, made: &Path, version: &str) -> Result<PathBuf> {
    let deb = made.join(format!("{name}_{version}_{}.deb", architecture()?));
    let mut packing = Command::new("dpkg-deb");
    printed(packing.args(["--root-owner-group", "-Zzstd", "--build"]).arg(tree).arg(&deb))?;
    fs::remove_dir_all(tree)?;
    Ok(deb)
}

fn debug_package(package: &Package) -> String {
    format!("{}-dbgsym", package.name)
}

/// The folder that a package is packed from, with nothing in it.
fn empty_tree(made: &Path, name: &str) -> Result<PathBuf> {
    let tree = made.join(format!("{name}.tree"));
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    fs::create_dir_all(&tree).with_context(|| format!("cannot make {}", tree.display()))?;
    Ok(tree)
}

/// Manual pages, completions and the licence.
fn document(package: &Package, root: &Path, tree: &Path) -> Result<()> {
    let manual = tree.join("usr/share/man/man1");
    fs::create_dir_all(&manual)?;
    for name in package.programs {
        let mut command = Command::new(tree.join("usr/bin").join(name));
        command.arg(if *name == "memlane" { "man" } else { "--man" });
        printed(command.arg(&manual))?;
    }
    for page in fs::read_dir(&manual)? {
        printed(Command::new("gzip").args(["-9", "-n"]).arg(page?.path()))?;
    }
    for (name, word) in COMPLETED.iter().filter(|(name, _)| package.programs.contains(name)) {
        for (shell, path) in COMPLETIONS {
            let mut printing = Command::new(tree.join("usr/bin").join(name));
            let script = printed(printing.args([word, shell]))?;
            write(&tree.join(path.replace("PROGRAM", name)), &script, 0o644)?;
        }
    }
    let licence = tree.join("usr/share/doc").join(package.name).join("copyright");
    put(&root.join("LICENSE"), &licence, 0o644)
}

fn control(package: &Package, root: &Path, tree: &Path, version: &str) -> Result<()> {
    let Package { name, summary, depends, recommends, .. } = package;
    let depends = depends.replace("VERSION", version);
    let recommends = match recommends.is_empty() {
        true => String::new(),
        false => format!("Recommends: {recommends}\n"),
    };
    let text = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: {}\nMaintainer: \
         {MAINTAINER}\nSection: admin\nPriority: optional\nDepends: {C_LIBRARY}, \
         {depends}\n{recommends}Description: {summary}\n",
        architecture()?
    );
    let folder = tree.join("DEBIAN");
    write(&folder.join("control"), &text, 0o644)?;
    for script in SCRIPTS {
        let source = root.join("xtask/deb").join(format!("{name}.{script}"));
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

/// Symbols are of no use to those who install a package.
fn strip(path: &Path) -> Result<()> {
    printed(Command::new("strip").arg("--strip-unneeded").arg(path)).map(drop)
}

/// Keeps what was stripped of a program in the file `kept`, and has the stripped one name it.
fn keep_debug(program: &Path, stripped: &Path, kept: &Path) -> Result<()> {
    let keeping = ["--only-keep-debug", "--compress-debug-sections"];
    printed(Command::new("objcopy").args(keeping).args([program, kept]))?;
    let link = format!("--add-gnu-debuglink={}", kept.display());
    printed(Command::new("objcopy").arg(link).arg(stripped)).map(drop)
}

fn file_name(path: &str) -> Result<&str> {
    path.rsplit('/').next().with_context(|| format!("{path} names no file"))
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

/// What a program printed that must have succeeded.
pub(crate) fn printed(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output();
    let output = output.with_context(|| format!("cannot run {name}; is it installed?"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {complaint}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
