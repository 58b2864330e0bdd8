//! Interaction of a program with the service manager: state notifications (`sd_notify(3)`), and
//! termination at a panic.
#![forbid(unsafe_code)]

mod notify;
mod panics;

pub use notify::{alive, extend_timeout, ready, reloading, stopping, watchdog_time};
pub use panics::{Panic, contain, contain_future, die_of_panics, do_or_die, text_of};
