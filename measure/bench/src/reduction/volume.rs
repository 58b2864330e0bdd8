//! A daemon's volume, read through its NBD socket while in use. Concurrent writes may or may not be
//! seen, because this is not a snapshot.

use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result};
use system::{NbdClient, NbdFailure, Request};

/// Request size.
const REQUEST_BYTES: u64 = 1 << 20;

pub(crate) struct LiveVolume {
    client: NbdClient,
    offset: u64,
    /// Data of the last request, and the number of bytes consumed.
    data: Vec<u8>,
    read_bytes: usize,
}

impl LiveVolume {
    pub(crate) fn connect(run_dir: &Path, name: &str) -> Result<Self> {
        let socket = run_dir.join("nbd.sock");
        let client = NbdClient::connect(&socket, name).with_context(|| {
            format!(
                "cannot read the volume {name} through {}; is the daemon running, and is this its \
                 --run-dir?",
                socket.display()
            )
        })?;
        Ok(Self { client, offset: 0, data: Vec::new(), read_bytes: 0 })
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.client.size_bytes()
    }
}

impl Read for LiveVolume {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.read_bytes == self.data.len() {
            let left = self.client.size_bytes() - self.offset;
            let length = u32::try_from(left.min(REQUEST_BYTES)).expect("a request is short");
            if length == 0 {
                return Ok(0);
            }
            let request = Request::Read { offset: self.offset, length };
            self.data = self.client.ask(&request).map_err(|failure| match failure {
                NbdFailure::Disconnected(error) => error,
                failure => io::Error::other(failure),
            })?;
            self.offset += u64::from(length);
            self.read_bytes = 0;
        }
        let count = into.len().min(self.data.len() - self.read_bytes);
        into[..count].copy_from_slice(&self.data[self.read_bytes..self.read_bytes + count]);
        self.read_bytes += count;
        Ok(count)
    }
}
