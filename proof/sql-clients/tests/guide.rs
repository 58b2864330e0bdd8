//! The guide's commands and statements, in their order and unchanged, with a broker at the guide's
//! addresses in a network namespace of this test.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use kafka_clients::is_skipped;
use system::{Tool, check_for_panics, product_path};

const PROGRAMS: &[&str] = &["psql", "kcat", "unshare", "ip"];

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/sql.md");

const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Line endings of commands that need more than being run.
const UNTIL_ENDED: &str = "until Ctrl-C";
const OF_ANOTHER_SESSION: &str = "# its pid";

/// Script around the commands.
const AROUND: &str = r#"
set -eu
here=$1
ip link set lo up
trap 'code=$?; [ $code = 0 ] || tail -n 40 "$here/broker.log" >&2; exit $code' EXIT
until_true() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 600 ]
        sleep 0.1
    done
}
statements() {
    sh -c "$client -X -q -v ON_ERROR_STOP=1 -f -"
}
set -x
"#;

#[test]
fn the_guide_works_as_it_stands() -> Result<()> {
    if is_skipped(PROGRAMS) {
        return Ok(());
    }
    let guide = fs::read_to_string(GUIDE).with_context(|| format!("cannot read {GUIDE}"))?;
    let folder = tempfile::Builder::new().prefix("memlane-sql-guide-").tempdir()?;
    let path = folder.path().join("script");
    fs::write(&path, script(&guide)?)?;
    let programs = product_path("memlane").parent().map(Path::to_owned).unwrap_or_default();
    let search = std::env::var("PATH").unwrap_or_default();
    Tool::new(
        "unshare --user --map-root-user --net --mount --pid --fork --kill-child --mount-proc sh",
    )
    .arg(&path)
    .arg(folder.path())
    .env("PATH", &format!("{}:{search}:/usr/sbin:/sbin", programs.display()))
    .time_limit(TIME_LIMIT)
    .check()?;
    check_for_panics(&folder.path().join("broker.log"))
}

/// Returns the guide's `sh example` and `sql example` blocks as one script.
fn script(guide: &str) -> Result<String> {
    let mut script = AROUND.to_owned();
    let mut lines = guide.lines();
    while let Some(line) = lines.next() {
        let block: Vec<_> = match line {
            "```sh example" | "```sql example" => {
                lines.by_ref().take_while(|it| *it != "```").collect()
            }
            _ => continue,
        };
        match line {
            "```sh example" => block.iter().try_for_each(|it| put_command(&mut script, it))?,
            _ => put_statements(&mut script, &block.join("\n"))?,
        }
    }
    Ok(script)
}

fn put_command(script: &mut String, command: &str) -> Result<()> {
    if command.ends_with(OF_ANOTHER_SESSION) {
        return Ok(());
    }
    if command.starts_with("memlane-broker") {
        writeln!(script, "{command} >\"$here/broker.log\" 2>&1 &")?;
        writeln!(script, "until_true memlane topic list\nuntil_true memlane sql -c 'SELECT 1'")?;
    } else if command.starts_with("psql") {
        // The following statements are typed into this client.
        writeln!(script, "client='{command}'")?;
    } else if command.ends_with(UNTIL_ENDED) {
        let command = command.split('#').next().unwrap_or_default();
        writeln!(script, "{command} >\"$here/rows\" & rows=$!")?;
        writeln!(script, "until_true test -s \"$here/rows\"\nkill -INT $rows\nwait $rows || true")?;
    } else {
        writeln!(script, "{command}")?;
    }
    Ok(())
}

/// Appends all statements except those that never end.
fn put_statements(script: &mut String, statements: &str) -> Result<()> {
    let ends = |it: &&str| !it.trim_start().starts_with("SUBSCRIBE");
    let ending: Vec<_> = statements.split_inclusive(';').filter(ends).collect();
    writeln!(script, "statements <<'END'\n{}\nEND", ending.concat())?;
    Ok(())
}
