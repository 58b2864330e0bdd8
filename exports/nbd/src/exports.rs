//! Exports that the server asks its owner for: the devices to serve.

use std::sync::Arc;

use block_device::BlockDevice;
use export_kit::Peer;
use tls::ClientCertificate;

/// Identity of a connection's client.
#[derive(Clone, Debug)]
pub enum Client {
    /// A process of this host, over the Unix socket.
    Local(Peer),
    /// A host that reaches the TCP address.
    Anybody,
    /// A host over TLS that an authority of the configuration vouches for.
    Certified(ClientCertificate),
}

/// One device under the name that clients ask for. A device that is read-only is announced so.
pub struct Export {
    /// The canonical name, which may differ from the one that was asked for.
    pub name: String,
    /// For people. May be empty.
    pub description: String,
    pub device: Arc<dyn BlockDevice>,
}

/// An export as it appears in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    pub name: String,
    /// For people. May be empty.
    pub description: String,
}

/// The set of devices that are served. It may change at any time; a connection keeps the device
/// that it found.
pub trait Exports: Send + Sync {
    /// Whether there is anything that a process of this host may use. Asked on the accepting
    /// thread, before the client has a place: an answer waits for no other thread.
    fn admits(&self, peer: &Peer) -> bool;

    /// The export called `name`, if `client` may use it. An empty name asks for the default export,
    /// if there is one.
    fn find(&self, name: &str, client: &Client) -> Option<Export>;

    /// All exports that the client may use.
    fn list(&self, client: &Client) -> Vec<ExportInfo>;
}
