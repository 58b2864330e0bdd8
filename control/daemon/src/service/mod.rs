//! What the REST interface can do, in terms of its types: the engine, the exports and the list of
//! attachments joined.
//!
//! Operations that change something take turns, so that a volume is not deleted while it is being
//! attached. A turn may wait for the kernel, or for the journal's disk; only operations that change
//! something wait for it.
//! Lock order: the turn, then the list of attachments or that of exports, which are never held
//! across a system call other than the one that stores them.

mod attachments;
mod change;
mod clients;
mod exports;
mod images;
mod pool;
mod refusals;
mod snapshots;
mod status;
mod tags;
mod usages;
mod volumes;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use ::volumes::{Engine, Volume};
use adaptive_polling::CpuLatencyRequest;
use api::Problem;

use crate::attachments::AttachmentList;
use crate::durable::Durable;
use crate::events::EventLog;
use crate::export_list::ExportList;
use crate::exports::{Catalog, KernelDevices, NbdExport, RingExport, VhostUserExports};
use crate::forecast::Filling;
use crate::maintenance::PoolWatch;
use crate::service::usages::UsageCache;
use crate::tasks::Tasks;
use crate::volume_users::VolumeUsers;

pub(crate) use clients::Clients;
pub(crate) use status::Metrics;
pub(crate) use tags::{Precondition, entity_tag};

/// What the service is made of.
pub(crate) struct Parts {
    pub(crate) engine: Arc<Engine>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) watch: Arc<PoolWatch>,
    pub(crate) filling: Arc<Filling>,
    pub(crate) events: Arc<EventLog>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) durable: Arc<Durable>,
    pub(crate) nbd: Option<Arc<NbdExport>>,
    pub(crate) ring: Arc<RingExport>,
    pub(crate) vhost_user: Arc<VhostUserExports>,
    pub(crate) users: Arc<VolumeUsers>,
    pub(crate) devices: Devices,
    /// `None`: switched off.
    pub(crate) ublk: Option<Arc<dyn KernelDevices>>,
    pub(crate) attachments: AttachmentList,
    pub(crate) exports: ExportList,
    pub(crate) cpu_latency: CpuLatency,
    pub(crate) pool_path: PathBuf,
}

/// Whether this daemon makes loop devices.
pub(crate) enum Devices {
    On {
        devices: Arc<dyn KernelDevices>,
        mount_point: String,
    },
    /// Why not, for people who ask for one.
    Off {
        reason: String,
    },
}

/// Whether this daemon keeps idle cores quick to wake while there is traffic.
pub(crate) enum CpuLatency {
    Managed(Arc<CpuLatencyRequest>),
    /// The configuration says so.
    Unmanaged,
    /// Why not.
    Unavailable {
        reason: String,
    },
}

/// Everything that requests need. Shared by all of them.
pub(crate) struct Service {
    engine: Arc<Engine>,
    catalog: Arc<Catalog>,
    pub(crate) watch: Arc<PoolWatch>,
    filling: Arc<Filling>,
    pub(crate) events: Arc<EventLog>,
    pub(crate) tasks: Arc<Tasks>,
    durable: Arc<Durable>,
    pub(crate) nbd: Option<Arc<NbdExport>>,
    ring: Arc<RingExport>,
    vhost_user: Arc<VhostUserExports>,
    pub(crate) users: Arc<VolumeUsers>,
    devices: Devices,
    ublk: Option<Arc<dyn KernelDevices>>,
    attachments: Mutex<AttachmentList>,
    exports: Mutex<ExportList>,
    cpu_latency: CpuLatency,
    turn: Mutex<()>,
    usages: UsageCache,
    pool_path: PathBuf,
    started: Instant,
}

impl Service {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            engine: parts.engine,
            catalog: parts.catalog,
            watch: parts.watch,
            filling: parts.filling,
            events: parts.events,
            tasks: parts.tasks,
            durable: parts.durable,
            nbd: parts.nbd,
            ring: parts.ring,
            vhost_user: parts.vhost_user,
            users: parts.users,
            devices: parts.devices,
            ublk: parts.ublk,
            attachments: Mutex::new(parts.attachments),
            exports: Mutex::new(parts.exports),
            cpu_latency: parts.cpu_latency,
            turn: Mutex::new(()),
            usages: UsageCache::default(),
            pool_path: parts.pool_path,
            started: Instant::now(),
        }
    }

    /// Brings back what was exported and attached when the last daemon ended.
    pub(crate) fn bring_back(&self) {
        self.restore_exports();
        self.restore_attachments();
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().expect("no operation panics")
    }

    fn attachments(&self) -> MutexGuard<'_, AttachmentList> {
        self.attachments.lock().expect("no operation panics")
    }

    fn export_list(&self) -> MutexGuard<'_, ExportList> {
        self.exports.lock().expect("no operation panics")
    }

    #[cfg(test)]
    pub(crate) fn volume_for_test(&self, name: &str) -> Arc<Volume> {
        self.volume(name).expect("the test made it")
    }

    fn volume(&self, name: &str) -> Result<Arc<Volume>, Problem> {
        self.engine.volume(name).map_err(|error| refusals::of_volume(&error))
    }
}
