//! Operations of the REST interface, in terms of its types: the engine, the exports and the lists
//! of attachments and exports joined.
//!
//! Operations that change something hold one lock, so that a volume is not deleted while it is
//! being attached. The holder may wait for the kernel, or for the journal's disk. Only operations
//! that change something wait for it.
//! Lock order: the change lock, then that of a list, which is held inside the list alone.

mod attachments;
mod change;
mod clients;
mod exports;
mod images;
mod latencies;
mod owners;
mod pool;
mod refusals;
mod snapshots;
mod standby;
mod status;
mod tags;
mod usages;
mod volumes;
mod words;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use ::volumes::{Engine, Volume};
use adaptive_polling::CpuLatencyRequest;
use api::{Problem, ProblemKind, Promotion};

use crate::attachments::AttachmentList;
use crate::broker_lock::BrokerLock;
use crate::durable::Durable;
use crate::events::EventLog;
use crate::export_list::ExportList;
use crate::exports::{Catalog, KernelDevices, NbdExport, RingExport, VhostUserExports};
use crate::forecast::Filling;
use crate::maintenance::PoolWatch;
use crate::pool_medium::Medium;
use crate::standby::Standby;
use crate::tasks::Tasks;
use crate::volume_labels::VolumeLabels;
use crate::volume_users::VolumeUsers;

pub(crate) use clients::{Clients, note_holders};
pub(crate) use owners::Ownership;
pub(crate) use status::Metrics;
pub(crate) use tags::{Precondition, entity_tag};
pub(crate) use usages::UsageCache;

/// Support of loop devices by this daemon.
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

/// Support for keeping idle cores quick to wake while there is traffic.
pub(crate) enum CpuLatency {
    Managed(Arc<CpuLatencyRequest>),
    /// The configuration says so.
    Unmanaged,
    /// Why not.
    Unavailable {
        reason: String,
    },
}

/// Part that this daemon has in the durable set.
pub(crate) enum Role {
    /// It writes.
    Primary(Arc<Durable>),
    /// It follows the image store of another.
    Standby(Arc<Standby>),
}

/// Everything that requests need. Shared by all of them.
pub(crate) struct Service {
    pub(crate) engine: Arc<Engine>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) watch: Arc<PoolWatch>,
    pub(crate) filling: Arc<Filling>,
    pub(crate) events: Arc<EventLog>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) role: Role,
    /// The promotion of a daemon that writes and was a standby.
    pub(crate) promotion: Option<Promotion>,
    /// `None`: switched off.
    pub(crate) nbd: Option<Arc<NbdExport>>,
    pub(crate) ring: Arc<RingExport>,
    pub(crate) vhost_user: Arc<VhostUserExports>,
    pub(crate) users: Arc<VolumeUsers>,
    pub(crate) labels: VolumeLabels,
    pub(crate) broker_lock: BrokerLock,
    pub(crate) devices: Devices,
    /// `None`: switched off.
    pub(crate) ublk: Option<Arc<dyn KernelDevices>>,
    pub(crate) attachments: AttachmentList,
    pub(crate) exports: ExportList,
    pub(crate) cpu_latency: CpuLatency,
    pub(crate) pool_path: PathBuf,
    pub(crate) pool_medium: Medium,
    pub(crate) changes: ChangeLock,
    pub(crate) usages: UsageCache,
    pub(crate) started: Instant,
}

/// Lock that each operation holds while it changes something.
#[derive(Debug, Default)]
pub(crate) struct ChangeLock(Mutex<()>);

impl Service {
    fn lock_changes(&self) -> MutexGuard<'_, ()> {
        self.changes.0.lock().expect("no operation panics")
    }

    /// Journal and images; refused while the daemon is a standby.
    pub(crate) fn durable(&self) -> Result<&Arc<Durable>, Problem> {
        match &self.role {
            Role::Primary(durable) => Ok(durable),
            Role::Standby(_) => {
                let detail = "this daemon is a standby: its volumes are read-only, and only NBD \
                              and ring clients can read them; run memlane standby promote first";
                Err(Problem::new(ProblemKind::Standby, detail))
            }
        }
    }

    /// An image is saved as soon as possible, of a daemon that saves some.
    fn want_image(&self) {
        if let Role::Primary(durable) = &self.role {
            durable.want_image();
        }
    }

    pub(crate) fn volume(&self, name: &str) -> Result<Arc<Volume>, Problem> {
        self.engine.volume(name).map_err(|error| refusals::of_volume(&error))
    }
}
