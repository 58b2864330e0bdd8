//! The devices to serve, which the server gets from its owner.

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

/// A device with the name of its export. A read-only device is announced as such.
pub struct Export {
    /// Canonical name, which may differ from the requested one.
    pub name: String,
    /// Description for users. May be empty.
    pub description: String,
    pub device: Arc<dyn BlockDevice>,
}

/// An export as it appears in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    pub name: String,
    /// Description for users. May be empty.
    pub description: String,
}

/// The devices that are served. The set may change at any time; a connection keeps the device that
/// it found.
pub trait Exports: Send + Sync {
    /// Returns whether a process of this host may use any export. Called on the accepting thread,
    /// before the client has a place, so it must not wait for another thread.
    fn admits(&self, peer: &Peer) -> bool;

    /// Finds the export called `name`, if `client` may use it. An empty name means the default
    /// export, if there is one.
    fn find(&self, name: &str, client: &Client) -> Option<Export>;

    /// Lists all exports that the client may use.
    fn list(&self, client: &Client) -> Vec<ExportInfo>;
}
