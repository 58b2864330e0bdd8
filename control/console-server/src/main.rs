//! `memlane-console`: HTTPS gateway with users, tokens and TLS in front of the daemon's REST
//! interface, and web page.
//!
//! ```text
//! browser, script ─TLS─▶ http ─┬─▶ access: authentication and authorization
//!                              ├─▶ sign_on: logins at an OpenID Connect provider, if configured
//!                              ├─▶ gateway ─▶ backend: the daemon, and memlane-machines if
//!                              │               configured, on Unix sockets of this host
//!                              ├─▶ broker: topics, groups and queries, if a broker is configured
//!                              ├─▶ watch: events for browsers every second, and the history
//!                              └─▶ page: files of the web page
//! ```
//!
//! The console needs access only to the daemon's socket; it maps no pool and opens no volume. Its
//! own state is in its state folder. The daemon does not know about the console.
#![forbid(unsafe_code)]

mod access;
mod backend;
mod broker;
mod clock;
mod exchange;
mod gateway;
mod http;
mod network;
mod options;
mod page;
mod refusal;
mod shares;
mod sign_on;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::CommandFactory;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::options::Options;

fn main() -> ExitCode {
    program::run(|options| start(&options))
}

fn start(options: &Options) -> anyhow::Result<()> {
    if let Some(folder) = &options.man {
        return program::write_manual::<Options>(folder);
    }
    if let Some(shell) = options.completions {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Options::command(), "memlane-console", &mut script);
        let written = std::io::stdout().write_all(&script);
        return written.context("cannot print the completions");
    }
    if options.has_page {
        ensure!(page::is_built_in(), "this console was built without its web page");
        return Ok(());
    }
    program::start_log(&options.log)?;
    raise_descriptors();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(options::THREAD_COUNT)
        .build()
        .context("cannot start threads")?;
    runtime.block_on(http::run(options))
}

/// Raises the limit on file descriptors. Each connection and each request to the daemon takes one,
/// and the default of shells is too low.
fn raise_descriptors() {
    const DESCRIPTORS_MAX: u64 = 16 << 10;
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(DESCRIPTORS_MAX, |it| it.min(DESCRIPTORS_MAX));
    if limit.current.is_some_and(|it| it < wanted) {
        limit.current = Some(wanted);
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "cannot raise the limit on open files");
        }
    }
}
