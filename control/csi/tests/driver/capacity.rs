//! Reported capacity matches what can be created.

use anyhow::{Result, ensure};
use system::DaemonOptions;

use crate::fixture::{Fixture, MIB, OUT_OF_RANGE, RESOURCE_EXHAUSTED, claim, ext4, map, noise};
use crate::wire::{
    CapacityRange, CreateVolumeRequest, ExpandRequest, Topology, TopologyRequirement,
};

const POOL: DaemonOptions = DaemonOptions { pool_size: "512MiB", flags: "" };

const GUARANTEED: &[(&str, &str)] = &[("capacity", "guaranteed")];

fn of_class(class: &[(&str, &str)], name: &str, size_bytes: i64) -> CreateVolumeRequest {
    CreateVolumeRequest { parameters: map(class), ..claim(name, size_bytes) }
}

#[test]
fn room_for_thin_volumes_is_what_the_pool_has_left() -> Result<()> {
    let Some(fixture) = Fixture::start(POOL)? else { return Ok(()) };
    let before = fixture.capacity(&[])?;
    ensure!(before > 256 * MIB && before < 512 * MIB, "an empty pool has room for {before}");
    let volume = fixture.create(&claim("pvc-1", 256 * MIB))?;
    ensure!(fixture.capacity(&[])? > before - 8 * MIB, "an empty volume takes room");
    fixture.stage(&volume, &ext4())?;
    std::fs::write(fixture.staged(&volume).join("noise"), noise(96 << 20))?;
    fixture.snapshot(&volume, "snap-1")?;
    let after = fixture.capacity(&[])?;
    ensure!(after < before - 64 * MIB, "96 MiB of noise leave {after} of {before}");
    // The reported capacity can be claimed, but no more.
    let words = fixture.refused(
        "Controller/CreateVolume",
        &claim("pvc-2", after + 64 * MIB),
        RESOURCE_EXHAUSTED,
    )?;
    ensure!(words.contains("overcommit"), "{words}");
    fixture.create(&claim("pvc-2", fixture.capacity(&[])?))?;
    let twice = fixture.capacity(&[("overcommit", "2")])?;
    ensure!(twice > after * 2 - 64 * MIB, "twice {after} is {twice}");
    fixture.create(&of_class(
        &[("overcommit", "2")],
        "pvc-3",
        fixture.capacity(&[])? + 64 * MIB,
    ))?;
    fixture.unstage(&volume)?;
    fixture.finish()
}

#[test]
fn room_for_guaranteed_volumes_can_be_claimed_to_the_last_of_it() -> Result<()> {
    let Some(fixture) = Fixture::start(POOL)? else { return Ok(()) };
    let all = fixture.capacity(GUARANTEED)?;
    let first = fixture.create(&of_class(GUARANTEED, "pvc-1", all / 2))?;
    let rest = fixture.capacity(GUARANTEED)?;
    ensure!(rest < all - all / 2, "half of {all} is claimed, and {rest} is told of");
    ensure!(fixture.capacity(&[])? <= rest + 16 * MIB, "claims of others are told of as room");
    fixture.create(&of_class(GUARANTEED, "pvc-2", rest))?;
    let left = fixture.capacity(GUARANTEED)?;
    ensure!(left < 16 * MIB, "all is claimed, and {left} is told of");
    let more = of_class(GUARANTEED, "pvc-3", 64 * MIB);
    fixture.refused("Controller/CreateVolume", &more, RESOURCE_EXHAUSTED)?;
    ensure!(fixture.daemon.volumes()?.len() == 2, "what is refused leaves something behind");
    let range = CapacityRange { required_bytes: all * 2, limit_bytes: 0 };
    let grown = ExpandRequest { volume_id: first.clone(), capacity_range: Some(range) };
    fixture.refused("Controller/ControllerExpandVolume", &grown, RESOURCE_EXHAUSTED)?;
    fixture.delete(&first)?;
    fixture.create(&more)?;
    fixture.finish()
}

#[test]
fn a_claim_that_cannot_be_is_refused_and_one_that_differs_too() -> Result<()> {
    let Some(fixture) = Fixture::start(POOL)? else { return Ok(()) };
    let elsewhere = Topology { segments: map(&[("csi.memlane/node", "node-2")]) };
    let required = TopologyRequirement { requisite: vec![elsewhere], preferred: Vec::new() };
    let other_node =
        CreateVolumeRequest { accessibility_requirements: Some(required), ..claim("pvc-1", MIB) };
    fixture.refused("Controller/CreateVolume", &other_node, RESOURCE_EXHAUSTED)?;
    let narrow = CapacityRange { required_bytes: 5000, limit_bytes: 6000 };
    let narrow = CreateVolumeRequest { capacity_range: Some(narrow), ..claim("pvc-1", MIB) };
    fixture.refused("Controller/CreateVolume", &narrow, OUT_OF_RANGE)?;
    let class = [
        ("durability", "ram"),
        ("csi.storage.k8s.io/pvc/name", "data"),
        ("csi.storage.k8s.io/pvc/namespace", "shop"),
    ];
    let volume = fixture.create(&of_class(&class, "pvc-1", 64 * MIB))?;
    ensure!(volume == fixture.create(&of_class(&class, "pvc-1", 64 * MIB))?, "another one is made");
    let found = fixture.daemon.volume(&volume)?;
    ensure!(found.owner.as_deref() == Some("memlane-csi"), "{found:?}");
    ensure!(found.labels["kubernetes/claim"] == "data", "{found:?}");
    ensure!(found.labels["kubernetes/namespace"] == "shop", "{found:?}");
    let listed = fixture.daemon.memlane("volume list --label kubernetes/claim=data")?;
    ensure!(listed.contains(&volume), "{listed}");
    for other in [
        of_class(&class, "pvc-1", 96 * MIB),
        of_class(&[("capacity", "guaranteed")], "pvc-1", 64 * MIB),
        of_class(&[("reduction", "none")], "pvc-1", 64 * MIB),
    ] {
        fixture.refused("Controller/CreateVolume", &other, crate::fixture::ALREADY_EXISTS)?;
    }
    // Volumes of other owners are neither adopted nor deleted.
    fixture.daemon.memlane("volume create mine --size 64MiB")?;
    fixture.refused(
        "Controller/CreateVolume",
        &claim("mine", 64 * MIB),
        crate::fixture::ALREADY_EXISTS,
    )?;
    let named = crate::fixture::named("mine");
    fixture.refused("Controller/DeleteVolume", &named, crate::fixture::FAILED_PRECONDITION)?;
    fixture.finish()
}
