//! An image store in a directory, which a daemon serves to other hosts, and its client.
//!
//! [`StoreServer`] answers HTTP/1.1 over TLS to clients that present a certificate of the
//! configured authority. [`StoreClient`] is an `ImageStore`. Below the server is a
//! [`image::FolderStore`], so the directory is the same as that of a store on this host.
//!
//! Every request may be repeated after a lost answer. The server keeps no state between requests
//! except counters. What it answered is on stable storage.
//!
//! The server has threads of its own: neither a slow client nor a hung disk affects its process
//! otherwise. Connections, bodies, concurrent disk operations and waits are limited.
#![forbid(unsafe_code)]

mod wire;

mod clients;
mod quota;
mod work;

mod requests;

mod server;

mod trouble;

mod connection;

mod remote_pack;

mod client;

pub use client::StoreClient;
pub use clients::{ClientStatus, Visitors};
pub use connection::{Patience, StoreAddress};
pub use server::{ServerError, ServerSpec, ServerStatus, StoreServer};
pub use tls::TlsClientFiles;
