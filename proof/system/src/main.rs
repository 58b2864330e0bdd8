//! `memlane-demo`: PostgreSQL on a volume whose daemon is killed with -9 under load;
//! `memlane-demo log`: a topic whose broker and daemon are;
//! `memlane-demo sql`: topics and views that SQL defines, whose broker is.
//!
//! Everything it starts, mounts and writes is its own and is removed at the end, also after an
//! error or Ctrl-C.
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
