//! Fuzzes one target of `proof/fuzz` with the stable compiler, like cargo-fuzz.
//!
//! The corpus is kept in `target/fuzz/TARGET`, where the next run continues. Inputs that cause
//! failures are stored beside it.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo;
use crate::repository;

/// Flags for libFuzzer's coverage, and for AddressSanitizer. They need `RUSTC_BOOTSTRAP`.
const COMPILER_FLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Ccodegen-units=1 \
    -Cdebug-assertions -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Long inputs from the beginning, because short ones form no request. No leak detection, because
/// the servers' threads hold memory between inputs. An input of 25 seconds counts as a hang.
const FUZZER_OPTIONS: &[&str] = &[
    "-max_len=2048",
    "-len_control=0",
    "-detect_leaks=0",
    "-timeout=25",
    "-rss_limit_mb=4096",
    "-print_final_stats=1",
];

/// Prefix of targets that need the SQL engine, which takes long to build.
const SQL_PREFIX: &str = "sql_";

pub(crate) fn fuzz(target: &str, seconds: &str) -> Result<()> {
    let seconds: u32 = seconds.parse().context("the time is no number of seconds")?;
    let root = repository::root();
    let folder = root.join("target").join("fuzz");
    let build_folder = folder.to_str().context("the path of the project is no UTF-8")?;
    // With an explicit target, so that the flags do not apply to build scripts and procedural
    // macros.
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut arguments =
        vec!["build", "--release", "--locked", "--target", &triple, "--bin", target];
    if target.starts_with(SQL_PREFIX) {
        arguments.extend(["--features", "sql"]);
    }
    let variables = [
        ("RUSTC_BOOTSTRAP", "1"),
        ("RUSTFLAGS", COMPILER_FLAGS),
        ("CARGO_TARGET_DIR", build_folder),
    ];
    let programs = cargo::build(&root.join("proof/fuzz"), &arguments, &variables)?;
    let program = programs.first().with_context(|| format!("the build made no {target}"))?;
    let corpus = folder.join(target);
    fs::create_dir_all(&corpus).with_context(|| format!("cannot make {}", corpus.display()))?;
    let status = Command::new(&program.path)
        .arg(&corpus)
        .args(FUZZER_OPTIONS)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}-", corpus.display()))
        .status()
        .with_context(|| format!("cannot run {}", program.path.display()))?;
    ensure!(status.success(), "{target} found something: see what it says above");
    Ok(())
}
