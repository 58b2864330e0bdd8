//! NBD server that provides a simulated disk to QEMU.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use adaptive_polling::SpinPermits;
use anyhow::{Context, Result};
use block_device::BlockDevice;
use nbd::{Client, Config, Export, ExportInfo, Exports, Peer, Quota, Server, TcpAccess};

use crate::volatile_disk::VolatileDisk;

/// Name of the export.
pub(crate) const EXPORT: &str = "disk";

const QUOTA: Quota = Quota { total: 4, per_user: 4, reserved: 0 };
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(60);
const DRAIN_TIME_MAX: Duration = Duration::from_secs(10);

struct OneDisk(Arc<VolatileDisk>);

impl Exports for OneDisk {
    fn admits(&self, _peer: &Peer) -> bool {
        true
    }

    fn find(&self, name: &str, _client: &Client) -> Option<Export> {
        let device: Arc<dyn BlockDevice> = Arc::clone(&self.0) as _;
        (name == EXPORT).then(|| Export {
            name: EXPORT.to_owned(),
            description: String::new(),
            device,
        })
    }

    fn list(&self, _client: &Client) -> Vec<ExportInfo> {
        vec![ExportInfo { name: EXPORT.to_owned(), description: String::new() }]
    }
}

/// Serves a disk until it is stopped or dropped.
pub(crate) struct DiskServer {
    server: Server,
    disk: Arc<VolatileDisk>,
}

impl DiskServer {
    pub(crate) fn start(disk: Arc<VolatileDisk>, path: PathBuf) -> Result<Self> {
        let config = Config {
            unix_path: path.clone(),
            tcp: None,
            tcp_access: TcpAccess::Certified,
            tls: None,
            quota: QUOTA,
            handshake_time_max: HANDSHAKE_TIME_MAX,
            spin_permits: Arc::new(SpinPermits::new(0)),
            spin_max: Duration::ZERO,
            thread_start: || {},
        };
        let server = Server::start(config, Arc::new(OneDisk(Arc::clone(&disk))))
            .with_context(|| format!("cannot serve a disk on {}", path.display()))?;
        Ok(Self { server, disk })
    }

    pub(crate) fn disk(&self) -> &VolatileDisk {
        &self.disk
    }

    /// Completes the received requests and ends. The disk is unused from then on.
    pub(crate) fn stop(self) {
        self.server.stop(DRAIN_TIME_MAX);
    }
}
