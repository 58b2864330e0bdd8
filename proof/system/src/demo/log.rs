//! The demonstration of the message log: kcat produces, a consumer group of kcat reads, and the
//! daemon and the broker are killed meanwhile. Needs no root.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::{Broker, Daemon, DaemonOptions, Interruption, wait_for};

use crate::demo::kcat::{self, Kcat};
use crate::demo::progress::Progress;
use crate::demo::table::{Table, thousands};

const STEPS: usize = 5;
const RECORD_COUNT: u64 = 200_000;
const KILLED_AFTER: u64 = RECORD_COUNT / 2;

/// Number of records between pauses, so that many are in flight at the kill.
const RUN_LENGTH: u64 = 2_000;
const PAUSE: Duration = Duration::from_millis(50);

const TIME_LIMIT: Duration = Duration::from_secs(60);

const TOPIC: &str = "demo";
const GROUP: &str = "demo-readers";

/// Kills the daemon and the broker under a producer and a consumer group.
pub(crate) fn run() -> Result<()> {
    Interruption::listen()?;
    kcat::check_that_it_is_there()?;
    let progress = Progress::new(STEPS);
    progress.step("start memlaned and memlane-broker; topics are of class journal");
    let mut daemon = Daemon::start(DaemonOptions { pool_size: "512MiB", flags: "--no-fuse" })?;
    let flags = "--topic-default memlane.durability=journal";
    let mut broker = Broker::on_daemon(&daemon.run_dir(), flags)?;
    progress.step("kcat produces, a consumer group of kcat reads");
    let mut producer = Kcat::start(&broker, &["-P", "-t", TOPIC, "-X", "enable.idempotence=true"])?;
    let mut input = producer.input()?;
    write_run(&mut input, 0..KILLED_AFTER)?;
    let readers = Kcat::start(
        &broker,
        &["-G", GROUP, TOPIC, "-u", "-q", "-X", "auto.offset.reset=earliest"],
    )?;
    let readers = readers.collect()?;
    wait_for("the group to read", TIME_LIMIT, || Ok(readers.count() > 0))?;
    progress.step("kill -9 both in the middle, and start both again");
    write_run(&mut input, KILLED_AFTER..KILLED_AFTER + RUN_LENGTH)?;
    broker.kill()?;
    daemon.kill()?;
    // The producer keeps these until the broker is back.
    write_run(&mut input, KILLED_AFTER + RUN_LENGTH..KILLED_AFTER + 2 * RUN_LENGTH)?;
    let daemon_start = daemon.start_again()?;
    let broker_start = broker.start_again()?;
    write_run(&mut input, KILLED_AFTER + 2 * RUN_LENGTH..RECORD_COUNT)?;
    drop(input);
    progress.step("wait until the producer has every acknowledgement, and the group every record");
    producer.finish()?;
    wait_for("the group to read everything", TIME_LIMIT, || Ok(readers.count() == RECORD_COUNT))?;
    progress.step("read the topic from its beginning and compare");
    let all = Kcat::start(&broker, &["-C", "-t", TOPIC, "-o", "beginning", "-e", "-q"])?.lines()?;
    let expected: Vec<String> = (0..RECORD_COUNT).map(record).collect();
    let differs = all.iter().zip(&expected).position(|(found, expected)| found != expected);
    ensure!(differs.is_none(), "the topic differs at record {differs:?}");
    ensure!(all.len() == expected.len(), "the topic has {} records", all.len());
    drop(readers);
    broker.stop()?;
    daemon.finish()?;
    drop(progress);
    let mut table = Table::default();
    let count = thousands(RECORD_COUNT);
    table.row("records acknowledged", &[Some(count.clone())]);
    table.row("in the topic, each once and in order", &[Some(count.clone())]);
    table.row("seen by the consumer group", &[Some(count)]);
    table.row("daemon serving after kill -9", &[Some(format!("{daemon_start:.1?}"))]);
    table.row("broker ready after kill -9", &[Some(format!("{broker_start:.1?}"))]);
    table.print()
}

fn record(number: u64) -> String {
    format!("record {number:09}")
}

fn write_run(input: &mut impl Write, numbers: std::ops::Range<u64>) -> Result<()> {
    let mut next = numbers.start;
    while next < numbers.end {
        ensure!(!Interruption::is_asked_for(), "interrupted");
        let end = (next + RUN_LENGTH).min(numbers.end);
        let lines: String = (next..end).map(|number| record(number) + "\n").collect();
        input.write_all(lines.as_bytes()).context("kcat takes no more records")?;
        next = end;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
