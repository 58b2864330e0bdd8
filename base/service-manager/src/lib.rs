//! Duties of a program towards the service manager: to tell how far it is (`sd_notify(3)`), and to
//! die when it is broken.
#![forbid(unsafe_code)]

mod notify;
mod panics;

pub use notify::{alive, extend_timeout, ready, reloading, stopping, watchdog_time};
pub use panics::{Panic, contain, contain_future, die_of_panics, do_or_die, text_of};
