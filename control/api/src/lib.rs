//! REST interface of the daemon as data: requests, responses, endpoints and their documentation.
//!
//! The daemon, the console, the command line and the OpenAPI document are all based on this
//! definition. The crate does no I/O and does not depend on the engine.
//!
//! ```text
//! method, URI ─▶ Operation: endpoint, name, query parameters ─▶ Permission: role, reach
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`endpoints`](ENDPOINTS) | all endpoints of the daemon, with their permissions |
//! | `volume`, `snapshot`, `image` and others | bodies of requests and responses |
//! | `latency` | latencies of requests to volumes, and their percentiles |
//! | `machine` | virtual machines, which the daemon does not know |
//! | [`machine_endpoints`](MACHINE_ENDPOINTS) | all endpoints of `memlane-machines` |
//! | `operation` | matching of requests to endpoints; the console forwards only matched ones |
//! | `task` | long operations and their progress |
//! | `problem` | errors as RFC 9457 problem details |
//! | `size` | sizes as text |
//! | `document` | OpenAPI documents |
#![forbid(unsafe_code)]

mod attachment;
mod document;
mod durability;
mod endpoint;
mod endpoints;
mod event;
mod export;
mod health;
mod image;
mod latency;
mod machine;
mod machine_endpoints;
mod operation;
mod path;
mod permission;
mod pool;
mod problem;
mod request;
mod size;
mod snapshot;
mod standby;
mod status;
mod store_server;
mod task;
mod volume;

pub use attachment::{AttachAs, Attachment, AttachmentCreate};
pub use document::{machines_openapi_json, openapi_json, success_words};
pub use durability::{
    AtRisk, DurabilityStatus, EncryptionStatus, HoldUp, ImagesStatus, JournalState, JournalStatus,
    MirrorPolicy, MirrorState, MirrorStatus, ShippingStatus, UnfetchedObject, VolumeBytes,
};
pub use endpoint::{Answer, Endpoint, Method, Query, QueryKind, SchemaOf, Tag, schema};
pub use endpoints::*;
pub use event::{Event, EventLevel};
pub use export::{Export, ExportCreate, ExportProtocol, numbered_socket, volume_of_socket};
pub use health::{Health, Stage};
pub use image::{AcceptedLoss, Image, ImageRestore, ImageSave, ImageVolume};
pub use latency::{Latency, VolumeLatencies, quantile, reached};
pub use machine::{
    DiskAttach, DiskDetach, DiskKind, DiskProtocol, Machine, MachineCreate, MachineDisk,
    MachineNetwork, MachineSnapshot, MachineSnapshotCreate, MachineState, MachinesCreated,
};
pub use machine_endpoints::*;
pub use operation::{Operation, Unrecognized, decode, permission};
pub use path::{path_of, with_query};
pub use permission::{Permission, Reach, Role};
pub use pool::{FillState, Forecast, Growth, Pool, PoolPatch};
pub use problem::{PROBLEM_CONTENT_TYPE, Problem, ProblemKind};
pub use request::parse_request;
pub use size::{ByteSize, SizeError, counted};
pub use snapshot::{ChangedRange, CloneCreate, Diff, Snapshot, SnapshotCreate, SnapshotPatch};
pub use standby::{
    Promotion, SkippedImage, Standby, StandbyMirroring, StandbyPromote, StandbyState,
};
pub use status::{
    Certificate, CertificateState, CpuLatencyState, CpuLatencyStatus, DamageStatus, ExportsStatus,
    FuseStatus, NbdStatus, PoolStatus, RecoveryState, RingStatus, Status, UblkStatus,
    VhostUserStatus, Warning,
};
pub use store_server::{StoreClient, StoreServerStatus};
pub use task::{Task, TaskKind, TaskResult, TaskState};
pub use volume::{
    BROKER_OWNER, Capacity, Disconnected, Durability, Reduction, SectorBytes, Volume, VolumeCreate,
    VolumeMirror, VolumePatch,
};
