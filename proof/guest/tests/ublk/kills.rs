//! The daemon is killed again and again while devices are written and verified: nobody sees an
//! error, and nothing is lost.

use anyhow::{Context, Result, ensure};
use guest::{Guest, GuestDaemon, GuestProcess};
use system::{Random, seed};

use crate::fixture::{DAEMON_FLAGS, TIME_LIMIT, attached, boot, no_request_failed};

const KILLS_DEFAULT: u64 = 8;

/// After so many kills the test says how far it is.
const KILLS_TOLD: u64 = 50;

/// Requests between a daemon's start and its end: at least, and that many more at most.
const REQUESTS_MIN: u64 = 20;
const REQUESTS_MORE_MAX: u64 = 200;

/// Requests that the kernel has handed out and got no answer to as the daemon is killed, at least.
const IN_FLIGHT_MIN: u64 = 4;

/// Writes and verifies for as long as it is left to.
const LOAD: &str = "while ! [ -e /tmp/stop ]; do fio --name=k --direct=1 --ioengine=libaio \
                    --bs=4k --size=4M --rw=randwrite --verify=crc32c --verify_fatal=1 \
                    --verify_state_save=0";

#[test]
fn devices_live_through_kills_of_the_daemon_under_load() -> Result<()> {
    let seed = seed()?;
    eprintln!("replay: MEMLANE_SEED={seed} cargo test -p guest --test ublk devices_live");
    let kill_count = match std::env::var("MEMLANE_GUEST_KILLS") {
        Ok(text) => text.parse()?,
        Err(_) => KILLS_DEFAULT,
    };
    let mut random = Random::new(seed);
    let guest = boot()?;
    let mut daemon = GuestDaemon::start(&guest, DAEMON_FLAGS)?;
    let deep = attached(&daemon, "deep", "--size 32MiB")?;
    let flushed = attached(&daemon, "flushed", "--size 32MiB --durability journal")?;
    let mut loads = [
        load(&guest, &deep, "--iodepth=32 --numjobs=2 --offset_increment=8M")?,
        load(&guest, &flushed, "--iodepth=4 --fdatasync=16")?,
    ];
    let mut in_flight = Vec::new();
    for kill in 0..kill_count {
        let busy = until_busy(&deep, REQUESTS_MIN + random.below(REQUESTS_MORE_MAX));
        let killed = daemon.kill_behind(&busy, TIME_LIMIT);
        check_loads(&mut loads)?;
        let counted = killed.with_context(|| format!("after {kill} kills"))?;
        in_flight.push(counted.trim().parse::<u64>()?);
        daemon = GuestDaemon::start(&guest, DAEMON_FLAGS)?;
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
    no_request_failed(&guest)?;
    for name in ["deep", "flushed"] {
        daemon.memlane(&format!("detach {name}"))?;
    }
    let requests = daemon.log_end();
    ensure!(!requests.contains("ERROR"), "the daemon complains: {requests}");
    daemon.stop()?;
    guest.power_off()
}

/// A line for the guest's shell that ends when the device has completed so many requests more, and
/// has enough in flight. Prints how many these are.
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
    guest.start(&format!(
        "{LOAD} {flags} --filename={device} >/tmp/load 2>&1 || {{ cat /tmp/load; exit 1; }}; done"
    ))
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
