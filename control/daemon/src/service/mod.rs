//! Operations of the REST interface, in types of the API. They combine the engine, the exports and
//! the lists of attachments and exports.
//!
//! Operations that change a volume lock it, so that it is not deleted while it is being attached.
//! The holder may wait for the kernel, the journal's disk or the image store; changes of other
//! volumes do not wait for it. Read-only operations do not lock. Lock order: volumes, then a list,
//! whose lock is held inside the list alone.

mod attachments;
mod change;
mod change_locks;
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
use std::sync::Arc;
use std::time::Instant;

use ::volumes::{Engine, Volume};
use adaptive_polling::CpuLatencyRequest;
use api::{Problem, ProblemKind, Promotion};

use crate::attachments::AttachmentList;
use crate::broker_lock::BrokerLock;
use crate::certificates::Certificates;
use crate::durable::Durable;
use crate::events::EventLog;
use crate::export_list::ExportList;
use crate::exports::{Catalog, KernelDevices, NbdExport, RingExport, VhostUserExports};
use crate::forecast::Filling;
use crate::maintenance::PoolWatch;
use crate::pool_medium::Medium;
use crate::standby::Standby;
use crate::store_serving::StoreServing;
use crate::tasks::Tasks;
use crate::volume_labels::VolumeLabels;
use crate::volume_users::VolumeUsers;

pub(crate) use change_locks::ChangeLocks;
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
    /// Reason for which loop devices are unavailable.
    Off {
        reason: String,
    },
}

/// Support for low CPU wake-up latency during traffic.
pub(crate) enum CpuLatency {
    Managed(Arc<CpuLatencyRequest>),
    /// Disabled by configuration.
    Unmanaged,
    /// Refused by the host.
    Unavailable {
        reason: String,
    },
}

/// Role of this daemon in the durable set.
pub(crate) enum Role {
    /// Writer.
    Primary(Arc<Durable>),
    /// Follower of another daemon's image store.
    Standby(Arc<Standby>),
}

/// State shared by all requests.
pub(crate) struct Service {
    pub(crate) engine: Arc<Engine>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) watch: Arc<PoolWatch>,
    pub(crate) filling: Arc<Filling>,
    pub(crate) events: Arc<EventLog>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) role: Role,
    /// Promotion of a writer that was a standby.
    pub(crate) promotion: Option<Promotion>,
    /// `None`: disabled.
    pub(crate) nbd: Option<Arc<NbdExport>>,
    pub(crate) ring: Arc<RingExport>,
    pub(crate) vhost_user: Arc<VhostUserExports>,
    /// `None`: no image store is served.
    pub(crate) store_serving: Option<Arc<StoreServing>>,
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) users: Arc<VolumeUsers>,
    pub(crate) labels: VolumeLabels,
    pub(crate) broker_lock: BrokerLock,
    pub(crate) devices: Devices,
    /// `None`: disabled.
    pub(crate) ublk: Option<Arc<dyn KernelDevices>>,
    pub(crate) attachments: AttachmentList,
    pub(crate) exports: ExportList,
    pub(crate) cpu_latency: CpuLatency,
    pub(crate) pool_path: PathBuf,
    pub(crate) pool_medium: Medium,
    pub(crate) changes: ChangeLocks,
    pub(crate) usages: UsageCache,
    pub(crate) started: Instant,
}

impl Service {
    /// Returns journal and images. Refused while the daemon is a standby.
    pub(crate) fn durable(&self) -> Result<&Arc<Durable>, Problem> {
        match &self.role {
            Role::Primary(durable) => Ok(durable),
            Role::Standby(_) => {
                let detail = "this daemon is a standby: NBD and ring clients can read its \
                              volumes, and nothing can change them; use the writer, or, if the \
                              writer has stopped for good, run memlane standby promote";
                Err(Problem::new(ProblemKind::Standby, detail))
            }
        }
    }

    /// Requests an image, if the daemon saves images.
    fn want_image(&self) {
        if let Role::Primary(durable) = &self.role {
            durable.want_image();
        }
    }

    pub(crate) fn volume(&self, name: &str) -> Result<Arc<Volume>, Problem> {
        self.engine.volume(name).map_err(|error| refusals::of_volume(&error))
    }
}
