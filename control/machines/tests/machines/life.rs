//! Life cycle of machines.

use std::fs;

use anyhow::{Context, Result, ensure};
use api::{Machine, MachineState, MachinesCreated};
use system::wait_for;

use crate::fixture::{FROM_SCRIPT, Fixture, PLAIN, TIME_LIMIT, lacks};

/// Writes blocks and reads them back past the guest's cache, repeatedly, until the power button is
/// pressed.
const SCRIPT: &str = r#"
for input in /dev/input/event*; do
    (head -c 24 $input >/tmp/pressed && echo POWER-BUTTON >/dev/console && poweroff -f) &
done
cd /tmp
echo "DISK-$(cat /sys/block/vda/size)" >/dev/console
number=0
while :; do
    number=$((number + 1))
    yes "$number" | head -c 65536 >wanted
    dd if=wanted of=/dev/vda bs=4096 seek=16 conv=fsync 2>/tmp/messages || echo BROKEN >/dev/console
    echo 3 >/proc/sys/vm/drop_caches
    dd if=/dev/vda of=seen bs=4096 skip=16 count=16 2>/tmp/messages || echo BROKEN >/dev/console
    cmp wanted seen && echo "ROUND-$number" >/dev/console || echo BROKEN >/dev/console
    usleep 100000
done
"#;

const FOREIGN: &str = "<domain type='qemu'><name>foreign</name><memory unit='MiB'>64</memory>\
                       <os><type machine='q35'>hvm</type></os></domain>";

fn state(fixture: &Fixture, name: &str) -> Result<MachineState> {
    Ok(fixture.ask::<Machine>(&["show", name])?.state)
}

fn rounds(fixture: &Fixture, name: &str) -> usize {
    fixture.console(name).matches("ROUND-").count()
}

#[test]
fn a_machine_works_on_a_clone_through_a_kill_of_the_daemon() -> Result<()> {
    if lacks(&["libvirtd"]) {
        return Ok(());
    }
    let mut fixture = Fixture::start(PLAIN)?;
    fixture.volume_with_text("golden", SCRIPT)?;
    fixture.daemon.memlane("snapshot create golden@v1")?;
    let words = [&["create", "web", "--clone", "golden@v1", "--start"], FROM_SCRIPT].concat();
    let made: MachinesCreated = fixture.ask(&words)?;
    ensure!(made.machines.len() == 1 && made.machines[0].is_own, "{made:?}");
    ensure!(made.machines[0].volumes == ["web"], "{made:?}");
    ensure!(made.warnings.iter().any(|it| it.contains("emulated")), "{made:?}");
    fixture.wait_for_console("web", "DISK-32768", 1)?;
    fixture.wait_for_console("web", "ROUND-", 2)?;

    fixture.daemon.kill()?;
    fixture.daemon.start_again()?;
    let before = rounds(&fixture, "web");
    fixture.wait_for_console("web", "ROUND-", before + 3)?;
    ensure!(!fixture.console("web").contains("BROKEN"), "{}", fixture.console("web"));

    ensure!(fixture.refusal(&["delete", "web"])? == "in_use", "it runs");
    ensure!(fixture.refusal(&["start", "web"])? == "busy", "it runs already");
    fixture.vm(&["stop", "web"]).check()?;
    fixture.wait_for_console("web", "POWER-BUTTON", 1)?;
    wait_for("the machine to be off", TIME_LIMIT, || {
        Ok(state(&fixture, "web")? == MachineState::Off)
    })?;

    fixture.vm(&["start", "web"]).check()?;
    // The console log starts anew.
    fixture.wait_for_console("web", "DISK-32768", 1)?;
    let killed: Vec<Machine> = fixture.ask(&["kill", "web"])?;
    ensure!(killed[0].state == MachineState::Off, "{killed:?}");
    fixture.vm(&["delete", "web"]).check()?;
    ensure!(fixture.daemon.volume("web").is_ok(), "the volume stays");
    ensure!(!fixture.has_console("web"), "its console's log goes");
    fixture.finish()
}

#[test]
fn several_machines_are_made_at_once_or_none() -> Result<()> {
    if lacks(&["libvirtd"]) {
        return Ok(());
    }
    let fixture = Fixture::start(PLAIN)?;
    fixture.volume_with_text("golden", SCRIPT)?;
    let create = |name: &'static str, source: &'static str, count: &'static str| {
        [&["create", name, "--clone", source, "--count", count], FROM_SCRIPT].concat()
    };
    let made: MachinesCreated = fixture.ask(&create("node", "golden", "5"))?;
    ensure!(made.machines.len() == 5, "{made:?}");
    ensure!(fixture.daemon.volumes()?.len() == 6, "each has a clone");

    // The third volume name is taken, so the first two clones are undone.
    fixture.daemon.memlane("volume create taken-3 --size 16MiB")?;
    ensure!(fixture.refusal(&create("taken", "golden", "4"))? == "already_exists", "a volume is");
    ensure!(fixture.refusal(&create("node", "golden", "2"))? == "already_exists", "a machine is");
    ensure!(fixture.refusal(&create("new", "none", "2"))? == "not_found", "nothing to clone");
    let user_data = fixture.folder().join("user-data");
    fs::write(&user_data, "hostname: web\n")?;
    let user_data = user_data.to_str().context("the path is text")?;
    let odd = [&create("odd", "golden", "2")[..], &["--user-data", user_data]].concat();
    ensure!(fixture.refusal(&odd)? == "invalid_field", "cloud-init would not read it");
    let machines: Vec<Machine> = fixture.ask(&["list"])?;
    ensure!(machines.len() == 5 && fixture.daemon.volumes()?.len() == 7, "{machines:?}");

    let names = ["node-1", "node-2", "node-3", "node-4", "node-5"];
    fixture.vm(&[&["delete", "--with-volumes"][..], &names[..]].concat()).check()?;
    ensure!(fixture.ask::<Vec<Machine>>(&["list"])?.is_empty(), "all are gone");
    ensure!(fixture.daemon.volumes()?.len() == 2, "their volumes too");
    fixture.finish()
}

#[test]
fn machines_of_others_are_listed_and_not_deleted() -> Result<()> {
    if lacks(&["libvirtd", "virsh"]) {
        return Ok(());
    }
    let fixture = Fixture::start(PLAIN)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("foreign.xml");
    std::fs::write(&file, FOREIGN)?;
    fixture.virsh(&format!("define {}", file.display()))?;
    let machines: Vec<Machine> = fixture.ask(&["list"])?;
    ensure!(machines.len() == 1 && !machines[0].is_own, "{machines:?}");
    ensure!(machines[0].memory_bytes == 64 << 20 && machines[0].cpus == 1, "{machines:?}");
    ensure!(fixture.refusal(&["delete", "foreign"])? == "not_supported", "it is not ours");
    ensure!(fixture.refusal(&["show", "none"])? == "not_found", "there is none");
    fixture.vm(&["start", "foreign"]).check()?;
    ensure!(state(&fixture, "foreign")? == MachineState::Running, "it was started");
    fixture.vm(&["kill", "foreign"]).check()?;
    fixture.virsh("undefine foreign")?;
    fixture.finish()
}
