//! The REST interface of the daemon, as data: what is sent, what is answered, how it is described.
//!
//! The daemon, the command line and the OpenAPI document are made from the one definition here.
//! This crate does no I/O and knows nothing of the engine.
//!
//! | module | holds |
//! |---|---|
//! | [`endpoints`](ENDPOINTS) | every path and method that is served |
//! | `volume`, `attachment`, `status` | the bodies of requests and answers |
//! | `problem` | refusals, as RFC 9457 problem details |
//! | `size` | sizes as people write them |
//! | `document` | the OpenAPI document of all this |
#![forbid(unsafe_code)]

mod attachment;
mod document;
mod endpoints;
mod problem;
mod request;
mod size;
mod status;
mod volume;

pub use attachment::{AttachAs, Attachment, AttachmentCreate};
pub use document::openapi_json;
pub use endpoints::{
    ATTACHMENT_PATH, ATTACHMENTS_PATH, Answer, ENDPOINTS, Endpoint, METRICS_PATH, Method,
    OPENAPI_PATH, STATUS_PATH, VOLUME_PATH, VOLUMES_PATH, path_of,
};
pub use problem::{PROBLEM_CONTENT_TYPE, Problem, ProblemKind};
pub use request::parse_request;
pub use size::{ByteSize, SizeError};
pub use status::{
    CpuLatencyState, CpuLatencyStatus, ExportsStatus, FuseStatus, NbdStatus, PoolStatus,
    RecoveryState, Status, Warning,
};
pub use volume::{Capacity, Durability, Reduction, SectorBytes, Volume, VolumeCreate, VolumePatch};
