//! Use of volumes by pods, with kills.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use system::wait_for;

use crate::cluster::{Cluster, driver_state, identity, mounts_of_volumes, volumes};
use crate::images::FIO;
use crate::kubectl::{TIME_LIMIT, apply, events, field, in_pod, kubectl, wait_for_field};
use crate::objects::{claim, claim_of, pod, pod_of, snapshot};
use crate::services::NODE;

const DAEMON: &[&str] = &["--pool-size", "1GiB"];

/// Variable with a part of the names of the scenarios to run.
const CHOSEN: &str = "MEMLANE_SCENARIO";

const DRIVER: &str = "/usr/bin/memlane-csi";
const KILL_COUNT: u32 = 3;

/// Repeatedly writes and verifies, until it is stopped.
const VERIFIER: &str = "until [ -e /data/stop ]; do fio --name=verified --filename=/data/file \
    --size=32m --rw=randwrite --bs=4k --ioengine=psync --direct=1 --verify=crc32c \
    --verify_backlog=512 --verify_fatal=1 --output=/data/log || exit 1; \
    echo >>/data/rounds; done";

/// Runs until it is deleted.
const IDLE: &str = "echo kept >/data/file; sync; while true; do sleep 1; done";

const XFS_CLASS: &str = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\n\
    metadata: {name: memlane-xfs}\nprovisioner: csi.memlane\n\
    volumeBindingMode: WaitForFirstConsumer\nallowVolumeExpansion: true\n\
    parameters: {filesystem: xfs}\n";

/// Number of the capability in capabilities(7).
const CAP_SYS_RESOURCE: u32 = 24;

/// One scenario: an action of users.
type Scenario = (&'static str, fn(&mut Cluster) -> Result<()>);

const SCENARIOS: &[Scenario] = &[
    ("a claim becomes a running pod", claim_to_running),
    ("a pod keeps its data when the daemon and the driver are killed", kills),
    ("a kubelet that is killed finds its pods again", kubelet),
    ("a claim that is too large is refused, and says why", refusal),
    ("a pod uses a block device", raw_block),
    ("a snapshot is restored into a new claim", restore),
    ("a claim grows while it is used", growth),
    ("an ext4 grows as the node allows it", growth_of_ext4),
    ("volumes of a pod alone come and go with it", ephemeral),
];

/// Installs the driver as the guide says, runs all scenarios, and removes everything.
pub(crate) fn run(cluster: &mut Cluster) -> Result<()> {
    cluster.start_daemon(DAEMON)?;
    install()?;
    let chosen = std::env::var(CHOSEN).unwrap_or_default();
    for (name, scenario) in SCENARIOS.iter().filter(|(name, _)| name.contains(&chosen)) {
        let start = Instant::now();
        scenario(cluster).with_context(|| (*name).to_owned())?;
        eprintln!("  passed: {name} ({:.0} s)", start.elapsed().as_secs_f64());
    }
    uninstall()?;
    cluster.finish_daemon()
}

fn manifests() -> String {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.join("../../deploy/kubernetes").to_string_lossy().into_owned()
}

fn install() -> Result<()> {
    kubectl(&["label", "node", NODE, "memlane=yes"])?;
    // Objects in a namespace can only be validated if it exists.
    kubectl(&["create", "namespace", "memlane"])?;
    kubectl(&["apply", "--dry-run=server", "-f", &manifests()])?;
    kubectl(&["delete", "namespace", "memlane"])?;
    kubectl(&["apply", "-f", &manifests()])?;
    let told = kubectl(&["apply", "--dry-run=server", "-f", &manifests()])?;
    let changed: Vec<_> = told.lines().filter(|line| !line.contains("unchanged")).collect();
    ensure!(changed.is_empty(), "manifests that are applied twice change: {changed:?}");
    wait_for("the driver to be ready", TIME_LIMIT, || Ok(driver_state().is_ok_and(|it| it.1)))?;
    wait_for("the driver to be registered", TIME_LIMIT, || {
        Ok(field(&format!("csinode/{NODE}"), ".spec.drivers[*].name")? == "csi.memlane")
    })
}

fn uninstall() -> Result<()> {
    let volumes = kubectl(&["get", "pv,pvc,volumesnapshotcontents", "-A", "-o", "name"])?;
    ensure!(volumes.is_empty(), "the cluster has volumes: {volumes}");
    let mounts = mounts_of_volumes()?;
    ensure!(mounts.is_empty(), "mounts stay: {mounts:?}");
    kubectl(&["delete", "--wait", "-f", &manifests()])?;
    kubectl(&["label", "node", NODE, "memlane-"]).map(drop)
}

/// Deletes objects and waits until they and their volumes are gone.
fn delete(objects: &[&str]) -> Result<()> {
    kubectl(&[&["delete", "--wait"], objects].concat())?;
    wait_for("volumes to be deleted", TIME_LIMIT, || {
        Ok(kubectl(&["get", "pv", "-o", "name"])?.is_empty())
    })
}

fn wait_for_phase(pod: &str, phase: &str) -> Result<()> {
    wait_for_field(&format!("pod/{pod}"), ".status.phase", phase)
}

fn claim_to_running(_: &mut Cluster) -> Result<()> {
    let mut times = Vec::new();
    for round in 0..3 {
        let (data, user) = (format!("data-{round}"), format!("user-{round}"));
        let start = Instant::now();
        apply(&(claim(&data, 64) + &pod(&user, &data, IDLE)))?;
        wait_for_phase(&user, "Running")?;
        times.push(start.elapsed().as_secs_f64());
        let made = volumes(&["--label", &format!("kubernetes/claim={data}")])?;
        ensure!(made.len() == 1, "the claim has volumes {made:?}");
        delete(&[&format!("pod/{user}"), &format!("pvc/{data}")])?;
    }
    eprintln!("measured: claim to running pod in {times:.1?} s");
    Ok(())
}

fn kills(cluster: &mut Cluster) -> Result<()> {
    let way = "volumeMounts: [{name: data, mountPath: /data}]";
    apply(&(claim("verified", 128) + &pod_of("verifier", "verified", FIO, way, VERIFIER)))?;
    wait_for_phase("verifier", "Running")?;
    let rounds = || in_pod("verifier", "cat /data/rounds 2>/dev/null | wc -l");
    for kill in 0..KILL_COUNT {
        let before = rounds()?;
        cluster.kill_daemon(DAEMON)?;
        let (restarts, _) = driver_state()?;
        cluster.kill_in_pod(DRIVER)?;
        wait_for("the writer to go on", TIME_LIMIT, || Ok(rounds()? != before))
            .with_context(|| format!("kill {kill}"))?;
        wait_for("the driver to be back", TIME_LIMIT, || {
            let (count, ready) = driver_state()?;
            Ok(count > restarts && ready)
        })?;
    }
    in_pod("verifier", "touch /data/stop")?;
    wait_for_phase("verifier", "Succeeded")?;
    delete(&["pod/verifier", "pvc/verified"])
}

fn kubelet(cluster: &mut Cluster) -> Result<()> {
    apply(&(claim("before", 64) + &pod("old", "before", IDLE)))?;
    wait_for_phase("old", "Running")?;
    let old = identity("pod/old")?;
    cluster.kill_kubelet()?;
    apply(&(claim("after", 64) + &pod("new", "after", IDLE)))?;
    wait_for_phase("new", "Running")?;
    ensure!(identity("pod/old")? == old, "the pod was started again");
    ensure!(in_pod("old", "cat /data/file")?.trim() == "kept", "the data is gone");
    let mounts = mounts_of_volumes()?;
    delete(&["pod/old", "pod/new", "pvc/before", "pvc/after"])?;
    let left = mounts_of_volumes()?;
    ensure!(left.is_empty(), "of {mounts:?} stay {left:?}");
    Ok(())
}

fn refusal(_: &mut Cluster) -> Result<()> {
    apply(&(claim_of("huge", 50 << 10, "memlane-guaranteed", "") + &pod("waiting", "huge", IDLE)))?;
    wait_for("the scheduler to refuse", TIME_LIMIT, || {
        Ok(events("waiting")?.contains("not have enough free storage"))
    })?;
    // As if the scheduler's view of the capacity were outdated.
    let node = format!("volume.kubernetes.io/selected-node={NODE}");
    kubectl(&["annotate", "pvc", "huge", &node])?;
    wait_for("the driver to refuse", TIME_LIMIT, || {
        Ok(events("huge")?.contains("not enough space in this node's pool"))
    })
    .with_context(|| events("huge").unwrap_or_default())?;
    delete(&["pod/waiting", "pvc/huge"])
}

fn raw_block(_: &mut Cluster) -> Result<()> {
    let claimed = claim_of("raw", 64, "memlane", "  volumeMode: Block\n");
    let way = "volumeDevices: [{name: data, devicePath: /dev/data}]";
    let command = "blockdev --getsize64 /dev/data; echo marked | dd of=/dev/data bs=512 seek=9 \
                   conv=sync,fsync; dd if=/dev/data bs=512 skip=9 count=1 | grep -a marked";
    apply(&(claimed + &pod_of("user", "raw", crate::images::SHELL, way, command)))?;
    wait_for_phase("user", "Succeeded")?;
    let told = kubectl(&["logs", "user"])?;
    ensure!(told.starts_with("67108864"), "the device is of another size: {told}");
    delete(&["pod/user", "pvc/raw"])
}

fn restore(_: &mut Cluster) -> Result<()> {
    apply(&(claim("source", 64) + &pod("writer", "source", IDLE)))?;
    wait_for_phase("writer", "Running")?;
    wait_for("the writer to write", TIME_LIMIT, || {
        Ok(in_pod("writer", "cat /data/file; true")?.trim() == "kept")
    })?;
    apply(&snapshot("before", "source"))?;
    wait_for_field("volumesnapshot/before", ".status.readyToUse", "true")?;
    in_pod("writer", "echo changed >/data/file; sync")?;
    kubectl(&["delete", "--wait", "pod/writer", "pvc/source"])?;
    let source = "  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, \
                  name: before}\n";
    let restored = claim_of("restored", 96, "memlane", source);
    apply(&(restored + &pod("reader", "restored", "cat /data/file")))?;
    wait_for_phase("reader", "Succeeded")?;
    let told = kubectl(&["logs", "reader"])?;
    ensure!(told.trim() == "kept", "the copy has {told:?}");
    kubectl(&["delete", "--wait", "pod/reader", "pvc/restored"])?;
    delete(&["volumesnapshot/before"])
}

fn growth(_: &mut Cluster) -> Result<()> {
    apply(XFS_CLASS)?;
    apply(&(claim_of("growing", 320, "memlane-xfs", "") + &pod("user", "growing", IDLE)))?;
    wait_for_phase("user", "Running")?;
    let before = identity("pod/user")?;
    grow("growing", "448Mi")?;
    wait_for_field("pvc/growing", ".status.capacity.storage", "448Mi")?;
    let size_mib = file_system_mib("user")?;
    ensure!(size_mib > 360, "the file system has {size_mib} MiB");
    ensure!(identity("pod/user")? == before, "the pod was started again");
    delete(&["pod/user", "pvc/growing"])?;
    kubectl(&["delete", "storageclass", "memlane-xfs"]).map(drop)
}

/// An ext4 file system grows online if the kernel permits it to the driver, otherwise when its pod
/// restarts.
fn growth_of_ext4(_: &mut Cluster) -> Result<()> {
    let objects = claim("growing", 64) + &pod("user", "growing", IDLE);
    apply(&objects)?;
    wait_for_phase("user", "Running")?;
    grow("growing", "192Mi")?;
    if !may_grow_ext4()? {
        eprintln!("measured: an ext4 cannot grow here while it is used, without CAP_SYS_RESOURCE");
        wait_for("the kubelet to tell", TIME_LIMIT, || {
            Ok(events("user")?.contains("Permission denied to resize"))
        })?;
        kubectl(&["delete", "--wait", "pod/user"])?;
        // The claim has its requested size again.
        apply(&pod("user", "growing", IDLE))?;
        wait_for_phase("user", "Running")?;
    }
    wait_for_field("pvc/growing", ".status.capacity.storage", "192Mi")?;
    let size_mib = file_system_mib("user")?;
    ensure!(size_mib > 150, "the file system has {size_mib} MiB");
    ensure!(in_pod("user", "cat /data/file")?.trim() == "kept", "the data is gone");
    delete(&["pod/user", "pvc/growing"])
}

fn grow(claim: &str, size: &str) -> Result<()> {
    let patch = format!(r#"{{"spec":{{"resources":{{"requests":{{"storage":"{size}"}}}}}}}}"#);
    kubectl(&["patch", "pvc", claim, "-p", &patch]).map(drop)
}

fn file_system_mib(pod: &str) -> Result<u32> {
    let size = in_pod(pod, "df -m /data | tail -n 1 | awk '{ print $2 }'")?;
    size.trim().parse().with_context(|| format!("df prints {size:?}"))
}

/// Returns whether this process, and so a privileged container, has CAP_SYS_RESOURCE.
fn may_grow_ext4() -> Result<bool> {
    let status = fs::read_to_string("/proc/self/status").context("cannot read the status")?;
    let rights = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    let rights = u64::from_str_radix(rights.context("the kernel tells rights")?.trim(), 16)?;
    Ok(rights & (1 << CAP_SYS_RESOURCE) != 0)
}

fn ephemeral(_: &mut Cluster) -> Result<()> {
    apply(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: scratch}\nspec:\n  \
         terminationGracePeriodSeconds: 1\n  containers:\n    - name: only\n      \
         image: busybox:1.35\n      command: [sh, -ec, \"echo x >/data/x; sleep 100000\"]\n      \
         volumeMounts: [{name: data, mountPath: /data}]\n  volumes:\n    - name: data\n      \
         ephemeral:\n        volumeClaimTemplate:\n          spec:\n            \
         storageClassName: memlane\n            accessModes: [ReadWriteOncePod]\n            \
         resources: {requests: {storage: 64Mi}}\n",
    )?;
    wait_for_phase("scratch", "Running")?;
    delete(&["pod/scratch"])?;
    ensure!(kubectl(&["get", "pvc", "-o", "name"])?.is_empty(), "the claim stays");
    Ok(())
}
