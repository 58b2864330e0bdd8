//! State that the calls of all services share.

use std::collections::BTreeMap;

use anyhow::Context;

use crate::busy::Busy;
use crate::daemon::Daemon;
use crate::options::{Growth, Options};
use crate::wire::Topology;

/// Driver name, as in StorageClasses and the kubelet's plugin registry.
pub(crate) const NAME: &str = "csi.memlane";

/// Topology key: the node label that identifies the node of a volume.
const TOPOLOGY_KEY: &str = "csi.memlane/node";

/// The CSI driver of one node.
pub(crate) struct Driver {
    pub(crate) daemon: Daemon,
    pub(crate) busy: Busy,
    pub(crate) node: String,
    pub(crate) growth: Growth,
}

impl Driver {
    pub(crate) fn new(options: &Options) -> anyhow::Result<Self> {
        let node = match &options.node {
            Some(name) => name.clone(),
            None => {
                program::host_name().context("cannot get the host name of this node; set --node")?
            }
        };
        let daemon = Daemon::at(&options.daemon_socket);
        Ok(Self { daemon, busy: Busy::default(), node, growth: options.growth })
    }

    /// Topology of this node. Its volumes are accessible from this node only.
    pub(crate) fn topology(&self) -> Topology {
        let here = (TOPOLOGY_KEY.to_owned(), self.node.clone());
        Topology { segments: BTreeMap::from([here]) }
    }

    pub(crate) fn is_here(&self, topology: &Topology) -> bool {
        topology.segments.get(TOPOLOGY_KEY).is_none_or(|node| *node == self.node)
    }
}
