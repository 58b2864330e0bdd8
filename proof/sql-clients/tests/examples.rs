//! The programs of the folder `examples`, run as users run them, with a daemon or a broker.
//!
//! The first run takes longer: Go compiles its standard library.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_clients::{JavaClient, PythonClient, is_skipped};
use sql_clients::{Fixture, jdbc, python};
use system::{Daemon, DaemonOptions, Tool, free_address, product_path};

/// Time limit that allows Go to compile its standard library on the first run.
const GO_TIME_LIMIT: Duration = Duration::from_secs(300);

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(path)
}

fn daemon_with_volume() -> Result<Daemon> {
    let daemon = Daemon::start(DaemonOptions { pool_size: "64MiB", flags: "--no-fuse" })?;
    daemon.memlane("volume create db --size 16MiB")?;
    Ok(daemon)
}

fn ring_socket(daemon: &Daemon) -> PathBuf {
    daemon.run_dir().join("ring.sock")
}

#[track_caller]
fn check(printed: &str, expected: &[&str]) {
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}

fn append(daemon: &Daemon, line: &str) -> Result<String> {
    let program = product_path("examples/append_log");
    Tool::new("env").arg(program).arg(ring_socket(daemon)).args(["db", line]).check()
}

#[test]
fn the_log_on_a_volume_outlives_its_program_and_the_daemon() -> Result<()> {
    let mut daemon = daemon_with_volume()?;
    check(&append(&daemon, "one")?, &["one"]);
    daemon.kill()?;
    daemon.start_again()?;
    check(&append(&daemon, "two")?, &["one", "two"]);
    daemon.finish()
}

#[test]
fn the_checksum_of_a_volume_follows_its_bytes() -> Result<()> {
    if is_skipped(&["cc"]) {
        return Ok(());
    }
    let daemon = daemon_with_volume()?;
    let program = daemon.folder().join("checksum");
    let library = product_path("libmemlane.so");
    let libraries = library.parent().context("the library lies in a folder")?;
    let include = example("../clients/libmemlane/include");
    Tool::new("cc -std=c11 -Wall -Wextra -Werror -O2 -I")
        .arg(include)
        .arg(example("block/checksum.c"))
        .arg("-L")
        .arg(libraries)
        .args(["-lmemlane", "-o"])
        .arg(&program)
        .check()?;
    let sum = || {
        let path = libraries.to_string_lossy();
        let tool = Tool::new("env").arg(&program).arg(ring_socket(&daemon)).arg("db");
        tool.env("LD_LIBRARY_PATH", &path).check()
    };
    let written = append(&daemon, "one")?;
    let mut bytes = vec![0; 16 << 20];
    bytes[..8].copy_from_slice(&(written.len() as u64).to_le_bytes());
    bytes[4096..][..written.len()].copy_from_slice(written.as_bytes());
    let expected = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    check(&sum()?, &[&format!("{expected:016x}  db")]);
    daemon.finish()
}

#[test]
fn snapshots_are_rotated() -> Result<()> {
    if is_skipped(&["python3"]) {
        return Ok(());
    }
    let daemon = daemon_with_volume()?;
    daemon.memlane("snapshot create db@mine")?;
    let rotate = |volume: &str| {
        let tool = Tool::new("python3").arg(example("block/rotate_snapshots.py"));
        tool.arg(daemon.api_socket()).args([volume, "2"])
    };
    let first = rotate("db").check()?;
    rotate("db").check()?;
    let kept = rotate("db").check()?;
    ensure!(kept.lines().count() == 2 && !kept.contains(first.trim()), "{first}, {kept}");
    let listed = daemon.memlane("snapshot list db")?;
    ensure!(listed.contains("db@mine") && !listed.contains(first.trim()), "{listed}");
    let refused = rotate("nothing").run()?;
    ensure!(refused.exit_code == Some(1) && refused.stderr.contains("nothing"), "{refused:?}");
    daemon.finish()
}

#[test]
fn volumes_are_listed_by_their_memory() -> Result<()> {
    if is_skipped(&["go"]) {
        return Ok(());
    }
    let daemon = daemon_with_volume()?;
    daemon.memlane("volume create a-empty --size 16MiB")?;
    append(&daemon, "one")?;
    let printed = Tool::new("go run")
        .arg(example("block/usage.go"))
        .arg(daemon.api_socket())
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "-mod=mod")
        .env("CGO_ENABLED", "0")
        .env("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/go"))
        .time_limit(GO_TIME_LIMIT)
        .check()?;
    let names: Vec<_> = printed.lines().filter_map(|it| it.split(' ').next()).collect();
    ensure!(names == ["db", "a-empty"], "{printed}");
    daemon.finish()
}

#[test]
fn orders_are_transferred_exactly_once() -> Result<()> {
    if is_skipped(&["python3", "kcat"]) {
        return Ok(());
    }
    let fixture = Fixture::shared()?;
    let [source, target] = ["lines", "totals"].map(|it| fixture.topic(it));
    fixture.create_topic(&source, 3)?;
    fixture.create_topic(&target, 2)?;
    let order = |number| {
        let line = |quantity| format!("{{\"quantity\": {quantity}, \"price\": 2}}");
        format!("o{number}:{{\"lines\": [{}, {}]}}", line(number), line(1))
    };
    fixture.produce(&source, &(0..250).map(order).collect::<Vec<_>>())?;
    let script = example("log/transfer.py");
    let transfer = || {
        let tool = PythonClient::fetched()?.program(&script);
        fixture.broker().check(tool.args([&fixture.broker().address(), &source, &target]))
    };
    check(&transfer()?, &["250 orders"]);
    check(&transfer()?, &["0 orders"]);
    let sum = format!("SELECT count(*), sum((value->>'total')::bigint) FROM {target}");
    ensure!(fixture.query(&sum)? == format!("250|{}", 249 * 250 + 2 * 250));
    Ok(())
}

#[test]
fn java_orders_are_read_by_a_group_and_queried_by_jdbc() -> Result<()> {
    if is_skipped(&["java", "mvn"]) {
        return Ok(());
    }
    let fixture = Fixture::shared()?;
    let topic = fixture.topic("Orders-of.java");
    fixture.create_topic(&topic, 3)?;
    let path = |name| example(name).to_string_lossy().into_owned();
    let orders = JavaClient::fetched()?.program(&path("log/Orders.java"));
    let orders = orders.args([&fixture.broker().address(), &topic, "30"]);
    check(&fixture.broker().check(orders)?, &["30 records"]);
    let [host, port] = [fixture.sql().ip().to_string(), fixture.sql().port().to_string()];
    let totals = jdbc()?.program(&path("sql/Totals.java")).args([&host, &port, &topic, "140"]);
    // Sums of the numbers below 30 by remainder modulo 3, from 140 on: 135 is left out.
    check(&fixture.broker().check(totals)?, &["c1 145", "c2 155"]);
    Ok(())
}

/// Checks that a program prints its arguments if it is called without them.
#[track_caller]
fn check_usage(program: Tool, arguments: &str) {
    let output = program.run().expect("it can be run");
    assert_ne!(output.exit_code, Some(0), "{output:?}");
    let is_told = output.stderr.contains(arguments) && !output.stderr.contains("Traceback");
    assert!(is_told, "{output:?}");
}

#[test]
fn programs_without_arguments_print_how_to_run_them() -> Result<()> {
    let program = product_path("examples/append_log").to_string_lossy().into_owned();
    check_usage(Tool::new(&program), "append_log: usage: append_log SOCKET VOLUME TEXT");
    if is_skipped(&["python3", "node"]) {
        return Ok(());
    }
    let rotate = Tool::new("python3").arg(example("block/rotate_snapshots.py"));
    check_usage(rotate, "rotate_snapshots.py /run/memlane/api.sock VOLUME COUNT");
    check_usage(Tool::new("node").arg(example("log/lag.mjs")), "lag.mjs URL LIMIT");
    let transfer = PythonClient::fetched()?.program(&example("log/transfer.py"));
    check_usage(transfer, "transfer.py BROKER INPUT OUTPUT");
    let client = python()?;
    check_usage(client.program(&example("sql/load.py")), "load.py HOST PORT TOPIC COUNT");
    let follow = client.program(&example("sql/follow.py"));
    check_usage(follow, "follow.py HOST PORT TOPIC FIELD MINIMUM COUNT [POSITION]");
    Ok(())
}

#[test]
fn a_group_that_lags_is_told() -> Result<()> {
    if is_skipped(&["node", "kcat"]) {
        return Ok(());
    }
    let http = free_address()?.to_string();
    let fixture = Fixture::with_options(&["--anonymous", "loopback", "--http", &http])?;
    fixture.create_topic("late", 1)?;
    let records = |count| (0..count).map(|it| format!("k:{it}")).collect::<Vec<_>>();
    fixture.produce("late", &records(5))?;
    let consume = Tool::new(&product_path("memlane").to_string_lossy())
        .args(["consume", "late", "--group", "billing"])
        .env("MEMLANE_BROKER", &fixture.broker().address());
    fixture.broker().check(consume)?;
    let watch = |limit: &str| {
        let tool = Tool::new("node").arg(example("log/lag.mjs"));
        tool.args([&format!("http://{http}"), limit]).run()
    };
    let on_time = watch("0")?;
    ensure!(on_time.exit_code == Some(0), "{on_time:?}");
    check(&on_time.stdout, &["ok billing late 0"]);
    fixture.produce("late", &records(7))?;
    let behind = watch("6")?;
    ensure!(behind.exit_code == Some(1), "{behind:?}");
    check(&behind.stdout, &["BEHIND billing late 7"]);
    Ok(())
}

#[test]
fn rows_are_loaded_and_followed_over_a_break() -> Result<()> {
    if is_skipped(&["python3", "kcat"]) {
        return Ok(());
    }
    let fixture = Fixture::shared()?;
    let topic = fixture.topic("measured");
    fixture.create_topic(&topic, 2)?;
    let [host, port] = [fixture.sql().ip().to_string(), fixture.sql().port().to_string()];
    let client = python()?;
    let run = |script: &str, words: &[&str]| {
        let tool = client.program(&example(script)).args([&host, &port, &topic]);
        fixture.broker().check(tool.args(words))
    };
    check(&run("sql/load.py", &["210"])?, &["210 rows"]);
    // Expects one fifth of the rows.
    let followed = run("sql/follow.py", &["celsius", "24", "42"])?;
    let (rows, position) = followed.trim_end().rsplit_once('\n').context("too few lines")?;
    ensure!(rows.lines().count() == 42 && rows.lines().all(|it| it.ends_with(" 24")), "{rows}");
    fixture.produce(&topic, &["late:{\"celsius\": 30}".to_owned()])?;
    let later = run("sql/follow.py", &["celsius", "24", "1", position])?;
    ensure!(later.lines().next() == Some("late 30"), "{later}");
    Ok(())
}
