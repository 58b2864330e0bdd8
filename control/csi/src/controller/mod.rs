//! Controller service: creates, describes and deletes volumes and snapshots through the daemon.

mod capacity;
mod create;
mod described;
mod groups;
mod pages;
mod sizes;
mod snapshots;
mod volumes;
