//! Room that the driver tells of is room that there is.

use anyhow::{Result, ensure};
use system::DaemonOptions;

use crate::site::{MIB, OUT_OF_RANGE, RESOURCE_EXHAUSTED, Site, claim, ext4, map, noise};
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
    let Some(site) = Site::start(POOL)? else { return Ok(()) };
    let before = site.capacity(&[])?;
    ensure!(before > 256 * MIB && before < 512 * MIB, "an empty pool has room for {before}");
    let volume = site.create(&claim("pvc-1", 256 * MIB))?;
    ensure!(site.capacity(&[])? > before - 8 * MIB, "an empty volume takes room");
    site.stage(&volume, &ext4())?;
    std::fs::write(site.staged(&volume).join("noise"), noise(96 << 20))?;
    site.snapshot(&volume, "snap-1")?;
    let after = site.capacity(&[])?;
    ensure!(after < before - 64 * MIB, "96 MiB of noise leave {after} of {before}");
    // What is told of can be had, and no more.
    let words = site.refused(
        "Controller/CreateVolume",
        &claim("pvc-2", after + 64 * MIB),
        RESOURCE_EXHAUSTED,
    )?;
    ensure!(words.contains("overcommit"), "{words}");
    site.create(&claim("pvc-2", site.capacity(&[])?))?;
    let twice = site.capacity(&[("overcommit", "2")])?;
    ensure!(twice > after * 2 - 64 * MIB, "twice {after} is {twice}");
    site.create(&of_class(&[("overcommit", "2")], "pvc-3", site.capacity(&[])? + 64 * MIB))?;
    site.unstage(&volume)?;
    site.finish()
}

#[test]
fn room_for_guaranteed_volumes_can_be_claimed_to_the_last_of_it() -> Result<()> {
    let Some(site) = Site::start(POOL)? else { return Ok(()) };
    let all = site.capacity(GUARANTEED)?;
    let first = site.create(&of_class(GUARANTEED, "pvc-1", all / 2))?;
    let rest = site.capacity(GUARANTEED)?;
    ensure!(rest < all - all / 2, "half of {all} is claimed, and {rest} is told of");
    ensure!(site.capacity(&[])? <= rest + 16 * MIB, "claims of others are told of as room");
    site.create(&of_class(GUARANTEED, "pvc-2", rest))?;
    let left = site.capacity(GUARANTEED)?;
    ensure!(left < 16 * MIB, "all is claimed, and {left} is told of");
    let more = of_class(GUARANTEED, "pvc-3", 64 * MIB);
    site.refused("Controller/CreateVolume", &more, RESOURCE_EXHAUSTED)?;
    ensure!(site.daemon.volumes()?.len() == 2, "what is refused leaves something behind");
    let range = CapacityRange { required_bytes: all * 2, limit_bytes: 0 };
    let grown = ExpandRequest { volume_id: first.clone(), capacity_range: Some(range) };
    site.refused("Controller/ControllerExpandVolume", &grown, RESOURCE_EXHAUSTED)?;
    site.delete(&first)?;
    site.create(&more)?;
    site.finish()
}

#[test]
fn a_claim_that_cannot_be_is_refused_and_one_that_differs_too() -> Result<()> {
    let Some(site) = Site::start(POOL)? else { return Ok(()) };
    let elsewhere = Topology { segments: map(&[("csi.memlane/node", "node-2")]) };
    let required = TopologyRequirement { requisite: vec![elsewhere], preferred: Vec::new() };
    let other_node =
        CreateVolumeRequest { accessibility_requirements: Some(required), ..claim("pvc-1", MIB) };
    site.refused("Controller/CreateVolume", &other_node, RESOURCE_EXHAUSTED)?;
    let narrow = CapacityRange { required_bytes: 5000, limit_bytes: 6000 };
    let narrow = CreateVolumeRequest { capacity_range: Some(narrow), ..claim("pvc-1", MIB) };
    site.refused("Controller/CreateVolume", &narrow, OUT_OF_RANGE)?;
    let class = [
        ("durability", "ram"),
        ("csi.storage.k8s.io/pvc/name", "data"),
        ("csi.storage.k8s.io/pvc/namespace", "shop"),
    ];
    let volume = site.create(&of_class(&class, "pvc-1", 64 * MIB))?;
    ensure!(volume == site.create(&of_class(&class, "pvc-1", 64 * MIB))?, "another one is made");
    let found = site.daemon.volume(&volume)?;
    ensure!(found.owner.as_deref() == Some("memlane-csi"), "{found:?}");
    ensure!(found.labels["kubernetes/claim"] == "data", "{found:?}");
    ensure!(found.labels["kubernetes/namespace"] == "shop", "{found:?}");
    let listed = site.daemon.memlane("volume list --label kubernetes/claim=data")?;
    ensure!(listed.contains(&volume), "{listed}");
    for other in [
        of_class(&class, "pvc-1", 96 * MIB),
        of_class(&[("capacity", "guaranteed")], "pvc-1", 64 * MIB),
        of_class(&[("reduction", "none")], "pvc-1", 64 * MIB),
    ] {
        site.refused("Controller/CreateVolume", &other, crate::site::ALREADY_EXISTS)?;
    }
    // Volumes of others are neither taken nor deleted.
    site.daemon.memlane("volume create mine --size 64MiB")?;
    site.refused("Controller/CreateVolume", &claim("mine", 64 * MIB), crate::site::ALREADY_EXISTS)?;
    let named = crate::site::named("mine");
    site.refused("Controller/DeleteVolume", &named, crate::site::FAILED_PRECONDITION)?;
    site.finish()
}
