//! What is done with the database, the same wherever its files are.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use system::{Background, Interruption};

use crate::demo::commits::Commits;
use crate::demo::postgres::{Server, tempfile_folder};

const DATABASE: &str = "pgbench";
const SCALE: u32 = 30;
const CLIENTS: u32 = 4;
const END_TIME_LIMIT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// One run of pgbench.
pub(crate) struct Load {
    pub commits: Commits,
    /// What pgbench itself counted.
    pub transaction_count: usize,
}

/// Fills the tables of pgbench.
pub(crate) fn fill(server: &Server) -> Result<()> {
    server.client("createdb").arg(DATABASE).check()?;
    let scale = SCALE.to_string();
    server.client("pgbench").args(["-i", "-q", "-s", &scale, DATABASE]).check()?;
    server.query(DATABASE, "CHECKPOINT")?;
    Ok(())
}

/// Runs pgbench for `duration`; in the middle `in_the_middle` is done.
pub(crate) fn run(
    server: &Server,
    duration: Duration,
    in_the_middle: impl FnOnce() -> Result<()>,
) -> Result<Load> {
    let folder = tempfile_folder()?;
    let result = run_in(&folder, server, duration, in_the_middle);
    fs::remove_dir_all(&folder).context("cannot remove the logs of pgbench")?;
    result
}

fn run_in(
    folder: &Path,
    server: &Server,
    duration: Duration,
    in_the_middle: impl FnOnce() -> Result<()>,
) -> Result<Load> {
    let output_path = folder.join("output");
    let output = fs::File::create(&output_path).context("cannot create a file for output")?;
    let logs = folder.join("logs");
    fs::create_dir(&logs).context("cannot create a folder for logs")?;
    rustix::fs::chmod(&logs, rustix::fs::Mode::from_raw_mode(0o777))
        .context("cannot open the folder for logs")?;
    let seconds = duration.as_secs().to_string();
    let clients = CLIENTS.to_string();
    let pgbench = server
        .client("pgbench")
        .args(["-n", "-c", &clients, "-j", "2", "-T", &seconds, "--log", "--log-prefix"])
        .arg(logs.join("commits"))
        .arg(DATABASE)
        .output_to(output)?;
    let middle = SystemTime::now() + duration / 2;
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
    let ended = pgbench.finish(duration + END_TIME_LIMIT);
    let said = fs::read_to_string(&output_path).context("cannot read what pgbench said")?;
    ended.with_context(|| format!("pgbench said: {said}"))?;
    ensure!(!said.contains("aborted"), "a client of pgbench gave up: {said}");
    let transaction_count = count_in(&said).with_context(|| format!("no count in {said}"))?;
    Ok(Load { commits: Commits::read(&logs)?, transaction_count })
}

/// The database as a whole is what the acknowledged transactions made of it.
pub(crate) fn check_books(server: &Server, transaction_count: usize) -> Result<()> {
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

/// The time since the epoch, as pgbench logs it.
pub(crate) fn now() -> Result<Duration> {
    SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")
}

fn count_in(said: &str) -> Option<usize> {
    let line = said.lines().find(|line| line.contains("transactions actually processed"))?;
    line.rsplit(' ').next()?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_transactions_is_read_from_what_pgbench_says() {
        let said = "scaling factor: 30\nnumber of transactions actually processed: 4711\n";
        assert_eq!(count_in(said), Some(4711));
        assert_eq!(count_in("pgbench: error"), None);
    }
}
