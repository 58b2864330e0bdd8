//! The program that runs in a guest and does what the host asks.
//!
//! - `guest-agent serve` takes frames from the serial port and starts programs. When the host
//!   goes away it turns the machine off, so that none is left behind.
//! - `guest-agent connect PATH` joins its standard input and output to a Unix socket, so that the
//!   host reaches servers in the guest.
//! - `guest-agent write PATH BLOCKS VOLUME LIFE SEED` writes what follows from the numbers, and
//!   tells the number of each step whose flush succeeded.
#![forbid(unsafe_code)]

mod connect;
mod serve;
mod started;
mod write;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
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
        _ => bail!("usage: guest-agent serve | connect PATH | write PATH BLOCKS VOLUME LIFE SEED"),
    }
}
