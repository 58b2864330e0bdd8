//! Serial console of a machine in this terminal.
//!
//! `stty` sets this terminal to raw mode, and restores it in all cases except a kill. Input that is
//! not a terminal is passed on until its end.

use std::io::{self, IsTerminal, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;

use rest_client::Client;
use serde_json::json;

use crate::failure::Failure;
use crate::output::Report;

/// Ctrl-], as in virsh and telnet.
const END_KEY: u8 = 0x1d;

const CHUNK_BYTES: usize = 4096;

pub(super) fn run(client: &Client, name: &str, force: bool) -> Result<Report, Failure> {
    let path = api::path_of(api::MACHINE_SERIAL_PATH, name);
    let path = match force {
        true => api::with_query(&path, &[("force", "true")]),
        false => path,
    };
    let (console, first) = client.upgrade(&path, api::CONSOLE_PROTOCOL)?;
    let raw = RawTerminal::begin()?;
    let passed = pass(&console, &first);
    drop(raw);
    passed.map_err(|error| {
        Failure::other(format!("lost the connection to the console of {name}: {error}"))
    })?;
    Ok(Report::silent(&json!({"console": name})))
}

/// Passes bytes in both directions until the machine's end or the end key.
fn pass(console: &UnixStream, first: &[u8]) -> io::Result<()> {
    let mut to_guest = console.try_clone()?;
    // The thread ends with the program, because a read from a terminal cannot be interrupted.
    thread::spawn(move || {
        let ended = send(&mut io::stdin().lock(), &mut to_guest);
        if matches!(ended, Ok(Ended::Key) | Err(_)) {
            // The other end completes its output and closes the connection. It may have done so
            // already.
            let _ = to_guest.shutdown(Shutdown::Write);
        }
    });
    let mut output = io::stdout().lock();
    output.write_all(first)?;
    output.flush()?;
    let mut chunk = [0; CHUNK_BYTES];
    loop {
        let count = (&*console).read(&mut chunk)?;
        if count == 0 {
            return Ok(());
        }
        output.write_all(&chunk[..count])?;
        output.flush()?;
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Key,
    Input,
}

fn send(from: &mut impl Read, to: &mut impl Write) -> io::Result<Ended> {
    let mut chunk = [0; CHUNK_BYTES];
    loop {
        let count = from.read(&mut chunk)?;
        if count == 0 {
            return Ok(Ended::Input);
        }
        let end = chunk[..count].iter().position(|&byte| byte == END_KEY);
        to.write_all(&chunk[..end.unwrap_or(count)])?;
        if end.is_some() {
            return Ok(Ended::Key);
        }
    }
}

/// Former settings of this terminal, if it is one.
struct RawTerminal {
    settings: Option<String>,
}

impl RawTerminal {
    fn begin() -> Result<Self, Failure> {
        if !io::stdin().is_terminal() {
            return Ok(Self { settings: None });
        }
        let failed =
            |error| Failure::other(format!("cannot set this terminal to raw mode (stty): {error}"));
        let settings = stty(&["-g"]).map_err(failed)?;
        let raw = Self { settings: Some(settings) };
        stty(&["raw", "-echo"]).map_err(failed)?;
        Ok(raw)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(settings) = &self.settings {
            // On an error, the user can restore the terminal with `reset`.
            let _ = stty(&[settings.trim()]);
        }
    }
}

fn stty(words: &[&str]) -> io::Result<String> {
    let output = Command::new("stty").args(words).stdin(Stdio::inherit()).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_ends_the_input_and_is_not_passed_on() {
        let mut sent = Vec::new();
        assert_eq!(send(&mut &b"ls\n\x1dmore"[..], &mut sent).ok(), Some(Ended::Key));
        assert_eq!(sent, b"ls\n");
        assert_eq!(send(&mut &b"q"[..], &mut sent).ok(), Some(Ended::Input));
        assert_eq!(sent, b"ls\nq");
    }
}
