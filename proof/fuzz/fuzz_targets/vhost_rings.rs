//! Garbage in the rings of a virtual machine's disk, which must serve the next front end.
#![no_main]

#[path = "../../../exports/vhost-user/tests/support/storm.rs"]
mod storm;
#[path = "../../../exports/vhost-user/tests/support/mod.rs"]
mod support;

use std::sync::{LazyLock, Mutex};

use libfuzzer_sys::fuzz_target;

static GROUND: LazyLock<Mutex<storm::Ground>> = LazyLock::new(|| Mutex::new(storm::Ground::new()));

fuzz_target!(|bytes: &[u8]| GROUND.lock().expect("no run panics").run(bytes));
