//! What the server asks its owner for: the devices to serve.

use std::sync::Arc;

use block_device::BlockDevice;

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
    /// The export called `name`. An empty name asks for the default export, if there is one.
    fn find(&self, name: &str) -> Option<Export>;

    /// All exports that clients may know of.
    fn list(&self) -> Vec<ExportInfo>;
}
