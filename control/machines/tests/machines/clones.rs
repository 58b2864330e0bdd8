//! Many machines from one template.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use api::MachinesCreated;
use guest::MachinesHost;
use system::{NbdClient, Request};

use crate::fixture::{FROM_SCRIPT, Fixture, PLAIN, lacks};

const COUNT: u32 = 20;

/// Number of machines that are booted. An emulated guest takes seconds of CPU time.
const BOOTED_VARIABLE: &str = "MEMLANE_BOOTED_CLONES";
const BOOTED: usize = 2;

/// Script of each guest: boots as far as a login prompt.
const SCRIPT: &str = "echo READY >/dev/console\nwhile true; do sleep 60; done\n";

/// Size of the template, whose contents are incompressible.
const TEMPLATE_BYTES: usize = 64 << 20;
const WRITE_BYTES: usize = 1 << 20;

/// Limit on the memory of all disks, in percent of the template's memory.
const PERCENT_MAX: u64 = 110;

#[test]
fn machines_of_one_template_share_its_memory() -> Result<()> {
    if lacks(&["libvirtd"]) {
        return Ok(());
    }
    let booted = match std::env::var(BOOTED_VARIABLE) {
        Ok(count) => count.parse().context(BOOTED_VARIABLE)?,
        Err(_) => BOOTED,
    };
    let fixture = Fixture::start(PLAIN)?;
    let used_bytes = || Ok::<u64, anyhow::Error>(fixture.daemon.status()?.pool.used_bytes);
    let empty = used_bytes()?;
    fill(&fixture)?;
    let one = used_bytes()?.checked_sub(empty).context("the template takes memory")?;
    ensure!(one >= TEMPLATE_BYTES as u64, "the template is all there: {one}");
    fixture.daemon.memlane("snapshot create golden@v1")?;

    let count = COUNT.to_string();
    let words = ["create", "node", "--clone", "golden@v1", "--count", &count];
    let begin = Instant::now();
    let made: MachinesCreated = fixture.ask(&[&words[..], FROM_SCRIPT].concat())?;
    let seconds = begin.elapsed().as_secs_f64();
    ensure!(made.machines.len() == COUNT as usize, "{made:?}");
    let all = used_bytes()?.checked_sub(empty).context("they take memory")?;
    eprintln!(
        "measured: {COUNT} machines of one template made in {seconds:.2} s; their disks and it \
         take {:.3} times what it takes alone ({} MiB)",
        all as f64 / one as f64,
        one >> 20
    );
    ensure!(all * 100 <= one * PERCENT_MAX, "{all} of {one}");

    let names: Vec<_> = made.machines.iter().map(|machine| machine.name.as_str()).collect();
    boot(&fixture, &names[..booted.min(names.len())])?;
    fixture.vm(&[&["delete", "--with-volumes"][..], &names].concat()).check()?;
    fixture.finish()
}

fn boot(fixture: &Fixture, names: &[&str]) -> Result<()> {
    let begin = Instant::now();
    fixture.vm(&[&["start"][..], names].concat()).check()?;
    for name in names {
        fixture.wait_for_console(name, "READY", 1)?;
    }
    let (count, seconds) = (names.len(), begin.elapsed().as_secs_f64());
    eprintln!("measured: {count} of them booted in {seconds:.1} s");
    fixture.vm(&[&["kill"][..], names].concat()).check()?;
    Ok(())
}

/// Creates the template: pseudo-random bytes after the script.
fn fill(fixture: &Fixture) -> Result<()> {
    fixture.daemon.memlane("volume create golden --size 64MiB")?;
    let mut client = NbdClient::connect(&fixture.daemon.nbd_socket(), "golden")?;
    let mut random = system::Random::new(7);
    for piece in 0..TEMPLATE_BYTES / WRITE_BYTES {
        let mut data = vec![0; WRITE_BYTES];
        random.fill(&mut data);
        let offset = (piece * WRITE_BYTES) as u64;
        client.ask(&Request::Write { offset, data })?;
    }
    MachinesHost::write_text(&fixture.daemon, "golden", SCRIPT)
}
