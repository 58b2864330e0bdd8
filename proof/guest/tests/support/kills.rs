//! The daemon is killed repeatedly while devices are written and verified: users see no error, and
//! nothing is lost.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use guest::{Guest, GuestDaemon, GuestProcess};
use system::Random;

const TIME_LIMIT: Duration = Duration::from_secs(240);
const DAEMON_FLAGS: &str = "--pool-size 256MiB --journal-max-bytes 64MiB";

/// Number of kills between progress messages.
const KILLS_TOLD: u64 = 50;

/// Minimum number of requests between a daemon's start and its end, and range of the additional
/// ones.
const REQUESTS_MIN: u64 = 20;
const REQUESTS_MORE_MAX: u64 = 200;

/// Minimum number of requests in flight between the kernel and the daemon at a kill.
const IN_FLIGHT_MIN: u64 = 4;

/// Load that writes and verifies until it is stopped.
const LOAD: &str = "while ! [ -e /tmp/stop ]; do fio --name=k --direct=1 --ioengine=libaio \
                    --bs=4k --size=4M --rw=randwrite --verify=crc32c --verify_fatal=1 \
                    --verify_state_save=0";

/// Load of reads for which the kernel pins many pages of the daemon's memory.
const LONG_READS: &str = "while ! [ -e /tmp/stop ]; do fio --name=l --direct=1 --ioengine=libaio \
                          --bs=1M --size=16M --iodepth=4 --rw=read";

/// Reports the output of a load if it fails.
const REPORT: &str = ">/tmp/load.$$ 2>&1 || { cat /tmp/load.$$; exit 1; }; done";

/// Kills the daemon `MEMLANE_GUEST_KILLS` times, or `kill_count` times without that variable, while
/// one device of class `ram` is written with a deep queue, one of class `journal` with flushes, and
/// another one is read in long requests. `seed` determines the moments. Devices are attached as
/// `driver`.
pub(crate) fn check(guest: &Guest, driver: &str, kill_count: u64, seed: u64) -> Result<()> {
    let kill_count = match std::env::var("MEMLANE_GUEST_KILLS") {
        Ok(text) => text.parse()?,
        Err(_) => kill_count,
    };
    let mut random = Random::new(seed);
    let mut daemon = GuestDaemon::start(guest, DAEMON_FLAGS)?;
    let attached = |name: &str, flags: &str| -> Result<String> {
        daemon.memlane(&format!("volume create {name} --size 32MiB {flags}"))?;
        let device = daemon.memlane(&format!("attach {name} --as {driver}"))?;
        Ok(device.trim().to_owned())
    };
    let deep = attached("deep", "")?;
    let flushed = attached("flushed", "--durability journal")?;
    let long = attached("long", "")?;
    guest.check(&format!("dd if=/dev/urandom of={long} bs=1M count=16 conv=fsync"), TIME_LIMIT)?;
    let mut loads = [
        load(guest, &deep, "--iodepth=32 --numjobs=2 --offset_increment=8M")?,
        load(guest, &flushed, "--iodepth=4 --fdatasync=16")?,
        guest.start(&format!("{LONG_READS} --filename={long} {REPORT}"))?,
    ];
    let mut in_flight = Vec::new();
    for kill in 0..kill_count {
        let busy = until_busy(&deep, REQUESTS_MIN + random.below(REQUESTS_MORE_MAX));
        let killed = daemon.kill_behind(&busy, TIME_LIMIT);
        check_loads(&mut loads)?;
        let counted = killed.with_context(|| format!("after {kill} kills"))?;
        in_flight.push(counted.trim().parse::<u64>()?);
        daemon = GuestDaemon::start(guest, DAEMON_FLAGS)?;
        if (kill + 1).is_multiple_of(KILLS_TOLD) {
            eprintln!("{} of {kill_count} kills", kill + 1);
        }
    }
    eprintln!("measured: requests in flight as the daemon was killed: {in_flight:?}");
    guest.check("touch /tmp/stop", TIME_LIMIT)?;
    for load in loads {
        let ended = load.wait(TIME_LIMIT)?;
        ensure!(ended.exit_code == Some(0), "fio: {}{}", ended.stdout, ended.stderr);
    }
    let said = guest.run("dmesg | grep -E 'I/O error|Buffer I/O|WARNING|BUG'", TIME_LIMIT)?;
    ensure!(said.stdout.is_empty(), "the guest's kernel said: {}", said.stdout);
    for name in ["deep", "flushed", "long"] {
        daemon.memlane(&format!("detach {name}"))?;
    }
    let requests = daemon.log_end();
    ensure!(!requests.contains("ERROR"), "the daemon complains: {requests}");
    daemon.stop()
}

/// Returns a shell line for the guest that ends when the device has completed this many more
/// requests, and has enough in flight. It prints the number in flight.
fn until_busy(device: &str, requests: u64) -> String {
    let stat = format!("/sys/block/{}/stat", device.trim_start_matches("/dev/"));
    format!(
        "read -r reads _ _ _ writes _ <{stat}; goal=$((reads + writes + {requests})); \
         while read -r reads _ _ _ writes _ _ _ in_flight _ <{stat}; \
         [ $((reads + writes)) -lt $goal ] || [ $in_flight -lt {IN_FLIGHT_MIN} ]; \
         do usleep 10000; done; echo $in_flight"
    )
}

fn load(guest: &Guest, device: &str, flags: &str) -> Result<GuestProcess> {
    guest.start(&format!("{LOAD} {flags} --filename={device} {REPORT}"))
}

fn check_loads(loads: &mut [GuestProcess]) -> Result<()> {
    for load in loads {
        if let Some(code) = load.has_ended() {
            let said = String::from_utf8_lossy(&load.take_output()).into_owned();
            anyhow::bail!("fio ended with {code}: {said}");
        }
    }
    Ok(())
}
