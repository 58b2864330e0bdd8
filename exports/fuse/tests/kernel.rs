//! Tests of the export with the real kernel: files, loop devices, file systems, and kills.
//!
//! Requires root, `/dev/fuse` and loop devices; without them each test reports that it is skipped.
#![forbid(unsafe_code)]

#[path = "support/fixture.rs"]
mod fixture;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fixture::{Fixture, eventually, is_bound, read_number, run, tool};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, seek};

const MIB: u64 = 1 << 20;

/// Values from the kernel's `asm-generic/fcntl.h`; no dependency exports them.
const O_DSYNC: i32 = 0o10_000;
const O_SYNC: i32 = 0o4_000_000 | O_DSYNC;

/// Blocks flushes of some volumes while it exists. It must be created inside the scope whose
/// threads wait for the flushes, so that a failing test ends too.
struct Gates(Vec<PathBuf>);

impl Gates {
    fn close(fixture: &Fixture, names: &[&str]) -> Self {
        Self::make(names.iter().map(|name| fixture.gate(name)).collect())
    }

    fn make(gates: Vec<PathBuf>) -> Self {
        gates.iter().for_each(|gate| drop(File::create(gate).expect("there is room")));
        Self(gates)
    }
}

impl Drop for Gates {
    fn drop(&mut self) {
        self.0.iter().for_each(|gate| fs::remove_file(gate).expect("it is there"));
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("a served file opens")
}

#[test]
fn the_directory_shows_each_volume_with_its_size() {
    let Some(fixture) = Fixture::build(&[("db", 512, 8 * MIB), ("logs", 4096, 3 * MIB)]) else {
        return;
    };
    let mut names: Vec<_> = fs::read_dir(fixture.mount_point())
        .expect("the directory is served")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["db", "logs"]);
    let metadata = fs::metadata(fixture.file("db")).expect("the file is served");
    assert_eq!((metadata.len(), metadata.mode() & 0o777), (8 * MIB, 0o600));
    let missing = fs::metadata(fixture.file("missing")).expect_err("there is no such volume");
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
}

#[test]
fn bytes_written_to_a_file_are_read_back() {
    let Some(fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    let file = open(&fixture.file("db"));
    let data: Vec<u8> = (0..3_000_000_u32).map(|i| i.to_le_bytes()[1]).collect();
    file.write_all_at(&data, 12_345).expect("the volume takes it");
    file.sync_all().expect("the volume flushes");
    let mut back = vec![0; data.len()];
    file.read_exact_at(&mut back, 12_345).expect("the volume returns it");
    assert!(back == data, "the bytes differ");
    let mut before = [1; 100];
    file.read_exact_at(&mut before, 12_345 - 100).expect("the volume returns it");
    assert_eq!(before, [0; 100]);
    let past_end = file.write_all_at(b"x", 8 * MIB).expect_err("the volume ends there");
    assert_eq!(past_end.kind(), io::ErrorKind::FileTooLarge);
}

#[test]
fn a_write_across_the_end_of_a_file_writes_what_fits() {
    let Some(fixture) = Fixture::build(&[("db", 512, 4 * MIB)]) else { return };
    let path = fixture.file("db");
    let data = vec![7; usize::try_from(3 * MIB).expect("it is small")];
    for (flags, left) in [
        (0, 5000),
        (O_DSYNC, 5000),
        // More than one kernel request, the last of which is past the end.
        (0, MIB),
        (0, MIB + 512),
        (O_DSYNC, MIB + 512),
    ] {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(flags);
        let file = file.open(&path).expect("the file is served");
        let written = file.write_at(&data, 4 * MIB - left).expect("some of it fits");
        assert_eq!(u64::try_from(written), Ok(left), "{flags:#o}");
        let mut back = vec![0; written];
        file.read_exact_at(&mut back, 4 * MIB - left).expect("the volume returns it");
        assert!(back == data[..written], "{flags:#o}, {left} bytes");
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4 * MIB)
            .expect("the volume takes discards");
    }
    assert_eq!(fs::metadata(&path).expect("the file is served").len(), 4 * MIB);
}

/// Goal: the number of concurrent flushes is that of the slots, and flushes never occupy the last
/// worker. Method: more blocked flushes than workers; then reads of all volumes, and writes to
/// another one. (Writes to a file that is being flushed wait in the kernel.)
#[test]
fn flushes_that_take_long_hold_up_neither_others_nor_reads_nor_writes() {
    let names: Vec<String> = (0..13).map(|number| format!("v{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let volumes: Vec<_> = names.iter().map(|&name| (name, 512, 8 * MIB)).collect();
    let Some(mut fixture) = Fixture::build(&volumes) else { return };
    let files: Vec<_> = names.iter().map(|name| open(&fixture.file(name))).collect();
    let (other, flushed) = files.split_first().expect("there are some");
    thread::scope(|scope| {
        let gates = Gates::close(&fixture, &names);
        let flushes: Vec<_> = flushed.iter().map(|file| scope.spawn(|| file.sync_all())).collect();
        fixture.wait_for_count("flushes", 8);
        for file in flushed {
            file.read_exact_at(&mut [0; 512], 0).expect("the volume returns it");
            other.write_all_at(&[8; 512], 4096).expect("the volume takes it");
        }
        assert!(flushes.iter().all(|flush| !flush.is_finished()), "the gates are closed");
        assert_eq!(fixture.count("flushes"), 8, "the others wait");
        drop(gates);
        for flush in flushes {
            flush.join().expect("the thread returns").expect("the volume flushes");
        }
        assert_eq!(fixture.count("flushes"), 12);
    });
}

/// Maximum wait for a writeback to begin, and the number of attempts, because the prediction of a
/// flush can fail.
const WRITE_BACK_TIME: Duration = Duration::from_secs(2);
const WRITE_BACK_TRIES: usize = 20;

/// Blocks the volume's flushes and makes a writeback wait.
fn gates_before_a_write_back(
    fixture: &Fixture,
    file: &File,
    write_in_turn: impl Fn(),
    early_count: impl Fn() -> u64,
) -> Gates {
    for _ in 0..WRITE_BACK_TRIES {
        let before = early_count();
        let gates = Gates::close(fixture, &["db"]);
        file.write_all_at(&[6; 512], 0).expect("the volume takes it");
        let deadline = Instant::now() + WRITE_BACK_TIME;
        while Instant::now() < deadline {
            if early_count() > before {
                return gates;
            }
            thread::yield_now();
        }
        drop(gates);
        write_in_turn();
    }
    panic!("no write-back was begun after a write");
}

/// Goal: with alternating writes and flushes, writeback starts after the write, and a disk that
/// hangs then delays only the caller that flushes. Method: repeat until writeback starts early;
/// with flushes blocked during a flush and during a writeback, other requests are served.
#[test]
fn a_flush_that_is_expected_is_begun_early_and_holds_up_nobody_else() {
    let Some(fixture) = Fixture::build(&[("db", 512, 8 * MIB), ("logs", 512, 8 * MIB)]) else {
        return;
    };
    let (file, other) = (open(&fixture.file("db")), open(&fixture.file("logs")));
    let early = fixture.early("db");
    File::create(&early).expect("there is room");
    let early_count = || fs::metadata(&early).expect("it is there").len();
    let write_in_turn = || {
        let before = early_count();
        eventually("the volume is written back early", || {
            file.write_all_at(&[5; 512], 0).expect("the volume takes it");
            file.sync_all().expect("the volume flushes");
            early_count() > before + 2
        });
    };
    for writes_first in [false, true] {
        write_in_turn();
        let gates = match writes_first {
            true => gates_before_a_write_back(&fixture, &file, write_in_turn, early_count),
            false => Gates::close(&fixture, &["db"]),
        };
        thread::scope(|scope| {
            let flush = scope.spawn(|| file.sync_all());
            for _ in 0..10 {
                other.read_exact_at(&mut [0; 512], 0).expect("the volume returns it");
                other.write_all_at(&[7; 512], 0).expect("the volume takes it");
                other.sync_all().expect("another volume flushes");
            }
            assert!(!flush.is_finished(), "the gate is closed");
            drop(gates);
            flush.join().expect("the thread returns").expect("the volume flushes");
        });
    }
}

/// Goal: a write to a file that is open with `O_DSYNC` returns after the flush. Method: with the
/// flush blocked, the bytes can be read and the writer still waits.
#[test]
fn sync_of_a_file_or_a_device_that_is_named_flushes_it() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    let device = fixture.attach("db");
    let sync = |path: &Path| {
        open(path).write_all_at(&[4; 512], 0).expect("it is written");
        tool("sync").arg(path).stderr(Stdio::null()).status().expect("it is installed").success()
    };
    let both = [fixture.file("db"), device];
    assert_eq!(both.each_ref().map(|path| sync(path)), [true; 2]);
    File::create(fixture.broken("db")).expect("the directory is writable");
    assert_eq!(both.each_ref().map(|path| sync(path)), [false; 2]);
    fs::remove_file(fixture.broken("db")).expect("it is there");
}

#[test]
fn a_durable_write_waits_for_a_flush() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    let file = open(&fixture.file("db"));
    for (flags, flush_count) in [(O_DSYNC, 1), (O_SYNC, 2)] {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(flags);
        let durable = options.open(fixture.file("db")).expect("a served file opens");
        thread::scope(|scope| {
            let gates = Gates::close(&fixture, &["db"]);
            let write = scope.spawn(|| durable.write_all_at(&[5; 512], 0));
            fixture.wait_for_count("flushes", flush_count);
            let mut bytes = [0; 512];
            file.read_exact_at(&mut bytes, 0).expect("the volume returns it");
            assert_eq!(bytes, [5; 512]);
            assert!(!write.is_finished(), "the gate is closed");
            drop(gates);
            write.join().expect("the thread returns").expect("the volume takes it");
        });
    }
}

/// Goal: a reader that waits for absent contents delays no other request. Method: blocked reads and
/// a blocked durable write in all slots but one; then all other operations.
#[test]
fn contents_that_are_away_hold_up_nobody_else() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB), ("logs", 512, 8 * MIB)]) else {
        return;
    };
    let (file, other) = (open(&fixture.file("db")), open(&fixture.file("logs")));
    let durable = open_durably(&fixture.file("db"));
    thread::scope(|scope| {
        let gates = Gates::make(vec![fixture.away("db")]);
        let read = || file.read_exact_at(&mut [0; 512], 0);
        let mut waiting: Vec<_> = (0..6).map(|_| scope.spawn(read)).collect();
        waiting.push(scope.spawn(|| durable.write_all_at(&[7; 512], 512)));
        eventually("all have begun", || fixture.requests_served() == 7);
        file.read_exact_at(&mut [0; 512], 4096).expect("this is not away");
        other.write_all_at(&[8; 512], 0).expect("another volume takes it");
        other.sync_all().expect("another volume flushes");
        assert!(waiting.iter().all(|one| !one.is_finished()), "the gate is closed");
        drop(gates);
        for one in waiting {
            one.join().expect("the thread returns").expect("it is done");
        }
    });
    assert_eq!(fixture.count("flushes"), 2);
}

/// Checks whether the kernel sends a flush for an operation on a file.
#[track_caller]
fn check_flush(fixture: &mut Fixture, expected: bool, what: impl FnOnce()) {
    let before = fixture.count("flushes");
    what();
    assert_eq!(fixture.count("flushes") > before, expected);
}

#[test]
fn a_device_sends_flushes_while_its_volume_has_a_write_cache() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    let device = fixture.attach("db");
    let file = open(&device);
    let mut options = OpenOptions::new();
    let durable = options.write(true).custom_flags(O_DSYNC);
    let durable = durable.open(&device).expect("the device opens");
    let cache = fixture::attribute(&device, "queue/write_cache");
    let sync = || file.sync_all().expect("the device flushes");
    let write = || durable.write_all_at(&[6; 4096], 0).expect("the device takes it");

    assert_eq!(fixture::read_attribute(&cache), "write back");
    check_flush(&mut fixture, true, sync);
    check_flush(&mut fixture, true, write);
    File::create(fixture.cacheless("db")).expect("the directory is writable");
    assert_eq!(fixture.ask("write-cache db"), "ok ");
    assert_eq!(fixture::read_attribute(&cache), "write through");
    check_flush(&mut fixture, false, sync);
    check_flush(&mut fixture, false, write);
    fs::remove_file(fixture.cacheless("db")).expect("it is there");
    assert_eq!(fixture.ask("write-cache db"), "ok ");
    check_flush(&mut fixture, true, sync);
    check_flush(&mut fixture, true, write);
}

#[test]
fn a_device_learns_at_the_next_start_that_its_volume_has_a_write_cache_now() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    File::create(fixture.cacheless("db")).expect("the directory is writable");
    let device = fixture.attach("db");
    let cache = fixture::attribute(&device, "queue/write_cache");
    assert_eq!(fixture::read_attribute(&cache), "write through");
    fs::remove_file(fixture.cacheless("db")).expect("it is there");
    fixture.kill();
    fixture.start();
    assert_eq!(fixture.attach("db"), device);
    assert_eq!(fixture::read_attribute(&cache), "write back");
}

/// Goal: a device that flushes each write loses no acknowledged write, zero or discard at a power
/// loss, also after a restart and a change of durability.
#[test]
fn a_device_that_flushes_each_write_needs_no_flush_by_the_kernel() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    let device = fixture.attach_durable("db");
    let cache = fixture::attribute(&device, "queue/write_cache");
    let check = |fixture: &mut Fixture, file: &File| {
        assert_eq!(fixture::read_attribute(&cache), "write through");
        check_flush(fixture, true, || file.write_all_at(&[7; 4096], 0).expect("it is written"));
        for way in [&["--zeroout"][..], &[]] {
            let mut discard = tool("blkdiscard");
            discard.args(way).args(["--offset=4096", "--length=8192"]).arg(&device);
            check_flush(fixture, true, || run(&mut discard));
        }
        check_flush(fixture, false, || file.sync_all().expect("nothing is to be flushed"));
    };
    let mut options = OpenOptions::new();
    // The kernel submits the write before it returns.
    let through = options.write(true).custom_flags(O_DSYNC);
    let file = through.open(&device).expect("the device opens");
    check(&mut fixture, &file);
    File::create(fixture.cacheless("db")).expect("the directory is writable");
    assert_eq!(fixture.ask("write-cache db"), "ok ");
    assert_eq!(fixture::read_attribute(&cache), "write through");
    fs::remove_file(fixture.cacheless("db")).expect("it is there");
    assert_eq!(fixture.ask("write-cache db"), "ok ");
    check(&mut fixture, &file);
    fixture.kill();
    fixture.start();
    check(&mut fixture, &file);
    // Attaching again after the list was lost finds the device and changes nothing.
    assert_eq!(fixture.attach("db"), device);
    check(&mut fixture, &file);
    drop(file);
    assert_eq!(fixture.ask("detach db"), "ok ");
    let device = fixture.attach("db");
    let cache = fixture::attribute(&device, "queue/write_cache");
    assert_eq!(fixture::read_attribute(&cache), "write back");
}

/// Goal: a failed flush is reported to every caller, for each kind of request, and all other
/// requests are served as usual.
#[test]
fn a_flush_that_fails_is_an_error_to_those_who_asked_for_it() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB), ("logs", 512, 8 * MIB)]) else {
        return;
    };
    let device = fixture.attach("db");
    let durable = |path: &Path| {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(O_DSYNC);
        options.open(path).expect("it opens")
    };
    let (file, other) = (open(&fixture.file("db")), open(&fixture.file("logs")));
    let [device, durable_file, durable_device] =
        [open(&device), durable(&fixture.file("db")), durable(&device)];
    let all = || {
        let writes = [&durable_file, &durable_device].map(|file| file.write_all_at(&[4; 512], 0));
        let [file_write, device_write] = writes;
        [file.sync_all(), device.sync_all(), file_write, device_write]
    };
    File::create(fixture.broken("db")).expect("the directory is writable");
    for outcome in all() {
        let error = outcome.expect_err("nothing was made durable");
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    }
    other.sync_all().expect("another volume flushes");
    file.write_all_at(&[5; 512], 0).expect("it is written nevertheless");
    fs::remove_file(fixture.broken("db")).expect("it is there");
    assert!(all().iter().all(Result::is_ok));
}

/// Goal: a blocked flush does not prevent the export from stopping, and its caller sees no error.
/// Method: stop the server during a flush; the next server gets the flush again and completes it.
#[test]
fn a_server_stops_although_a_flush_does_not_end() {
    for resumes_from_memory in [false, true] {
        check_stop_during_a_flush(resumes_from_memory);
    }
}

fn check_stop_during_a_flush(resumes_from_memory: bool) {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB), ("logs", 512, 8 * MIB)]) else {
        return;
    };
    if resumes_from_memory {
        fixture.resume_from_memory();
    }
    let device = fixture.attach("db");
    // The kernel flushes a file when a device is bound to it.
    let flushes_before = fixture.count("flushes");
    let file = open(&device);
    thread::scope(|scope| {
        let gates = Gates::close(&fixture, &["db"]);
        let flush = scope.spawn(|| file.sync_all());
        fixture.wait_for_count("flushes", flushes_before + 1);
        let other = open(&fixture.file("logs"));
        other.sync_all().expect("another volume flushes");
        fixture.stop("connection");
        assert!(!flush.is_finished(), "the gate is closed");
        fixture.start();
        fixture.wait_for_count("flushes", 1);
        drop(gates);
        flush.join().expect("the thread returns").expect("the device flushes");
    });
}

#[test]
fn holes_are_punched_zeroed_and_found() {
    let Some(fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    let file = open(&fixture.file("db"));
    file.write_all_at(&vec![7; 3 << 20], MIB).expect("the volume takes it");
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(MIB));
    assert_eq!(seek(&file, SeekFrom::Hole(MIB)), Ok(4 * MIB));
    let keep = FallocateFlags::KEEP_SIZE;
    fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, MIB + 100, MIB).expect("a hole");
    fallocate(&file, FallocateFlags::ZERO_RANGE | keep, 3 * MIB + 5, 10).expect("zeros");
    let mut bytes = vec![1; 8 << 20];
    file.read_exact_at(&mut bytes, 0).expect("the volume returns it");
    let sevens = bytes.iter().filter(|&&byte| byte == 7).count();
    assert_eq!(sevens, (3 << 20) - (1 << 20) - 10);
    let allocated = fallocate(&file, FallocateFlags::empty(), 0, MIB);
    assert_eq!(allocated, Err(rustix::io::Errno::OPNOTSUPP));
}

#[test]
fn a_file_can_be_neither_truncated_nor_made_nor_removed() {
    let Some(fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    let truncated =
        open(&fixture.file("db")).set_len(0).expect_err("volumes are resized elsewhere");
    let not_supported = rustix::io::Errno::OPNOTSUPP.raw_os_error();
    assert_eq!(truncated.raw_os_error(), Some(not_supported));
    let replaced = File::create(fixture.file("db")).expect_err("as > and cp do it");
    assert_eq!(replaced.raw_os_error(), Some(not_supported));
    fs::remove_file(fixture.file("db")).expect_err("volumes are deleted elsewhere");
    File::create(fixture.file("new")).expect_err("volumes are made elsewhere");
    assert_eq!(fs::metadata(fixture.file("db")).expect("it is still there").len(), 8 * MIB);
}

#[test]
fn a_volume_is_attached_with_its_sectors_direct_io_and_discard() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB), ("logs", 4096, 8 * MIB)]) else {
        return;
    };
    for (name, sector_bytes) in [("db", 512), ("logs", 4096)] {
        let device = fixture.attach(name);
        assert_eq!(read_number(&device, "queue/logical_block_size"), sector_bytes);
        assert_eq!(read_number(&device, "loop/dio"), 1);
        assert_eq!(read_number(&device, "size"), 8 * MIB / 512);
        assert_eq!(read_number(&device, "queue/rq_affinity"), 2);
        assert!(read_number(&device, "queue/discard_max_bytes") > 0);
        assert!(read_number(&device, "queue/write_zeroes_max_bytes") > 0);
        assert_eq!(fixture.attach(name), device, "attaching twice finds the same device");
    }
}

#[test]
fn what_is_not_there_is_neither_attached_nor_detached() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    for command in ["attach missing", "attach ..", "detach missing", "detach db"] {
        let answer = fixture.ask(command);
        assert!(answer.starts_with("error NotFound"), "{command}: {answer}");
    }
}

#[test]
fn fio_verifies_a_device_of_either_sector_size() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 64 * MIB), ("logs", 4096, 64 * MIB)])
    else {
        return;
    };
    for name in ["db", "logs"] {
        let device = fixture.attach(name);
        run(tool("fio").args(["--name=verify", "--rw=randwrite", "--bsrange=4k-256k"]).args([
            "--ioengine=libaio",
            "--iodepth=16",
            "--direct=1",
            "--size=64M",
            "--verify=crc32c",
            "--verify_state_save=0",
            "--verify_fatal=1",
            &format!("--filename={}", device.display()),
        ]));
    }
}

#[test]
fn a_file_system_lives_on_a_device_and_gives_space_back() {
    let Some(mut fixture) = Fixture::build(&[("db", 4096, 256 * MIB)]) else { return };
    let device = fixture.attach("db");
    run(tool("mkfs.ext4").args(["-q", "-E", "lazy_itable_init=0"]).arg(&device));
    let directory = fixture.mount_file_system(&device);
    fs::write(directory.join("a"), vec![3; 100 << 20]).expect("the file system has room");
    run(&mut tool("sync"));
    let full_bytes = fixture.allocated_bytes("db");
    assert!(full_bytes > 100 * MIB, "{full_bytes}");
    assert!(fixture.ask("detach db").starts_with("error Busy"), "a mounted device is busy");

    fs::remove_file(directory.join("a")).expect("the file is there");
    run(&mut tool("sync"));
    run(tool("fstrim").arg(&directory));
    let trimmed_bytes = fixture.allocated_bytes("db");
    assert!(trimmed_bytes < full_bytes - 90 * MIB, "{full_bytes} to {trimmed_bytes}");
    fixture.unmount_file_system();
    run(tool("fsck.ext4").args(["-fn"]).arg(&device));
}

#[test]
fn a_read_only_volume_is_mounted_and_changed_by_nobody() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 64 * MIB)]) else { return };
    let device = fixture.attach("db");
    run(tool("mkfs.ext4").args(["-q", "-E", "lazy_itable_init=0"]).arg(&device));
    let directory = fixture.mount_file_system(&device);
    fs::write(directory.join("a"), [3; 4096]).expect("the file system has room");
    fixture.unmount_file_system();
    assert_eq!(fixture.ask("detach db"), "ok ");
    fixture.kill();
    fixture.protect("db");
    fixture.start();

    let mode = fs::metadata(fixture.file("db")).expect("the file is served").mode();
    assert_eq!(mode & 0o777, 0o400);
    let refused = OpenOptions::new().write(true).open(fixture.file("db"));
    let refused = refused.expect_err("it must not be written");
    assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
    let device = fixture.attach("db");
    assert_eq!(read_number(&device, "ro"), 1);
    let directory = fixture.mount_file_system_read_only(&device);
    assert_eq!(fs::read(directory.join("a")).expect("the file is there"), [3; 4096]);
    fs::write(directory.join("b"), "b").expect_err("it is mounted read-only");
    fixture.unmount_file_system();
    let written = OpenOptions::new().write(true).open(&device);
    written.and_then(|file| file.write_all_at(&[1; 512], 0)).expect_err("it is read-only");
    assert_eq!(fixture.ask("detach db"), "ok ");
}

#[test]
fn a_discarded_range_reads_as_zeros_to_its_edges() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    let device = fixture.attach("db");
    fs::write(&device, vec![9; 8 << 20]).expect("the device takes it");
    run(tool("blkdiscard").args(["--offset=512", "--length=1049088"]).arg(&device));
    run(tool("blkdiscard").args(["-z", "--offset=4194816", "--length=512"]).arg(&device));
    let bytes = fs::read(&device).expect("the device returns it");
    let zeros = bytes.iter().filter(|&&byte| byte == 0).count();
    assert_eq!(zeros, 1_049_088 + 512);
    assert_eq!((bytes[511], bytes[512]), (9, 0));
}

#[test]
fn a_device_follows_the_size_of_its_volume() {
    let Some(mut fixture) = Fixture::build(&[("db", 4096, 8 * MIB)]) else { return };
    let device = fixture.attach("db");
    for size in [32 * MIB, 16 * MIB] {
        fixture.resize("db", size);
        assert_eq!(fixture.ask("resized db"), "ok ");
        assert_eq!(read_number(&device, "size"), size / 512);
    }
    let file = OpenOptions::new().write(true).open(&device).expect("the device opens");
    file.write_all_at(&[1; 4096], 16 * MIB - 4096).expect("the new end can be written");
}

#[test]
fn a_device_that_somebody_reads_is_busy_and_stays() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    let device = fixture.attach("db");
    let user = File::open(&device).expect("the device opens");
    let answer = fixture.ask("detach db");
    assert!(answer.starts_with("error Busy"), "{answer}");
    user.read_exact_at(&mut [0; 512], 0).expect("the device is still there");
    drop(user);
    assert_eq!(fixture.ask("detach db"), "ok ");
    assert_eq!(fixture.ask("attachments"), "ok ");
}

/// Binds a loop device to a file with `losetup`.
fn bind_by_hand(file: &Path, options: &[&str]) -> PathBuf {
    let mut losetup = tool("losetup");
    let losetup = losetup.args(["--find", "--show"]).args(options).arg(file);
    let found = losetup.stdout(Stdio::piped()).output();
    let output = found.expect("the tool is installed");
    assert!(output.status.success(), "{output:?}");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

fn unbind_by_hand(device: &Path) {
    run(tool("losetup").arg("--detach").arg(device));
    eventually("the device is free", || !is_bound(device));
}

#[test]
fn a_device_that_somebody_else_made_is_neither_taken_for_the_volumes_nor_detached() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 4 * MIB)]) else { return };
    for options in [&["--read-only"][..], &["--offset", "4096"], &["--direct-io=on"], &[]] {
        let foreign = bind_by_hand(&fixture.file("db"), options);
        let device = fixture.attach("db");
        assert_ne!(device, foreign, "{options:?}");
        assert_eq!(fixture.ask("attachments"), format!("ok db={}", device.display()));
        fixture.kill();
        fixture.start();
        assert_eq!(fixture.attach("db"), device, "the next server finds its own");
        assert_eq!(fixture.ask("detach db"), "ok ");
        assert!(is_bound(&foreign) && !is_bound(&device), "{options:?}");
        assert!(fixture.ask("detach db").starts_with("error NotFound"));
        unbind_by_hand(&foreign);
    }
}

#[test]
fn a_device_that_somebody_else_detached_is_not_named_any_more() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 4 * MIB), ("log", 512, 4 * MIB)]) else {
        return;
    };
    let device = fixture.attach("db");
    assert_eq!(fixture.ask("device db"), format!("ok {}", device.display()));
    run(tool("losetup").arg("--detach").arg(&device));
    eventually("the device is no more", || fixture.ask("device db") == "ok none");
    let foreign = bind_by_hand(&fixture.file("log"), &[]);
    assert_eq!(fixture.ask("device db"), "ok none");
    assert!(fixture.ask("detach db").starts_with("error NotFound"));
    assert!(is_bound(&foreign), "it is somebody else's");
    unbind_by_hand(&foreign);
}

fn partitions_of(device: &Path) -> usize {
    let name = device.file_name().expect("a device path").to_string_lossy().into_owned();
    let parts = fs::read_dir(Path::new("/sys/block").join(&name)).expect("the device is there");
    let names = parts.map(|entry| entry.expect("an entry").file_name());
    names.filter(|part| part.to_string_lossy().starts_with(&format!("{name}p"))).count()
}

fn looks_for_partitions(device: &Path) -> bool {
    read_number(device, "loop/partscan") == 1
}

/// Writes an MBR partition table with one partition of 1000 sectors after the first 64.
fn write_partition_table(file: &Path) {
    let mut sector = [0; 512];
    sector[450] = 0x83;
    sector[454] = 64;
    sector[458..462].copy_from_slice(&1000_u32.to_le_bytes());
    sector[510..].copy_from_slice(&[0x55, 0xAA]);
    open(file).write_all_at(&sector, 0).expect("the volume takes it");
}

#[test]
fn partitions_come_and_go_with_their_device() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 4 * MIB), ("log", 512, 4 * MIB)]) else {
        return;
    };
    write_partition_table(&fixture.file("db"));
    let device = fixture.attach("db");
    assert!(looks_for_partitions(&device));
    // Not every kernel supports MBR tables; partx does.
    run(tool("partx").arg("--update").arg(&device));
    assert_eq!(partitions_of(&device), 1);
    assert_eq!(fixture.ask("detach db"), "ok ");
    assert_eq!(partitions_of(&device), 0);
    let next = fixture.attach("log");
    assert_eq!(partitions_of(&next), 0, "of {}", next.display());
}

#[test]
fn contents_that_are_away_hold_up_no_attaching_and_show_their_partitions_later() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 4 * MIB)]) else { return };
    write_partition_table(&fixture.file("db"));
    fs::write(fixture.away("db"), []).expect("the directory is writable");
    let device = fixture.attach("db");
    assert!(!looks_for_partitions(&device));
    fs::remove_file(fixture.away("db")).expect("it was just made");
    eventually("they are looked for", || looks_for_partitions(&device));
}

/// Another process that has a file open. The test process itself starts servers; closing the file
/// in its children would wait for the server.
struct Opener(Child);

impl Opener {
    fn new(redirection: &str, file: &Path) -> Self {
        Self::running(&format!("exec {redirection}\"$1\"; echo; read go"), file)
    }

    /// Starts a shell script, and waits for its first line of output.
    fn running(script: &str, file: &Path) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(file);
        let spawned = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut opener = Self(spawned.expect("every system has a shell"));
        opener.wait_for_line();
        opener
    }

    fn wait_for_line(&mut self) {
        let said = self.0.stdout.as_mut().expect("it was asked for");
        said.read_exact(&mut [0]).expect("it goes on");
    }

    fn go_on(&mut self) {
        let told = self.0.stdin.as_mut().expect("it was asked for");
        told.write_all(b"\n").expect("it listens");
    }

    fn end(mut self) {
        self.go_on();
        assert!(self.0.wait().expect("it is our child").success());
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        // It may have exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn who_has_a_file_open_is_told_whoever_it_is() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 4 * MIB), ("log", 512, 4 * MIB)]) else {
        return;
    };
    let check = |fixture: &mut Fixture, expected: &str| {
        let user = fixture.ask("user db");
        assert!(user.starts_with(expected), "{user}, not {expected}");
    };
    check(&mut fixture, "ok none");
    let other = Opener::new("3<>", &fixture.file("log"));
    let reading = Opener::new("3<", &fixture.file("db"));
    check(&mut fixture, &format!("ok false process {} (sh)", reading.0.id()));
    let writing = Opener::new("3<>", &fixture.file("db"));
    check(&mut fixture, &format!("ok true process {} (sh)", writing.0.id()));
    // A process that opened the file before the server started is also found.
    fixture.kill();
    fixture.start();
    check(&mut fixture, &format!("ok true process {} (sh)", writing.0.id()));
    reading.end();
    writing.end();
    check(&mut fixture, "ok none");
    let foreign = bind_by_hand(&fixture.file("db"), &["--read-only"]);
    check(&mut fixture, &format!("ok false {} is backed by its file", foreign.display()));
    unbind_by_hand(&foreign);
    let _device = fixture.attach("db");
    check(&mut fixture, "ok none");
    fixture.kill();
    fixture.start();
    check(&mut fixture, "ok none");
    assert_eq!(fixture.ask("detach db"), "ok ");
    check(&mut fixture, "ok none");
    other.end();
}

#[test]
fn a_file_that_is_on_its_way_between_processes_is_open() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 4 * MIB)]) else { return };
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
    send_away(&ours, open(&fixture.file("db")));
    let user = fixture.ask("user db");
    assert!(user.starts_with("ok true the kernel, or a process"), "{user}");
    drop((ours, theirs));
    eventually("it is closed", || fixture.ask("user db") == "ok none");
}

fn send_away(socket: &std::os::unix::net::UnixStream, file: File) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [file.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    let parts = [std::io::IoSlice::new(b"x")];
    sendmsg(socket, &parts, &mut ancillary, SendFlags::empty()).expect("there is room");
}

#[test]
fn a_file_is_closed_although_nobody_serves_it() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 4 * MIB)]) else { return };
    for redirection in ["3<>", "3<"] {
        let mut opener = Opener::new(redirection, &fixture.file("db"));
        fixture.kill();
        opener.go_on();
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut ended = opener.0.try_wait().expect("it is our child");
        while ended.is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
            ended = opener.0.try_wait().expect("it is our child");
        }
        // Only a server can end the wait.
        fixture.start();
        assert!(ended.is_some_and(|status| status.success()), "{redirection}: {ended:?}");
    }
}

#[test]
fn an_open_file_waits_for_the_next_server_after_a_planned_stop() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 4 * MIB)]) else { return };
    let script = r#"exec 3<>"$1"; echo; read go; printf during >&3 && echo && read go"#;
    let mut writer = Opener::running(script, &fixture.file("db"));
    fixture.stop("used");
    writer.go_on();
    fixture.start();
    assert_eq!(fixture.ask("origin"), "ok TakenOver");
    writer.wait_for_line();
    let mut found = [0; 6];
    File::open(fixture.file("db"))
        .and_then(|file| file.read_exact_at(&mut found, 0))
        .expect("data");
    assert_eq!(&found, b"during");
    writer.end();
    fixture.stop("used");
    fixture.start();
    assert_eq!(fixture.ask("origin"), "ok Mounted", "nobody waited for it");
}

#[test]
fn a_renamed_volume_keeps_its_device() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    let device = fixture.attach("db");
    fixture.rename("db", "archive");
    assert_eq!(fixture.ask("attachments"), format!("ok archive={}", device.display()));
    fixture.kill();
    fixture.start();
    assert_eq!(fixture.ask("attachments"), format!("ok archive={}", device.display()));
    fs::write(&device, [5; 4096]).expect("the device takes it");
    assert_eq!(fixture.ask("detach archive"), "ok ");
}

/// Goal: requests in flight when the server is killed are served by the next server. Method: fio
/// writes and verifies with depth 16 while the server is killed twice.
#[test]
fn a_device_outlives_its_server_under_load() {
    let Some(fixture) = Fixture::build(&[("db", 4096, 64 * MIB)]) else { return };
    check_kills_under_load(fixture);
}

#[test]
fn a_device_outlives_its_server_under_load_where_the_kernel_does_not_send_again() {
    let Some(fixture) = Fixture::build(&[("db", 4096, 64 * MIB)]) else { return };
    fixture.resume_from_memory();
    check_kills_under_load(fixture);
}

fn check_kills_under_load(mut fixture: Fixture) {
    let device = fixture.attach("db");
    let mut fio = tool("fio")
        .args(["--name=kills", "--rw=randrw", "--bs=4k", "--ioengine=libaio", "--iodepth=16"])
        .args([
            "--direct=1",
            "--size=64M",
            "--loops=6",
            "--verify=crc32c",
            "--verify_state_save=0",
            "--verify_fatal=1",
        ])
        .args(["--verify_backlog=256", &format!("--filename={}", device.display())])
        .spawn()
        .expect("fio starts");
    for kill in 1_u64..=2 {
        let before = fixture.requests_served();
        eventually("fio is at work", || fixture.requests_served() > before + 5000);
        fixture.kill();
        fixture.start();
        assert_eq!(fixture.ask("origin"), "ok TakenOver", "after kill {kill}");
        assert_eq!(fixture.ask("attachments"), format!("ok db={}", device.display()));
    }
    let is_still_at_work = fio.try_wait().expect("fio can be asked").is_none();
    assert!(is_still_at_work, "fio ended before the last kill was survived");
    assert!(fio.wait().expect("fio ends").success(), "fio saw an error");
}

/// Goal: if the kernel cannot resend requests, flushes outlive two kills, also queued ones, and a
/// worker remains for reads. Method: all flushes are blocked until the third server runs.
#[test]
fn flushes_outlive_kills_where_the_kernel_does_not_send_again() {
    let names: Vec<String> = (0..13).map(|number| format!("v{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let volumes: Vec<_> = names.iter().map(|&name| (name, 512, 8 * MIB)).collect();
    let Some(mut fixture) = Fixture::build(&volumes) else { return };
    fixture.resume_from_memory();
    let files: Vec<_> = names.iter().map(|name| open(&fixture.file(name))).collect();
    let durable = open_durably(&fixture.file("v0"));
    let (other, flushed) = files.split_first().expect("there are some");
    thread::scope(|scope| {
        let gates = Gates::close(&fixture, &names);
        let mut flushes: Vec<_> =
            flushed.iter().map(|file| scope.spawn(|| file.sync_all())).collect();
        fixture.wait_for_count("flushes", 8);
        flushes.push(scope.spawn(|| durable.write_all_at(&[9; 512], 8192)));
        fixture.wait_for_count("writes", 1);
        for _ in 0..2 {
            fixture.kill();
            fixture.start();
            assert_eq!(fixture.ask("origin"), "ok TakenOver");
            fixture.wait_for_count("flushes", 8);
            other.read_exact_at(&mut [0; 512], 0).expect("a worker is left for reads");
        }
        assert!(flushes.iter().all(|flush| !flush.is_finished()), "the gates are closed");
        drop(gates);
        for flush in flushes {
            flush.join().expect("the thread returns").expect("the volume flushes");
        }
    });
    let mut found = [0; 512];
    other.read_exact_at(&mut found, 8192).expect("the volume returns it");
    assert_eq!(found, [9; 512]);
}

/// Goal: if the kernel cannot resend requests, reads and writes of absent data outlive two kills.
/// Method: all of them are blocked until the third server runs.
#[test]
fn reads_and_writes_outlive_kills_where_the_kernel_does_not_send_again() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    fixture.resume_from_memory();
    let (file, durable) = (open(&fixture.file("db")), open_durably(&fixture.file("db")));
    file.write_all_at(&[5; 512], 0).expect("the volume takes it");
    let read = || {
        let mut found = [0; 512];
        file.read_exact_at(&mut found, 0).map(|()| found)
    };
    thread::scope(|scope| {
        let away = Gates::make(vec![fixture.away("db")]);
        let reads = [(); 2].map(|()| scope.spawn(read));
        let write = scope.spawn(|| file.write_all_at(&[7; 512], 1024));
        let durable_write = scope.spawn(|| durable.write_all_at(&[8; 512], 2048));
        for (reads, writes) in [(2, 3), (2, 2), (2, 2)] {
            fixture.wait_for_count("reads", reads);
            fixture.wait_for_count("writes", writes);
            fixture.kill();
            fixture.start();
            assert_eq!(fixture.ask("origin"), "ok TakenOver");
        }
        assert!(reads.iter().all(|it| !it.is_finished()), "their data are away");
        assert!(!write.is_finished() && !durable_write.is_finished(), "their data are away");
        drop(away);
        for read in reads {
            let found = read.join().expect("the thread returns").expect("the volume returns it");
            assert_eq!(found, [5; 512]);
        }
        for write in [write, durable_write] {
            write.join().expect("the thread returns").expect("the volume takes it");
        }
    });
    for (place, expected) in [(1024, 7), (2048, 8)] {
        let mut found = [0; 512];
        file.read_exact_at(&mut found, place).expect("the volume returns it");
        assert_eq!(found, [expected; 512]);
    }
}

fn open_durably(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(O_DSYNC).open(path).expect("a served file opens")
}

#[test]
fn a_device_waits_for_the_next_server_after_a_planned_stop() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    let device = fixture.attach("db");
    fs::write(&device, [6; 4096]).expect("the device takes it");
    fixture.stop("connection");
    let reader = thread::spawn({
        let device = device.clone();
        move || {
            let flags = OFlags::DIRECT.bits().cast_signed();
            let mut options = OpenOptions::new();
            let file =
                options.read(true).custom_flags(flags).open(device).expect("the device opens");
            // Direct reads need aligned memory.
            let mut memory = [0; 8192];
            let start = memory.as_ptr().align_offset(4096);
            file.read_exact_at(&mut memory[start..start + 4096], 0).map(|()| memory[start])
        }
    });
    fixture.start();
    let read = reader.join().expect("the reader returns");
    assert_eq!(read.expect("the read succeeds"), 6);
}

#[test]
fn a_kill_right_after_the_start_is_survived() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    fixture.stop("nothing");
    for _ in 0..10 {
        fixture.start_without_waiting();
        fixture.kill();
    }
    fixture.start();
    assert_eq!(fs::metadata(fixture.file("db")).expect("the file is served").len(), 8 * MIB);
}

/// Goal: a kill during an attach leaves nothing incomplete, and never two devices. Method: kill the
/// server at increasing delays after an attach request.
#[test]
fn a_server_killed_while_it_attaches_leaves_one_device_at_most() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    for delay in 0..20 {
        fixture.tell("attach db");
        let start = Instant::now();
        eventually("the moment to kill has come", || start.elapsed().as_micros() >= 500 * delay);
        fixture.kill();
        fixture.start();
        let device = fixture.attach("db");
        assert_eq!(fixture.ask("attachments"), format!("ok db={}", device.display()));
        assert_eq!(fixture.ask("detach db"), "ok ");
    }
}

#[test]
fn a_server_without_holder_starts_anew_and_reports_what_died() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB), ("logs", 512, 8 * MIB)]) else {
        return;
    };
    let device = fixture.attach("db");
    fixture.attach("logs");
    let user = File::open(&device).expect("the device opens");
    fixture.kill_holder();
    fixture.kill();
    fixture.start();
    assert_eq!(fixture.ask("origin"), "ok Mounted");
    assert_eq!(fixture.ask("dead"), "ok 1", "one is in use, the other was removed");
    assert_eq!(fs::metadata(fixture.file("db")).expect("the file is served").len(), 8 * MIB);
    let dead = user.read_exact_at(&mut [0; 512], 0).expect_err("its connection is lost");
    assert_eq!(dead.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    drop(user);
    eventually("the dead device is gone", || !fixture::is_bound(&device));
    assert_eq!(fixture.ask("dead"), "ok 0", "no client is told of what is gone");
}

#[test]
fn a_dead_device_is_forgotten_when_its_number_is_given_again() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    let device = fixture.attach("db");
    let user = File::open(&device).expect("the device opens");
    fixture.kill_holder();
    fixture.kill();
    fixture.start();
    assert_eq!(fixture.ask("dead"), "ok 1");
    drop(user);
    eventually("the dead device is gone", || !fixture::is_bound(&device));
    // Another program may have used the number first.
    eventually("the number is given again", || {
        let is_given = fixture.attach("db") == device;
        if !is_given {
            assert_eq!(fixture.ask("detach db"), "ok ");
        }
        is_given
    });
    assert_eq!(fixture.ask("dead"), "ok 0");
    assert_eq!(fixture.ask("remove-dead"), "ok ");
    assert!(fixture::is_bound(&device), "a living device was removed");
}

#[test]
fn a_holder_that_died_is_replaced() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    let device = fixture.attach("db");
    let holder = fixture.holder_pid().expect("a holder runs").as_raw_nonzero();
    let command = fs::read_to_string(format!("/proc/{holder}/cmdline")).expect("it runs");
    let socket = fixture.path("holder.sock").display().to_string();
    assert!(command.split('\0').any(|word| word == socket), "{command:?} does not say whose");
    fixture.kill_holder();
    assert_eq!(fixture.ask("refresh"), "ok ");
    fixture.kill();
    fixture.start();
    assert_eq!(fixture.ask("origin"), "ok TakenOver");
    fs::read(&device).expect("the device goes on");
}

#[test]
fn an_export_that_somebody_unmounts_says_so_and_can_be_started_again() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    assert_eq!(fixture.ask("serving"), "ok true");
    run(tool("umount").arg(fixture.mount_point()));
    eventually("the end is noticed", || fixture.ask("serving") == "ok false");
    fixture.stop("connection");
    fixture.start();
    assert_eq!(fixture.ask("origin"), "ok Mounted");
    assert_eq!(fs::metadata(fixture.file("db")).expect("the file is served").len(), 8 * MIB);
}

#[test]
fn stopping_for_good_leaves_nothing_behind() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    let holder = fixture.holder_pid().expect("a holder runs");
    fixture.stop("nothing");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("every process may read it");
    assert!(!mounts.contains(fixture.mount_point().to_str().expect("a plain path")));
    eventually("the holder ends", || !fixture::is_running(holder));
}

#[test]
fn an_idle_server_sleeps() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    fixture.attach("db");
    eventually("all threads sleep", || fixture.all_threads_sleep());
}
