//! Compares a volume as an ublk device with the same daemon behind the kernel's NBD client,
//! alternately, in a guest. The guest's processor is emulated, so only ratios are meaningful.
//!
//! ```text
//! cargo build -p daemon -p cli -p guest && cargo run -p guest --example ublk_against_nbd
//! ```

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use guest::{Guest, GuestDaemon, GuestOptions, Image, ImageContents};
use serde_json::Value;

const TIME_LIMIT: Duration = Duration::from_secs(120);
const ROUND_COUNT: usize = 3;

const JOBS: [(&str, &str); 4] = [
    ("4K randread QD1", "--rw=randread --iodepth=1"),
    ("4K randwrite QD1", "--rw=randwrite --iodepth=1"),
    ("4K randread QD32", "--rw=randread --iodepth=32"),
    ("4K randwrite QD32", "--rw=randwrite --iodepth=32"),
];

const FIO: &str = "fio --name=m --direct=1 --ioengine=libaio --bs=4k --size=32M --time_based \
                   --runtime=1 --randrepeat=0 --norandommap --output-format=json";

fn main() -> Result<()> {
    let image = Image::build(ImageContents {
        products: &["memlaned", "memlane"],
        programs: &["fio"],
        modules: &["ublk_drv", "nbd"],
    })?;
    let guest = Guest::boot(&image, &GuestOptions::small(Vec::new()))?;
    let daemon = GuestDaemon::start(&guest, "--pool-size 256MiB")?;
    for name in ["u", "n"] {
        daemon.memlane(&format!("volume create {name} --size 32MiB"))?;
    }
    let ublk = daemon.memlane("attach u --as ublk")?;
    guest.check("guest-agent nbd connect 0 /run/memlane/nbd.sock n", TIME_LIMIT)?;
    let devices = [ublk.trim(), "/dev/nbd0"];
    for device in devices {
        guest.check(&format!("dd if=/dev/urandom of={device} bs=1M count=32"), TIME_LIMIT)?;
    }
    let mut text = String::new();
    for (name, flags) in JOBS {
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..ROUND_COUNT {
            for (rates, device) in rates.iter_mut().zip(devices) {
                rates.push(rate(&guest, &format!("{FIO} {flags} --filename={device}"))?);
            }
        }
        let [ublk, nbd] = rates.map(median);
        writeln!(text, "{name}: ublk {ublk:.0}/s, nbd {nbd:.0}/s, ratio {:.2}", ublk / nbd)?;
    }
    std::io::stdout().write_all(text.as_bytes())?;
    guest.check("guest-agent nbd disconnect 0", TIME_LIMIT)?;
    daemon.memlane("detach u")?;
    daemon.stop()?;
    guest.power_off()
}

/// Returns the number of requests per second.
fn rate(guest: &Guest, line: &str) -> Result<f64> {
    let said = guest.check(line, TIME_LIMIT)?;
    let start = said.find('{').context("fio reports")?;
    let report: Value = serde_json::from_str(&said[start..])?;
    let job = &report["jobs"][0];
    let of = |kind: &str| job[kind]["iops"].as_f64().unwrap_or_default();
    Ok(of("read") + of("write"))
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
