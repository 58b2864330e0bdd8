//! A running cluster, and its daemon.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use system::{Background, Tool, check_for_panics, wait_for};

use crate::images::SNAPSHOT_CONTROLLER;
use crate::kubectl::{TIME_LIMIT, apply, field, kubectl, objects_of, try_kubectl};
use crate::services::{NODE, Services, start};

const END_TIME_LIMIT: Duration = Duration::from_secs(60);

/// Programs of a cluster without pods. The last one started ends first.
pub(crate) struct Cluster {
    pub(crate) services: Services,
    objects: PathBuf,
    pub(crate) daemon: Option<Background>,
    pub(crate) kubelet: Option<Background>,
    others: Vec<Background>,
}

impl Cluster {
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let debian = PathBuf::from(variable("MEMLANE_CLUSTER_DEBIAN")?);
        let objects = PathBuf::from(variable("MEMLANE_CLUSTER_OBJECTS")?);
        let services = Services::prepare(folder, &debian, &variable("MEMLANE_CLUSTER_GROUPS")?)?;
        let mut cluster =
            Self { services, objects, daemon: None, kubelet: None, others: Vec::new() };
        cluster.others.push(cluster.services.etcd()?);
        cluster.others.push(cluster.services.containerd()?);
        cluster.others.push(cluster.services.api_server()?);
        import_images(&folder.join("images"))?;
        wait_for("the API server", TIME_LIMIT, || {
            Ok(try_kubectl(&["get", "--raw", "/readyz"])?.exit_code == Some(0))
        })?;
        cluster.others.push(cluster.services.controllers()?);
        cluster.others.push(cluster.services.scheduler()?);
        cluster.kubelet = Some(cluster.services.kubelet()?);
        cluster.wait_for_node()?;
        cluster.install_snapshots()?;
        Ok(cluster)
    }

    fn wait_for_node(&self) -> Result<()> {
        wait_for("the node to be ready", TIME_LIMIT, || {
            let ready = r#".status.conditions[?(@.type=="Ready")].status"#;
            let asked = try_kubectl(&[
                "get",
                &format!("node/{NODE}"),
                "-o",
                &format!("jsonpath={{{ready}}}"),
            ])?;
            Ok(asked.stdout == "True")
        })?;
        wait_for("the account of pods", TIME_LIMIT, || {
            Ok(try_kubectl(&["get", "serviceaccount", "default"])?.exit_code == Some(0))
        })
    }

    /// Installs the custom resources of snapshots and their controller, like a cluster's
    /// administrator.
    fn install_snapshots(&self) -> Result<()> {
        let folder = |name: &str| self.objects.join(name).to_string_lossy().into_owned();
        kubectl(&["apply", "--kustomize", &folder("kinds")])?;
        let controller = self.objects.join("controller");
        apply(&objects_of(&controller.join("rbac-snapshot-controller.yaml"))?)?;
        let text = objects_of(&controller.join("setup-snapshot-controller.yaml"))?;
        let lines = text.lines().map(|line| match line.trim_start() {
            "replicas: 2" => line.replace('2', "1"),
            "- \"--v=5\"" => line.replace("--v=5", "--enable-distributed-snapshotting"),
            known if known.starts_with("image: ") => {
                let indent = &line[..line.len() - known.len()];
                format!("{indent}image: {SNAPSHOT_CONTROLLER}")
            }
            _ => line.to_owned(),
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        ensure!(text.contains("--enable-distributed-snapshotting"), "no option changed: {text}");
        apply(&text)?;
        // With that option it reads nodes, which its own role does not permit.
        let words =
            "create clusterrole snapshot-controller-nodes --verb get,list,watch --resource nodes";
        kubectl(&words.split(' ').collect::<Vec<_>>())?;
        let words = "create clusterrolebinding snapshot-controller-nodes \
                     --clusterrole snapshot-controller-nodes \
                     --serviceaccount kube-system:snapshot-controller";
        kubectl(&words.split_whitespace().collect::<Vec<_>>()).map(drop)
    }

    /// Starts a daemon like that of a node, and waits until it serves.
    pub(crate) fn start_daemon(&mut self, words: &[&str]) -> Result<()> {
        let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
        self.daemon = Some(start("memlaned", &words)?);
        wait_for("memlaned", TIME_LIMIT, || {
            Ok(Tool::new("memlane status").run()?.exit_code == Some(0))
        })
    }

    /// Kills and restarts the daemon.
    pub(crate) fn kill_daemon(&mut self, words: &[&str]) -> Result<()> {
        let mut daemon = self.daemon.take().context("no daemon runs")?;
        daemon.end(Signal::KILL, END_TIME_LIMIT)?;
        self.start_daemon(words)
    }

    /// Kills and restarts the kubelet.
    pub(crate) fn kill_kubelet(&mut self) -> Result<()> {
        let mut kubelet = self.kubelet.take().context("no kubelet runs")?;
        kubelet.end(Signal::KILL, END_TIME_LIMIT)?;
        self.kubelet = Some(self.services.kubelet()?);
        Ok(())
    }

    /// Ends the daemon, which must have no volume left, and frees its memory.
    pub(crate) fn finish_daemon(&mut self) -> Result<()> {
        let volumes = volumes(&[])?;
        ensure!(volumes.is_empty(), "volumes stay: {volumes:?}");
        let mut daemon = self.daemon.take().context("no daemon runs")?;
        let ended = daemon.end(Signal::TERM, END_TIME_LIMIT)?;
        ensure!(ended.success(), "the daemon ended with {ended}");
        Tool::new("umount /run/memlane/pool").check()?;
        check_for_panics(Path::new("/var/log/memlaned.log"))
    }

    /// Ends the cluster, which must have no mount left.
    pub(crate) fn finish(mut self) -> Result<()> {
        let mounts = mounts_of_volumes()?;
        ensure!(mounts.is_empty(), "mounts stay: {mounts:?}");
        if let Some(mut kubelet) = self.kubelet.take() {
            kubelet.end(Signal::TERM, END_TIME_LIMIT)?;
        }
        Ok(())
    }

    /// Kills a program of a pod, identified by the beginning of its command line.
    pub(crate) fn kill_in_pod(&self, program: &str) -> Result<()> {
        let id = process_of(program)?.with_context(|| format!("{program} does not run"))?;
        kill_process(id, Signal::KILL).with_context(|| format!("cannot kill {program}"))
    }
}

impl Drop for Cluster {
    /// Cleans up after a failure: ends pods that still use volumes, so that no device remains. This
    /// requires a running daemon.
    fn drop(&mut self) {
        self.kubelet = None;
        self.others.clear();
        let name = |id: u32| fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        for id in processes().filter(|id| *id > 1 && name(*id).trim() != "memlaned") {
            if id != std::process::id() {
                let id = i32::try_from(id).ok().and_then(Pid::from_raw);
                // It may have ended already.
                let _ = id.map(|id| kill_process(id, Signal::KILL));
            }
        }
        let Ok(mounts) = mounts_of_volumes() else { return };
        for mount in mounts.iter().rev() {
            // An error is irrelevant here: the final check for remains reports it.
            let _ = Tool::new("umount --lazy").arg(mount).run();
        }
        let list = "memlane volume list -o name,device | awk '$2 ~ \"^/dev/\" { print $1 }'";
        let _ = Tool::new("sh -c")
            .arg(format!("for name in $({list}); do memlane detach $name; done"))
            .time_limit(END_TIME_LIMIT)
            .run();
    }
}

/// Imports the archive of each image.
fn import_images(folder: &Path) -> Result<()> {
    wait_for("containerd", TIME_LIMIT, || Ok(ctr("version").run()?.exit_code == Some(0)))?;
    for entry in fs::read_dir(folder).context("cannot list images")? {
        let archive = entry?.path();
        ctr("images import").arg(&archive).check()?;
    }
    Ok(())
}

fn ctr(words: &str) -> Tool {
    Tool::new("ctr --address /run/containerd/containerd.sock --namespace k8s.io")
        .args(words.split(' '))
}

/// Returns the names of the daemon's volumes selected by the arguments.
pub(crate) fn volumes(words: &[&str]) -> Result<Vec<String>> {
    let listed = Tool::new("memlane volume list -o name").args(words).check()?;
    Ok(listed.lines().skip(1).map(|line| line.trim().to_owned()).collect())
}

/// Returns mounts of volumes in the folders of the kubelet.
pub(crate) fn mounts_of_volumes() -> Result<Vec<String>> {
    let table = fs::read_to_string("/proc/self/mounts").context("cannot list mounts")?;
    let points = table.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (source, point) = (words.next()?, words.next()?);
        (source.starts_with("/dev/loop") || point.contains("csi.memlane")).then_some(point)
    });
    Ok(points.map(str::to_owned).collect())
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the process whose command line begins with this program.
pub(crate) fn process_of(program: &str) -> Result<Option<Pid>> {
    let found = processes().find(|id| {
        let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        words.strip_prefix(program.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    });
    let id = found.map(|id| i32::try_from(id).context("a process id is small"));
    Ok(id.transpose()?.and_then(Pid::from_raw))
}

/// Returns a variable set by the outer process.
fn variable(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| format!("{name} is not set"))
}

/// Returns the number of restarts of the driver's container, and whether the whole pod is ready.
pub(crate) fn driver_state() -> Result<(u32, bool)> {
    let pod = kubectl(&["-n", "memlane", "get", "pods", "-o", "name"])?;
    let statuses = kubectl(&[
        "-n",
        "memlane",
        "get",
        pod.trim(),
        "-o",
        "jsonpath={.status.containerStatuses[?(@.name==\"driver\")].restartCount} \
         {.status.containerStatuses[*].ready}",
    ])?;
    let (count, ready) = statuses.split_once(' ').context("the pod has no status")?;
    let count = count.parse().with_context(|| format!("{statuses:?} has no count"))?;
    Ok((count, !ready.contains("false")))
}

/// Returns the unique id of a pod, and the number of restarts of its first container.
pub(crate) fn identity(pod: &str) -> Result<String> {
    field(pod, ".metadata.uid} {.status.containerStatuses[0].restartCount")
}
