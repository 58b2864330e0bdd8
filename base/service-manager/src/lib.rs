//! Interaction of a program with the service manager: state notifications (`sd_notify(3)`), and
//! termination at a panic.
#![forbid(unsafe_code)]

mod more_time;
mod notify;
mod panics;

pub use more_time::MoreTime;
pub use notify::{alive, ready, reloading, status, stopping, watchdog_time};
pub use panics::{Panic, contain, contain_future, die_of_panics, do_or_die, text_of};
