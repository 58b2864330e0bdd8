//! A running server on temporary sockets, and a client that sends raw bytes.
#![allow(dead_code, reason = "each program that includes this uses a part of it")]

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adaptive_polling::{SPIN_MAX_DEFAULT, SpinPermits};
use nbd::{Config, Exports, Quota, Server, TcpAccess};
use tempfile::TempDir;

use crate::talk::{CLIENT_FLAGS, GREETING, Request, export_query, option, option_bytes, rep};

/// Time limit for anything in these tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) directory: TempDir,
}

/// Configuration with its socket in `directory`.
pub(crate) fn config(directory: &TempDir) -> Config {
    Config {
        unix_path: directory.path().join("nbd.sock"),
        tcp: None,
        tcp_access: TcpAccess::Certified,
        tls: None,
        quota: Quota { total: 16, per_user: 16, reserved: 0 },
        handshake_time_max: PATIENCE,
        spin_permits: Arc::new(SpinPermits::new(1)),
        spin_max: SPIN_MAX_DEFAULT,
        thread_start: || {},
    }
}

impl Running {
    pub(crate) fn new(exports: Arc<dyn Exports>) -> Self {
        Self::with(exports, |config| config)
    }

    pub(crate) fn with(exports: Arc<dyn Exports>, change: impl FnOnce(Config) -> Config) -> Self {
        let directory = TempDir::new().expect("there is space for temporary files");
        let config = change(config(&directory));
        let server = Server::start(config, exports).expect("the server starts");
        Self { server, directory }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("nbd.sock")
    }

    pub(crate) fn connect(&self) -> Client<UnixStream> {
        let stream = UnixStream::connect(self.socket()).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time can be set");
        stream.set_write_timeout(Some(PATIENCE)).expect("a time can be set");
        Client { stream }
    }

    /// Connects a client and selects an export, with simple replies.
    pub(crate) fn connect_to(&self, export: &str) -> Client<UnixStream> {
        let mut client = self.connect();
        client.go(export);
        client
    }
}

/// Waits until `holds` returns true. Fails after [`PATIENCE`].
#[track_caller]
pub(crate) fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        std::thread::yield_now();
    }
}

pub(crate) struct Client<S> {
    pub(crate) stream: S,
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes what it is sent");
    }

    pub(crate) fn receive(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("the server answers");
        bytes
    }

    /// Reads to the end. Returns whether the server has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    pub(crate) fn greet(&mut self) {
        assert_eq!(self.receive(GREETING.len()), GREETING);
        self.send(&CLIENT_FLAGS);
    }

    /// Sends an option and returns the type of its last reply.
    pub(crate) fn ask(&mut self, option: u32, payload: &[u8]) -> u32 {
        self.send(&option_bytes(option, payload));
        self.last_reply()
    }

    /// Receives replies to an option and returns the type of the last one.
    pub(crate) fn last_reply(&mut self) -> u32 {
        self.try_last_reply().expect("the server answers")
    }

    /// Receives as [`Client::last_reply`] does. Fails if the server closes the connection.
    pub(crate) fn try_last_reply(&mut self) -> io::Result<u32> {
        loop {
            let mut header = [0; 20];
            self.stream.read_exact(&mut header)?;
            let number =
                |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
            let (kind, payload_bytes) = (number(12), number(16));
            let mut payload = vec![0; usize::try_from(payload_bytes).expect("a short reply")];
            self.stream.read_exact(&mut payload)?;
            if kind == rep::ACK || kind >= rep::ERR_UNSUP {
                return Ok(kind);
            }
        }
    }

    pub(crate) fn go(&mut self, export: &str) {
        self.greet();
        assert_eq!(self.ask(option::GO, &export_query(export, &[])), rep::ACK);
    }

    /// Sends a request that has a simple reply, and returns its error.
    pub(crate) fn request(&mut self, request: Request, payload: &[u8]) -> u32 {
        self.send(&[request.bytes().as_slice(), payload].concat());
        let reply = self.receive(16);
        u32::from_be_bytes(reply[4..8].try_into().expect("four bytes"))
    }
}
