//! Runs the commands of the guides, the tutorials and the README verbatim, each page with a
//! separate daemon in the folders that the pages name: in private mounts of `/run`, `/etc`, `/var`
//! and `/usr/local`, with a private loopback device.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::page::{Action, Step, steps};
use system::{Ability, Tool, check_for_panics, missing, product_path};

const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Prefixes of pages that start the daemon themselves.
const SELF_STARTING: &[&str] = &["README.md", "docs/tutorials/"];

/// Script that prepares the environment of the commands, and cleans up after them. Nothing outlives
/// the namespace except devices, which are detached.
const AROUND: &str = r#"
set -eu
here=$1
ip link set lo up
mkdir -p "$here/layers" "$here/state"
mount -t tmpfs layers "$here/layers"
for place in /etc /usr/local /var; do
    upper=$here/layers$place/upper
    work=$here/layers$place/work
    mkdir -p "$upper" "$work"
    mount -t overlay overlay -o "lowerdir=$place,upperdir=$upper,workdir=$work" "$place"
done
mount -t tmpfs run /run
mount -t tmpfs mnt /mnt
mkdir -p /var/lib/memlane /run/lock
if id postgres >/dev/null 2>&1; then install -d -o postgres /run/postgresql; fi
mount --bind "$here/state" /var/lib/memlane
finish() {
    code=$?
    set +ex
    mounts='$1 ~ "^/dev/(loop|ublk)" && $2 ~ "^/mnt(/|$)" { print $2 }'
    awk "$mounts" /proc/mounts | sort -r | xargs -r -n 1 umount
    for kind in volume snapshot; do
        attached=$(memlane $kind list -o name,device | awk '$2 ~ "^/dev/" { print $1 }')
        for name in $attached; do memlane detach "$name"; done
    done
    [ $code = 0 ] || tail -n 40 "$here/memlaned.log" >&2
    exit $code
}
trap finish EXIT
until_served() {
    tries=0
    until memlane status >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 600 ]
        sleep 0.1
    done
}
cd "$here/checkout"
"#;

const START: &str = "memlaned --pool-size 1GiB >\"$here/memlaned.log\" 2>&1 &\nuntil_served\n";

#[test]
fn the_commands_of_every_page_work() -> Result<()> {
    let programs = ["unshare", "ip", "mkfs.ext4"].map(Ability::Program);
    let needed = [&[Ability::BlockDevices], &programs[..]].concat();
    if let Some(reason) = missing(&needed) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let chosen = std::env::var("MEMLANE_GUIDE").unwrap_or_default();
    let mut failures = String::new();
    for page in pages()? {
        let name = page.strip_prefix(root())?.display().to_string();
        if !name.contains(&chosen) {
            continue;
        }
        if let Err(error) = check(&page, &name) {
            writeln!(failures, "{name}: {error:#}")?;
        }
    }
    ensure!(failures.is_empty(), "commands that fail as they stand:\n{failures}");
    Ok(())
}

/// Returns the README, all guides and all tutorials.
fn pages() -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for folder in ["docs/guides", "docs/tutorials"] {
        let entries =
            fs::read_dir(root().join(folder)).with_context(|| format!("cannot list {folder}"))?;
        for entry in entries {
            pages.push(entry?.path());
        }
    }
    pages.retain(|page| page.extension().is_some_and(|it| it == "md"));
    pages.sort();
    pages.push(root().join("README.md"));
    Ok(pages)
}

fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_owned()
}

fn check(page: &Path, name: &str) -> Result<()> {
    let steps = steps(&fs::read_to_string(page)?)?;
    let folder = tempfile::Builder::new().prefix("memlane-guide-").tempdir()?;
    let checkout = folder.path().join("checkout");
    make_checkout(&checkout)?;
    let mut script = AROUND.to_owned();
    if !SELF_STARTING.iter().any(|start| name.starts_with(start)) {
        script += START;
    }
    script += "set -x\n";
    for Step { line, action } in steps {
        match action {
            Action::Write { file, text } => {
                let path = checkout.join(&file);
                fs::write(&path, text)?;
                fs::set_permissions(&path, PermissionsExt::from_mode(0o755))?;
            }
            Action::Run { script: commands, needs } => {
                if let Some(lacking) = needs.iter().find(|it| is_lacking(it)) {
                    eprintln!("skipped: {name}, line {line}: there is no {lacking}");
                    continue;
                }
                writeln!(script, ": {name}, line {line}\n{commands}")?;
            }
            // `run-kubernetes` runs these in a cluster.
            Action::RunInCluster { .. } => {}
        }
    }
    let path = folder.path().join("script");
    fs::write(&path, script)?;
    let programs = product_path("memlaned").parent().map(Path::to_owned).unwrap_or_default();
    let search = std::env::var("PATH").unwrap_or_default();
    let search = format!("{}:{search}:/usr/local/sbin:/usr/sbin:/sbin", programs.display());
    Tool::new("unshare --mount --net --pid --fork --kill-child --mount-proc sh")
        .arg(&path)
        .arg(folder.path())
        .env("PATH", &search)
        .env("HOME", &folder.path().to_string_lossy())
        .time_limit(TIME_LIMIT)
        .check()?;
    check_for_panics(&folder.path().join("memlaned.log"))
}

/// Creates a checkout of the parts of this repository that the pages use, with the built programs
/// as the release build.
fn make_checkout(checkout: &Path) -> Result<()> {
    fs::create_dir_all(checkout.join("target"))?;
    for folder in ["clients", "control", "docs"] {
        symlink(root().join(folder), checkout.join(folder))?;
    }
    let programs = product_path("memlaned").parent().map(Path::to_owned).unwrap_or_default();
    symlink(programs.canonicalize()?, checkout.join("target/release"))?;
    Ok(())
}

/// Returns whether a program is neither installed nor built.
fn is_lacking(name: &str) -> bool {
    let is_installed = Tool::new("sh -c").arg(format!("command -v {name}")).check().is_ok();
    !is_installed && !product_path(name).exists() && !Path::new(name).exists()
}
