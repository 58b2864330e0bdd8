//! Tests of `memlane-bench advise` on a PostgreSQL under load.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use system::database::{Postgres, Server};
use system::{Ability, Tool, missing};

fn advise(words: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memlane-bench"));
    command.arg("advise").args(words).output().context("the program starts")
}

fn told(words: &[&str]) -> Result<Value> {
    let output = advise(&[words, &["--json", "--sample-mib=8"]].concat())?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).with_context(|| format!("{text:?} is no JSON"))
}

fn missing_here() -> Option<String> {
    missing(&[Ability::BlockDevices, Ability::Program("setpriv")])
        .or_else(|| Postgres::find().err().map(|error| format!("{error:#}")))
}

/// Starts a server that has written, synced and sorted.
fn busy_server(folder: &Path) -> Result<Server> {
    Tool::new("chmod 755").arg(folder).check()?;
    let place = folder.join("postgres");
    std::fs::create_dir(&place)?;
    let server = Server::create(&Postgres::find()?, &place)?;
    server.query(
        "postgres",
        "CREATE TABLE words AS SELECT number, repeat('the same words ', 20) AS text \
         FROM generate_series(1, 200000) AS number",
    )?;
    for number in 0..5 {
        server.query("postgres", &format!("INSERT INTO words VALUES ({number}, 'new')"))?;
    }
    let sort = "SET work_mem = '64kB'; SELECT count(*) FROM \
                (SELECT text, number FROM words ORDER BY text, number DESC OFFSET 1) AS sorted";
    server.query("postgres", sort)?;
    server.query("postgres", "CHECKPOINT")?;
    Ok(server)
}

fn number(value: &Value, name: &str) -> Result<f64> {
    value[name].as_f64().with_context(|| format!("no {name} in {value}"))
}

#[test]
fn a_running_server_is_asked_and_its_files_are_sampled() -> Result<()> {
    if let Some(reason) = missing_here() {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let folder = tempfile::tempdir_in("/var/tmp")?;
    let server = busy_server(folder.path())?;
    let by_folder = told(&[&*server.data().to_string_lossy()])?;
    let words = format!("host={} user=postgres dbname=postgres", server.sockets().display());
    let by_connection = told(&["--connection", &words])?;
    for found in [&by_folder, &by_connection] {
        let advice = found["advice"].as_array().context("there is advice")?;
        let [whole, logs, temporary] = &advice[..] else { panic!("{found}") };
        for share in ["memory_share", "write_share", "sync_share"] {
            assert_eq!(number(whole, share)?, 1.0, "{share}");
            for part in [logs, temporary] {
                ensure!((0.0..1.0).contains(&number(part, share)?), "{share} of {part}");
            }
        }
        // Each statement was a separate commit, and the sort used temporary files.
        ensure!(number(logs, "sync_share")? > 0.0 && number(logs, "write_share")? > 0.0, "{logs}");
        ensure!(number(temporary, "write_share")? > 0.0, "{temporary}");
        assert_eq!(number(temporary, "sync_share")?, 0.0);
        ensure!(number(&found["parts"]["data"], "reduction")? > 1.3, "text repeats: {found}");
        ensure!(number(whole, "memory_bytes")? < number(whole, "bytes")?, "{whole}");
        ensure!(number(found, "sampled_bytes")? > 0.0, "nothing was read");
    }
    // The command changed nothing.
    assert_eq!(server.query("postgres", "SELECT count(*) FROM words")?, "200005");
    let text = advise(&[&*server.data().to_string_lossy()])?;
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for words in ["whole database", "logs only:", "% of the syncs for", "Nothing was moved"] {
        ensure!(text.contains(words), "{words:?} is not in {text}");
    }
    Ok(())
}

#[test]
fn what_is_no_running_server_is_refused_with_its_reason() -> Result<()> {
    let empty = tempfile::tempdir()?;
    let folder = empty.path().to_string_lossy().into_owned();
    for (words, reason) in [
        (vec![&*folder], "not a PostgreSQL data directory"),
        (vec!["--connection", "host=/nowhere user=postgres"], "cannot connect"),
        (vec!["--connection", "port=many"], "invalid connection string"),
        (vec![], "PGDATA"),
        (vec![&*folder, "--connection", "host=/nowhere"], "cannot be used with"),
        (vec![&*folder, "--sample-mib", "0"], "--sample-mib"),
    ] {
        let output = advise(&words)?;
        ensure!(!output.status.success(), "{words:?} is accepted");
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(text.contains(reason), "{words:?}: {text}");
    }
    Ok(())
}
