//! `memlane-console`: users, tokens and TLS before the daemon's REST interface, and the page.
//!
//! ```text
//! browser, script ─TLS─▶ http ─┬─▶ access: who is it, and what may they do
//!                              ├─▶ sign_on: logins by a provider, where one is named
//!                              ├─▶ gateway ─▶ backend: the daemon, and memlane-machines where it
//!                              │               is, on sockets of this host
//!                              ├─▶ broker: topics, groups and queries, where there is one
//!                              ├─▶ watch: what browsers are told each second, and the history
//!                              └─▶ page: the files of the page
//! ```
//!
//! It needs no right but that of the daemon's socket, maps no pool and holds no volume. What it
//! knows lies in its state folder; the daemon knows nothing of it.
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

/// Each connection is one, and so is each request to the daemon: shells allow fewer unless asked.
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
