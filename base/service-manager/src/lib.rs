//! Tells the service manager how far a program is (`sd_notify(3)`).
#![forbid(unsafe_code)]

mod notify;

pub use notify::{alive, extend_timeout, ready, reloading, stopping, watchdog_time};
