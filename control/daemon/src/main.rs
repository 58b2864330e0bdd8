//! `memlaned`: the one process that opens a pool and serves its volumes.
//!
//! This crate joins what knows nothing of each other: it hands volumes of the engine to the
//! exports, and both to the REST interface. It holds no block of data and no rule of reduction.
//!
//! ```text
//! signals ─▶ lifecycle ─▶ REST socket ─▶ pool ─▶ durable ─▶ exports ─▶ attachments   (start)
//!                             gate         │        │           │            │
//!                              │           └────────┴─ service ─┴────────────┘
//!                              └───────────────────────────┘                 (every request)
//! ```
#![forbid(unsafe_code)]

mod attachments;
mod config;
mod durable;
mod endings;
mod error_text;
mod events;
mod export_list;
mod exports;
mod forecast;
mod http;
mod lifecycle;
mod log;
mod maintenance;
mod notify;
mod pool;
mod pool_medium;
mod process;
mod run_dir;
mod scrubber;
mod service;
mod signals;
mod tasks;
mod volume_users;

use std::process::ExitCode;

use clap::Parser;

use crate::config::{Config, Flags};

fn main() -> ExitCode {
    if let Some(exit_code) = exports::run_errand() {
        return exit_code;
    }
    finish(Config::read(Flags::parse()).and_then(|config| {
        log::start(&config.log)?;
        lifecycle::run(&config)
    }))
}

/// Reports a failure, its cause first, also where nothing reads the log.
fn finish(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("memlaned: {}", error_text::cause_first(&error));
            ExitCode::FAILURE
        }
    }
}
