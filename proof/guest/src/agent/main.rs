//! The agent that runs in a guest and executes the host's commands.
//!
//! - `guest-agent serve` receives frames from the serial port and starts programs. When the host
//!   disconnects it turns the machine off, so that none is left.
//! - `guest-agent connect PATH` connects its standard input and output to a Unix socket, so that
//!   the host reaches servers in the guest.
//! - `guest-agent write PATH BLOCKS VOLUME LIFE SEED` writes contents determined by the numbers,
//!   and prints the number of each step whose flush succeeded.
//! - `guest-agent conformance PATH SECTOR SEED` runs the suite `proof/conformance` on a device and
//!   prints the number of passed cases.
//! - `guest-agent nbd connect|reconnect INDEX SOCKET EXPORT` connects a device of the kernel's NBD
//!   client to an export, or reconnects it; `nbd disconnect INDEX` disconnects it.
#![forbid(unsafe_code)]

mod connect;
mod kernel_nbd;
mod netlink;
mod sender;
mod serve;
mod started;
mod write;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use conformance::FileSubject;
use system::StepsSpec;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("guest-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["serve"] => serve::serve(),
        ["connect", path] => connect::connect(Path::new(path)),
        ["write", path, block_count, volume, life, seed] => {
            let number = |text: &str| text.parse().with_context(|| format!("{text} is no number"));
            let spec = StepsSpec {
                block_count: number(block_count)?,
                volume: number(volume)?,
                life: number(life)?,
                seed: number(seed)?,
            };
            write::write(Path::new(path), spec)
        }
        ["conformance", path, sector, seed] => check_device(Path::new(path), sector, seed),
        ["nbd", "connect", index, socket, export] => {
            kernel_nbd::connect(index.parse()?, Path::new(socket), export)
        }
        ["nbd", "reconnect", index, socket, export] => {
            kernel_nbd::reconnect(index.parse()?, Path::new(socket), export)
        }
        ["nbd", "disconnect", index] => kernel_nbd::disconnect(index.parse()?),
        _ => bail!(
            "usage: guest-agent serve | connect PATH | write PATH BLOCKS VOLUME LIFE SEED | \
             conformance PATH SECTOR SEED | nbd connect INDEX SOCKET EXPORT | \
             nbd reconnect INDEX SOCKET EXPORT | nbd disconnect INDEX"
        ),
    }
}

/// Panics with the names of the failed cases.
fn check_device(path: &Path, sector: &str, seed: &str) -> Result<()> {
    let subject = FileSubject::open(path, sector.parse()?)
        .with_context(|| format!("cannot open {}", path.display()))?;
    let count = conformance::check(&subject, seed.parse()?);
    writeln!(io::stdout(), "{count}").context("the host is gone")
}
