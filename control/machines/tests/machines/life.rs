//! Machines from their making to their end.

use anyhow::{Result, ensure};
use api::{Machine, MachineState, MachinesCreated};
use system::wait_for;

use crate::site::{FROM_SCRIPT, PLAIN, Site, TIME_LIMIT, lacks};

/// Writes blocks and reads them back past the guest's cache, again and again; ends when the power
/// button is pressed.
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

fn state(site: &Site, name: &str) -> Result<MachineState> {
    Ok(site.ask::<Machine>(&["show", name])?.state)
}

fn rounds(site: &Site, name: &str) -> usize {
    site.console(name).matches("ROUND-").count()
}

#[test]
fn a_machine_works_on_a_clone_through_a_kill_of_the_daemon() -> Result<()> {
    if lacks(&["libvirtd"]) {
        return Ok(());
    }
    let mut site = Site::start(PLAIN)?;
    site.volume_with_text("golden", SCRIPT)?;
    site.daemon.memlane("snapshot create golden@v1")?;
    let words = [&["create", "web", "--clone", "golden@v1", "--start"], FROM_SCRIPT].concat();
    let made: MachinesCreated = site.ask(&words)?;
    ensure!(made.machines.len() == 1 && made.machines[0].is_own, "{made:?}");
    ensure!(made.machines[0].volumes == ["web"], "{made:?}");
    ensure!(made.warnings.iter().any(|it| it.contains("emulated")), "{made:?}");
    site.wait_for_console("web", "DISK-32768", 1)?;
    site.wait_for_console("web", "ROUND-", 2)?;

    site.daemon.kill()?;
    site.daemon.start_again()?;
    let before = rounds(&site, "web");
    site.wait_for_console("web", "ROUND-", before + 3)?;
    ensure!(!site.console("web").contains("BROKEN"), "{}", site.console("web"));

    ensure!(site.refusal(&["delete", "web"])? == "in_use", "it runs");
    ensure!(site.refusal(&["start", "web"])? == "busy", "it runs already");
    site.vm(&["stop", "web"]).check()?;
    site.wait_for_console("web", "POWER-BUTTON", 1)?;
    wait_for(
        "the machine to be off",
        TIME_LIMIT,
        || Ok(state(&site, "web")? == MachineState::Off),
    )?;

    site.vm(&["start", "web"]).check()?;
    // Its log begins anew.
    site.wait_for_console("web", "DISK-32768", 1)?;
    let killed: Vec<Machine> = site.ask(&["kill", "web"])?;
    ensure!(killed[0].state == MachineState::Off, "{killed:?}");
    site.vm(&["delete", "web"]).check()?;
    ensure!(site.daemon.volume("web").is_ok(), "the volume stays");
    ensure!(!site.has_console("web"), "its console's log goes");
    site.finish()
}

#[test]
fn several_machines_are_made_at_once_or_none() -> Result<()> {
    if lacks(&["libvirtd"]) {
        return Ok(());
    }
    let site = Site::start(PLAIN)?;
    site.volume_with_text("golden", SCRIPT)?;
    let create = |name: &'static str, source: &'static str, count: &'static str| {
        [&["create", name, "--clone", source, "--count", count], FROM_SCRIPT].concat()
    };
    let made: MachinesCreated = site.ask(&create("node", "golden", "5"))?;
    ensure!(made.machines.len() == 5, "{made:?}");
    ensure!(site.daemon.volumes()?.len() == 6, "each has a clone");

    // The third volume of the name is there, so that the first two are taken back.
    site.daemon.memlane("volume create taken-3 --size 16MiB")?;
    ensure!(site.refusal(&create("taken", "golden", "4"))? == "already_exists", "a volume is");
    ensure!(site.refusal(&create("node", "golden", "2"))? == "already_exists", "a machine is");
    ensure!(site.refusal(&create("new", "none", "2"))? == "not_found", "nothing to clone");
    let machines: Vec<Machine> = site.ask(&["list"])?;
    ensure!(machines.len() == 5 && site.daemon.volumes()?.len() == 7, "{machines:?}");

    let names = ["node-1", "node-2", "node-3", "node-4", "node-5"];
    site.vm(&[&["delete", "--with-volumes"][..], &names[..]].concat()).check()?;
    ensure!(site.ask::<Vec<Machine>>(&["list"])?.is_empty(), "all are gone");
    ensure!(site.daemon.volumes()?.len() == 2, "their volumes too");
    site.finish()
}

#[test]
fn machines_of_others_are_listed_and_not_deleted() -> Result<()> {
    if lacks(&["libvirtd", "virsh"]) {
        return Ok(());
    }
    let site = Site::start(PLAIN)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("foreign.xml");
    std::fs::write(&file, FOREIGN)?;
    site.virsh(&format!("define {}", file.display()))?;
    let machines: Vec<Machine> = site.ask(&["list"])?;
    ensure!(machines.len() == 1 && !machines[0].is_own, "{machines:?}");
    ensure!(machines[0].memory_bytes == 64 << 20 && machines[0].cpus == 1, "{machines:?}");
    ensure!(site.refusal(&["delete", "foreign"])? == "not_supported", "it is not ours");
    ensure!(site.refusal(&["show", "none"])? == "not_found", "there is none");
    site.vm(&["start", "foreign"]).check()?;
    ensure!(state(&site, "foreign")? == MachineState::Running, "it was started");
    site.vm(&["kill", "foreign"]).check()?;
    site.virsh("undefine foreign")?;
    site.finish()
}
