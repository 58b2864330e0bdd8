//! The disk tested through an independent driver: the library `virtio-driver`.

mod support;

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{Ordering, fence};

use block_device::{ByteRange, Zeroes};
use conformance::{Abilities, Refusal, Subject};
use region::{Region, RegionSpec};
use support::{Exported, MemoryDevice};
use virtio_driver::{
    VhostUser, VirtioBlkConfig, VirtioBlkFeatureFlags, VirtioBlkQueue, VirtioBlkReqBuf,
    VirtioBlkTransport, VirtioFeatureFlags, VirtioTransport,
};

const MIB: usize = 1 << 20;
const BUFFER_BYTES: usize = 4 * MIB;

type Transport = VhostUser<VirtioBlkConfig, VirtioBlkReqBuf>;

/// A driver with one queue, and memory that it shares with the disk.
struct Driver {
    // Fields are dropped in this order.
    queue: VirtioBlkQueue<'static, usize>,
    transport: Box<Transport>,
    memory: Region,
    size_bytes: u64,
}

fn transport(exported: &Exported, extra: VirtioFeatureFlags) -> Transport {
    let features =
        VirtioFeatureFlags::VERSION_1.bits() | extra.bits() | VirtioBlkFeatureFlags::all().bits();
    let path = exported.socket().display().to_string();
    VhostUser::new(&path, features).expect("the export is there")
}

/// Shared memory, in a file of the test's folder on tmpfs.
fn shared_memory(folder: &tempfile::TempDir, transport: &mut Transport) -> Region {
    let path = folder.path().join("memory");
    let spec = RegionSpec { path: path.clone(), size_bytes: BUFFER_BYTES as u64 };
    let mut memory = Region::open(&spec).expect("memory");
    let file = File::options().read(true).write(true).open(path).expect("the file");
    let bytes = memory.bytes_mut();
    let address = bytes.as_ptr().addr();
    transport
        .map_mem_region(address, bytes.len(), file.as_raw_fd(), 0)
        .expect("the export takes memory");
    memory
}

fn shared_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("memory for files")
}

impl Driver {
    fn new(exported: &Exported, folder: &tempfile::TempDir, extra: VirtioFeatureFlags) -> Self {
        let mut transport = Box::new(transport(exported, extra));
        let memory = shared_memory(folder, &mut transport);
        let generic: &mut VirtioBlkTransport = &mut *transport;
        let config = generic.get_config().expect("a configuration");
        let mut queues = VirtioBlkQueue::setup_queues(generic, 1, 128).expect("a queue");
        let mut queue = queues.pop().expect("one was asked for");
        queue.set_used_notif_enabled(true);
        let size_bytes = u64::from(config.capacity) * 512;
        Self { queue, transport, memory, size_bytes }
    }

    fn kick(&mut self) {
        // Without event indices the library reads the device's flag with no barrier after it has
        // made the request available, and may miss that the device just went to sleep.
        fence(Ordering::SeqCst);
        if self.queue.avail_notif_needed() {
            self.transport.get_submission_notifier(0).notify().expect("an event");
        }
    }

    /// Waits for one request. Returns its context.
    fn finish(&mut self) -> Result<usize, i32> {
        loop {
            if let Some(done) = self.queue.completions().next() {
                return if done.ret == 0 { Ok(done.context) } else { Err(done.ret) };
            }
            self.transport.get_completion_fd(0).read().expect("an event");
        }
    }

    fn finish_one(&mut self) -> Result<(), Refusal> {
        self.kick();
        self.finish().map(|_| ()).map_err(|errno| Refusal(format!("error {errno}")))
    }
}

/// Adapter of the driver for the test suite: one request at a time.
struct DriverSubject(Mutex<Driver>);

impl DriverSubject {
    fn with<T>(&self, act: impl FnOnce(&mut Driver) -> T) -> T {
        act(&mut self.0.lock().expect("nothing panics with it"))
    }
}

impl Subject for DriverSubject {
    fn abilities(&self) -> Abilities {
        Abilities { granularity_bytes: 512, ..Abilities::ALL }
    }

    fn size_bytes(&self) -> u64 {
        self.with(|driver| driver.size_bytes)
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), Refusal> {
        self.with(|driver| {
            for (index, piece) in into.chunks_mut(BUFFER_BYTES).enumerate() {
                let offset = offset_bytes + (index * BUFFER_BYTES) as u64;
                let buffer = &mut driver.memory.bytes_mut()[..piece.len()];
                driver.queue.read(offset, buffer, 0).map_err(Refusal::of)?;
                driver.finish_one()?;
                piece.copy_from_slice(&driver.memory.bytes_mut()[..piece.len()]);
            }
            Ok(())
        })
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), Refusal> {
        self.with(|driver| {
            for (index, piece) in from.chunks(BUFFER_BYTES).enumerate() {
                let offset = offset_bytes + (index * BUFFER_BYTES) as u64;
                let buffer = &mut driver.memory.bytes_mut()[..piece.len()];
                buffer.copy_from_slice(piece);
                driver.queue.write(offset, buffer, 0).map_err(Refusal::of)?;
                driver.finish_one()?;
            }
            Ok(())
        })
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), Refusal> {
        self.with(|driver| {
            let may_unmap = zeroes == Zeroes::Unmap;
            let asked = driver.queue.write_zeroes(range.start, range.length, may_unmap, 0);
            asked.map_err(Refusal::of)?;
            driver.finish_one()
        })
    }

    fn discard(&self, range: ByteRange) -> Result<(), Refusal> {
        self.with(|driver| {
            driver.queue.discard(range.start, range.length, 0).map_err(Refusal::of)?;
            driver.finish_one()
        })
    }

    fn flush(&self) -> Result<(), Refusal> {
        self.with(|driver| {
            driver.queue.flush(0).map_err(Refusal::of)?;
            driver.finish_one()
        })
    }
}

#[track_caller]
fn check_conformance(extra: VirtioFeatureFlags) {
    let exported = Exported::new(MemoryDevice::new(32 * MIB), 1);
    let folder = shared_folder();
    let driver = Driver::new(&exported, &folder, extra);
    let ran = conformance::check(&DriverSubject(Mutex::new(driver)), 5);
    assert_eq!(ran, conformance::case_count());
}

#[test]
fn a_driver_with_event_indices_passes_the_suite() {
    check_conformance(VirtioFeatureFlags::RING_EVENT_IDX);
}

#[test]
fn a_driver_without_event_indices_passes_the_suite() {
    check_conformance(VirtioFeatureFlags::empty());
}

/// Goal: with 32 requests in flight, each read returns the last write of its block.
/// Method: random blocks, one request for each block at a time, compared with a model.
#[test]
fn thirty_two_requests_in_flight_follow_a_model() {
    const BLOCKS: usize = 512;
    const SLOTS: usize = 32;
    let exported = Exported::new(MemoryDevice::new(BLOCKS * 4096), 1);
    let folder = shared_folder();
    let mut driver = Driver::new(&exported, &folder, VirtioFeatureFlags::RING_EVENT_IDX);
    let mut contents = vec![0_u8; BLOCKS];
    let mut pending: HashMap<usize, (usize, Option<u8>)> = HashMap::new();
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        usize::try_from((state >> 33) % below).expect("small")
    };
    for step in 0..20_000_usize {
        let slot = if pending.len() < SLOTS {
            (0..SLOTS).find(|slot| !pending.contains_key(slot)).expect("one is free")
        } else {
            driver.kick();
            let slot = driver.finish().expect("it succeeds");
            let (block, written) = pending.remove(&slot).expect("it is in flight");
            let found = &driver.memory.bytes_mut()[slot * 4096..(slot + 1) * 4096];
            match written {
                Some(value) => contents[block] = value,
                None => assert!(found.iter().all(|byte| *byte == contents[block]), "step {step}"),
            }
            slot
        };
        let block = random(BLOCKS as u64);
        if pending.values().any(|(busy, _)| *busy == block) {
            continue;
        }
        let buffer = &mut driver.memory.bytes_mut()[slot * 4096..(slot + 1) * 4096];
        let offset = (block * 4096) as u64;
        let written = (random(2) == 0).then(|| u8::try_from(step % 255).expect("small"));
        match written {
            Some(value) => {
                buffer.fill(value);
                driver.queue.write(offset, buffer, slot).expect("there is room");
            }
            None => driver.queue.read(offset, buffer, slot).expect("there is room"),
        }
        pending.insert(slot, (block, written));
    }
}
