//! Record streams of various record sizes through a broker that stores them in files.

use anyhow::{Result, ensure};

use super::application::{Application, ON_FOLDERS};
use super::workdir::{PYTHON, Workdir};

const STREAMS: &str = include_str!("programs/streams.py");

/// Limit on the number of records, because the broker has a fixed cost per record.
const RECORD_COUNT_MAX: u64 = 400_000;
const RECORD_COUNT_MIN: u64 = 1000;

pub(super) const ALL: &[Application] = &[
    Application {
        name: "streams-64",
        stands_for: "BR-64",
        run: |workdir| work(workdir, 64),
        verify: |workdir| check(workdir, 64),
        ..STREAM
    },
    Application {
        name: "streams-128",
        stands_for: "BR-128",
        run: |workdir| work(workdir, 128),
        verify: |workdir| check(workdir, 128),
        ..STREAM
    },
    Application {
        name: "streams-1024",
        stands_for: "BR-1024",
        run: |workdir| work(workdir, 1024),
        verify: |workdir| check(workdir, 1024),
        ..STREAM
    },
];

/// Template of three variants that differ in record size.
const STREAM: Application = Application {
    name: "streams",
    stands_for: "Borealis",
    programs: &[PYTHON, "nats-server"],
    install_hint: "apt install nats-server",
    ..ON_FOLDERS
};

fn record_count(workdir: &Workdir, record_bytes: u64) -> u64 {
    (workdir.bytes / 4 / record_bytes).clamp(RECORD_COUNT_MIN, RECORD_COUNT_MAX)
}

fn numbers(workdir: &Workdir, record_bytes: u64) -> [String; 3] {
    [record_count(workdir, record_bytes), record_bytes, workdir.seed]
        .map(|number| number.to_string())
}

/// Publishes and reads all records.
fn work(workdir: &Workdir, record_bytes: u64) -> Result<()> {
    let [count, bytes, seed] = numbers(workdir, record_bytes);
    workdir.python(STREAMS, &["work", &count, &bytes, &seed]).check().map(drop)
}

/// Checks that a new broker finds all records on the target.
fn check(workdir: &Workdir, record_bytes: u64) -> Result<()> {
    let [count, bytes, seed] = numbers(workdir, record_bytes);
    let said = workdir.python_tool(STREAMS, &["check", &count, &bytes, &seed]).check()?;
    ensure!(said.trim() == format!("{count} records"), "the stream has {said:?} of {count}");
    Ok(())
}
