//! `memlane-demo`: PostgreSQL on a volume whose daemon is killed with -9 under load.
//!
//! Everything it starts, mounts and writes is its own and is removed at the end, also after an
//! error or Ctrl-C.
#![forbid(unsafe_code)]

mod demo;

use std::process::ExitCode;

fn main() -> ExitCode {
    match demo::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("memlane-demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}
