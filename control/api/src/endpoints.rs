//! Every path and method that is served: one table for the server's tests, the clients and the
//! OpenAPI document.

use std::borrow::Cow;

use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use crate::attachment::{Attachment, AttachmentCreate};
use crate::event::Event;
use crate::export::{Export, ExportCreate};
use crate::health::Health;
use crate::image::{AcceptedLoss, Image, ImageRestore, ImageSave};
use crate::pool::{Pool, PoolPatch};
use crate::problem::ProblemKind::{
    self, AlreadyExists, BodyTooLarge, Busy, DataBehindNewEnd, HostFailed, InUse, InvalidField,
    InvalidRequest, NoSpace, NotFound, NotSupported, PreconditionFailed, Timeout, TooManyVolumes,
    UnknownField,
};
use crate::snapshot::{CloneCreate, Diff, Snapshot, SnapshotCreate, SnapshotPatch};
use crate::standby::{Promotion, Standby, StandbyPromote};
use crate::status::Status;
use crate::task::Task;
use crate::volume::{Disconnected, Volume, VolumeCreate, VolumePatch};

pub const VOLUMES_PATH: &str = "/v1/volumes";
pub const VOLUME_PATH: &str = "/v1/volumes/{name}";
pub const DISCONNECT_PATH: &str = "/v1/volumes/{name}/disconnect";
pub const CLONE_PATH: &str = "/v1/volumes/{name}/clone";
pub const SNAPSHOTS_PATH: &str = "/v1/snapshots";
pub const SNAPSHOT_PATH: &str = "/v1/snapshots/{name}";
pub const SNAPSHOT_RESTORE_PATH: &str = "/v1/snapshots/{name}/restore";
pub const SNAPSHOT_DIFF_PATH: &str = "/v1/snapshots/{name}/diff";
pub const IMAGES_PATH: &str = "/v1/images";
pub const IMAGE_REHEARSE_PATH: &str = "/v1/images/rehearse";
pub const IMAGE_PATH: &str = "/v1/images/{number}";
pub const IMAGE_RESTORE_PATH: &str = "/v1/images/{number}/restore";
pub const ACCEPT_LOSS_PATH: &str = "/v1/volumes/{name}/accept-loss";
pub const IMAGE_VERIFY_PATH: &str = "/v1/images/{number}/verify";
pub const TASKS_PATH: &str = "/v1/tasks";
pub const TASK_PATH: &str = "/v1/tasks/{id}";
pub const EVENTS_PATH: &str = "/v1/events";
pub const POOL_PATH: &str = "/v1/pool";
pub const ATTACHMENTS_PATH: &str = "/v1/attachments";
pub const ATTACHMENT_PATH: &str = "/v1/attachments/{volume}";
pub const EXPORTS_PATH: &str = "/v1/exports";
pub const EXPORT_PATH: &str = "/v1/exports/{volume}";
pub const STANDBY_PATH: &str = "/v1/standby";
pub const STANDBY_PROMOTE_PATH: &str = "/v1/standby/promote";
pub const STATUS_PATH: &str = "/v1/status";
pub const HEALTH_PATH: &str = "/healthz";
pub const READINESS_PATH: &str = "/readyz";
pub const METRICS_PATH: &str = "/metrics";
pub const OPENAPI_PATH: &str = "/openapi.json";

/// The method of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Patch,
    Delete,
}

impl Method {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// The schema of a type.
#[derive(Clone, Copy, Debug)]
pub struct SchemaOf {
    pub name: fn() -> Cow<'static, str>,
    /// Adds it, and those that it refers to.
    pub add_to: fn(&mut Vec<(String, RefOr<Schema>)>),
}

/// That of `T`.
pub const fn schema<T: ToSchema>() -> SchemaOf {
    SchemaOf { name: T::name, add_to: add_schema::<T> }
}

fn add_schema<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

/// Body of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// One object.
    One(SchemaOf),
    /// An array of objects.
    Many(SchemaOf),
    /// A JSON document of a schema that others define.
    Json,
    /// Plain text.
    Text,
    Nothing,
}

/// A parameter after the `?` of a path, which may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    pub name: &'static str,
    pub summary: &'static str,
    pub kind: QueryKind,
}

impl Query {
    pub const fn new(name: &'static str, kind: QueryKind, summary: &'static str) -> Self {
        Self { name, summary, kind }
    }
}

/// Type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKind {
    Text,
    /// Not negative.
    Number,
    /// `true` or `false`.
    Flag,
}

/// Entity tag of the settings that a path stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    Without,
    /// Answers carry it as `ETag`.
    Shown,
    /// As `Shown`, and the request may name it as `If-Match`.
    Matched,
}

/// One method of one path.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    pub method: Method,
    /// With a placeholder at most, as in [`VOLUME_PATH`].
    pub path: &'static str,
    pub query: &'static [Query],
    pub tag: Tag,
    /// A name for generated clients.
    pub operation: &'static str,
    pub summary: &'static str,
    /// The schema of the request's body.
    pub request: Option<SchemaOf>,
    /// The status code of success.
    pub status: u16,
    pub answer: Answer,
    /// The refusals that belong to this endpoint. Those of every endpoint are in
    /// [`GENERAL_PROBLEMS`].
    pub problems: &'static [ProblemKind],
}

/// The refusals that any endpoint may answer with.
pub(crate) const GENERAL_PROBLEMS: &[ProblemKind] = &[
    ProblemKind::Forbidden,
    ProblemKind::Standby,
    ProblemKind::Starting,
    ProblemKind::ShuttingDown,
    ProblemKind::Internal,
];

impl Endpoint {
    pub(crate) const fn get(path: &'static str, operation: &'static str, answer: Answer) -> Self {
        Self::new(Method::Get, path, operation, 200, answer)
    }

    pub(crate) const fn post(path: &'static str, operation: &'static str, answer: Answer) -> Self {
        Self::new(Method::Post, path, operation, 201, answer)
    }

    /// A request that something be begun: the answer is the task to watch.
    pub(crate) const fn begin(path: &'static str, operation: &'static str) -> Self {
        Self::new(Method::Post, path, operation, 202, Answer::One(schema::<Task>()))
    }

    pub(crate) const fn patch(path: &'static str, operation: &'static str, answer: Answer) -> Self {
        Self::new(Method::Patch, path, operation, 200, answer)
    }

    pub(crate) const fn delete(path: &'static str, operation: &'static str) -> Self {
        Self::new(Method::Delete, path, operation, 204, Answer::Nothing)
    }

    pub(crate) const fn new(
        method: Method,
        path: &'static str,
        operation: &'static str,
        status: u16,
        answer: Answer,
    ) -> Self {
        Self {
            method,
            path,
            query: &[],
            tag: Tag::Without,
            operation,
            summary: "",
            request: None,
            status,
            answer,
            problems: &[],
        }
    }

    pub(crate) const fn about(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    pub(crate) const fn takes(self, schema: SchemaOf) -> Self {
        Self { request: Some(schema), ..self }
    }

    pub(crate) const fn asks(self, query: &'static [Query]) -> Self {
        Self { query, ..self }
    }

    pub(crate) const fn tagged(self, tag: Tag) -> Self {
        Self { tag, ..self }
    }

    pub(crate) const fn answers(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(crate) const fn refuses(self, problems: &'static [ProblemKind]) -> Self {
        Self { problems, ..self }
    }
}

/// The refusals that any endpoint with a body may answer with.
pub(crate) const BODY_PROBLEMS: &[ProblemKind] =
    &[InvalidRequest, InvalidField, UnknownField, BodyTooLarge, Timeout];

/// A request that is made in spite of clients.
const FORCE: Query = Query::new(
    "force",
    QueryKind::Flag,
    "Disconnect clients and override the owner instead of refusing. An attached block device \
     still has to be detached first",
);

/// A request that is made in spite of the volume's owner.
const OVERRULE: Query =
    Query::new("force", QueryKind::Flag, "Restore the volume although it has an owner");

pub const ENDPOINTS: &[Endpoint] = &[
    Endpoint::get(VOLUMES_PATH, "list_volumes", Answer::Many(schema::<Volume>()))
        .about("List volumes, sorted by name"),
    Endpoint::post(VOLUMES_PATH, "create_volume", Answer::One(schema::<Volume>()))
        .about("Create an empty volume")
        .tagged(Tag::Shown)
        .takes(schema::<VolumeCreate>())
        .refuses(&[NotSupported, AlreadyExists, TooManyVolumes, NoSpace]),
    Endpoint::get(VOLUME_PATH, "show_volume", Answer::One(schema::<Volume>()))
        .about("Get a volume; its ETag covers its settings, not its usage")
        .tagged(Tag::Shown)
        .refuses(&[NotFound, InvalidField]),
    Endpoint::patch(VOLUME_PATH, "change_volume", Answer::One(schema::<Volume>()))
        .about(
            "Change the size, name or settings of a volume in use; all changes are made, or none",
        )
        .tagged(Tag::Matched)
        .takes(schema::<VolumePatch>())
        .refuses(&[
            NotSupported,
            NotFound,
            AlreadyExists,
            InUse,
            PreconditionFailed,
            DataBehindNewEnd,
            TooManyVolumes,
            NoSpace,
            HostFailed,
        ]),
    Endpoint::delete(VOLUME_PATH, "delete_volume")
        .about("Delete a volume that is not in use, and free its memory")
        .asks(&[FORCE])
        .tagged(Tag::Matched)
        .refuses(&[NotFound, InUse, PreconditionFailed, InvalidField]),
    Endpoint::post(DISCONNECT_PATH, "disconnect_volume", Answer::One(schema::<Disconnected>()))
        .answers(200)
        .about("Disconnect the clients of a volume; they may reconnect")
        .refuses(&[NotFound, InvalidField]),
    Endpoint::post(CLONE_PATH, "clone_volume", Answer::One(schema::<Volume>()))
        .about("Clone a volume or a snapshot: a writable copy that shares memory with it")
        .tagged(Tag::Shown)
        .takes(schema::<CloneCreate>())
        .refuses(&[NotSupported, NotFound, AlreadyExists, TooManyVolumes, NoSpace]),
    Endpoint::get(SNAPSHOTS_PATH, "list_snapshots", Answer::Many(schema::<Snapshot>()))
        .about("List snapshots, sorted by volume and age")
        .asks(&[Query::new("volume", QueryKind::Text, "List only snapshots of this volume")])
        .refuses(&[NotFound, InvalidField]),
    Endpoint::post(SNAPSHOTS_PATH, "create_snapshots", Answer::Many(schema::<Snapshot>()))
        .about("Create snapshots of one or more volumes at the same instant")
        .takes(schema::<SnapshotCreate>())
        .refuses(&[NotSupported, NotFound, AlreadyExists, TooManyVolumes, NoSpace]),
    Endpoint::get(SNAPSHOT_PATH, "show_snapshot", Answer::One(schema::<Snapshot>()))
        .about("Get a snapshot by the name VOLUME@SNAPSHOT")
        .refuses(&[NotFound, InvalidField]),
    Endpoint::patch(SNAPSHOT_PATH, "change_snapshot", Answer::One(schema::<Snapshot>()))
        .about("Rename a snapshot that no NBD client has open")
        .takes(schema::<SnapshotPatch>())
        .refuses(&[NotFound, AlreadyExists, InUse]),
    Endpoint::delete(SNAPSHOT_PATH, "delete_snapshot")
        .about("Delete a snapshot that is not in use; its memory is freed in the background")
        .refuses(&[NotFound, InUse, InvalidField]),
    Endpoint::post(SNAPSHOT_RESTORE_PATH, "restore_snapshot", Answer::One(schema::<Volume>()))
        .answers(200)
        .about("Restore a volume from its snapshot; the volume must not be in use")
        .asks(&[OVERRULE])
        .refuses(&[NotSupported, NotFound, InUse, NoSpace, InvalidField]),
    Endpoint::get(SNAPSHOT_DIFF_PATH, "diff_snapshot", Answer::One(schema::<Diff>()))
        .about("List the byte ranges that differ from another snapshot or from the volume")
        .asks(&[
            Query::new(
                "to",
                QueryKind::Text,
                "Snapshot or volume to compare with; by default the snapshot's volume",
            ),
            Query::new(
                "offset",
                QueryKind::Number,
                "Offset to begin at: next_offset of the previous response",
            ),
        ])
        .refuses(&[NotSupported, NotFound, InvalidField]),
    Endpoint::get(IMAGES_PATH, "list_images", Answer::Many(schema::<Image>()))
        .about("List images in the image store, oldest first")
        .refuses(&[NotSupported, HostFailed]),
    Endpoint::begin(IMAGES_PATH, "save_image")
        .about("Save an image of volumes at one instant to the image store")
        .takes(schema::<ImageSave>())
        .refuses(&[NotSupported, NotFound, Busy, HostFailed, NoSpace]),
    Endpoint::begin(IMAGE_REHEARSE_PATH, "rehearse_image")
        .about("Measure the throughput of the image store")
        .refuses(&[NotSupported, Busy, HostFailed]),
    Endpoint::get(IMAGE_PATH, "show_image", Answer::One(schema::<Image>()))
        .about("Get an image")
        .refuses(&[NotSupported, NotFound, HostFailed, InvalidField]),
    Endpoint::delete(IMAGE_PATH, "delete_image")
        .about("Delete an image, and the objects that no other image uses")
        .refuses(&[NotSupported, NotFound, InUse, Busy, HostFailed, InvalidField]),
    Endpoint::begin(IMAGE_RESTORE_PATH, "restore_image")
        .about("Restore volumes from an image; contents are fetched in the background")
        .takes(schema::<ImageRestore>())
        .refuses(&[NotSupported, NotFound, AlreadyExists, Busy, HostFailed, NoSpace]),
    Endpoint::begin(IMAGE_VERIFY_PATH, "verify_image")
        .about("Verify an image: read it and compare every checksum")
        .refuses(&[NotSupported, NotFound, Busy, HostFailed, InvalidField]),
    Endpoint::post(ACCEPT_LOSS_PATH, "accept_loss", Answer::One(schema::<AcceptedLoss>()))
        .about("Accept the loss of contents that cannot be fetched from the image store")
        .answers(200)
        .refuses(&[NotFound, HostFailed, NoSpace, InvalidField]),
    Endpoint::get(TASKS_PATH, "list_tasks", Answer::Many(schema::<Task>()))
        .about("List running and recently finished tasks, oldest first"),
    Endpoint::get(TASK_PATH, "show_task", Answer::One(schema::<Task>()))
        .about("Get a task")
        .refuses(&[NotFound, InvalidField]),
    Endpoint::delete(TASK_PATH, "cancel_task")
        .about("Cancel a task; it has ended when its state says so")
        .refuses(&[NotFound, InvalidField]),
    Endpoint::get(EVENTS_PATH, "list_events", Answer::Many(schema::<Event>()))
        .about("List recent events, oldest first")
        .asks(&[Query::new("after", QueryKind::Number, "List only events with a higher id")])
        .refuses(&[InvalidField]),
    Endpoint::get(POOL_PATH, "show_pool", Answer::One(schema::<Pool>()))
        .about("Get the limits of the pool, and the forecast of when it is full"),
    Endpoint::patch(POOL_PATH, "change_pool", Answer::One(schema::<Task>()))
        .answers(202)
        .about("Resize the pool while it is in use")
        .takes(schema::<PoolPatch>())
        .refuses(&[NotSupported, Busy, NoSpace, HostFailed]),
    Endpoint::get(ATTACHMENTS_PATH, "list_attachments", Answer::Many(schema::<Attachment>()))
        .about("List attached volumes, sorted by name"),
    Endpoint::post(ATTACHMENTS_PATH, "attach_volume", Answer::One(schema::<Attachment>()))
        .about("Attach a volume as a block device of this host, also after restarts")
        .takes(schema::<AttachmentCreate>())
        .refuses(&[NotSupported, NotFound, AlreadyExists, HostFailed]),
    Endpoint::get(ATTACHMENT_PATH, "show_attachment", Answer::One(schema::<Attachment>()))
        .about("Get an attached volume")
        .refuses(&[NotFound, InvalidField]),
    Endpoint::delete(ATTACHMENT_PATH, "detach_volume")
        .about("Detach a volume: remove its block device")
        .refuses(&[NotFound, InUse, HostFailed, InvalidField]),
    Endpoint::get(EXPORTS_PATH, "list_exports", Answer::Many(schema::<Export>()))
        .about("List volumes exported over vhost-user, sorted by name"),
    Endpoint::post(EXPORTS_PATH, "export_volume", Answer::One(schema::<Export>()))
        .about("Export a volume over vhost-user to a virtual machine, also after restarts")
        .takes(schema::<ExportCreate>())
        .refuses(&[NotFound, AlreadyExists, HostFailed]),
    Endpoint::get(EXPORT_PATH, "show_export", Answer::One(schema::<Export>()))
        .about("Get an exported volume")
        .refuses(&[NotFound, InvalidField]),
    Endpoint::delete(EXPORT_PATH, "unexport_volume")
        .about("Delete the export of a volume that no virtual machine uses")
        .asks(&[FORCE])
        .refuses(&[NotFound, InUse, HostFailed, InvalidField]),
    Endpoint::get(STANDBY_PATH, "show_standby", Answer::One(schema::<Standby>()))
        .about("Get the state of a standby, and its lag behind the daemon that it follows")
        .refuses(&[NotFound]),
    Endpoint::new(
        Method::Post,
        STANDBY_PROMOTE_PATH,
        "promote_standby",
        200,
        Answer::One(schema::<Promotion>()),
    )
    .about("Promote a standby: it takes over the image store and restarts as the writer")
    .takes(schema::<StandbyPromote>())
    .refuses(&[NotFound, InUse, Busy, NoSpace, HostFailed]),
    Endpoint::get(STATUS_PATH, "status", Answer::One(schema::<Status>()))
        .about("Get the status of the daemon, its pool, exports and data at risk"),
    Endpoint::get(HEALTH_PATH, "health", Answer::One(schema::<Health>()))
        .about("Check liveness; succeeds also while the daemon starts and stops"),
    Endpoint::get(READINESS_PATH, "readiness", Answer::One(schema::<Health>()))
        .about("Check readiness; fails while the daemon starts or stops, and names the step"),
    Endpoint::get(METRICS_PATH, "metrics", Answer::Text)
        .about("Get metrics in Prometheus text format"),
    Endpoint::get(OPENAPI_PATH, "openapi", Answer::Json).about("Get this OpenAPI document"),
];

/// The path of one thing: `template` with its placeholder replaced by `name`,
/// quoted so that any text is one segment. A template without one is a path already.
pub fn path_of(template: &str, name: &str) -> String {
    let Some((before, (_placeholder, after))) =
        template.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    else {
        return template.to_owned();
    };
    format!("{before}{}{after}", quoted(name))
}

/// A path with parameters after it.
pub fn with_query(path: &str, parameters: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| format!("{name}={}", quoted(value));
    format!("{path}?{}", parameters.iter().map(pair).collect::<Vec<_>>().join("&"))
}

fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-~".contains(&byte) {
            quoted.push(char::from(byte));
        } else {
            quoted.push_str(&format!("%{byte:02X}"));
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_one_segment_of_a_path() {
        assert_eq!(path_of(VOLUME_PATH, "db-1.x_y"), "/v1/volumes/db-1.x_y");
        assert_eq!(path_of(ATTACHMENT_PATH, "a/b c?"), "/v1/attachments/a%2Fb%20c%3F");
        assert_eq!(path_of(STATUS_PATH, "x"), STATUS_PATH);
        assert_eq!(path_of(SNAPSHOT_DIFF_PATH, "db@a"), "/v1/snapshots/db%40a/diff");
    }

    #[test]
    fn parameters_are_quoted() {
        let path = with_query(EVENTS_PATH, &[("after", "7"), ("to", "a@b&c")]);
        assert_eq!(path, "/v1/events?after=7&to=a%40b%26c");
    }
}
