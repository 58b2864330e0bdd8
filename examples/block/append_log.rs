//! Appends a line to a log on a volume and prints all lines.
//!
//! `cargo run --release -p sdk --example append_log -- /run/memlane/ring.sock VOLUME TEXT`
//!
//! Block 0 holds the length of the log. It is written and flushed after the line itself, so that a
//! loss of power leaves either the old log or the new one.

use std::error::Error;
use std::io::{Write, stderr, stdout};
use std::path::Path;
use std::process::ExitCode;

use sdk::{BLOCK_BYTES, Client, Device, Target};

/// A log of lines behind the block with its length.
struct AppendLog {
    volume: Device,
    length: u64,
}

impl AppendLog {
    fn open(volume: Device) -> Result<Self, Box<dyn Error>> {
        let mut head = [0; 8];
        volume.read(0, &mut head)?;
        Ok(Self { volume, length: u64::from_le_bytes(head) })
    }

    /// Returns when the line is as durable as the volume's class promises.
    fn append(&mut self, line: &str) -> Result<(), Box<dyn Error>> {
        let line = format!("{line}\n");
        self.volume.write(BLOCK_BYTES as u64 + self.length, line.as_bytes())?;
        self.volume.flush()?;
        let length = self.length + line.len() as u64;
        self.volume.write_flushed(0, &length.to_le_bytes())?;
        self.length = length;
        Ok(())
    }

    fn read(&self) -> Result<String, Box<dyn Error>> {
        let mut text = vec![0; usize::try_from(self.length)?];
        self.volume.read(BLOCK_BYTES as u64, &mut text)?;
        Ok(String::from_utf8(text)?)
    }
}

fn main() -> std::io::Result<ExitCode> {
    let Err(error) = run() else { return Ok(ExitCode::SUCCESS) };
    writeln!(stderr(), "append_log: {error}")?;
    Ok(ExitCode::FAILURE)
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, volume, text] = &arguments[..] else {
        return Err("usage: append_log SOCKET VOLUME TEXT".into());
    };
    let client = Client::connect(Path::new(socket))?;
    let mut log = AppendLog::open(client.open(&Target::Name(volume.clone()))?)?;
    log.append(text)?;
    write!(stdout(), "{}", log.read()?)?;
    Ok(())
}
