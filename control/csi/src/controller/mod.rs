//! Volumes and snapshots: made, described and deleted by asking the daemon.

mod capacity;
mod create;
mod described;
mod groups;
mod pages;
mod sizes;
mod snapshots;
mod volumes;
