//! TLS settings of servers and clients from PEM files, expiry of certificates, and names in client
//! certificates.
//!
//! Settings are immutable. A reload reads the files again and applies to new connections only. The
//! crate opens no socket and authorizes no client.
#![forbid(unsafe_code)]

mod certificate;
mod client;
mod error;
mod expiry;
mod settings;

pub use certificate::ClientCertificate;
pub use client::{TlsClientFiles, load_client};
pub use error::TlsError;
pub use expiry::{CertificateFile, Validity};
pub use settings::{TlsFiles, TlsSettings};
