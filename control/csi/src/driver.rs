//! Everything that calls of all services need.

use std::collections::BTreeMap;

use anyhow::Context;

use crate::busy::Busy;
use crate::daemon::Daemon;
use crate::options::{Growth, Options};
use crate::wire::Topology;

/// The name of the driver in classes, claims and the kubelet's registry.
pub(crate) const NAME: &str = "csi.memlane";

/// The label of nodes by which volumes name the node that they are on.
const TOPOLOGY_KEY: &str = "csi.memlane/node";

/// The driver of one node.
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
            None => program::host_name()
                .context("cannot tell the name of this node; set it with --node")?,
        };
        let daemon = Daemon::at(&options.daemon_socket);
        Ok(Self { daemon, busy: Busy::default(), node, growth: options.growth })
    }

    /// Segments of this node: the only one that reaches its volumes.
    pub(crate) fn topology(&self) -> Topology {
        let here = (TOPOLOGY_KEY.to_owned(), self.node.clone());
        Topology { segments: BTreeMap::from([here]) }
    }

    pub(crate) fn is_here(&self, topology: &Topology) -> bool {
        topology.segments.get(TOPOLOGY_KEY).is_none_or(|node| *node == self.node)
    }
}
