//! The few procedures of libvirt's protocol that machines need, over its Unix socket. Each
//! operation has a connection of its own, and no wait is without a limit.

mod connection;
mod console;
mod domains;
mod xdr;

pub(crate) use connection::{Connection, LibvirtError};
pub(crate) use console::Console;
pub(crate) use domains::{Domain, Side, Takeover};
