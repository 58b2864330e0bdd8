//! TLS of a server: settings from PEM files, and what certificates of clients say.
//!
//! Settings are immutable: a reload loads the files anew, and connections that come later take
//! what was loaded. It opens no socket and decides about no client.
#![forbid(unsafe_code)]

mod certificate;
mod error;
mod settings;

pub use certificate::ClientCertificate;
pub use error::TlsError;
pub use settings::{TlsFiles, TlsSettings};
