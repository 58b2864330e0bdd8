//! Minimal client of libvirt's protocol over its Unix socket. Each operation uses its own
//! connection, and every wait has a time limit.

mod connection;
mod console;
mod domains;
mod xdr;

pub(crate) use connection::{Connection, LibvirtError};
pub(crate) use console::Console;
pub(crate) use domains::{Domain, Side, Takeover};
