//! Hostile client that writes arbitrary bytes into its ring, beside a well-behaved client.
//!
//! The hostile client has a volume of its own. Whatever it does, the other client's volume stays
//! intact and the server keeps running.
#![allow(dead_code, reason = "each program that includes this uses a part of it")]

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use adaptive_polling::{SPIN_MAX_DEFAULT, SpinPermits};
use block_device::{
    BLOCK_BYTES, BlockDevice, ByteRange, DeviceError, Extent, Geometry, SectorSize, WriteCache,
    Zeroes,
};
use model::ModelVolume;
use ring_server::{Config, OpenVolume, Peer, Quota, Refusal, Server, Traffic, Volumes};
use rustix::fs::{SeekFrom, seek};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use shared_ring::{
    Answer, ClientLane, ClientRing, Entry, SLOT_BYTES, SLOTS, Target, operation, receive_answer,
    send_request,
};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const SIZE: u64 = 1 << 20;

pub(crate) const QUOTA: Quota = Quota { total: 64, per_user: 16, reserved: 16 };

/// A user without access to any volume.
pub(crate) const STRANGER: u32 = 65_534;

/// A user with access to the volumes, like all others.
pub(crate) const GUEST: u32 = 65_533;

/// Size of a lane, as documented in the ring's layout.
pub(crate) const LANE_BYTES: u64 = 1_060_864;
pub(crate) const LANES_IN_USE: u64 = 256;
const SUBMISSIONS: u64 = 4096 + 4096;
const BUFFERS: u64 = SUBMISSIONS + 2 * 64 * LINE_BYTES;
const LINE_BYTES: u64 = 64;
const PAGE_BYTES: u64 = 4096;
const MEMORY_BYTES: u64 = 4096 + LANE_BYTES;

/// Bytes that encode one step of a hostile client.
pub(crate) const STEP_BYTES: usize = 20;

/// Two volumes: `good` and `hostile`.
struct TwoVolumes {
    good: Arc<ModelVolume>,
    hostile: Arc<Flushing>,
}

impl Volumes for TwoVolumes {
    /// Admits all users except `STRANGER`, a uid that no host uses.
    fn admits(&self, peer: &Peer) -> bool {
        peer.uid != STRANGER
    }

    fn open(&self, target: &Target, _peer: &Peer) -> Result<OpenVolume, Refusal> {
        let (id, device): (u64, Arc<dyn BlockDevice>) = match target {
            Target::Name(name) if name == "good" => (1, Arc::<ModelVolume>::clone(&self.good)),
            Target::Name(name) if name == "hostile" => (2, Arc::<Flushing>::clone(&self.hostile)),
            _ => return Err(Refusal { errno: 2, message: "no such volume".to_owned() }),
        };
        Ok(OpenVolume { id, name: "it".to_owned(), device })
    }
}

/// Volume with a write cache, so that flushes are deferred. While `is_away` is set, reads and
/// writes are deferred too.
pub(crate) struct Flushing {
    pub(crate) volume: ModelVolume,
    pub(crate) is_away: AtomicBool,
    /// Writes that have started.
    pub(crate) write_count: AtomicUsize,
    /// Blocks writes while set.
    is_held: Mutex<bool>,
    released: Condvar,
}

impl Flushing {
    fn new() -> Self {
        Self {
            volume: ModelVolume::new(SIZE, SectorSize::Bytes512),
            is_away: AtomicBool::new(false),
            write_count: AtomicUsize::new(0),
            is_held: Mutex::new(false),
            released: Condvar::new(),
        }
    }

    /// Blocks all writes until it is called with `false`.
    pub(crate) fn hold_writes(&self, is_held: bool) {
        *self.is_held.lock().expect("nothing panics") = is_held;
        self.released.notify_all();
    }
}

impl BlockDevice for Flushing {
    fn geometry(&self) -> Geometry {
        self.volume.geometry()
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.volume.read(offset_bytes, into)
    }

    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[std::io::IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        self.volume.read_in_place(range, scratch, visit)
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.write_count.fetch_add(1, Ordering::Relaxed);
        let held = self.is_held.lock().expect("nothing panics");
        drop(self.released.wait_while(held, |held| *held).expect("nothing panics"));
        self.volume.write(offset_bytes, from)
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError> {
        self.volume.write_zeroes(range, zeroes)
    }

    fn discard(&self, range: ByteRange) -> Result<(), DeviceError> {
        self.volume.discard(range)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.volume.flush()
    }

    fn write_cache(&self) -> WriteCache {
        WriteCache::Volatile
    }

    fn data_may_be_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    fn extents(&self, range: ByteRange, count_max: usize) -> Result<Vec<Extent>, DeviceError> {
        self.volume.extents(range, count_max)
    }
}

/// A server of both volumes.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) hostile: Arc<Flushing>,
    folder: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("there is space for temporary files");
        let config = Config {
            path: folder.path().join("ring.sock"),
            quota: QUOTA,
            handshake_time_max: PATIENCE,
            spin_permits: Arc::new(SpinPermits::for_this_machine()),
            spin_max: SPIN_MAX_DEFAULT,
        };
        let hostile = Arc::new(Flushing::new());
        let volumes = TwoVolumes {
            good: Arc::new(ModelVolume::new(SIZE, SectorSize::Bytes4096)),
            hostile: Arc::clone(&hostile),
        };
        let server = Server::start(config, Arc::new(volumes)).expect("the server starts");
        Self { server, hostile, folder }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("ring.sock")
    }

    /// Makes the socket accessible to all users.
    pub(crate) fn open_to_everybody(&self) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(self.folder.path(), mode).expect("a mode");
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

    /// Opens a volume with one lane. The client accesses the ring's memory as a file.
    pub(crate) fn open(&self, name: &str) -> Raw {
        let socket = self.connect();
        send_request(socket.as_fd(), &Target::Name(name.to_owned()), 1).expect("it is sent");
        match receive_answer(socket.as_fd()).expect("an answer") {
            Answer::Opened(_, memory) => Raw { socket, memory: File::from(memory) },
            Answer::Refused { message, .. } => panic!("refused: {message}"),
        }
    }

    /// Waits until the server has served all entries of disconnected clients and removed them.
    fn wait_for_nobody(&self) {
        let start = Instant::now();
        while !self.server.status().clients.is_empty() {
            assert!(start.elapsed() < PATIENCE, "clients that have gone are forgotten");
            thread::yield_now();
        }
    }

    /// Writes a block and reads it back as a well-behaved client does.
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

/// Client that writes to its ring's memory directly.
pub(crate) struct Raw {
    pub(crate) socket: OwnedFd,
    pub(crate) memory: File,
}

impl Raw {
    /// Writes bytes at any offset. Bytes past the end of the memory are dropped.
    pub(crate) fn store(&self, offset: u64, bytes: &[u8]) {
        let room = usize::try_from(MEMORY_BYTES.saturating_sub(offset)).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        self.memory.write_all_at(bytes, offset).expect("the memory takes it");
    }

    /// Writes an arbitrary entry at a position.
    pub(crate) fn store_entry(&self, position: u64, operation: u32, slot: u64, rest: [u64; 2]) {
        let line = Line { operation, flags: 0, slot, offset: rest[0], length: rest[1] };
        self.store_line(position, &line);
    }

    fn store_line(&self, position: u64, line: &Line) {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&line.operation.to_ne_bytes());
        bytes[4..8].copy_from_slice(&line.flags.to_ne_bytes());
        bytes[8..16].copy_from_slice(&line.slot.to_ne_bytes());
        bytes[16..24].copy_from_slice(&line.offset.to_ne_bytes());
        bytes[24..].copy_from_slice(&line.length.to_ne_bytes());
        let at = SUBMISSIONS + position % 64 * LINE_BYTES;
        self.store(at + 8, &bytes);
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

/// Server and volumes shared by all hostile clients.
static FIXTURE: OnceLock<Fixture> = OnceLock::new();

/// Traffic of all hostile clients so far.
pub(crate) fn traffic_played() -> Traffic {
    FIXTURE.get().map(|fixture| fixture.server.status().traffic).unwrap_or_default()
}

/// Fields of a submission entry.
struct Line {
    operation: u32,
    flags: u32,
    slot: u64,
    offset: u64,
    length: u64,
}

/// Executes the steps in `bytes` as one hostile client: entries, stray writes, doorbells. Most
/// entries are nearly valid.
pub(crate) fn play(bytes: &[u8]) {
    let fixture = FIXTURE.get_or_init(Fixture::new);
    let raw = fixture.open("hostile");
    let mut position = 0;
    let mut named = Some(0);
    for step in bytes.chunks(STEP_BYTES) {
        let mut fields = [0; STEP_BYTES];
        fields[..step.len()].copy_from_slice(step);
        let first = u64::from_le_bytes(fields[4..12].try_into().expect("eight bytes"));
        let value = &fields[12..];
        match fields[0] % 8 {
            0..5 => {
                let line = line(&fields);
                named = named.map(|named| named | 1 << (line.slot % SLOTS as u64));
                raw.store_line(position, &line);
                position += 1;
            }
            5 => {
                let place = first % MEMORY_BYTES;
                raw.store(place, value);
                // The write may extend into the next slot.
                let slots = [place, place + 7].map(slot_at);
                named = named.and_then(|named| Some(named | 1 << slots[0]? | 1 << slots[1]?));
            }
            6 => {
                raw.store(first % BUFFERS, value);
                named = None;
            }
            _ => fixture.hostile.is_away.store(fields[1] & 1 == 1, Ordering::Relaxed),
        }
        raw.ring();
    }
    end(fixture, raw, named);
    fixture.hostile.is_away.store(false, Ordering::Relaxed);
    if bytes.first().is_some_and(|byte| byte % 16 == 0) {
        fixture.check_good_client(bytes[0]);
        fixture.wait_for_nobody();
    }
}

/// Decodes the entry of a step.
fn line(fields: &[u8; STEP_BYTES]) -> Line {
    let [kind, operation, flags, slot, rest @ ..] = fields;
    let (first, second) = rest.split_at(8);
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let (first, second) = (number(first), number(second));
    Line {
        operation: u32::from(operation % 8),
        flags: u32::from(*flags),
        slot: if *slot == u8::MAX { first } else { u64::from(slot % 64) },
        offset: match kind >> 3 & 3 {
            0 | 1 => first % (SIZE / 512 + 2) * 512,
            2 => first % (SIZE + 4096),
            _ => first,
        },
        length: match kind >> 5 & 3 {
            0 => second % 33 * 512,
            1 => SLOT_BYTES as u64 - second % 3,
            2 => second % (SLOT_BYTES as u64 + 2),
            _ => second,
        },
    }
}

/// Returns the slot whose buffer contains the offset, or `None` outside the buffers.
fn slot_at(place: u64) -> Option<u64> {
    let slot = place.checked_sub(BUFFERS)? / SLOT_BYTES as u64;
    (slot < SLOTS as u64).then_some(slot)
}

/// Disconnects the client once everything is served, and checks its memory: the server must not
/// touch buffers of slots that neither the client nor an entry named. `named` is a bitmap of those
/// slots.
fn end(fixture: &Fixture, raw: Raw, named: Option<u64>) {
    let Raw { socket, memory } = raw;
    drop(socket);
    fixture.wait_for_nobody();
    let Some(named) = named.filter(|_| pages_come_one_by_one()) else { return };
    let mut place = BUFFERS;
    // Reading or writing a page allocates it in the file. Untouched pages are holes.
    while let Ok(found) = seek(&memory, SeekFrom::Data(place)) {
        let is_named = slot_at(found).is_some_and(|slot| named & 1 << slot != 0);
        assert!(is_named, "{found} was touched, in a buffer that no request named");
        place = found + PAGE_BYTES;
    }
}

/// Returns whether shared memory is allocated in single pages, not as huge pages.
fn pages_come_one_by_one() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let setting = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
        let setting = std::fs::read_to_string(setting).unwrap_or_default();
        !["[always]", "[force]"].iter().any(|brings| setting.contains(brings))
    })
}
