//! Kills of the driver and of the daemon at any moment: calls that come again find their way.

use std::fs::{self, File};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use system::{DaemonOptions, Random, seed};

use crate::site::{MIB, NOT_FOUND, Site, TIME_LIMIT, claim, copy, ext4, map};
use crate::wire::{CreateVolumeRequest, Nothing, SnapshotId};

const ROUNDS: u64 = 6;

/// The driver lives so long at most.
const PAUSE_MS_MAX: u64 = 300;

const RETRY_PAUSE: Duration = Duration::from_millis(5);

#[test]
fn a_pod_sees_nothing_of_kills_of_the_driver_and_of_the_daemon() -> Result<()> {
    let Some(mut site) = Site::start(DaemonOptions { pool_size: "512MiB", flags: "" })? else {
        return Ok(());
    };
    let volume = site.create(&claim("pvc-1", 64 * MIB))?;
    site.stage(&volume, &ext4())?;
    let pod = site.publish(&volume, "pod", &ext4())?;
    for round in 0..4 {
        fs::write(pod.join("file"), round.to_string())?;
        site.kill_driver()?;
        site.daemon.kill()?;
        site.daemon.start_again()?;
        site.start_driver()?;
        ensure!(fs::read_to_string(pod.join("file"))? == round.to_string(), "a write is lost");
        site.stage(&volume, &ext4())?;
        site.publish(&volume, "pod", &ext4())?;
        ensure!(site.mount_count(&pod)? == 1, "mounts pile up");
    }
    site.unpublish(&volume, "pod")?;
    site.unstage(&volume)?;
    site.delete(&volume)?;
    site.finish()
}

/// A node that is started again has lost its memory, and its pods come back.
#[test]
fn a_durable_claim_is_staged_again_after_a_loss_of_memory() -> Result<()> {
    let Some(mut site) = Site::start(DaemonOptions { pool_size: "512MiB", flags: "" })? else {
        return Ok(());
    };
    let durable = map(&[("durability", "journal"), ("csi.storage.k8s.io/pvc/name", "data")]);
    let request = CreateVolumeRequest { parameters: durable, ..claim("pvc-1", 64 * MIB) };
    let volume = site.create(&request)?;
    let lost = site.create(&claim("pvc-2", 64 * MIB))?;
    for volume in [&volume, &lost] {
        site.stage(volume, &ext4())?;
        let mut file = File::create(site.staged(volume).join("file"))?;
        file.write_all(b"flushed")?;
        file.sync_all()?;
        drop(file);
        site.unstage(volume)?;
    }
    site.daemon.lose_memory()?;
    site.daemon.start_again()?;
    ensure!(site.create(&request)? == volume, "another one is made");
    site.stage(&volume, &ext4())?;
    let found = fs::read_to_string(site.staged(&volume).join("file"))?;
    ensure!(found == "flushed", "the volume holds {found:?}");
    let labels = site.daemon.volume(&volume)?.labels;
    ensure!(labels["kubernetes/claim"] == "data", "{labels:?}");
    // Nothing empty takes the place of what was in memory alone.
    let words = site.refused("Node/NodeStageVolume", &site.staging(&lost, &ext4()), NOT_FOUND)?;
    ensure!(words.contains("pvc-2"), "{words}");
    site.unstage(&volume)?;
    site.finish()
}

/// The life of a volume and of a copy, each call repeated until it is answered well.
#[test]
fn calls_are_carried_out_once_however_often_the_driver_is_killed() -> Result<()> {
    let Some(site) = Site::start(DaemonOptions { pool_size: "1GiB", flags: "" })? else {
        return Ok(());
    };
    let seed = seed()?;
    let mut random = Random::new(seed);
    let is_over = AtomicBool::new(false);
    let lived = thread::scope(|scope| {
        let killer = scope.spawn(|| -> Result<()> {
            while !is_over.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(random.below(PAUSE_MS_MAX)));
                site.kill_driver()?;
                site.start_driver()?;
            }
            Ok(())
        });
        let lived = (0..ROUNDS).try_for_each(|round| live(&site, round));
        is_over.store(true, Ordering::Release);
        killer.join().expect("it returns its errors").and(lived)
    });
    lived.with_context(|| format!("with MEMLANE_SEED={seed}"))?;
    let volumes = site.daemon.volumes()?;
    ensure!(volumes.is_empty(), "volumes stay: {volumes:?}");
    site.finish()
}

fn live(site: &Site, round: u64) -> Result<()> {
    let name = format!("pvc-{round}");
    let volume = until(|| site.create(&claim(&name, 64 * MIB)))?;
    until(|| site.stage(&volume, &ext4()))?;
    let pod = until(|| site.publish(&volume, "pod", &ext4()))?;
    ensure!(site.mount_count(&pod)? == 1, "mounts pile up");
    fs::write(pod.join("file"), &name)?;
    let snapshot = until(|| site.snapshot(&volume, &format!("snapshot-{round}")))?.snapshot_id;
    until(|| site.unpublish(&volume, "pod"))?;
    until(|| site.unstage(&volume))?;
    let clone = until(|| site.create(&copy(&format!("copy-{round}"), 96 * MIB, &snapshot)))?;
    until(|| site.stage(&clone, &ext4()))?;
    let found = fs::read_to_string(site.staged(&clone).join("file"))?;
    ensure!(found == name, "the copy holds {found:?}");
    until(|| site.unstage(&clone))?;
    let id = SnapshotId { snapshot_id: snapshot };
    until(|| site.call::<_, Nothing>("Controller/DeleteSnapshot", &id))?;
    until(|| site.delete(&clone))?;
    until(|| site.delete(&volume))
}

/// Repeats a call as the kubelet does.
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
