//! Environment of a cluster: namespaces and control groups, and a check for remains.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::{Ability, Interruption, Tool, leftovers, missing, product_path, wait_for};

use crate::images;
use crate::parts::Parts;

/// Time limit, three times the duration of all scenarios and the tutorial.
const TIME_LIMIT: Duration = Duration::from_secs(60 * 60);
const GOING_TIME_LIMIT: Duration = Duration::from_secs(60);

const PROGRAMS: &[&str] = &[
    "unshare",
    "ip",
    "losetup",
    "mkfs.ext4",
    "mkfs.xfs",
    "fio",
    "openssl",
    "busybox",
    "dpkg-query",
];

/// Script that prepares a cluster's environment. Kernel settings that the kubelet writes are files.
/// All mounts are shared with containers that request it, and none with the host.
const AROUND: &str = r#"
set -eu
here=$1
shift
mount --make-rshared /
ip link set lo up
ip link add pods type bridge
ip address add 10.88.0.1/16 dev pods
ip address add 10.96.0.1/32 dev pods
ip link set pods up
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
    kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    [ -e /proc/sys/$setting ] || continue
    file=$here/settings/$(echo $setting | tr / -)
    cat /proc/sys/$setting >"$file"
    mount --bind "$file" /proc/sys/$setting
done
mount -t tmpfs layers "$here/layers"
for place in /etc /usr/local /var; do
    upper=$here/layers$place/upper
    work=$here/layers$place/work
    mkdir -p "$upper" "$work"
    mount -t overlay overlay -o "lowerdir=$place,upperdir=$upper,workdir=$work" "$place"
done
mount -t tmpfs run /run
mount -t tmpfs mnt /mnt
for place in lib/memlane lib/kubelet lib/containerd lib/etcd log; do
    mkdir -p "/var/$place" "$here/var/$place"
    mount --bind "$here/var/$place" "/var/$place"
done
"$@"
"#;

/// Runs the scenarios in a separate cluster.
pub(crate) fn run(parts: &Parts) -> Result<()> {
    let mut needed: Vec<_> = PROGRAMS.iter().map(|name| Ability::Program(name)).collect();
    needed.push(Ability::BlockDevices);
    if let Some(reason) = missing(&needed) {
        anyhow::bail!("a cluster cannot run here: {reason}");
    }
    let folder = tempfile::Builder::new().prefix("memlane-kubernetes-").tempdir()?;
    for name in ["settings", "layers", "images", "var", "secrets"] {
        fs::create_dir(folder.path().join(name)).context("cannot make a folder")?;
    }
    images::write_all(parts, &folder.path().join("images"))?;
    let groups = ControlGroups::make(&format!("memlane-kubernetes-{}", std::process::id()))?;
    let ran = run_inside(parts, folder.path(), &groups.name);
    // The logs explain failures, and are removed with the folder.
    let _ending = Interruption::begin_to_clean_up();
    if ran.is_err() {
        keep_logs(folder.path())?;
    }
    let removed = groups.remove();
    ran?;
    removed?;
    let left = leftovers(folder.path())?;
    ensure!(left.is_empty(), "the cluster leaves behind: {left:?}");
    Ok(())
}

fn run_inside(parts: &Parts, folder: &Path, groups: &str) -> Result<()> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let products = product_path("memlaned").parent().map(Path::to_owned).unwrap_or_default();
    let search = std::env::var("PATH").unwrap_or_default();
    let search = format!("{}:{}:{search}", products.display(), parts.search_path());
    let libraries = parts.debian.join("usr/lib/x86_64-linux-gnu");
    let told =
        Tool::new("unshare --mount --net --pid --ipc --fork --kill-child --mount-proc sh -c")
            .args([AROUND, "sh"])
            .arg(folder)
            .arg(own)
            .arg("inside")
            .arg(folder)
            .env("PATH", &search)
            .env("LD_LIBRARY_PATH", &libraries.to_string_lossy())
            .env("KUBECONFIG", &folder.join("secrets/kubeconfig").to_string_lossy())
            .env("MEMLANE_CLUSTER_GROUPS", groups)
            .env("MEMLANE_CLUSTER_DEBIAN", &parts.debian.to_string_lossy())
            .env("MEMLANE_CLUSTER_OBJECTS", &parts.objects.to_string_lossy())
            .time_limit(TIME_LIMIT)
            .run()?;
    eprint!("{}", told.stderr);
    ensure!(told.exit_code == Some(0), "the scenarios failed");
    Ok(())
}

/// Copies the logs of the cluster to those of tests.
fn keep_logs(folder: &Path) -> Result<()> {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-logs/kubernetes");
    if kept.exists() {
        fs::remove_dir_all(&kept).context("cannot remove the logs of an earlier run")?;
    }
    fs::create_dir_all(&kept).context("cannot make a folder for logs")?;
    Tool::new("cp --recursive").arg(folder.join("var/log/.")).arg(&kept).check()?;
    eprintln!("run-kubernetes: logs are in {}", kept.canonicalize()?.display());
    Ok(())
}

/// Control groups of the cluster, one in each hierarchy, above those of its pods.
struct ControlGroups {
    name: String,
    folders: Vec<PathBuf>,
}

impl ControlGroups {
    fn make(name: &str) -> Result<Self> {
        let table = fs::read_to_string("/proc/self/mounts").context("cannot list mounts")?;
        let hierarchies = table.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let (path, kind) = (words.nth(1)?, words.next()?);
            kind.starts_with("cgroup").then(|| PathBuf::from(path).join(name))
        });
        let mut groups = Self { name: name.to_owned(), folders: Vec::new() };
        for folder in hierarchies {
            fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            groups.folders.push(folder);
        }
        ensure!(!groups.folders.is_empty(), "no control groups are mounted");
        Ok(groups)
    }

    /// Removes them once their processes have ended.
    fn remove(&self) -> Result<()> {
        wait_for("the cluster's control groups to be empty", GOING_TIME_LIMIT, || {
            Ok(self.folders.iter().all(|folder| remove_tree(folder).is_ok()))
        })
    }
}

/// Removes a group and its children, whose files cannot be removed individually.
fn remove_tree(group: &Path) -> std::io::Result<()> {
    if !group.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}
