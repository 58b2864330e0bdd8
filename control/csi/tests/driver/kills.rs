//! Kills of the driver and the daemon at random times: repeated calls succeed.

use std::fs::{self, File};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use system::{DaemonOptions, Random, seed};

use crate::fixture::{Fixture, MIB, NOT_FOUND, TIME_LIMIT, claim, copy, ext4, map};
use crate::wire::{CreateVolumeRequest, Nothing, SnapshotId};

const ROUNDS: u64 = 6;

/// Maximum lifetime of a driver process.
const PAUSE_MS_MAX: u64 = 300;

const RETRY_PAUSE: Duration = Duration::from_millis(5);

#[test]
fn a_pod_sees_nothing_of_kills_of_the_driver_and_of_the_daemon() -> Result<()> {
    let Some(mut fixture) = Fixture::start(DaemonOptions { pool_size: "512MiB", flags: "" })?
    else {
        return Ok(());
    };
    let volume = fixture.create(&claim("pvc-1", 64 * MIB))?;
    fixture.stage(&volume, &ext4())?;
    let pod = fixture.publish(&volume, "pod", &ext4())?;
    for round in 0..4 {
        fs::write(pod.join("file"), round.to_string())?;
        fixture.kill_driver()?;
        fixture.daemon.kill()?;
        fixture.daemon.start_again()?;
        fixture.start_driver()?;
        ensure!(fs::read_to_string(pod.join("file"))? == round.to_string(), "a write is lost");
        fixture.stage(&volume, &ext4())?;
        fixture.publish(&volume, "pod", &ext4())?;
        ensure!(fixture.mount_count(&pod)? == 1, "mounts pile up");
    }
    fixture.unpublish(&volume, "pod")?;
    fixture.unstage(&volume)?;
    fixture.delete(&volume)?;
    fixture.finish()
}

/// Goal: after a restart of the node, its memory is lost and its pods are started again.
#[test]
fn a_durable_claim_is_staged_again_after_a_loss_of_memory() -> Result<()> {
    let Some(mut fixture) = Fixture::start(DaemonOptions { pool_size: "512MiB", flags: "" })?
    else {
        return Ok(());
    };
    let durable = map(&[("durability", "journal"), ("csi.storage.k8s.io/pvc/name", "data")]);
    let request = CreateVolumeRequest { parameters: durable, ..claim("pvc-1", 64 * MIB) };
    let volume = fixture.create(&request)?;
    let lost = fixture.create(&claim("pvc-2", 64 * MIB))?;
    for volume in [&volume, &lost] {
        fixture.stage(volume, &ext4())?;
        let mut file = File::create(fixture.staged(volume).join("file"))?;
        file.write_all(b"flushed")?;
        file.sync_all()?;
        drop(file);
        fixture.unstage(volume)?;
    }
    fixture.daemon.lose_memory()?;
    fixture.daemon.start_again()?;
    ensure!(fixture.create(&request)? == volume, "another one is made");
    fixture.stage(&volume, &ext4())?;
    let found = fs::read_to_string(fixture.staged(&volume).join("file"))?;
    ensure!(found == "flushed", "the volume holds {found:?}");
    let labels = fixture.daemon.volume(&volume)?.labels;
    ensure!(labels["kubernetes/claim"] == "data", "{labels:?}");
    // A lost volume is not replaced by an empty one.
    let words =
        fixture.refused("Node/NodeStageVolume", &fixture.staging(&lost, &ext4()), NOT_FOUND)?;
    ensure!(words.contains("pvc-2"), "{words}");
    fixture.unstage(&volume)?;
    fixture.finish()
}

/// Creates, uses and deletes a volume and a copy, and repeats each call until it succeeds.
#[test]
fn calls_are_carried_out_once_however_often_the_driver_is_killed() -> Result<()> {
    let Some(fixture) = Fixture::start(DaemonOptions { pool_size: "1GiB", flags: "" })? else {
        return Ok(());
    };
    let seed = seed()?;
    let mut random = Random::new(seed);
    let is_over = AtomicBool::new(false);
    let lived = thread::scope(|scope| {
        let killer = scope.spawn(|| -> Result<()> {
            while !is_over.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(random.below(PAUSE_MS_MAX)));
                fixture.kill_driver()?;
                fixture.start_driver()?;
            }
            Ok(())
        });
        let lived = (0..ROUNDS).try_for_each(|round| live(&fixture, round));
        is_over.store(true, Ordering::Release);
        killer.join().expect("it returns its errors").and(lived)
    });
    lived.with_context(|| format!("with MEMLANE_SEED={seed}"))?;
    let volumes = fixture.daemon.volumes()?;
    ensure!(volumes.is_empty(), "volumes stay: {volumes:?}");
    fixture.finish()
}

fn live(fixture: &Fixture, round: u64) -> Result<()> {
    let name = format!("pvc-{round}");
    let volume = until(|| fixture.create(&claim(&name, 64 * MIB)))?;
    until(|| fixture.stage(&volume, &ext4()))?;
    let pod = until(|| fixture.publish(&volume, "pod", &ext4()))?;
    ensure!(fixture.mount_count(&pod)? == 1, "mounts pile up");
    fs::write(pod.join("file"), &name)?;
    let snapshot = until(|| fixture.snapshot(&volume, &format!("snapshot-{round}")))?.snapshot_id;
    until(|| fixture.unpublish(&volume, "pod"))?;
    until(|| fixture.unstage(&volume))?;
    let clone = until(|| fixture.create(&copy(&format!("copy-{round}"), 96 * MIB, &snapshot)))?;
    until(|| fixture.stage(&clone, &ext4()))?;
    let found = fs::read_to_string(fixture.staged(&clone).join("file"))?;
    ensure!(found == name, "the copy holds {found:?}");
    until(|| fixture.unstage(&clone))?;
    let id = SnapshotId { snapshot_id: snapshot };
    until(|| fixture.call::<_, Nothing>("Controller/DeleteSnapshot", &id))?;
    until(|| fixture.delete(&clone))?;
    until(|| fixture.delete(&volume))
}

/// Repeats a call until it succeeds, as the kubelet does.
fn until<T>(call: impl Fn() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + TIME_LIMIT;
    loop {
        match call() {
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => thread::sleep(RETRY_PAUSE),
            answered => return answered,
        }
    }
}
