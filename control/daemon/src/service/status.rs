//! Status of the daemon, for display and metrics.

use std::sync::Arc;

use api::{
    ByteSize, CpuLatencyState, CpuLatencyStatus, DamageStatus, ExportsStatus, FuseStatus, Pool,
    PoolStatus, Status, UblkStatus, VhostUserStatus, VolumeBytes, Warning, counted,
};
use block_device::{BLOCK_BYTES, BlockDevice};
use export_kit::Traffic;
use volumes::Volume;

use crate::exports::{Latencies, VhostUserCounts, VolumeTraffic};
use crate::service::volumes::ratio;
use crate::service::words::EngineWord;
use crate::service::{CpuLatency, Devices, Role, Service};

/// Values of the metrics.
pub(crate) struct Metrics {
    pub(crate) status: Status,
    pub(crate) volumes: Vec<(api::Volume, VolumeTraffic)>,
    pub(crate) latencies: Arc<Latencies>,
    /// `None`: NBD is disabled.
    pub(crate) nbd: Option<nbd::Status>,
    pub(crate) ring: ring_server::Status,
    pub(crate) vhost_user: VhostUserCounts,
    /// `None`: kernel block devices are disabled.
    pub(crate) devices: Option<Traffic>,
    /// Map entries that referred to missing pages.
    pub(crate) damaged_entries: u64,
    pub(crate) pool: Pool,
    /// Number of events since the start.
    pub(crate) event_count: u64,
}

impl Service {
    pub(crate) fn status(&self) -> Status {
        let attachment_count = self.attachments.len() as u64;
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            run_epoch: self.engine.run_epoch(),
            uptime_seconds: self.started.elapsed().as_secs(),
            recovery: self.engine.recovery().to_interface(),
            volume_count: self.engine.volumes().len() as u64,
            attachment_count,
            snapshot_count: self.engine.snapshots().len() as u64,
            task_count: self.tasks.running_count() as u64,
            pool: self.pool_status(),
            durability: match &self.role {
                Role::Primary(durable) => durable.status(),
                Role::Standby(standby) => standby.durability(),
            },
            standby: match &self.role {
                Role::Primary(_) => None,
                Role::Standby(standby) => Some(standby.status()),
            },
            store_server: self.store_serving.as_ref().map(|serving| serving.status()),
            certificates: self.certificates.status(),
            damage: self.damage_status(),
            exports: self.exports_status(),
            cpu_latency: self.cpu_latency_status(),
            warnings: self.warnings().into_iter().chain(self.memory_warning()).collect(),
        }
    }

    pub(crate) fn metrics(&self) -> Metrics {
        let with_traffic = |volume: api::Volume| {
            let traffic = self.catalog.traffic(volume.id);
            (volume, traffic)
        };
        Metrics {
            status: self.status(),
            volumes: self.list_volumes().into_iter().map(with_traffic).collect(),
            latencies: Arc::clone(self.catalog.latencies()),
            nbd: self.nbd.as_ref().map(|nbd| nbd.server_status()),
            ring: self.ring.server_status(),
            vhost_user: self.vhost_user.counts(),
            devices: self.device_traffic(),
            damaged_entries: self.engine.damaged_entries(),
            pool: self.show_pool(),
            event_count: self.events.count(),
        }
    }

    /// Traffic of all device drivers together.
    fn device_traffic(&self) -> Option<Traffic> {
        let of_loop = match &self.devices {
            Devices::On { devices, .. } => Some(devices.traffic()),
            Devices::Off { .. } => None,
        };
        let of_ublk = self.ublk.as_ref().map(|ublk| ublk.traffic());
        [of_loop, of_ublk].into_iter().flatten().reduce(|mut sum, more| {
            sum += more;
            sum
        })
    }

    fn pool_status(&self) -> PoolStatus {
        let usage = self.engine.usage();
        PoolStatus {
            path: self.pool_path.display().to_string(),
            size_bytes: usage.size_bytes,
            used_bytes: usage.used_bytes,
            free_bytes: usage.size_bytes.saturating_sub(usage.used_bytes),
            page_bytes: usage.page_bytes,
            map_bytes: usage.map_bytes,
            index_bytes: usage.index_bytes,
            table_bytes: usage.table_bytes,
            slack_bytes: usage.slack_bytes,
            provisioned_bytes: self.provisioned_bytes(),
            written_bytes: usage.written_bytes,
            fill_bytes: usage.fill_bytes,
            pending_bytes: usage.pending_bytes,
            page_count: usage.page_count,
            idle_page_count: usage.idle_page_count,
            idle_saved_bytes: usage.idle_saved_bytes,
            overwrite_need_bytes: usage.overwrite_need_bytes,
            overwrite_room_bytes: usage.overwrite_room_bytes,
            ratio: ratio(usage.written_bytes, usage.used_bytes),
        }
    }

    fn provisioned_bytes(&self) -> u64 {
        let volumes = self.engine.volumes();
        // Topics of a broker have a large size of which they use little.
        let is_own = |it: &&Arc<Volume>| self.labels.of(it.id()).owner != api::BROKER_OWNER;
        let sizes = volumes.iter().filter(is_own).map(|volume| volume.geometry().size_bytes);
        sizes.fold(0, u64::saturating_add)
    }

    fn damage_status(&self) -> DamageStatus {
        let mut all = self.engine.volumes();
        all.extend(self.engine.snapshots());
        let lost = all.iter().map(|volume| VolumeBytes {
            name: volume.name(),
            bytes: volume.map().lost_blocks() * BLOCK_BYTES as u64,
        });
        DamageStatus {
            lost: lost.filter(|lost| lost.bytes > 0).collect(),
            withheld_bytes: self.engine.withheld_bytes(),
        }
    }

    fn exports_status(&self) -> ExportsStatus {
        ExportsStatus {
            nbd: self.nbd.as_ref().map(|nbd| nbd.status()),
            ring: self.ring.status(),
            fuse: match &self.devices {
                Devices::On { mount_point, .. } => {
                    Some(FuseStatus { mount_point: mount_point.clone() })
                }
                Devices::Off { .. } => None,
            },
            vhost_user: VhostUserStatus {
                folder: self.vhost_user.folder(),
                exports: self.exports.len() as u64,
                connected: self.vhost_user.counts().connected,
            },
            ublk: self
                .ublk
                .as_ref()
                .filter(|ublk| ublk.is_offered())
                .map(|ublk| UblkStatus { device_count: ublk.devices().len() as u64 }),
        }
    }

    fn cpu_latency_status(&self) -> CpuLatencyStatus {
        use adaptive_polling::CpuLatencyState as Held;
        let (state, reason) = match &self.cpu_latency {
            CpuLatency::Unmanaged => (CpuLatencyState::Unmanaged, None),
            CpuLatency::Unavailable { reason } => {
                (CpuLatencyState::Unavailable, Some(reason.clone()))
            }
            CpuLatency::Managed(request) => match request.state() {
                Held::Held => (CpuLatencyState::Low, None),
                Held::Released => (CpuLatencyState::Any, None),
                Held::Failed(reason) => (CpuLatencyState::Unavailable, Some(reason)),
            },
        };
        CpuLatencyStatus { state, reason }
    }

    /// Warns if the host lacks memory for the pool.
    fn memory_warning(&self) -> Option<Warning> {
        let why = self.engine.memory_shortage()?;
        let message = format!(
            "the host lacks {} of memory for the pool; free memory on the host, or shrink the \
             pool: {why}",
            ByteSize(self.engine.untaken_bytes()).rounded()
        );
        Some(Warning { kind: "pool_memory_missing".to_owned(), message })
    }

    /// Warns that overwrites may find no free memory, while they could need more than is guaranteed
    /// to be available.
    fn overwrite_warning(&self) -> Option<Warning> {
        let usage = self.engine.usage();
        let lack_bytes = usage.overwrite_lack_bytes();
        let size = |bytes| ByteSize(bytes).rounded();
        (lack_bytes > 0).then(|| Warning {
            kind: "overwrites_uncovered".to_owned(),
            message: format!(
                "the pool is overcommitted: overwrites of deduplicated, compressed or \
                 fill-pattern blocks of thin volumes may fail with \"no space\". They could \
                 need {} more, and {} is available, {} too little. Enlarge the pool, delete or \
                 discard data, or set capacity=guaranteed for volumes that must not fail",
                size(usage.overwrite_need_bytes),
                size(usage.overwrite_room_bytes),
                size(lack_bytes)
            ),
        })
    }

    fn warnings(&self) -> Vec<Warning> {
        let warning = |kind: &str, message| Warning { kind: kind.to_owned(), message };
        let mut warnings = match &self.role {
            Role::Primary(durable) => durable.warnings(),
            Role::Standby(standby) => standby.warnings(),
        };
        if let Some(percent) = self.watch.passed_percent() {
            let message = format!(
                "the pool is over {percent} % full; delete or discard data, or enlarge it with \
                 memlane pool set max-memory=SIZE"
            );
            warnings.push(warning("pool_filling", message));
        }
        let damage = self.damage_status();
        warnings.extend(damage.lost.iter().map(|lost| {
            let bytes = ByteSize(lost.bytes).rounded();
            let message = format!(
                "{bytes} of {} are lost: reads of them fail until they are overwritten. \
                 Overwrite them, or restore the volume from an image under another name",
                lost.name
            );
            warning("blocks_lost", message)
        }));
        if damage.withheld_bytes > 0 {
            let bytes = ByteSize(damage.withheld_bytes).rounded();
            let message = format!(
                "{bytes} of the pool are retired because of memory corruption; check this \
                 host's memory (EDAC, memtest)"
            );
            warnings.push(warning("memory_withheld", message));
        }
        warnings.extend(self.overwrite_warning());
        if self.pool_medium.loses_writes() {
            let message = format!(
                "the pool's file {} is on a disk (pool-on-disk): after a power loss volumes may \
                 return old data, also those of class journal",
                self.pool_path.display()
            );
            warnings.push(warning("pool_on_disk", message));
        }
        let damaged_count = self.engine.damaged_entries();
        if damaged_count > 0 {
            let message = format!(
                "lost {}: another program has written to the pool's memory. Back up what you \
                 need and create a new pool",
                counted(damaged_count, "block")
            );
            warnings.push(warning("pool_damaged", message));
        }
        if let Some(address) = self.nbd.as_ref().and_then(|nbd| nbd.insecure_address()) {
            let message = format!(
                "NBD on {address} accepts clients without certificates; require them \
                 (nbd-tls-client-ca) and remove nbd-insecure"
            );
            warnings.push(warning("nbd_insecure", message));
        }
        if let Devices::On { devices, .. } = &self.devices {
            warnings.extend(devices.dead_devices().iter().map(|device| {
                let message = format!(
                    "device {device} has lost its volume and fails all I/O; unmount it and \
                     close all programs that use it, then it is removed"
                );
                warning("device_dead", message)
            }));
        }
        warnings.extend(self.certificates.warnings());
        warnings.extend(self.attachment_warnings());
        warnings
    }

    /// Warns of volumes that could not be attached again.
    fn attachment_warnings(&self) -> Vec<Warning> {
        let warning = |kind: &str, message| Warning { kind: kind.to_owned(), message };
        let failed = self.attachments.all().into_iter().filter(|it| self.device_in(it).is_none());
        let failed = failed.map(|entry| {
            let message = format!(
                "cannot restore the attachment of volume {:?}, or its device was removed by \
                 hand; see the daemon's log. Detach the volume, or attach it again once the \
                 cause is fixed",
                entry.name
            );
            warning("attachment_failed", message)
        });
        let unexported = self.failed_exports().into_iter().map(|name| {
            let message = format!(
                "cannot restore the export of volume {name:?}; see the daemon's log. Delete the \
                 export and create it again once the cause is fixed"
            );
            warning("export_failed", message)
        });
        failed.chain(unexported).collect()
    }
}
