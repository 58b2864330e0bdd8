//! An NBD server for block devices.
//!
//! ```text
//! Server ── one thread per connection ── Transport ── bytes ── Session ── BlockDevice
//! listens, counts, stops                 socket, TLS            handshake, then requests
//! ```
//!
//! - [`Server`] listens on a Unix socket and, if told so, on TCP. Its owner hands in the devices as
//!   [`Exports`].
//! - A connection is one thread that receives many requests with one system call, serves them one
//!   after the other and sends their replies with another one. Flushes that may wait for a disk are
//!   left to a second thread, which flushes once for all that have come and answers them.
//! - [`Session`] is the protocol itself, over two buffers and without I/O.
//!
//! A client takes one thread, or two, and two buffers of about 1.5 MiB of which only the used part
//! takes memory; with many clients, at most 140 KiB each. Whatever a client sends or does not
//! receive, it can at worst lose its own connection. This crate never inspects the data, and holds
//! no lock while it serves a request.
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
/// State of a server, with clients by the canonical name of their export.
pub type Status = export_kit::Status<String>;
