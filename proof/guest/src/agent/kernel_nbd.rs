//! Connects the kernel's NBD client to a server, and reconnects it after the server was killed.
//! Requests wait meanwhile, up to the device's timeout.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result};
use system::NbdClient;

use crate::netlink::{Attributes, Family};

const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;

const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;
const BLOCK_SIZE_BYTES: u16 = 3;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const DEAD_CONNECTION_TIMEOUT: u16 = 8;
const SOCKET_ITEM: u16 = 1;
const SOCKET_DESCRIPTOR: u16 = 1;

const BLOCK_BYTES: u64 = block_device::BLOCK_BYTES as u64;

/// Supported flags: flush, FUA, trim and write zeroes.
const FLAGS: u64 = 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6;

const DEAD_CONNECTION_SECONDS: u64 = 120;

/// Connects the device `/dev/nbdINDEX` to an export.
pub(crate) fn connect(index: u32, socket: &Path, export: &str) -> Result<()> {
    let (connection, size_bytes) = connected(socket, export)?;
    let asked = Attributes::default()
        .with(INDEX, &index.to_ne_bytes())
        .with(SIZE_BYTES, &size_bytes.to_ne_bytes())
        .with(BLOCK_SIZE_BYTES, &BLOCK_BYTES.to_ne_bytes())
        .with(SERVER_FLAGS, &FLAGS.to_ne_bytes())
        .with(DEAD_CONNECTION_TIMEOUT, &DEAD_CONNECTION_SECONDS.to_ne_bytes())
        .with_nested(SOCKETS, &sockets(&connection));
    ask(CONNECT, &asked).with_context(|| format!("cannot connect /dev/nbd{index}"))
}

/// Replaces the broken connection of the device by a new one.
pub(crate) fn reconnect(index: u32, socket: &Path, export: &str) -> Result<()> {
    let (connection, _) = connected(socket, export)?;
    let asked = Attributes::default()
        .with(INDEX, &index.to_ne_bytes())
        .with(DEAD_CONNECTION_TIMEOUT, &DEAD_CONNECTION_SECONDS.to_ne_bytes())
        .with_nested(SOCKETS, &sockets(&connection));
    ask(RECONFIGURE, &asked).with_context(|| format!("cannot reconnect /dev/nbd{index}"))
}

pub(crate) fn disconnect(index: u32) -> Result<()> {
    let asked = Attributes::default().with(INDEX, &index.to_ne_bytes());
    ask(DISCONNECT, &asked).with_context(|| format!("cannot disconnect /dev/nbd{index}"))
}

fn ask(command: u8, attributes: &Attributes) -> Result<()> {
    Family::find("nbd")?.ask(command, attributes).map(|_| ())
}

/// Opens a connection, and returns it after the handshake with the size of the export.
fn connected(socket: &Path, export: &str) -> Result<(OwnedFd, u64)> {
    let client = NbdClient::connect(socket, export)?;
    let size_bytes = client.size_bytes();
    Ok((client.into_socket().into(), size_bytes))
}

/// The kernel holds its own reference to the connection. This one may be closed afterwards.
fn sockets(connection: &OwnedFd) -> Attributes {
    let descriptor = connection.as_raw_fd().cast_unsigned();
    let socket = Attributes::default().with(SOCKET_DESCRIPTOR, &descriptor.to_ne_bytes());
    Attributes::default().with_nested(SOCKET_ITEM, &socket)
}
