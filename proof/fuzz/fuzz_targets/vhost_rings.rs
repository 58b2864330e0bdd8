//! Arbitrary bytes in the rings of a virtual machine's disk, which must still serve the next front
//! end.
#![no_main]

#[path = "../../../exports/vhost-user/tests/support/storm.rs"]
mod storm;
#[path = "../../../exports/vhost-user/tests/support/mod.rs"]
mod support;

use std::sync::{LazyLock, Mutex};

use libfuzzer_sys::fuzz_target;

/// Number of runs between full requests of a next front end. Every run checks that one can connect.
const RUNS_PER_CHECK: u32 = 8;

static GROUND: LazyLock<Mutex<(storm::Ground, u32)>> =
    LazyLock::new(|| Mutex::new((storm::Ground::new(), 0)));

fuzz_target!(|bytes: &[u8]| {
    let (ground, run_count) = &mut *GROUND.lock().expect("no run panics");
    ground.run(bytes);
    *run_count += 1;
    if run_count.is_multiple_of(RUNS_PER_CHECK) {
        ground.check();
    }
});
