//! Disks that are attached and detached while the machine runs, and snapshots of all of them.

use anyhow::{Result, ensure};
use api::{DiskKind, Export, Machine, MachineSnapshot, MachinesCreated};

use crate::fixture::{FROM_SCRIPT, Fixture, PLAIN, lacks};

/// Reports attached and detached disks and their first bytes. Reads one of the disks continuously.
const SCRIPT: &str = r#"
cd /tmp
echo UP >/dev/console
while :; do
    for disk in vdb vdc; do
        if [ -b /dev/$disk ] && [ ! -e $disk ]; then
            touch $disk
            echo "CAME-$disk-$(head -c 5 /dev/$disk)" >/dev/console
        elif [ ! -b /dev/$disk ] && [ -e $disk ]; then
            rm $disk
            echo "WENT-$disk" >/dev/console
        fi
    done
    if [ -e vdc ]; then
        echo 3 >/proc/sys/vm/drop_caches
        [ "$(head -c 5 /dev/vdc)" = aside ] && echo "READ-vdc" >/dev/console
    fi
    usleep 50000
done
"#;

fn kinds(machine: &Machine) -> Vec<(&str, DiskKind)> {
    machine.disks.iter().map(|disk| (disk.target.as_str(), disk.kind)).collect()
}

#[test]
fn disks_come_and_go_and_are_snapshotted_together() -> Result<()> {
    if lacks(&["libvirtd"]) {
        return Ok(());
    }
    let mut fixture = Fixture::start(PLAIN)?;
    fixture.volume_with_text("web", SCRIPT)?;
    fixture.volume_with_text("data", "alpha")?;
    fixture.volume_with_text("side", "aside")?;
    let words = [&["create", "web", "--volume", "web", "--start"], FROM_SCRIPT].concat();
    let _: MachinesCreated = fixture.ask(&words)?;
    fixture.wait_for_console("web", "UP", 1)?;

    let machine: Machine = fixture.ask(&["attach", "web", "data"])?;
    let (vhost, nbd) = (DiskKind::VhostUser, DiskKind::Nbd);
    ensure!(kinds(&machine) == [("vda", vhost), ("vdb", vhost)], "{machine:?}");
    fixture.wait_for_console("web", "CAME-vdb-alpha", 1)?;
    ensure!(fixture.refusal(&["attach", "web", "data"])? == "in_use", "it is a disk already");
    ensure!(fixture.refusal(&["attach", "web", "none"])? == "not_found", "there is none");
    ensure!(fixture.refusal(&["attach", "web", "a/b"])? == "invalid_field", "no name");
    let machine: Machine = fixture.ask(&["attach", "web", "side", "--protocol", "nbd"])?;
    ensure!(kinds(&machine)[2] == ("vdc", nbd), "{machine:?}");
    fixture.wait_for_console("web", "CAME-vdc-aside", 1)?;

    let taken: MachineSnapshot = fixture.ask(&["snapshot", "web", "monday"])?;
    ensure!(taken.snapshots == ["web@monday", "data@monday", "side@monday"], "{taken:?}");
    ensure!(!taken.is_frozen && taken.warnings.len() == 1, "no agent answers: {taken:?}");
    let refused = fixture.refusal(&["snapshot", "web", "tuesday", "--freeze"])?;
    ensure!(refused == "not_supported", "no agent answers: {refused}");
    ensure!(fixture.refusal(&["snapshot", "web", "monday"])? == "already_exists", "it is there");

    fixture.daemon.kill()?;
    fixture.daemon.start_again()?;
    let before = fixture.console("web").matches("READ-vdc").count();
    fixture.wait_for_console("web", "READ-vdc", before + 3)?;

    let machine: Machine = fixture.ask(&["detach", "web", "data"])?;
    ensure!(machine.volumes == ["web", "side"], "{machine:?}");
    fixture.wait_for_console("web", "WENT-vdb", 1)?;
    ensure!(fixture.refusal(&["detach", "web", "data"])? == "not_found", "it is gone");
    let machine: Machine = fixture.ask(&["detach", "web", "side"])?;
    ensure!(machine.volumes == ["web"], "{machine:?}");
    ensure!(fixture.daemon.volume("side")?.users.is_empty(), "nobody uses it");
    let exports: Vec<Export> =
        serde_json::from_str(&fixture.daemon.memlane("--json export list")?)?;
    ensure!(exports.len() == 1 && exports[0].volume == "web", "{exports:?}");

    fixture.vm(&["kill", "web"]).check()?;
    // A stopped machine has the disk at its next start.
    let machine: Machine = fixture.ask(&["attach", "web", "data"])?;
    ensure!(machine.volumes == ["web", "data"], "{machine:?}");
    a_snapshot_of_a_long_name_is_a_disk_like_others(&fixture)?;
    fixture.vm(&["delete", "web"]).check()?;
    fixture.finish()
}

/// A snapshot whose name is too long for the path of a socket. Its socket has another name.
fn a_snapshot_of_a_long_name_is_a_disk_like_others(fixture: &Fixture) -> Result<()> {
    let volume = "v".repeat(63);
    let name = format!("{volume}@{}", "s".repeat(63));
    fixture.volume_with_text(&volume, "long")?;
    fixture.daemon.memlane(&format!("snapshot create {name}"))?;
    let machine: Machine = fixture.ask(&["attach", "web", &name])?;
    ensure!(machine.volumes == ["web", "data", &*name], "{machine:?}");
    ensure!(fixture.refusal(&["attach", "web", &name])? == "in_use", "it is a disk already");
    let machine: Machine = fixture.ask(&["detach", "web", &name])?;
    ensure!(machine.volumes == ["web", "data"], "{machine:?}");
    let exports = fixture.daemon.memlane("--json export list")?;
    ensure!(!exports.contains(&name), "the export is left behind: {exports}");
    fixture.ask::<Machine>(&["attach", "web", &name])?;
    Ok(())
}
