//! The REST interface of the daemon, as data: what is sent, what is answered, how it is described.
//!
//! The daemon, the command line and the OpenAPI document are made from the one definition here.
//! This crate does no I/O and knows nothing of the engine.
//!
//! | module | holds |
//! |---|---|
//! | [`endpoints`](ENDPOINTS) | every path and method that is served |
//! | `volume`, `snapshot`, `image` and others | the bodies of requests and answers |
//! | `machine` | virtual machines, which are not the daemon's |
//! | [`machine_endpoints`](MACHINE_ENDPOINTS) | every path and method of `memlane-machines` |
//! | `task` | operations that take long, and how far they are |
//! | `problem` | refusals, as RFC 9457 problem details |
//! | `size` | sizes as people write them |
//! | `document` | the OpenAPI documents of all this |
#![forbid(unsafe_code)]

mod attachment;
mod document;
mod durability;
mod endpoints;
mod event;
mod export;
mod health;
mod image;
mod machine;
mod machine_endpoints;
mod pool;
mod problem;
mod request;
mod size;
mod snapshot;
mod standby;
mod status;
mod task;
mod volume;

pub use attachment::{AttachAs, Attachment, AttachmentCreate};
pub use document::{machines_openapi_json, openapi_json, success_words};
pub use durability::{
    AtRisk, DurabilityStatus, EncryptionStatus, HoldUp, ImagesStatus, JournalState, JournalStatus,
    ShippingStatus, UnfetchedObject, VolumeBytes,
};
pub use endpoints::{
    ACCEPT_LOSS_PATH, ATTACHMENT_PATH, ATTACHMENTS_PATH, Answer, CLONE_PATH, DISCONNECT_PATH,
    ENDPOINTS, EVENTS_PATH, EXPORT_PATH, EXPORTS_PATH, Endpoint, HEALTH_PATH, IMAGE_PATH,
    IMAGE_REHEARSE_PATH, IMAGE_RESTORE_PATH, IMAGE_VERIFY_PATH, IMAGES_PATH, METRICS_PATH, Method,
    OPENAPI_PATH, POOL_PATH, Query, QueryKind, READINESS_PATH, SNAPSHOT_DIFF_PATH, SNAPSHOT_PATH,
    SNAPSHOT_RESTORE_PATH, SNAPSHOTS_PATH, STANDBY_PATH, STANDBY_PROMOTE_PATH, STATUS_PATH,
    SchemaOf, TASK_PATH, TASKS_PATH, Tag, VOLUME_PATH, VOLUMES_PATH, path_of, schema, with_query,
};
pub use event::{Event, EventLevel};
pub use export::{Export, ExportCreate, ExportProtocol, numbered_socket, volume_of_socket};
pub use health::{Health, Stage};
pub use image::{AcceptedLoss, Image, ImageRestore, ImageSave, ImageVolume};
pub use machine::{
    DiskAttach, DiskDetach, DiskKind, DiskProtocol, Machine, MachineCreate, MachineDisk,
    MachineNetwork, MachineSnapshot, MachineSnapshotCreate, MachineState, MachinesCreated,
};
pub use machine_endpoints::{
    CONSOLE_PROTOCOL, CONSOLE_STATUS, MACHINE_ATTACH_PATH, MACHINE_DETACH_PATH, MACHINE_ENDPOINTS,
    MACHINE_KILL_PATH, MACHINE_PATH, MACHINE_SERIAL_PATH, MACHINE_SHUT_DOWN_PATH,
    MACHINE_SNAPSHOT_PATH, MACHINE_START_PATH, MACHINE_VNC_PATH, MACHINES_PATH,
};
pub use pool::{FillState, Forecast, Growth, Pool, PoolPatch};
pub use problem::{PROBLEM_CONTENT_TYPE, Problem, ProblemKind};
pub use request::parse_request;
pub use size::{ByteSize, SizeError};
pub use snapshot::{ChangedRange, CloneCreate, Diff, Snapshot, SnapshotCreate, SnapshotPatch};
pub use standby::{Promotion, SkippedImage, Standby, StandbyPromote, StandbyState};
pub use status::{
    CpuLatencyState, CpuLatencyStatus, DamageStatus, ExportsStatus, FuseStatus, NbdStatus,
    PoolStatus, RecoveryState, RingStatus, Status, UblkStatus, VhostUserStatus, Warning,
};
pub use task::{Task, TaskKind, TaskResult, TaskState};
pub use volume::{
    Capacity, Disconnected, Durability, Reduction, SectorBytes, Volume, VolumeCreate, VolumePatch,
};
