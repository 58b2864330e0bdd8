//! A client that stores whatever it likes in its ring, beside one that keeps to the rules.
//!
//! The hostile one has a volume of its own. Whatever it does, the other one's volume is as it
//! should be, and the server goes on.
#![allow(dead_code, reason = "each program that includes this uses a part of it")]

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use block_device::{
    BLOCK_BYTES, BlockDevice, ByteRange, DeviceError, Extent, Geometry, SectorSize, WriteCache,
    Zeroes,
};
use model::ModelVolume;
use ring_server::{Config, OpenVolume, Peer, Refusal, Server, Volumes};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use shared_ring::{
    Answer, ClientLane, ClientRing, Entry, Target, operation, receive_answer, send_request,
};
use waiting::{SPIN_MAX_DEFAULT, SpinPermits};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const SIZE: u64 = 1 << 20;

/// As in the description of the layout.
pub(crate) const LANE_BYTES: u64 = 1_060_864;
pub(crate) const LANES_IN_USE: u64 = 256;
const SUBMISSIONS: u64 = 4096 + 4096;
const LINE_BYTES: u64 = 64;
const MEMORY_BYTES: u64 = 4096 + LANE_BYTES;

/// Two volumes: `good` and `hostile`.
struct TwoVolumes {
    good: Arc<ModelVolume>,
    hostile: Arc<Flushing>,
}

impl Volumes for TwoVolumes {
    fn open(&self, target: &Target, _peer: Peer) -> Result<OpenVolume, Refusal> {
        let (id, device): (u64, Arc<dyn BlockDevice>) = match target {
            Target::Name(name) if name == "good" => (1, Arc::<ModelVolume>::clone(&self.good)),
            Target::Name(name) if name == "hostile" => (2, Arc::<Flushing>::clone(&self.hostile)),
            _ => return Err(Refusal { errno: 2, message: "no such volume".to_owned() }),
        };
        Ok(OpenVolume { id, name: "it".to_owned(), device })
    }
}

/// A volume with a write cache, so that flushes go to the thread for them.
struct Flushing(ModelVolume);

impl BlockDevice for Flushing {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.0.read(offset_bytes, into)
    }

    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[std::io::IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        self.0.read_in_place(range, scratch, visit)
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.0.write(offset_bytes, from)
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError> {
        self.0.write_zeroes(range, zeroes)
    }

    fn discard(&self, range: ByteRange) -> Result<(), DeviceError> {
        self.0.discard(range)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.0.flush()
    }

    fn write_cache(&self) -> WriteCache {
        WriteCache::Volatile
    }

    fn extents(&self, range: ByteRange, count_max: usize) -> Result<Vec<Extent>, DeviceError> {
        self.0.extents(range, count_max)
    }
}

/// A server of both volumes.
pub(crate) struct Ground {
    pub(crate) server: Server,
    folder: tempfile::TempDir,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("there is space for temporary files");
        let config = Config {
            path: folder.path().join("ring.sock"),
            client_count_max: 16,
            handshake_time_max: PATIENCE,
            spin_permits: Arc::new(SpinPermits::for_this_machine()),
            spin_max: SPIN_MAX_DEFAULT,
        };
        let volumes = TwoVolumes {
            good: Arc::new(ModelVolume::new(SIZE, SectorSize::Bytes4096)),
            hostile: Arc::new(Flushing(ModelVolume::new(SIZE, SectorSize::Bytes512))),
        };
        let server = Server::start(config, Arc::new(volumes)).expect("the server starts");
        Self { server, folder }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("ring.sock")
    }

    pub(crate) fn connect(&self) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = socket.expect("a socket");
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, direction, Some(PATIENCE)).expect("a time can be set");
        }
        let address = SocketAddrUnix::new(self.socket()).expect("the path is short");
        connect(&socket, &address).expect("the server listens");
        socket
    }

    /// A client with one lane, whose memory is a file to it.
    pub(crate) fn open(&self, name: &str) -> Raw {
        let socket = self.connect();
        send_request(socket.as_fd(), &Target::Name(name.to_owned()), 1).expect("it is sent");
        match receive_answer(socket.as_fd()).expect("an answer") {
            Answer::Opened(_, memory) => Raw { socket, memory: File::from(memory) },
            Answer::Refused { message, .. } => panic!("refused: {message}"),
        }
    }

    /// Writes a block and reads it back as a client does that keeps to the rules.
    pub(crate) fn check_good_client(&self, byte: u8) {
        let raw = self.open("good");
        let ring = ClientRing::map(raw.memory.as_fd(), 1).expect("it can be mapped");
        let mut lane = ClientLane::new(ring, 0);
        let mut perform = |operation, from: Option<&[u8]>| {
            let slot = lane.take_slot().expect("all are free");
            from.into_iter().for_each(|from| lane.copy_in(slot, 0, from));
            let length = BLOCK_BYTES as u64;
            lane.submit(slot, Entry { operation, offset: 4096, length, ..Entry::default() });
            if lane.must_ring() {
                raw.ring();
            }
            let start = Instant::now();
            while lane.status(slot).is_none() {
                assert!(start.elapsed() < PATIENCE, "the server answers");
                lane.sleep(Duration::from_millis(5), |lane| lane.status(slot).is_some());
            }
            assert_eq!(lane.status(slot), Some(0));
            let mut block = [0; BLOCK_BYTES];
            lane.copy_out(slot, 0, &mut block);
            lane.free_slot(slot);
            block
        };
        perform(operation::WRITE, Some(&[byte; BLOCK_BYTES]));
        assert!(perform(operation::READ, None) == [byte; BLOCK_BYTES]);
    }
}

/// A client that stores what it likes.
pub(crate) struct Raw {
    pub(crate) socket: OwnedFd,
    pub(crate) memory: File,
}

impl Raw {
    /// Stores bytes anywhere; what lies behind the end is left out.
    pub(crate) fn store(&self, offset: u64, bytes: &[u8]) {
        let room = usize::try_from(MEMORY_BYTES.saturating_sub(offset)).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        self.memory.write_all_at(bytes, offset).expect("the memory takes it");
    }

    /// Stores an entry at a position, as a client does that lies.
    pub(crate) fn store_entry(&self, position: u64, operation: u32, slot: u64, rest: [u64; 2]) {
        let mut line = [0; 40];
        line[8..12].copy_from_slice(&operation.to_ne_bytes());
        line[16..24].copy_from_slice(&slot.to_ne_bytes());
        line[24..32].copy_from_slice(&rest[0].to_ne_bytes());
        line[32..40].copy_from_slice(&rest[1].to_ne_bytes());
        let at = SUBMISSIONS + position % 64 * LINE_BYTES;
        self.store(at + 8, &line[8..]);
        self.store(at, &(position + 1).to_ne_bytes());
        self.store(LANES_IN_USE, &u64::MAX.to_ne_bytes());
    }

    pub(crate) fn ring(&self) {
        let _sent = send(&self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Waits until the server has ended the connection.
    pub(crate) fn wait_for_end(&self) {
        let count = recv(&self.socket, &mut [0; 8], RecvFlags::empty()).map(|(_, count)| count);
        assert!(matches!(count, Ok(0) | Err(rustix::io::Errno::CONNRESET)), "{count:?}");
    }
}

/// One hostile client does what `bytes` say: entries, stores anywhere, doorbells.
pub(crate) fn play(bytes: &[u8]) {
    static GROUND: OnceLock<Ground> = OnceLock::new();
    let ground = GROUND.get_or_init(Ground::new);
    let raw = ground.open("hostile");
    let mut position = 0;
    for step in bytes.chunks(18) {
        let mut fields = [0; 18];
        fields[..step.len()].copy_from_slice(step);
        let first = u64::from_le_bytes(fields[2..10].try_into().expect("eight bytes"));
        let second = u64::from_le_bytes(fields[10..18].try_into().expect("eight bytes"));
        match fields[0] % 8 {
            0..5 => {
                let slot = u64::from(fields[1] % 65);
                raw.store_entry(position, u32::from(fields[0] / 8 % 8), slot, [first, second]);
                position += 1;
            }
            5 => raw.store(first % MEMORY_BYTES, &fields[10..18]),
            6 => raw.store(first % 16384, &fields[10..18]),
            _ => {}
        }
        raw.ring();
    }
    let status = ground.server.status();
    assert!(status.clients.len() <= 2, "{status:?}");
    if bytes.first().is_some_and(|byte| byte % 16 == 0) {
        ground.check_good_client(bytes[0]);
    }
}
