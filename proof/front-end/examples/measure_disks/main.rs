//! Measures disks over vhost-user-blk beside each other, through the library `virtio-driver`.
//!
//! ```text
//! measure_disks serve SOCKET SIZE_MIB          an engine of its own with one exported volume
//! measure_disks compare NAME=SOCKET …          rounds over all sockets, in turn; prints medians
//! ```
//!
//! Both ends are processes of their own, as with the disks that they are compared with. The client
//! sleeps until it is told of answers, as a guest's driver does, and writes random bytes; the whole
//! disk is written before anything is measured.

mod client;
mod serve;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use client::{Client, Kind};

const ROUNDS: usize = 5;
const ROUND_TIME: Duration = Duration::from_millis(400);
const DEPTHS: [usize; 2] = [1, 32];

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", socket, size_mib] => serve::serve(Path::new(socket), size_mib.parse()?),
        ["compare", ref disks @ ..] => compare(disks),
        _ => bail!("usage: measure_disks serve SOCKET SIZE_MIB | compare NAME=SOCKET …"),
    }
}

fn compare(disks: &[&str]) -> Result<()> {
    let mut clients = Vec::new();
    for disk in disks {
        let (name, socket) = disk.split_once('=').context("a disk is NAME=SOCKET")?;
        let mut client = Client::connect(socket).with_context(|| format!("disk {name}"))?;
        client.fill()?;
        clients.push((name, client));
    }
    let mut out = std::io::stdout();
    for depth in DEPTHS {
        for kind in [Kind::Read, Kind::Write] {
            let mut rates = vec![Vec::new(); clients.len()];
            for _ in 0..ROUNDS {
                for (rates, (_, client)) in rates.iter_mut().zip(&mut clients) {
                    rates.push(client.run(kind, depth, ROUND_TIME)?);
                }
            }
            for (rates, (name, _)) in rates.iter_mut().zip(&clients) {
                rates.sort_by(f64::total_cmp);
                let (least, median, most) = (rates[0], rates[ROUNDS / 2], rates[ROUNDS - 1]);
                let latency_us = depth as f64 * 1e6 / median;
                writeln!(
                    out,
                    "{kind:?} QD{depth:<2} {name:<12} {median:>9.0} IOPS \
                     ({least:.0} to {most:.0}), {latency_us:.2} us"
                )?;
            }
        }
    }
    Ok(())
}
