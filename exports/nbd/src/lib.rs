//! NBD server for block devices.
//!
//! ```text
//! Server ── one thread per connection ── Transport ── bytes ── Session ── BlockDevice
//! listens, counts, stops                 socket, TLS            handshake, then requests
//! ```
//!
//! - [`Server`] listens on a Unix socket and, if configured, on TCP. Its owner provides the devices
//!   as [`Exports`].
//! - Each connection has one thread. It receives many requests with one system call, serves them in
//!   order, and sends their replies with another one. Flushes that may block on a disk go to a
//!   second thread, which runs one flush for all that have arrived.
//! - [`Session`] implements the protocol over two buffers, without I/O.
//!
//! A client costs one or two threads and two buffers of about 1.5 MiB, of which only the used part
//! takes memory. If there are many clients, each uses at most 140 KiB. Whatever a client sends or
//! fails to read, it can lose only its own connection. This crate never inspects the data, and
//! holds no lock while it serves a request.
#![forbid(unsafe_code)]

mod agreement;
mod buffer;
mod connection;
mod contexts;
mod error;
mod exports;
mod failure;
mod flushing;
mod handshake;
mod listener;
mod options;
mod reading;
mod replies;
mod server;
mod session;
mod transport;
mod wire;

pub use agreement::{Progress, TlsPolicy};
pub use buffer::{BufferShare, Input, Output};
pub use error::ServerError;
pub use export_kit::{Peer, Quota, StartError, Traffic};
pub use exports::{Client, Export, ExportInfo, Exports};
pub use server::{Config, Server, TcpAccess};
pub use session::Session;
pub use tls::{ClientCertificate, TlsError, TlsFiles, TlsSettings};
/// State of a server, with the clients of each export by canonical name.
pub type Status = export_kit::Status<String>;
