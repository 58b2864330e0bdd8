//! Volumes of pods: stage, publish, expand, and the reverse.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use anyhow::{Result, ensure};
use system::{DaemonOptions, Tool};

use crate::client::call;
use crate::fixture::{FAILED_PRECONDITION, Fixture, MIB, TIME_LIMIT, block, claim, ext4, mounted};
use crate::wire::*;

const POOL: DaemonOptions = DaemonOptions { pool_size: "512MiB", flags: "" };

#[test]
fn calls_that_come_again_change_nothing_and_stale_mounts_are_replaced() -> Result<()> {
    let Some(fixture) = Fixture::start(POOL)? else { return Ok(()) };
    let volume = fixture.create(&claim("pvc-1", 64 * MIB))?;
    for _ in 0..20 {
        fixture.stage(&volume, &ext4())?;
        fixture.publish(&volume, "pod", &ext4())?;
    }
    let (staged, pod) = (fixture.staged(&volume), fixture.path("pod"));
    ensure!(
        fixture.mount_count(&staged)? == 1 && fixture.mount_count(&pod)? == 1,
        "mounts pile up"
    );
    fs::write(pod.join("file"), "kept")?;
    // Foreign mounts are stacked on top, as after a crash.
    for path in [&pod, &pod, &staged] {
        Tool::new("mount -t tmpfs other").arg(path).check()?;
    }
    fixture.stage(&volume, &ext4())?;
    fixture.publish(&volume, "pod", &ext4())?;
    ensure!(fs::read_to_string(pod.join("file"))? == "kept", "the stale mount stays");
    ensure!(fixture.mount_count(&pod)? == 1, "mounts pile up");
    let read_only =
        PublishRequest { readonly: true, ..fixture.publishing(&volume, "reader", &ext4()) };
    let _: Nothing = fixture.call("Node/NodePublishVolume", &read_only)?;
    ensure!(fs::write(fixture.path("reader").join("file"), "x").is_err(), "a reader writes");
    for _ in 0..2 {
        fixture.unpublish(&volume, "reader")?;
        fixture.unpublish(&volume, "pod")?;
        fixture.unstage(&volume)?;
    }
    ensure!(!pod.exists() && fixture.daemon.volume(&volume)?.device.is_none(), "something stays");
    fixture.delete(&volume)?;
    fixture.finish()
}

/// Goal: draining a node and terminating a pod need neither the volume nor the daemon.
#[test]
fn a_pod_ends_although_its_volume_is_gone() -> Result<()> {
    let Some(mut fixture) = Fixture::start(POOL)? else { return Ok(()) };
    let volume = fixture.create(&claim("pvc-1", 64 * MIB))?;
    fixture.stage(&volume, &ext4())?;
    fixture.publish(&volume, "pod", &ext4())?;
    fixture.daemon.kill()?;
    fixture.unpublish(&volume, "pod")?;
    ensure!(!fixture.path("pod").exists(), "the target stays");
    fixture.daemon.start_again()?;
    fixture.unstage(&volume)?;
    fixture.delete(&volume)?;
    fixture.unpublish(&volume, "pod")?;
    fixture.unstage(&volume)?;
    fixture.finish()
}

#[test]
fn a_volume_for_one_pod_is_published_to_no_other() -> Result<()> {
    let Some(fixture) = Fixture::start(POOL)? else { return Ok(()) };
    let uses = [
        mounted("ext4", access::SINGLE_NODE_SINGLE_WRITER),
        block(access::SINGLE_NODE_SINGLE_WRITER),
    ];
    for (number, alone) in uses.iter().enumerate() {
        let volume = fixture.create(&claim(&format!("pvc-{number}"), 64 * MIB))?;
        fixture.stage(&volume, alone)?;
        fixture.publish(&volume, "pod-1", alone)?;
        fixture.publish(&volume, "pod-1", alone)?;
        let second = fixture.publishing(&volume, "pod-2", alone);
        let words = fixture.refused("Node/NodePublishVolume", &second, FAILED_PRECONDITION)?;
        ensure!(words.contains("pod-1"), "{words}");
        fixture.unpublish(&volume, "pod-1")?;
        fixture.publish(&volume, "pod-2", alone)?;
        fixture.unpublish(&volume, "pod-2")?;
        fixture.unstage(&volume)?;
    }
    fixture.finish()
}

#[test]
fn a_block_device_and_a_file_system_grow_while_they_are_used() -> Result<()> {
    let Some(fixture) = Fixture::start(POOL)? else { return Ok(()) };
    // Growing a mounted ext4 beyond limits requires CAP_SYS_RESOURCE.
    let uses = [block(access::SINGLE_NODE_WRITER), mounted("xfs", access::SINGLE_NODE_WRITER)];
    for (number, capability) in uses.iter().enumerate() {
        let request = CreateVolumeRequest {
            volume_capabilities: vec![capability.clone()],
            ..claim(&format!("pvc-{number}"), 320 * MIB)
        };
        let volume = fixture.create(&request)?;
        fixture.stage(&volume, capability)?;
        let pod = fixture.publish(&volume, "pod", capability)?;
        if capability.block.is_some() {
            let device = File::options().read(true).write(true).open(&pod)?;
            device.write_all_at(b"raw", 60 << 20)?;
            device.sync_all()?;
        }
        let range = CapacityRange { required_bytes: 400 * MIB, limit_bytes: 0 };
        let grown = ExpandRequest { volume_id: volume.clone(), capacity_range: Some(range) };
        let told: ExpandAnswer = fixture.call("Controller/ControllerExpandVolume", &grown)?;
        ensure!(told.capacity_bytes == 400 * MIB && told.node_expansion_required, "{told:?}");
        // A node also expands a volume that the controller was not asked to expand.
        for size_bytes in [400 * MIB, 440 * MIB] {
            let grown = NodeExpandRequest {
                volume_id: volume.clone(),
                volume_path: pod.display().to_string(),
                capacity_range: Some(CapacityRange { required_bytes: size_bytes, limit_bytes: 0 }),
                ..NodeExpandRequest::default()
            };
            let told: NodeExpandAnswer = fixture.call("Node/NodeExpandVolume", &grown)?;
            ensure!(told.capacity_bytes == size_bytes, "{told:?}");
        }
        let asked = StatsRequest {
            volume_id: volume.clone(),
            volume_path: pod.display().to_string(),
            ..StatsRequest::default()
        };
        let told: StatsAnswer = fixture.call("Node/NodeGetVolumeStats", &asked)?;
        ensure!(told.usage[0].total > 340 * MIB, "{told:?}");
        fixture.unpublish(&volume, "pod")?;
        fixture.unstage(&volume)?;
    }
    fixture.finish()
}

#[test]
fn no_file_system_is_made_on_what_holds_something() -> Result<()> {
    let Some(fixture) = Fixture::start(POOL)? else { return Ok(()) };
    let volume = fixture.create(&claim("pvc-1", 64 * MIB))?;
    let raw = block(access::SINGLE_NODE_WRITER);
    fixture.stage(&volume, &raw)?;
    let pod = fixture.publish(&volume, "pod", &raw)?;
    let device = File::options().write(true).open(&pod)?;
    device.write_all_at(b"of a database", 32 << 20)?;
    device.sync_all()?;
    drop(device);
    fixture.unpublish(&volume, "pod")?;
    fixture.unstage(&volume)?;
    let staging = fixture.staging(&volume, &ext4());
    let words = fixture.refused("Node/NodeStageVolume", &staging, FAILED_PRECONDITION)?;
    ensure!(words.contains("neither ext4 nor XFS"), "{words}");
    // A file system of another type is not replaced either.
    let volume = fixture.create(&claim("pvc-2", 320 * MIB))?;
    fixture.stage(&volume, &ext4())?;
    fs::write(fixture.staged(&volume).join("file"), "kept")?;
    fixture.unstage(&volume)?;
    let staging = fixture.staging(&volume, &mounted("xfs", access::SINGLE_NODE_WRITER));
    fixture.refused("Node/NodeStageVolume", &staging, FAILED_PRECONDITION)?;
    fixture.stage(&volume, &ext4())?;
    ensure!(fs::read_to_string(fixture.staged(&volume).join("file"))? == "kept", "it was replaced");
    fixture.unstage(&volume)?;
    fixture.daemon.memlane("detach pvc-1")?;
    fixture.finish()
}

#[test]
fn files_belong_to_the_group_of_the_pod() -> Result<()> {
    let Some(fixture) = Fixture::start(POOL)? else { return Ok(()) };
    let volume = fixture.create(&claim("pvc-1", 64 * MIB))?;
    let mut capability = ext4();
    if let Some(mount) = &mut capability.mount {
        mount.volume_mount_group = "2000".to_owned();
    }
    fixture.stage(&volume, &capability)?;
    fs::write(fixture.staged(&volume).join("old"), "x")?;
    let pod = fixture.publish(&volume, "pod", &capability)?;
    fs::write(pod.join("new"), "x")?;
    for name in ["", "old", "new"] {
        let found = fs::metadata(pod.join(name))?;
        ensure!(found.gid() == 2000, "{name:?} belongs to the group {}", found.gid());
    }
    // The second time, no file is scanned.
    std::os::unix::fs::chown(pod.join("old"), None, Some(0))?;
    fixture.publish(&volume, "pod", &capability)?;
    ensure!(fs::metadata(pod.join("old"))?.gid() == 0, "all files were looked at again");
    fixture.unpublish(&volume, "pod")?;
    fixture.unstage(&volume)?;
    fixture.finish()
}

#[test]
fn the_driver_registers_itself_with_the_kubelet() -> Result<()> {
    let Some(fixture) = Fixture::start(POOL)? else { return Ok(()) };
    let socket = fixture.path("registry/csi.memlane-reg.sock");
    let asked = || {
        call::<_, Registration>(&socket, "/pluginregistration.Registration/GetInfo", &Nothing {})
    };
    system::wait_for("the registration", TIME_LIMIT, || Ok(asked().is_ok()))?;
    let told = asked()?.map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
    ensure!(told.kind == "CSIPlugin" && told.name == "csi.memlane", "{told:?}");
    ensure!(told.endpoint == fixture.path("csi.sock").display().to_string(), "{told:?}");
    let status = RegistrationStatus { plugin_registered: true, error: String::new() };
    let path = "/pluginregistration.Registration/NotifyRegistrationStatus";
    ensure!(call::<_, Nothing>(&socket, path, &status)?.is_ok(), "the kubelet is refused");
    fixture.finish()
}
