//! Load of pgbench on a database, independent of the location of its files.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use crate::database::commits::Commits;
use crate::database::postgres::{Server, tempfile_folder};
use crate::interruption::Interruption;
use crate::process::Background;

const DATABASE: &str = "pgbench";
const END_TIME_LIMIT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// One run of pgbench.
pub struct Load {
    pub commits: Commits,
    /// Number of transactions counted by pgbench itself.
    pub transaction_count: usize,
    /// Mean duration of a transaction in nanoseconds, as measured by pgbench.
    pub latency_ns_mean: f64,
    /// Without connection time.
    pub transactions_per_s: f64,
}

/// Options of pgbench.
#[derive(Clone, Copy, Debug)]
pub struct Rush {
    pub clients: u32,
    pub duration: Duration,
}

/// Fills the tables of pgbench. `scale` is in units of 100,000 accounts, about 15 MiB.
pub fn fill(server: &Server, scale: u32) -> Result<()> {
    server.client("createdb").arg(DATABASE).check()?;
    let scale = scale.to_string();
    server.client("pgbench").args(["-i", "-q", "-s", &scale, DATABASE]).check()?;
    server.query(DATABASE, "CHECKPOINT")?;
    Ok(())
}

/// Runs pgbench. `in_the_middle` is called halfway.
pub fn run(
    server: &Server,
    rush: Rush,
    in_the_middle: impl FnOnce() -> Result<()>,
) -> Result<Load> {
    let folder = tempfile_folder()?;
    let result = run_in(&folder, server, rush, in_the_middle);
    fs::remove_dir_all(&folder).context("cannot remove the logs of pgbench")?;
    result
}

fn run_in(
    folder: &Path,
    server: &Server,
    rush: Rush,
    in_the_middle: impl FnOnce() -> Result<()>,
) -> Result<Load> {
    let output_path = folder.join("output");
    let output = fs::File::create(&output_path).context("cannot create a file for output")?;
    let logs = folder.join("logs");
    fs::create_dir(&logs).context("cannot create a folder for logs")?;
    rustix::fs::chmod(&logs, rustix::fs::Mode::from_raw_mode(0o777))
        .context("cannot open the folder for logs")?;
    let seconds = rush.duration.as_secs().to_string();
    let clients = rush.clients.to_string();
    let pgbench = server
        .client("pgbench")
        .args(["-n", "-c", &clients, "-j", "2", "-T", &seconds, "--log", "--log-prefix"])
        .arg(logs.join("commits"))
        .arg(DATABASE)
        .output_to(output)?;
    let middle = SystemTime::now() + rush.duration / 2;
    let mut pgbench = Background::start(pgbench)?;
    while SystemTime::now() < middle {
        ensure!(!Interruption::is_asked_for(), "interrupted during pgbench");
        if let Some(status) = pgbench.has_ended()? {
            let said = fs::read_to_string(&output_path).unwrap_or_default();
            anyhow::bail!("pgbench ended early with {status}: {said}");
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    in_the_middle()?;
    let ended = pgbench.finish(rush.duration + END_TIME_LIMIT);
    let said = fs::read_to_string(&output_path).context("cannot read what pgbench said")?;
    ended.with_context(|| format!("pgbench said: {said}"))?;
    ensure!(!said.contains("aborted"), "a client of pgbench gave up: {said}");
    let told = told_in(&said).with_context(|| format!("pgbench told too little: {said}"))?;
    Ok(Load {
        commits: Commits::read(&logs)?,
        transaction_count: told.transaction_count,
        latency_ns_mean: told.latency_ms_mean * 1e6,
        transactions_per_s: told.transactions_per_s,
    })
}

/// Checks that the database reflects exactly the acknowledged transactions.
pub fn check_books(server: &Server, transaction_count: usize) -> Result<()> {
    let tables = [
        "sum(abalance) FROM pgbench_accounts",
        "sum(tbalance) FROM pgbench_tellers",
        "sum(bbalance) FROM pgbench_branches",
        "sum(delta) FROM pgbench_history",
    ];
    let mut sums = Vec::new();
    for table in tables {
        sums.push(server.query(DATABASE, &format!("SELECT {table}"))?);
    }
    ensure!(sums.windows(2).all(|pair| pair[0] == pair[1]), "the books do not balance: {sums:?}");
    let counted = server.query(DATABASE, "SELECT count(*) FROM pgbench_history")?;
    let history_count: usize = counted.parse().context("a count is a number")?;
    ensure!(
        history_count == transaction_count,
        "{transaction_count} transactions were acknowledged, {history_count} are there"
    );
    Ok(())
}

/// Returns the time since the epoch, as in pgbench's logs.
pub fn now() -> Result<Duration> {
    SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")
}

/// Final report of pgbench.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told {
    pub transaction_count: usize,
    pub latency_ms_mean: f64,
    pub transactions_per_s: f64,
}

/// Parses the report. Returns `None` if a figure is missing.
pub fn told_in(said: &str) -> Option<Told> {
    let behind = |label: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(label));
        line?.split_whitespace().next()?.split('/').next()
    };
    Some(Told {
        transaction_count: behind("number of transactions actually processed:")?.parse().ok()?,
        latency_ms_mean: behind("latency average =")?.parse().ok()?,
        transactions_per_s: behind("tps =")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_says_is_read() {
        let said = "scaling factor: 30\nnumber of transactions actually processed: 4711\n\
                    latency average = 0.950 ms\ntps = 4210.5 (without initial connection time)\n";
        let told =
            Told { transaction_count: 4711, latency_ms_mean: 0.95, transactions_per_s: 4210.5 };
        assert_eq!(told_in(said), Some(told));
        assert_eq!(told_in("pgbench: error"), None);
    }
}
