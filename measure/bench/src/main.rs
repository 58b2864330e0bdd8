//! `memlane-bench`: measures Memlane and what it is compared with, on this machine.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    bench::run_program()
}
