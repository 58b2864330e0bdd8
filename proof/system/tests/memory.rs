//! Memory of the daemon in addition to its pool.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::{Daemon, DaemonOptions, MemoryLimit, NbdClient, Random, Request, wait_for};

const MIB: u64 = 1 << 20;
const POOL_BYTES: u64 = 64 * MIB;
const CLIENT_COUNT: usize = 120;

/// Time limit for the daemon to notice that clients have disconnected.
const PATIENCE: Duration = Duration::from_secs(60);

/// Maximum memory of a daemon beyond its configuration.
const EXCESS_BYTES_MAX: u64 = 64 * MIB;

/// Clients of one volume each, with their contents.
struct Fixture {
    daemon: Daemon,
    clients: Vec<NbdClient>,
    contents: Vec<u8>,
    excess_bytes_max: u64,
}

impl Fixture {
    fn new() -> Result<Self> {
        let daemon = Daemon::start(DaemonOptions { pool_size: "64MiB", flags: "--no-fuse" })?;
        let mut contents = vec![0; 1 << 20];
        Random::new(1).fill(&mut contents);
        Ok(Self { daemon, clients: Vec::new(), contents, excess_bytes_max: 0 })
    }

    /// Connects another client with a separate volume. It stays connected.
    fn connect_another(&mut self) -> Result<()> {
        let volume = format!("v{}", self.clients.len());
        self.daemon.memlane(&format!("volume create {volume} --size 4MiB"))?;
        self.clients.push(NbdClient::connect(&self.daemon.nbd_socket(), &volume)?);
        Ok(())
    }

    /// Returns the daemon's memory of a kind counted by the kernel.
    fn bytes(&self, name: &str) -> Result<u64> {
        let id = self.daemon.id().context("the daemon does not run")?;
        let status = fs::read_to_string(format!("/proc/{id}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|it| it.trim().strip_suffix("kB")).context("no such line")?;
        Ok(kib.trim().parse::<u64>()? << 10)
    }

    /// Records the daemon's memory in addition to the pool.
    fn measure(&mut self) -> Result<()> {
        let shared = self.bytes("RssShmem:")?.saturating_sub(POOL_BYTES);
        let excess = self.bytes("RssAnon:")? + self.bytes("RssFile:")? + shared;
        self.excess_bytes_max = self.excess_bytes_max.max(excess);
        Ok(())
    }

    /// Performs a write and a read by one client.
    fn ask(&mut self, index: usize, length: u32) -> Result<()> {
        let data = self.contents[..length as usize].to_vec();
        let client = &mut self.clients[index];
        client.ask(&Request::Write { offset: 4096, data })?;
        let found = client.ask(&Request::Read { offset: 4096, length })?;
        ensure!(found == self.contents[..length as usize], "client {index} reads other data");
        self.measure()
    }

    /// Sends requests of all clients before any answer is read.
    fn read_at_once(&mut self, length: u32) -> Result<()> {
        for client in &mut self.clients {
            client.send(&Request::Read { offset: 4096, length })?;
        }
        for index in 0..self.clients.len() {
            self.measure()?;
            let reply = self.clients[index].receive()?;
            ensure!(reply.error == 0, "client {index} is told {}", reply.error);
            ensure!(reply.data == self.contents[..length as usize], "client {index}: other data");
        }
        Ok(())
    }
}

/// Goal: clients do not increase the daemon's memory beyond its limit, however long their requests
/// are.
/// Method: clients connect one after the other, each with a long request, and stay. Then all of
/// them send requests of two lengths, in turn and all together. The maximum counted by the kernel
/// is compared with the bound.
#[test]
fn many_clients_with_long_requests_take_little_memory_beside_the_pool() -> Result<()> {
    let mut fixture = Fixture::new()?;
    for index in 0..CLIENT_COUNT {
        fixture.connect_another()?;
        fixture.ask(index, 1 << 20)?;
    }
    for length in [128 << 10, 1 << 20] {
        for index in 0..CLIENT_COUNT {
            fixture.ask(index, length)?;
        }
        fixture.read_at_once(length)?;
    }
    let excess_mib = fixture.excess_bytes_max / MIB;
    ensure!(fixture.excess_bytes_max <= EXCESS_BYTES_MAX, "{excess_mib} MiB beside the pool");
    eprintln!("{CLIENT_COUNT} clients: {excess_mib} MiB beside the pool");
    drop(fixture.clients);
    fixture.daemon.finish()
}

/// Goal: memory freed by the daemon's threads is not retained.
/// Method: few clients, which may have large buffers, send many requests at once and disconnect,
/// and others follow. At the end the daemon has hardly more private memory than before.
#[test]
fn what_clients_needed_goes_back_to_the_kernel_when_they_have_gone() -> Result<()> {
    let mut fixture = Fixture::new()?;
    fixture.connect_another()?;
    fixture.ask(0, 1 << 20)?;
    fixture.clients.clear();
    let before = fixture.bytes("RssAnon:")?;
    let mut held = 0;
    for _ in 0..4 {
        for _ in 0..8 {
            fixture.clients.push(NbdClient::connect(&fixture.daemon.nbd_socket(), "v0")?);
        }
        fixture.read_at_once(1 << 20)?;
        held = held.max(fixture.bytes("RssAnon:")?);
        fixture.clients.clear();
    }
    ensure!(held > before + 4 * MIB, "the daemon needed memory for them: {before}, {held}");
    let kept_max = before + (held - before) / 4;
    wait_for("what clients needed to go back", PATIENCE, || {
        Ok(fixture.bytes("RssAnon:")? <= kept_max)
    })?;
    fixture.daemon.finish()
}

/// Less than a daemon needs besides its pool, as it reports.
const TOO_SMALL: u64 = 31 * MIB;

/// Goal: a daemon does not start if the kernel would kill it.
/// Method: a start in a real control group whose parent has too low a limit, and another one after
/// the limit is raised.
#[test]
fn a_start_below_a_control_group_that_allows_too_little_is_refused_with_the_figures() -> Result<()>
{
    let outer = match MemoryLimit::of(TOO_SMALL) {
        Ok(outer) => outer,
        Err(error) => {
            eprintln!("skipped: {error:#}");
            return Ok(());
        }
    };
    let inner = outer.inside(1 << 30)?;
    let mut daemon = Daemon::prepare("64MiB".to_owned(), "--no-fuse".to_owned())?;
    daemon.set_starter(inner.starter());
    let refused = daemon.start_again().expect_err("the parent allows too little").to_string();
    let named = format!("the control group {} with its limit of", outer.group().display());
    for part in ["not enough memory to start: 32.0 MiB needed", &named, "31.0 MiB has "] {
        ensure!(refused.contains(part), "it does not say {part:?}: {refused}");
    }
    outer.set(1 << 30)?;
    daemon.start_again()?;
    daemon.finish()
}
