//! A server of the ring and its clients in one process, for tests of both ends.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use adaptive_polling::{SPIN_MAX_DEFAULT, SpinPermits};
use block_device::{BlockDevice, ByteRange, Zeroes};
use conformance::{Abilities, Refusal, Subject};
use ring_server::{Config, OpenVolume, Peer, Quota, Server, Target, Volumes};
use sdk::{Client, ClientOptions, Device};
use tempfile::TempDir;

/// Timeout longer than any step of these tests.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Id of the one volume.
pub const VOLUME_ID: u64 = 7;

/// Name of the one volume.
pub const VOLUME_NAME: &str = "db";

/// Catalog of one volume, which all users may open.
pub struct OneVolume(pub Arc<dyn BlockDevice>);

impl Volumes for OneVolume {
    fn admits(&self, _peer: &Peer) -> bool {
        true
    }

    fn open(&self, target: &Target, peer: &Peer) -> Result<OpenVolume, ring_server::Refusal> {
        let is_meant = match target {
            Target::Name(name) => name == VOLUME_NAME,
            Target::VolumeId(id) | Target::Again { volume_id: id, .. } => *id == VOLUME_ID,
            Target::DeviceNumber { .. } | Target::File { .. } => false,
        };
        if !is_meant || peer.pid == 0 {
            let message = format!("there is only the volume {VOLUME_NAME:?}");
            let errno = rustix::io::Errno::NOENT.raw_os_error();
            return Err(ring_server::Refusal { errno, message });
        }
        Ok(OpenVolume { id: VOLUME_ID, name: VOLUME_NAME.to_owned(), device: Arc::clone(&self.0) })
    }
}

/// A server with its own socket, which can be stopped and restarted.
pub struct Running {
    server: Mutex<Option<Server>>,
    directory: TempDir,
    device: Arc<dyn BlockDevice>,
    client_count_max: usize,
}

impl Running {
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self::with_clients(device, 64)
    }

    /// Starts a server with a limit on clients.
    pub fn with_clients(device: Arc<dyn BlockDevice>, client_count_max: usize) -> Self {
        let directory = TempDir::new().expect("there is space for temporary files");
        let running = Self { server: Mutex::default(), directory, device, client_count_max };
        running.start();
        running
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("ring.sock")
    }

    /// Starts the server, also after [`Running::stop`].
    pub fn start(&self) {
        let config = Config {
            path: self.socket(),
            quota: Quota {
                total: self.client_count_max,
                per_user: self.client_count_max,
                reserved: 0,
            },
            handshake_time_max: PATIENCE,
            spin_permits: Arc::new(SpinPermits::for_this_machine()),
            spin_max: SPIN_MAX_DEFAULT,
        };
        let volumes = Arc::new(OneVolume(Arc::clone(&self.device)));
        let server = Server::start(config, volumes).expect("the server starts");
        *self.server.lock().expect(NOT_POISONED) = Some(server);
    }

    /// Disconnects all clients. Returns the number of those that did not end.
    pub fn stop(&self) -> usize {
        let server = self.server.lock().expect(NOT_POISONED).take();
        server.map_or(0, |server| server.stop(PATIENCE))
    }

    /// Number of clients that have the volume open.
    pub fn client_count(&self) -> usize {
        self.status().clients.get(&VOLUME_ID).copied().unwrap_or(0)
    }

    pub fn status(&self) -> ring_server::Status {
        let server = self.server.lock().expect(NOT_POISONED);
        server.as_ref().map(Server::status).unwrap_or_default()
    }

    /// Notifies clients that the size of the device has changed.
    pub fn resized(&self) {
        if let Some(server) = &*self.server.lock().expect(NOT_POISONED) {
            server.resized(VOLUME_ID);
        }
    }

    pub fn client(&self) -> Client {
        let options = ClientOptions { patience: PATIENCE, ..ClientOptions::default() };
        Client::connect_with(&self.socket(), options).expect("the server listens")
    }

    pub fn open(&self) -> Device {
        let target = Target::Name(VOLUME_NAME.to_owned());
        self.client().open(&target).expect("the volume is there")
    }
}

const NOT_POISONED: &str = "no test panics while it holds this lock";

/// Waits until a condition holds, up to a timeout.
#[track_caller]
pub fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        thread::yield_now();
    }
}

/// A device as a subject of the conformance suite.
pub struct SdkSubject(pub Device);

impl Subject for SdkSubject {
    fn abilities(&self) -> Abilities {
        Abilities::ALL
    }

    fn size_bytes(&self) -> u64 {
        self.0.geometry().expect("the daemon is there").size_bytes
    }

    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), Refusal> {
        self.0.read(offset_bytes, into).map_err(Refusal::of)
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), Refusal> {
        self.0.write(offset_bytes, from).map_err(Refusal::of)
    }

    fn write_durably(&self, offset_bytes: u64, from: &[u8]) -> Result<(), Refusal> {
        self.0.write_flushed(offset_bytes, from).map_err(Refusal::of)
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), Refusal> {
        self.0.write_zeroes(range, zeroes).map_err(Refusal::of)
    }

    fn discard(&self, range: ByteRange) -> Result<(), Refusal> {
        self.0.discard(range).map_err(Refusal::of)
    }

    fn flush(&self) -> Result<(), Refusal> {
        self.0.flush().map_err(Refusal::of)
    }
}
