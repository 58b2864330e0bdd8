//! `memlaned`: the daemon that opens a pool and serves its volumes.
//!
//! This crate connects independent crates: it passes volumes of the engine to the exports, and both
//! to the REST interface. It stores no blocks and implements no data reduction.
//!
//! ```text
//! signals ─▶ lifecycle ─▶ REST socket ─▶ pool ─▶ durable ─▶ exports ─▶ attachments   (start)
//!                             readiness    │        │           │            │
//!                              │           └────────┴─ service ─┴────────────┘
//!                              └───────────────────────────┘                 (every request)
//! ```
#![forbid(unsafe_code)]

mod accounts;
mod attachments;
mod broker_lock;
mod certificates;
mod config;
mod durable;
mod endings;
mod error_text;
mod event_file;
mod events;
mod export_list;
mod exports;
mod forecast;
mod http;
mod label_file;
mod lifecycle;
mod log;
mod maintenance;
mod pool;
mod pool_medium;
mod process;
mod process_usage;
mod reload;
mod run_dir;
mod scrubber;
mod service;
mod signals;
mod slow_start;
mod standby;
mod start_resources;
mod store_serving;
mod tasks;
mod ticker;
mod volume_labels;
mod volume_list;
mod volume_users;
mod wanted;
mod watchdog;

use std::process::ExitCode;

use clap::Parser;
use tracing::Level;

use crate::config::{Config, Flags};
use crate::log::Log;

fn main() -> ExitCode {
    service_manager::die_of_panics();
    if let Some(exit_code) = exports::run_command() {
        return exit_code;
    }
    let flags = Flags::parse();
    if let Some(folder) = &flags.man {
        return finish(program::write_manual::<Flags>(folder));
    }
    finish(Config::read(flags.clone()).and_then(|config| {
        let log = Log::start(&config.log)?;
        lifecycle::run(flags, config, log)
    }))
}

/// Reports an error on standard error, its root cause first, also if logging has not started.
fn finish(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mark = log::mark(Level::ERROR);
            eprintln!("{mark}memlaned: {}", error_text::cause_first(&error));
            ExitCode::FAILURE
        }
    }
}
