//! Tests of memory that is truncated while in use: guarded memory becomes zeros, and other accesses
//! end the process.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;

use fault_guard::{FaultGuard, LossFlag};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

const BYTES: usize = 64 << 10;

/// Environment variable of the process that is expected to die.
const DOOMED: &str = "MEMLANE_TEST_DOOMED";

fn shared_memory() -> (File, Arc<MmapRegion>) {
    let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).expect("a memfd"));
    file.set_len(BYTES as u64).expect("it can grow");
    let copy = FileOffset::new(file.try_clone().expect("a descriptor"), 0);
    (file, Arc::new(MmapRegion::from_file(copy, BYTES).expect("it is mapped")))
}

fn byte_at(region: &MmapRegion, offset: usize) -> u8 {
    region.as_volatile_slice().read_obj(offset).expect("it is inside")
}

fn store(region: &MmapRegion, offset: usize, byte: u8) {
    region.as_volatile_slice().write_obj(byte, offset).expect("it is inside");
}

#[test]
fn guarded_memory_that_goes_away_is_zeros_for_all_threads() {
    for _ in 0..50 {
        let (file, region) = shared_memory();
        let flag = LossFlag::default();
        let _guard = FaultGuard::new(Arc::clone(&region), &flag).expect("it is guarded");
        store(&region, 5, 7);
        assert!(!flag.is_raised());
        file.set_len(0).expect("it is not sealed");
        std::thread::scope(|scope| {
            for start in 0..4 {
                let (region, flag) = (&region, &flag);
                scope.spawn(move || {
                    for offset in (start * 100..BYTES).step_by(4000) {
                        assert_eq!(byte_at(region, offset), 0);
                        assert!(flag.is_raised());
                    }
                });
            }
        });
        store(&region, 5, 7);
        assert_eq!(byte_at(&region, 5), 7);
    }
}

#[test]
fn a_guard_that_is_gone_leaves_its_place_to_others() {
    let flag = LossFlag::default();
    for _ in 0..2 * fault_guard::GUARD_COUNT_MAX {
        let (_file, region) = shared_memory();
        drop(FaultGuard::new(region, &flag).expect("there is a place"));
    }
    assert!(!flag.is_raised());
}

#[test]
fn memory_of_no_shared_file_is_not_guarded() {
    let region = Arc::new(MmapRegion::new(BYTES).expect("it is mapped"));
    FaultGuard::new(region, &LossFlag::default()).expect_err("it is private");
}

#[test]
fn guarded_memory_is_in_no_core_dump() {
    let (_file, region) = shared_memory();
    let _guard = FaultGuard::new(Arc::clone(&region), &LossFlag::default()).expect("a guard");
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("the kernel tells");
    let start = format!("{:x}-", region.as_ptr().addr());
    let own = maps.lines().skip_while(|line| !line.starts_with(&start));
    let flags = own.into_iter().find(|line| line.starts_with("VmFlags:")).expect("it has flags");
    assert!(flags.split(' ').any(|flag| flag == "dd"), "{flags}");
}

#[test]
fn a_fault_elsewhere_ends_the_process_as_ever() {
    if std::env::var_os(DOOMED).is_some() {
        die();
    }
    let status = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "a_fault_elsewhere_ends_the_process_as_ever"])
        .env(DOOMED, "1")
        .output()
        .expect("it starts")
        .status;
    assert_eq!(status.signal(), Some(Signal::BUS.as_raw()), "{status}");
}

fn die() {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).expect("a limit");
    let (_kept, guarded) = shared_memory();
    let _guard = FaultGuard::new(guarded, &LossFlag::default()).expect("it is guarded");
    let (file, region) = shared_memory();
    file.set_len(0).expect("it is not sealed");
    byte_at(&region, 0);
}
