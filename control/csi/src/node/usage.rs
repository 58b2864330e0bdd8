//! Capabilities of the node, and usage statistics of volumes.

use rustix::fs::{StatVfs, statvfs};
use tonic::Status;

use super::mounts::{at, device_at};
use super::paths::{check_path, published};
use super::programs::failed;
use crate::capability::capabilities;
use crate::driver::Driver;
use crate::wire::{Capabilities, NodeInfo, Nothing, StatsAnswer, StatsRequest, Usage, node, unit};

impl Driver {
    pub(crate) fn node_capabilities(&self, _: Nothing) -> Result<Capabilities, Status> {
        Ok(capabilities(&[
            node::STAGE_UNSTAGE_VOLUME,
            node::GET_VOLUME_STATS,
            node::EXPAND_VOLUME,
            node::SINGLE_NODE_MULTI_WRITER,
            node::VOLUME_MOUNT_GROUP,
            node::GET_VOLUME_HEALTH,
        ]))
    }

    pub(crate) fn node_info(&self, _: Nothing) -> Result<NodeInfo, Status> {
        let accessible_topology = Some(self.topology());
        Ok(NodeInfo { node_id: self.node.clone(), accessible_topology, ..NodeInfo::default() })
    }

    pub(crate) fn stats(&self, request: StatsRequest) -> Result<StatsAnswer, Status> {
        check_path(&request.volume_id, "volume_id")?;
        check_path(&request.volume_path, "volume_path")?;
        let volume = self.daemon.known_volume(&request.volume_id)?;
        let path = published(&request.volume_path)?;
        let is_mounted = at(&path)?.is_some();
        if !is_mounted {
            return Err(Status::not_found(format!("{} is not mounted", path.display())));
        }
        if device_at(&path).is_some() {
            let total = volume.size_bytes.cast_signed();
            let usage = Usage { total, unit: unit::BYTES, ..Usage::default() };
            return Ok(StatsAnswer { usage: vec![usage] });
        }
        let found = statvfs(&path).map_err(|error| failed("ask", &path, &error.into()))?;
        Ok(StatsAnswer { usage: vec![bytes_of(&found), inodes_of(&found)] })
    }
}

fn bytes_of(found: &StatVfs) -> Usage {
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize).cast_signed();
    Usage {
        available: bytes(found.f_bavail),
        total: bytes(found.f_blocks),
        used: bytes(found.f_blocks.saturating_sub(found.f_bfree)),
        unit: unit::BYTES,
    }
}

fn inodes_of(found: &StatVfs) -> Usage {
    Usage {
        available: found.f_favail.cast_signed(),
        total: found.f_files.cast_signed(),
        used: found.f_files.saturating_sub(found.f_ffree).cast_signed(),
        unit: unit::INODES,
    }
}
