//! `memlane-demo`: PostgreSQL on a volume whose daemon is killed with SIGKILL under load;
//! `memlane-demo log`: a topic whose broker and daemon are killed; `memlane-demo sql`: topics and
//! views defined by SQL, whose broker is killed.
//!
//! Everything that it starts, mounts and writes is separate and is removed at the end, also after
//! an error or Ctrl-C.
#![forbid(unsafe_code)]

mod demo;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let shown = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => demo::run(),
        ["log"] => demo::run_log(),
        ["sql"] => demo::run_sql(),
        _ => Err(anyhow::Error::msg("usage: memlane-demo [log | sql]")),
    };
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("memlane-demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}
