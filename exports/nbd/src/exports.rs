//! Devices to serve, provided by the server's owner.

use std::sync::Arc;

use block_device::BlockDevice;
use export_kit::Peer;
use tls::ClientCertificate;

/// Identity of a connection's client.
#[derive(Clone, Debug)]
pub enum Client {
    /// A process of this host, over the Unix socket.
    Local(Peer),
    /// A host that connects over TCP without TLS.
    Anybody,
    /// A host over TLS with a certificate of a configured authority.
    Certified(ClientCertificate),
}

/// A device and the name of its export. Read-only devices are announced as read-only.
pub struct Export {
    /// Canonical name, which may differ from the requested one.
    pub name: String,
    /// Description for users. May be empty.
    pub description: String,
    pub device: Arc<dyn BlockDevice>,
}

/// An export in the reply to `LIST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    pub name: String,
    /// Description for users. May be empty.
    pub description: String,
}

/// Lookup and access control of exports. The set may change at any time; a connection keeps the
/// device that it selected.
pub trait Exports: Send + Sync {
    /// Returns whether a local process may use any export. Called on the accepting thread, before
    /// the client counts against the quota. Must not wait for another thread.
    fn admits(&self, peer: &Peer) -> bool;

    /// Looks up the export `name`, if `client` may use it. The empty name selects the default
    /// export, if there is one.
    fn find(&self, name: &str, client: &Client) -> Option<Export>;

    /// Lists all exports that the client may use.
    fn list(&self, client: &Client) -> Vec<ExportInfo>;
}
