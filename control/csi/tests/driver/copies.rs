//! Snapshots, their restoration, and clones.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use system::{DaemonOptions, NbdClient, Request, wait_for};

use crate::fixture::{
    ALREADY_EXISTS, FAILED_PRECONDITION, Fixture, MIB, NOT_FOUND, OUT_OF_RANGE, RESOURCE_EXHAUSTED,
    TIME_LIMIT, claim, copy, ext4, mounted, named, noise,
};
use crate::wire::{
    CreateGroupRequest, CreateSnapshotRequest, CreateVolumeRequest, GroupAnswer, GroupId, Nothing,
    Snapshot, SnapshotId, access,
};

const POOL: DaemonOptions = DaemonOptions { pool_size: "2GiB", flags: "" };

/// Number of group snapshots that are taken during writes.
const WRITTEN_GROUP_COUNT: usize = 5;

/// Goal: a snapshot contains unflushed writes, and a restored volume may be larger.
#[test]
fn a_snapshot_is_restored_while_its_volume_goes_on_and_after_its_claim_is_gone() -> Result<()> {
    let Some(fixture) = Fixture::start(POOL)? else { return Ok(()) };
    let volume = fixture.create(&claim("pvc-1", 64 * MIB))?;
    fixture.stage(&volume, &ext4())?;
    let file = fixture.staged(&volume).join("file");
    fs::write(&file, "before")?;
    let snapshot = fixture.snapshot(&volume, "snapshot-1")?;
    ensure!(snapshot.ready_to_use && snapshot.size_bytes == 64 * MIB, "{snapshot:?}");
    ensure!(snapshot == fixture.snapshot(&volume, "snapshot-1")?, "another one is taken");
    fs::write(&file, "after")?;
    fixture.unstage(&volume)?;
    // The claim is deleted. The volume can be deleted once its snapshots are.
    let words = fixture.refused("Controller/DeleteVolume", &named(&volume), FAILED_PRECONDITION)?;
    ensure!(words.contains(&snapshot.snapshot_id), "{words}");
    let restored = copy("pvc-2", 128 * MIB, &snapshot.snapshot_id);
    let restored = fixture.create(&restored)?;
    fixture.stage(&restored, &ext4())?;
    let path = fixture.staged(&restored);
    ensure!(fs::read_to_string(path.join("file"))? == "before", "the snapshot has something else");
    let room = rustix::fs::statvfs(&path)?;
    let room_bytes = room.f_blocks * room.f_frsize;
    ensure!(room_bytes > 96 << 20, "the copy's file system has {room_bytes} bytes");
    fixture.unstage(&restored)?;
    let id = SnapshotId { snapshot_id: snapshot.snapshot_id.clone() };
    let _: Nothing = fixture.call("Controller/DeleteSnapshot", &id)?;
    let _: Nothing = fixture.call("Controller/DeleteSnapshot", &id)?;
    fixture.delete(&volume)?;
    fixture.delete(&volume)?;
    fixture.delete(&restored)?;
    ensure!(fixture.daemon.volumes()?.is_empty(), "{:?}", fixture.daemon.volumes()?);
    fixture.finish()
}

#[test]
fn copies_of_an_xfs_are_mounted_beside_it() -> Result<()> {
    let Some(fixture) = Fixture::start(POOL)? else { return Ok(()) };
    let xfs = mounted("xfs", access::SINGLE_NODE_WRITER);
    let of_xfs = |request: CreateVolumeRequest| CreateVolumeRequest {
        volume_capabilities: vec![xfs.clone()],
        ..request
    };
    let small = fixture.create(&of_xfs(claim("pvc-0", MIB)))?;
    ensure!(fixture.daemon.volume(&small)?.size_bytes == 300 << 20, "XFS takes 300 MiB");
    let volume = fixture.create(&of_xfs(claim("pvc-1", 320 * MIB)))?;
    fixture.stage(&volume, &xfs)?;
    fs::write(fixture.staged(&volume).join("file"), "of xfs")?;
    let clone = fixture.create(&of_xfs(copy("pvc-2", 384 * MIB, &volume)))?;
    ensure!(clone == fixture.create(&of_xfs(copy("pvc-2", 384 * MIB, &volume)))?, "made twice");
    fixture.stage(&clone, &xfs)?;
    ensure!(fs::read_to_string(fixture.staged(&clone).join("file"))? == "of xfs", "another file");
    fixture.unstage(&clone)?;
    fixture.unstage(&volume)?;
    fixture.finish()
}

#[test]
fn copies_that_cannot_be_are_refused_and_half_ones_are_begun_anew() -> Result<()> {
    let Some(fixture) = Fixture::start(POOL)? else { return Ok(()) };
    let volume = fixture.create(&claim("pvc-1", 64 * MIB))?;
    let other = fixture.create(&claim("pvc-2", 64 * MIB))?;
    let snapshot = fixture.snapshot(&volume, "snapshot-1")?.snapshot_id;
    let same_name =
        CreateSnapshotRequest { source_volume_id: other.clone(), name: "snapshot-1".to_owned() };
    fixture.refused("Controller/CreateSnapshot", &same_name, ALREADY_EXISTS)?;
    fixture.refused(
        "Controller/CreateVolume",
        &copy("pvc-3", 32 * MIB, &snapshot),
        OUT_OF_RANGE,
    )?;
    fixture.refused(
        "Controller/CreateVolume",
        &copy("pvc-2", 64 * MIB, &snapshot),
        ALREADY_EXISTS,
    )?;
    // A leftover of a killed driver, under the temporary name of an incomplete volume.
    let begun = format!("csi-new-{}", &blake3::hash(b"pvc-3").to_hex()[..32]);
    fixture.daemon.memlane(&format!("volume create {begun} --size 4KiB"))?;
    let made = fixture.create(&copy("pvc-3", 96 * MIB, &snapshot))?;
    ensure!(fixture.daemon.volume(&made)?.size_bytes == 96 << 20, "what was half is taken");
    let volumes = fixture.daemon.volumes()?;
    ensure!(volumes.iter().all(|it| it.name != begun), "{volumes:?}");
    fixture.finish()
}

#[test]
fn a_copy_is_made_in_a_pool_that_does_not_hold_it_twice() -> Result<()> {
    let Some(fixture) = Fixture::start(DaemonOptions { pool_size: "256MiB", flags: "" })? else {
        return Ok(());
    };
    let volume = fixture.create(&claim("pvc-1", 160 * MIB))?;
    fixture.stage(&volume, &ext4())?;
    fs::write(fixture.staged(&volume).join("noise"), noise(96 << 20))?;
    let snapshot = fixture.snapshot(&volume, "snapshot-1")?.snapshot_id;
    ensure!(fixture.capacity(&[])? < 160 * MIB, "the pool holds it twice");
    let restored = fixture.create(&copy("pvc-2", 160 * MIB, &snapshot))?;
    fixture.stage(&restored, &ext4())?;
    let found = fs::read(fixture.staged(&restored).join("noise"))?;
    ensure!(found == noise(96 << 20), "the copy holds something else");
    fixture.refused(
        "Controller/CreateVolume",
        &copy("pvc-3", 1600 * MIB, &snapshot),
        RESOURCE_EXHAUSTED,
    )?;
    fixture.unstage(&restored)?;
    fixture.unstage(&volume)?;
    fixture.finish()
}

/// Writes ascending numbers, each to the first of two volumes and then to the second.
struct TurnWriter {
    /// The last number written to both volumes.
    written: AtomicU64,
    is_over: AtomicBool,
}

impl TurnWriter {
    fn run(&self, socket: &Path, volumes: &[String; 2]) -> Result<()> {
        let [first, second] = volumes.each_ref().map(|name| NbdClient::connect(socket, name));
        let mut clients = [first?, second?];
        for number in 1_u64.. {
            for client in &mut clients {
                let data = number.to_le_bytes().repeat(512);
                client.ask(&Request::Write { offset: 0, data })?;
            }
            self.written.store(number, Ordering::Relaxed);
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }

    fn check_group(&self, fixture: &Fixture, volumes: &[String; 2], name: String) -> Result<()> {
        let before = self.written.load(Ordering::Relaxed);
        let is_writing = || Ok(self.written.load(Ordering::Relaxed) > before);
        wait_for("numbers to be written", TIME_LIMIT, is_writing)?;
        let request = CreateGroupRequest { name, source_volume_ids: volumes.to_vec() };
        let taken: GroupAnswer =
            fixture.call("GroupController/CreateVolumeGroupSnapshot", &request)?;
        let taken = taken.group_snapshot.unwrap_or_default();
        let mut numbers = [0, 0];
        for (number, volume) in numbers.iter_mut().zip(volumes) {
            let mut of_volume = taken.snapshots.iter().filter(|it| it.source_volume_id == *volume);
            let snapshot = &of_volume.next().context("each has a snapshot")?.snapshot_id;
            let mut client = NbdClient::connect(&fixture.daemon.nbd_socket(), snapshot)?;
            let found = client.ask(&Request::Read { offset: 0, length: 8 })?;
            *number = u64::from_le_bytes(found[..].try_into()?);
        }
        let [first, second] = numbers;
        let is_instant = first == second || first == second + 1;
        ensure!(first > before && is_instant, "{first} and {second}, after {before}");
        let id = GroupId { group_snapshot_id: taken.group_snapshot_id, snapshot_ids: vec![] };
        fixture.call("GroupController/DeleteVolumeGroupSnapshot", &id).map(|_: Nothing| ())
    }
}

fn check_instants(fixture: &Fixture, volumes: &[String; 2]) -> Result<()> {
    let writer = TurnWriter { written: AtomicU64::new(0), is_over: AtomicBool::new(false) };
    thread::scope(|scope| {
        let writing = scope.spawn(|| writer.run(&fixture.daemon.nbd_socket(), volumes));
        let checked = (0..WRITTEN_GROUP_COUNT).try_for_each(|number| {
            writer.check_group(fixture, volumes, format!("written-{number}"))
        });
        writer.is_over.store(true, Ordering::Relaxed);
        writing.join().expect("no panic").and(checked)
    })
}

#[test]
fn snapshots_of_a_group_are_of_one_instant() -> Result<()> {
    let Some(fixture) = Fixture::start(POOL)? else { return Ok(()) };
    let first = fixture.create(&claim("pvc-1", 64 * MIB))?;
    let second = fixture.create(&claim("pvc-2", 64 * MIB))?;
    let request = CreateGroupRequest {
        name: "group-1".to_owned(),
        source_volume_ids: vec![first.clone(), second.clone()],
    };
    check_instants(&fixture, &[first.clone(), second.clone()])?;
    let service = "GroupController";
    let create = format!("{service}/CreateVolumeGroupSnapshot");
    let taken: GroupAnswer = fixture.call(&create, &request)?;
    let again: GroupAnswer = fixture.call(&create, &request)?;
    ensure!(taken == again, "another one is taken: {again:?}");
    let taken = taken.group_snapshot.unwrap_or_default();
    let is_member = |it: &Snapshot| it.group_snapshot_id == taken.group_snapshot_id;
    ensure!(taken.snapshots.len() == 2 && taken.snapshots.iter().all(is_member), "{taken:?}");
    let fewer = CreateGroupRequest { source_volume_ids: vec![first.clone()], ..request };
    fixture.refused(&create, &fewer, ALREADY_EXISTS)?;
    // If one snapshot of a group is impossible, none is taken.
    let half = CreateGroupRequest {
        name: "group-2".to_owned(),
        source_volume_ids: vec![first, "pvc-3".to_owned()],
    };
    fixture.refused(&create, &half, NOT_FOUND)?;
    fixture.create(&copy("pvc-4", 64 * MIB, &taken.snapshots[1].snapshot_id))?;
    let id = GroupId { group_snapshot_id: taken.group_snapshot_id.clone(), snapshot_ids: vec![] };
    for _ in 0..2 {
        let _: Nothing = fixture.call(&format!("{service}/DeleteVolumeGroupSnapshot"), &id)?;
    }
    fixture.refused(&format!("{service}/GetVolumeGroupSnapshot"), &id, NOT_FOUND)?;
    let left = fixture.daemon.memlane("snapshot list")?;
    ensure!(!left.contains('@'), "{left}");
    fixture.finish()
}
