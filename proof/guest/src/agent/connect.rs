//! Connects standard input and output to a Unix socket.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};

const BUFFER_BYTES: usize = 64 << 10;

/// Copies bytes in both directions until the server has closed its side.
pub(crate) fn connect(path: &Path) -> Result<()> {
    let socket = UnixStream::connect(path)
        .with_context(|| format!("cannot connect to {}", path.display()))?;
    let to_server = socket.try_clone().context("cannot share the socket")?;
    // It ends with the process if the server closes first.
    thread::spawn(move || {
        // A client that disconnects, in any way, ends its input.
        let _ = carry(&mut io::stdin().lock(), &mut &to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    carry(&mut &socket, &mut io::stdout().lock()).context("cannot carry what the server sends")
}

fn carry(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            length => to.write_all(&buffer[..length])?,
        }
        to.flush()?;
    }
}
