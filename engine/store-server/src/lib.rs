//! An image store in a directory, which a daemon serves to other hosts, and its client.
//!
//! [`StoreServer`] serves HTTP/1.1 over TLS to clients with a certificate of the configured
//! authority. [`StoreClient`] is an `ImageStore`. The server stores objects in an
//! [`image::FolderStore`], so the directory is the same as that of a store on this host.
//!
//! All requests are idempotent, so they are repeated after a lost response. The server keeps no
//! state between requests except counters. Acknowledged data is on stable storage.
//!
//! The server runs on separate threads, so neither a slow client nor a hung disk blocks the rest of
//! its process. Connections, bodies, concurrent disk operations and waits are limited.
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
