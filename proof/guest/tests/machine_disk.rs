//! A virtual machine whose disk, and whose root, is a volume over vhost-user-blk.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use guest::{Guest, GuestOptions, Image, ImageContents};
use system::{Daemon, DaemonOptions, wait_for};

const TIME_LIMIT: Duration = Duration::from_secs(240);

const PROGRAMS: &[&str] = &["fio", "mkfs.ext4", "e2fsck"];

/// Repeatedly writes and verifies a file, for longer than the daemon is down.
const FIO: &str = "fio --name=v --filename=/var/tmp/load --direct=1 --ioengine=libaio --iodepth=8 \
                   --rw=randwrite --bs=4k --size=8M --time_based --runtime=8 --verify=crc32c \
                   --verify_fatal=1 --verify_backlog=64 --verify_state_save=0";

/// Copies the archive to a disk that can be a root file system.
const COPY: &str = "mkfs.ext4 -q /dev/vda && mount /dev/vda /mnt && \
                    cp -a /bin /etc /init /usr /lib* /mnt && \
                    mkdir /mnt/proc /mnt/sys /mnt/dev /mnt/tmp /mnt/run /mnt/mnt && \
                    umount /mnt && e2fsck -fn /dev/vda";

/// Kernel parameter for a root on the disk.
const ROOT_WORDS: &str = "rdinit=/etc/from-disk";

fn options(export: &api::Export) -> Result<GuestOptions> {
    let memory_mib = 768;
    let socket = export.socket.as_deref().context("the export is served")?;
    let memory = format!("memory-backend-memfd,id=mem,size={memory_mib}M,share=on");
    let qemu_words = [
        "-object".to_owned(),
        memory,
        "-machine".to_owned(),
        "memory-backend=mem".to_owned(),
        "-chardev".to_owned(),
        format!("socket,id=disk,path={socket},reconnect=1"),
        "-device".to_owned(),
        format!("vhost-user-blk-pci,chardev=disk,num-queues={}", export.queues),
    ];
    let small = GuestOptions::small(Vec::new());
    Ok(GuestOptions { memory_mib, qemu_words: qemu_words.to_vec(), ..small })
}

/// Returns the size of the guest's disk, as its kernel reports it.
fn disk_bytes(guest: &Guest) -> Result<u64> {
    let sectors = guest.check("cat /sys/block/vda/size", TIME_LIMIT)?;
    Ok(sectors.trim().parse::<u64>()? * 512)
}

#[test]
fn a_machine_boots_from_a_volume_and_works_through_a_kill_of_the_daemon() -> Result<()> {
    let contents = ImageContents { products: &[], programs: PROGRAMS, modules: &[] };
    let image = Image::build(contents)?;
    let mut daemon = Daemon::start(DaemonOptions { pool_size: "512MiB", flags: "--no-fuse" })?;
    daemon.memlane("volume create root --size 256MiB")?;
    let text = daemon.memlane("--json export vhost-user root --queues 2")?;
    let export: api::Export = serde_json::from_str(&text)?;

    let guest = Guest::boot(&image, &options(&export)?)?;
    guest.check(COPY, TIME_LIMIT)?;
    guest.power_off()?;

    let on_disk = GuestOptions { kernel_words: ROOT_WORDS, ..options(&export)? };
    let guest = Guest::boot(&image, &on_disk)?;
    let root = guest.check("grep ' / ' /proc/mounts", TIME_LIMIT)?;
    ensure!(root.starts_with("/dev/") && root.contains(" ext4 rw"), "the root is {root}");
    let serial = guest.check("cat /sys/block/vda/serial", TIME_LIMIT)?;
    ensure!(serial.starts_with("memlane-"), "the disk is called {serial:?}");
    let queues = guest.check("ls /sys/block/vda/mq", TIME_LIMIT)?;
    ensure!(queues.split_whitespace().count() == 2, "the disk has the queues {queues}");

    let load = guest.start(FIO)?;
    wait_for("the machine to write", TIME_LIMIT, || {
        let blocks = guest.run("[ $(stat -c %b /var/tmp/load) -gt 4096 ]", TIME_LIMIT)?;
        Ok(blocks.exit_code == Some(0))
    })?;
    daemon.kill()?;
    daemon.start_again()?;
    let output = load.wait(TIME_LIMIT)?;
    ensure!(output.exit_code == Some(0), "fio failed: {}{}", output.stdout, output.stderr);

    daemon.memlane("volume resize root --size 320MiB")?;
    wait_for("the machine to see the new size", TIME_LIMIT, || {
        Ok(disk_bytes(&guest)? == 320 << 20)
    })?;
    let complaints =
        guest.check("dmesg | grep -ciE 'i/o error|ext4-fs error' || true", TIME_LIMIT)?;
    ensure!(complaints.trim() == "0", "the machine's kernel complains {complaints} times");
    guest.check("sync; mount -o remount,ro / || true", TIME_LIMIT)?;
    guest.power_off()?;

    let guest = Guest::boot(&image, &options(&export)?)?;
    guest.check("e2fsck -fn /dev/vda", TIME_LIMIT)?;
    guest.power_off()?;
    wait_for("the machine to be gone", TIME_LIMIT, || {
        Ok(daemon.status()?.exports.vhost_user.connected == 0)
    })?;
    daemon.memlane("export delete root")?;
    daemon.finish()
}
