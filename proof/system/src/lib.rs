//! The real programs, started, killed and observed through their external interfaces, like users
//! do.
//!
//! For tests and the demonstration: nothing here knows the engine. Every process and file that is
//! created is owned by a guard that ends or removes it, also when a test fails.
#![forbid(unsafe_code)]

mod attached;
mod broker;
mod daemon;
pub mod database;
pub mod debian;
mod file_checker;
mod host;
mod interruption;
mod memory_limit;
mod mounted;
mod nbd_client;
mod nbd_shell;
pub mod page;
mod process;
mod seed;
mod stamp;
mod steps;
mod stripe;
mod tool;

pub use attached::{attach, attach_with, device_size_bytes, written_sector_count};
pub use broker::{Broker, ask_broker, free_address};
pub use daemon::{Daemon, DaemonOptions, ask_to_promote, product, product_path, wait_for};
pub use file_checker::FileChecker;
pub use host::{Ability, KernelLog, leftovers, missing};
pub use interruption::{CleaningUp, Interruption};
pub use memory_limit::MemoryLimit;
pub use mounted::Mounted;
pub use nbd_client::{
    NBD_IO_ERROR, NBD_NO_SPACE, NBD_NOT_PERMITTED, NbdClient, NbdFailure, Request,
};
pub use nbd_shell::NbdShell;
pub use process::{
    Background, check_for_panics, processor_seconds, processor_seconds_of_children,
    processor_seconds_of_threads,
};
pub use random::Random;
pub use seed::seed;
pub use stamp::{BLOCK_BYTES, Block, Contents, Stamp};
pub use steps::{Step, Steps, StepsSpec, Survivors};
pub use stripe::{Round, Stripe, StripeSpec};
pub use tool::{Tool, ToolOutput};
