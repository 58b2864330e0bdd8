//! Snapshots of a guest whose file systems are frozen by its agent.

use std::fs::File;

use anyhow::{Result, ensure};
use api::{MachineSnapshot, MachinesCreated};
use guest::ImageContents;
use system::{NbdClient, Request, Tool, wait_for};

use crate::fixture::{FROM_SCRIPT, Fixture, TIME_LIMIT, lacks};

const CONTENTS: ImageContents =
    ImageContents { products: &[], programs: &["qemu-ga"], modules: &["virtio_console", "ext4"] };

/// Runs the agent, and writes to a file system continuously.
const SCRIPT: &str = r#"
mount -t ext4 /dev/vdb /mnt && echo MOUNTED >/dev/console
for name in /sys/class/virtio-ports/*/name; do
    grep -q org.qemu.guest_agent.0 $name && port=$(basename $(dirname $name))
done
qemu-ga -m virtio-serial -p /dev/$port -t /tmp -f /tmp/agent.pid >/dev/console 2>&1 &
number=0
while :; do
    number=$((number + 1))
    echo $number >/mnt/number
    echo "WROTE-$number" >/dev/console
    usleep 50000
done
"#;

const DISK_BYTES: u64 = 32 << 20;

/// `s_feature_incompat` in the ext4 superblock, and its flag `needs_recovery` (journal replay
/// required).
const FEATURES_OFFSET: usize = 0x60;
const NEEDS_RECOVERY: u8 = 4;
const SUPERBLOCK_OFFSET: usize = 1024;

fn needs_recovery(fixture: &Fixture, volume: &str) -> Result<bool> {
    let mut client = NbdClient::connect(&fixture.daemon.nbd_socket(), volume)?;
    let block = client.ask(&Request::Read { offset: 0, length: 4096 })?;
    Ok(block[SUPERBLOCK_OFFSET + FEATURES_OFFSET] & NEEDS_RECOVERY != 0)
}

#[test]
fn a_frozen_guests_file_systems_need_no_recovery() -> Result<()> {
    if lacks(&["libvirtd", "qemu-ga", "mkfs.ext4", "nbdcopy"]) {
        return Ok(());
    }
    let fixture = Fixture::start(CONTENTS)?;
    fixture.volume_with_text("web", SCRIPT)?;
    let file = fixture.folder().join("ext4");
    File::create(&file)?.set_len(DISK_BYTES)?;
    Tool::new("mkfs.ext4 -q -F").arg(&file).check()?;
    fixture.daemon.memlane("volume create data --size 32MiB")?;
    Tool::new("nbdcopy").arg(&file).arg(fixture.daemon.nbd_uri("data")).check()?;
    let _: MachinesCreated =
        fixture.ask(&[&["create", "web", "--volume", "web"], FROM_SCRIPT].concat())?;
    fixture.vm(&["attach", "web", "data"]).check()?;
    fixture.vm(&["start", "web"]).check()?;
    fixture.wait_for_console("web", "MOUNTED", 1)?;
    fixture.wait_for_console("web", "WROTE-3\r", 1)?;

    let mut number = 0;
    let mut taken = None;
    wait_for("the agent to freeze the guest", TIME_LIMIT, || {
        number += 1;
        let name = format!("frozen-{number}");
        taken = fixture.ask::<MachineSnapshot>(&["snapshot", "web", &name, "--freeze"]).ok();
        Ok(taken.is_some())
    })?;
    let taken = taken.expect("it was waited for");
    ensure!(taken.is_frozen && taken.warnings.is_empty(), "{taken:?}");
    ensure!(!needs_recovery(&fixture, &format!("data@frozen-{number}"))?, "it was frozen");
    ensure!(needs_recovery(&fixture, "data")?, "it is in use");
    let written = fixture.console("web").matches("WROTE-").count();
    fixture.wait_for_console("web", "WROTE-", written + 3)?;

    fixture.vm(&["kill", "web"]).check()?;
    fixture.vm(&["delete", "web"]).check()?;
    fixture.finish()
}
