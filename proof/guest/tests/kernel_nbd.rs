//! The kernel's NBD client on the daemon's socket, under Debian's kernels: it gets a new connection
//! each time the daemon was killed under load, and users see no error.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use guest::{Guest, GuestDaemon, GuestOptions, Image, ImageContents, Release};
use system::{Random, seed, wait_for};

const TIME_LIMIT: Duration = Duration::from_secs(240);
const DAEMON_FLAGS: &str = "--pool-size 128MiB --no-fuse";
const KILL_COUNT: u64 = 3;

/// Minimum number of requests between two kills, and maximum number of additional ones.
const REQUESTS_MIN: u64 = 50;
const REQUESTS_MORE_MAX: u64 = 500;

const DEVICE: &str = "/dev/nbd0";

const LOAD: &str = "while ! [ -e /tmp/stop ]; do fio --name=k --direct=1 --ioengine=libaio \
                    --bs=4k --size=4M --iodepth=16 --rw=randwrite --verify=crc32c \
                    --verify_fatal=1 --verify_state_save=0 --filename=/dev/nbd0 \
                    >/tmp/load 2>&1 || { cat /tmp/load; exit 1; }; done";

#[test]
fn the_kernels_client_goes_on_over_kills_with_a_new_connection() -> Result<()> {
    check_kills(Release::V6_12)
}

#[test]
fn the_client_of_kernel_6_1_goes_on_over_kills_with_a_new_connection() -> Result<()> {
    check_kills(Release::V6_1)
}

fn check_kills(release: Release) -> Result<()> {
    let seed = seed()?;
    eprintln!("replay: MEMLANE_SEED={seed} cargo test -p guest --test kernel_nbd");
    let mut random = Random::new(seed);
    let contents = ImageContents {
        products: &["memlaned", "memlane"],
        programs: &["fio", "mkfs.ext4", "e2fsck"],
        modules: &["nbd"],
    };
    let image = Image::build_for(release, contents)?;
    let guest = Guest::boot(&image, &GuestOptions::small(Vec::new()))?;
    let mut daemon = GuestDaemon::start(&guest, DAEMON_FLAGS)?;
    daemon.memlane("volume create v --size 32MiB")?;
    let ask = |what: &str| {
        let line = format!("guest-agent nbd {what} 0 /run/memlane/nbd.sock v");
        guest.check(&line, TIME_LIMIT).map(|_| ())
    };
    ask("connect")?;
    let mut load = guest.start(LOAD)?;
    for kill in 0..KILL_COUNT {
        let goal = completed(&guest)? + REQUESTS_MIN + random.below(REQUESTS_MORE_MAX);
        wait_for("the load to go on", TIME_LIMIT, || {
            let ended = load.has_ended();
            ensure!(ended.is_none(), "fio ended: {}", text(&load.take_output()));
            Ok(completed(&guest)? >= goal)
        })
        .with_context(|| format!("after {kill} kills"))?;
        daemon.kill()?;
        daemon = GuestDaemon::start(&guest, DAEMON_FLAGS)?;
        ask("reconnect")?;
    }
    guest.check("touch /tmp/stop", TIME_LIMIT)?;
    let ended = load.wait(TIME_LIMIT)?;
    ensure!(ended.exit_code == Some(0), "fio: {}{}", ended.stdout, ended.stderr);
    let files = format!(
        "mkfs.ext4 -q {DEVICE} && mount {DEVICE} /mnt && dd if=/dev/urandom \
                         of=/mnt/f bs=1M count=8 && umount /mnt && e2fsck -fn {DEVICE}"
    );
    guest.check(&files, TIME_LIMIT)?;
    guest.check("guest-agent nbd disconnect 0", TIME_LIMIT)?;
    let said = guest.run("dmesg | grep -E 'I/O error'", TIME_LIMIT)?;
    ensure!(said.stdout.is_empty(), "the guest's kernel said: {}", said.stdout);
    daemon.stop()?;
    guest.power_off()
}

/// Returns the number of requests that the device has completed.
fn completed(guest: &Guest) -> Result<u64> {
    let stat = guest.check("cat /sys/block/nbd0/stat", TIME_LIMIT)?;
    let numbers: Vec<u64> = stat.split_whitespace().flat_map(str::parse).collect();
    match numbers[..] {
        [reads, _, _, _, writes, ..] => Ok(reads + writes),
        _ => anyhow::bail!("the statistics of the device are {stat}"),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
