//! Clients that disconnect, reconnect, fork, wait, and are numerous.

use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use adaptive_polling::{SPIN_MAX_DEFAULT, SpinPermits};
use block_device::{
    BlockDevice, ByteRange, DeviceError, Extent, Geometry, ReadOnly, SectorSize, WriteCache, Zeroes,
};
use model::ModelVolume;
use ring_pair::{PATIENCE, Running, VOLUME_NAME, wait_until};
use ring_server::{Access, Config, OpenVolume, Peer, Quota, Server, Volumes};
use sdk::{Client, ClientOptions, Completion, Submission, Target};

const SIZE: u64 = 16 << 20;

fn running() -> Running {
    Running::new(Arc::new(ModelVolume::new(SIZE, SectorSize::Bytes4096)))
}

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[test]
fn many_threads_read_what_they_wrote() {
    let running = running();
    let device = running.open();
    thread::scope(|scope| {
        // More threads than a connection has lanes.
        for thread in 0..24_u64 {
            let device = device.clone();
            scope.spawn(move || {
                let start = thread * (256 << 10);
                for round in 0..8 {
                    let data = pattern(thread * 100 + round, 200_000);
                    device.write(start + round, &data).expect("it is inside");
                    let mut read = vec![0; data.len()];
                    device.read(start + round, &mut read).expect("it is inside");
                    assert!(read == data, "thread {thread}, round {round}");
                }
            });
        }
    });
}

#[test]
fn slices_are_filled_one_after_the_other() {
    let running = running();
    let device = running.open();
    let data = pattern(5, 100_000);
    let (first, rest) = data.split_at(33_333);
    let (second, third) = rest.split_at(1);
    let parts = [IoSlice::new(first), IoSlice::new(second), IoSlice::new(&[]), IoSlice::new(third)];
    device.write_vectored(777, &parts).expect("it is inside");
    let (mut head, mut tail) = (vec![0; 90_001], vec![0; 9_999]);
    let mut parts = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)];
    device.read_vectored(777, &mut parts).expect("it is inside");
    assert!([head, tail].concat() == data);
}

#[test]
fn requests_wait_for_a_server_that_comes_back() {
    let running = running();
    let device = running.open();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (device, is_over) = (device.clone(), &is_over);
            scope.spawn(move || {
                let start = thread << 20;
                // At least once, also by a thread that begins at the end.
                for round in 1.. {
                    let data = pattern(round, 70_000);
                    device.write(start, &data).expect("the server comes back");
                    let mut read = vec![0; data.len()];
                    device.read(start, &mut read).expect("the server comes back");
                    assert!(read == data, "thread {thread}, round {round}");
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                }
            });
        }
        for _ in 0..10 {
            wait_until("the client is there", || running.client_count() > 0);
            assert_eq!(running.stop(), 0, "all clients end");
            running.start();
        }
        is_over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_client_that_has_gone_leaves_nothing_behind() {
    let running = running();
    let others = thread_count();
    let mapped_before = rings_mapped();
    let devices: Vec<_> = (0..20).map(|_| running.open()).collect();
    devices.iter().for_each(|device| device.write(0, &[1; 65536]).expect("it is inside"));
    assert_eq!(running.client_count(), 20);
    drop(devices);
    wait_until("all clients have gone", || running.client_count() == 0);
    wait_until("their memory has gone", || rings_mapped() <= mapped_before);
    wait_until("their threads have gone", || thread_count() <= others);
    assert_eq!(running.status().traffic.writes, 20 * 4);
}

fn thread_count() -> usize {
    std::fs::read_dir("/proc/self/task").expect("there is procfs").count()
}

/// Number of mappings of rings in this process, of servers and clients.
fn rings_mapped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("there is procfs");
    maps.lines().filter(|line| line.contains("memlane-ring")).count()
}

#[test]
fn a_client_too_many_is_told_so() {
    let device = Arc::new(ModelVolume::new(SIZE, SectorSize::Bytes4096));
    let running = Running::with_clients(device, 8);
    let target = Target::Name(VOLUME_NAME.to_owned());
    let client = running.client();
    wait_until("it has looked who serves", || running.status().handshakes == 0);
    let open = |_| client.open(&target).expect("there are fewer than eight");
    let _open: Vec<_> = (0..8).map(open).collect();
    let options = ClientOptions { room_patience: Duration::ZERO, ..ClientOptions::default() };
    for _ in 0..100 {
        let client = Client::connect_with(&running.socket(), options).expect("the server listens");
        let error = client.open(&target).expect_err("eight are there");
        assert_eq!(error.errno(), rustix::io::Errno::USERS.raw_os_error());
        assert!(error.to_string().contains("the limits are 8 in all"), "{error}");
    }
    wait_until("they were counted", || running.status().refused >= 100);
}

#[test]
fn a_client_too_many_gets_the_place_of_one_that_goes() {
    let device = Arc::new(ModelVolume::new(SIZE, SectorSize::Bytes4096));
    let running = Running::with_clients(device, 1);
    let first = running.open();
    let before = running.status().refused;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let options = ClientOptions { room_patience: PATIENCE, ..ClientOptions::default() };
            let client = Client::connect_with(&running.socket(), options).expect("a server");
            let opened = client.open(&Target::Name(VOLUME_NAME.to_owned()));
            opened.map(drop).map_err(|error| error.to_string())
        });
        // More than the query of the server's identity.
        wait_until("it was told to wait", || running.status().refused > before + 1);
        assert!(!waiting.is_finished());
        drop(first);
        assert_eq!(waiting.join().expect("the thread ends"), Ok(()));
    });
}

#[test]
fn what_is_not_there_is_named() {
    let running = running();
    let error = running.client().open(&Target::Name("web".to_owned())).expect_err("no such volume");
    assert!(error.to_string().contains("only the volume"), "{error}");
    let socket = running.socket();
    assert_eq!(running.stop(), 0);
    let error = Client::connect(&socket).expect_err("there is no server");
    assert!(error.to_string().contains(&socket.display().to_string()), "{error}");
    assert!(error.to_string().contains("check that memlaned runs"), "{error}");
}

#[test]
fn a_new_size_is_seen_at_once() {
    let volume = Arc::new(ModelVolume::new(SIZE, SectorSize::Bytes4096));
    let running = Running::new(Arc::<ModelVolume>::clone(&volume));
    let device = running.open();
    volume.resize(2 * SIZE);
    running.resized();
    assert_eq!(device.geometry().expect("the server is there").size_bytes, 2 * SIZE);
    device.write(2 * SIZE - 100_000, &pattern(1, 100_000)).expect("it is inside now");
}

#[test]
fn many_requests_of_one_thread_are_in_flight_at_once() {
    let running = running();
    let device = running.open();
    let mut lane = device.lane().expect("a lane");
    let mut done: Vec<Completion> = Vec::with_capacity(64);
    let block = |index: u64| pattern(index, 5000 * usize::try_from(1 + index % 9).expect("few"));
    for index in 0..200_u64 {
        let from = block(index);
        lane.submit(Submission::Write { offset: index * 50_000, from }).expect("there is room");
    }
    while lane.pending() > 0 {
        lane.wait(&mut done, ring_pair::PATIENCE);
        assert!(done.drain(..).all(|completion| completion.errno == 0));
    }
    let mut expected = std::collections::HashMap::new();
    for index in 0..200_u64 {
        let into = vec![0; block(index).len()];
        let offset = index * 50_000;
        let token = lane.submit(Submission::Read { offset, into }).expect("there is room");
        expected.insert(token, block(index));
    }
    assert_eq!(running.stop(), 0);
    running.start();
    while lane.pending() > 0 {
        lane.wait(&mut done, ring_pair::PATIENCE);
        for completion in done.drain(..) {
            assert_eq!(completion.errno, 0, "{:?}", completion.token);
            assert!(expected.remove(&completion.token).as_ref() == Some(&completion.data));
        }
    }
    assert!(expected.is_empty());
}

#[test]
fn a_lane_that_is_only_polled_notices_that_the_server_has_gone() {
    let running = running();
    let device = running.open();
    let mut lane = device.lane().expect("a lane");
    assert_eq!(running.stop(), 0);
    lane.submit(Submission::Write { offset: 0, from: vec![7; 4096] }).expect("there is room");
    running.start();
    assert_eq!(polled(&mut lane), 0, "it was sent again");
    assert_eq!(running.stop(), 0);
    let options = ClientOptions { patience: Duration::ZERO, ..ClientOptions::default() };
    running.start();
    let client = Client::connect_with(&running.socket(), options).expect("the server listens");
    let device = client.open(&Target::Name(VOLUME_NAME.to_owned())).expect("it is there");
    let mut lane = device.lane().expect("a lane");
    assert_eq!(running.stop(), 0);
    lane.submit(Submission::Flush).expect("there is room");
    assert_eq!(polled(&mut lane), rustix::io::Errno::IO.raw_os_error(), "it was given up");
}

/// Returns the result of the one request in flight.
fn polled(lane: &mut sdk::Lane) -> i32 {
    let mut ended = Vec::new();
    let start = Instant::now();
    while lane.poll(&mut ended) == 0 {
        assert!(start.elapsed() < PATIENCE, "nothing has come");
    }
    ended[0].errno
}

/// A device whose flushes end when the test permits it.
struct SlowFlush {
    volume: ModelVolume,
    may_end: Mutex<bool>,
    changed: Condvar,
}

impl BlockDevice for SlowFlush {
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
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        self.volume.read_in_place(range, scratch, visit)
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.volume.write(offset_bytes, from)
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError> {
        self.volume.write_zeroes(range, zeroes)
    }

    fn discard(&self, range: ByteRange) -> Result<(), DeviceError> {
        self.volume.discard(range)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let may_end = self.may_end.lock().expect("no test panics with it");
        let may_end = self.changed.wait_while(may_end, |may_end| !*may_end);
        drop(may_end.expect("no test panics with it"));
        self.volume.flush()
    }

    fn write_cache(&self) -> WriteCache {
        WriteCache::Volatile
    }

    fn extents(&self, range: ByteRange, count_max: usize) -> Result<Vec<Extent>, DeviceError> {
        self.volume.extents(range, count_max)
    }
}

#[test]
fn a_flush_that_takes_long_holds_up_no_other_request_of_the_client() {
    let volume = ModelVolume::new(SIZE, SectorSize::Bytes4096);
    let slow = SlowFlush { volume, may_end: Mutex::new(false), changed: Condvar::new() };
    let slow = Arc::new(slow);
    let running = Running::new(Arc::<SlowFlush>::clone(&slow));
    let device = running.open();
    thread::scope(|scope| {
        let flushing = device.clone();
        let flush = scope.spawn(move || flushing.flush());
        wait_until("the flush has come", || running.status().traffic.flushes == 1);
        let others = scope.spawn(|| {
            for round in 0..100 {
                let range = ByteRange::new(round * 4096, 4096);
                device.write(round * 4096, &[7; 4096]).expect("it is inside");
                device.read(round * 4096, &mut [0; 4096]).expect("it is inside");
                device.write_zeroes(range, Zeroes::Unmap).expect("it is inside");
                device.discard(range).expect("it is inside");
            }
        });
        let start = Instant::now();
        while !others.is_finished() && start.elapsed() < PATIENCE {
            thread::yield_now();
        }
        let have_passed = others.is_finished() && !flush.is_finished();
        // Before the assertion, so that no thread is left waiting.
        *slow.may_end.lock().expect("no test panics with it") = true;
        slow.changed.notify_all();
        flush.join().expect("it ends").expect("and succeeds");
        others.join().expect("they are inside");
        assert!(have_passed, "requests waited for the flush");
    });
}

/// Gives read-only access to clients that open the volume by name, beside a client with exclusive
/// access. If `is_forgetful`, reconnecting clients get full access.
struct Beside {
    device: Arc<dyn BlockDevice>,
    is_forgetful: bool,
}

impl Volumes for Beside {
    fn admits(&self, _: &Peer) -> bool {
        true
    }

    fn open(&self, target: &Target, _: &Peer) -> Result<OpenVolume, ring_server::Refusal> {
        let is_whole = match target {
            Target::Again { access: Access::ReadOnly, .. } => self.is_forgetful,
            Target::Again { access: Access::ReadWrite, .. } => true,
            Target::DeviceNumber { .. } | Target::File { .. } => true,
            Target::Name(_) | Target::VolumeId(_) => false,
        };
        let device = Arc::clone(&self.device);
        let device = if is_whole { device } else { Arc::new(ReadOnly(device)) };
        Ok(OpenVolume { id: 7, name: VOLUME_NAME.to_owned(), device })
    }
}

fn serve(path: &Path, volumes: Beside) -> Server {
    let config = Config {
        path: path.to_owned(),
        quota: Quota { total: 16, per_user: 16, reserved: 0 },
        handshake_time_max: PATIENCE,
        spin_permits: Arc::new(SpinPermits::for_this_machine()),
        spin_max: SPIN_MAX_DEFAULT,
    };
    Server::start(config, Arc::new(volumes)).expect("the server starts")
}

/// Returns the result of a write through a separate lane.
fn write_by_lane(device: &sdk::Device) -> i32 {
    let mut lane = match device.lane() {
        Ok(lane) => lane,
        Err(error) => return error.errno(),
    };
    lane.submit(Submission::Write { offset: 0, from: vec![7; 4096] }).expect("there is room");
    let mut ended = Vec::new();
    while lane.wait(&mut ended, PATIENCE) == 0 {}
    ended[0].errno
}

#[test]
fn who_may_only_read_a_volume_does_so_by_every_lane_and_after_every_return() {
    let model = Arc::new(ModelVolume::new(SIZE, SectorSize::Bytes4096));
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ring.sock");
    let volumes = |is_forgetful| Beside { device: Arc::<ModelVolume>::clone(&model), is_forgetful };
    let server = serve(&path, volumes(false));
    let client = Client::connect(&path).expect("it listens");
    let beside = client.open(&Target::Name(VOLUME_NAME.to_owned())).expect("it is there");
    let holder = client.open(&Target::File { device: 1, inode: 1 }).expect("it is there");
    assert_eq!((beside.is_read_only(), holder.is_read_only()), (true, false));
    let write = |device: &sdk::Device| device.write(0, &[7; 4096]).map_err(|error| error.errno());
    let refused = rustix::io::Errno::ROFS.raw_os_error();
    let check = || {
        assert_eq!((write(&beside), write_by_lane(&beside)), (Err(refused), refused));
        assert_eq!((write(&holder), write_by_lane(&holder)), (Ok(()), 0));
    };
    check();
    server.stop(PATIENCE);
    let server = serve(&path, volumes(false));
    check();
    server.stop(PATIENCE);
    let _forgetful = serve(&path, volumes(true));
    check();
}
