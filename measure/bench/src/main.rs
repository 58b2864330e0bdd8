//! `memlane-bench`: benchmarks of Memlane and its alternatives on this machine.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    bench::run_program()
}
