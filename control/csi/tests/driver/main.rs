//! The driver program with a real daemon and kernel: common complaints about other drivers, and
//! kills of both programs.

mod capacity;
mod client;
mod copies;
mod fixture;
mod kills;
mod pods;
mod registration;
#[allow(dead_code, reason = "tests make some of the calls, and read some of the answers")]
#[path = "../../src/wire/mod.rs"]
mod wire;
