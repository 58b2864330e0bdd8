//! Table of all operations of the daemon. The server's tests, the clients, the console's
//! authorization and web page, and the OpenAPI document are based on it.

use crate::attachment::{Attachment, AttachmentCreate};
use crate::endpoint::{Answer, Endpoint, Query, QueryKind, Tag, many, one, schema};
use crate::event::Event;
use crate::export::{Export, ExportCreate};
use crate::health::Health;
use crate::image::{AcceptedLoss, Image, ImageRestore, ImageSave};
use crate::latency::VolumeLatencies;
use crate::permission::Reach::{
    Changed, Cloned, Compared, Created, Everything, Listed, Named, Nothing, Restored, Several,
};
use crate::permission::Role::{Administrator, Operator, Viewer};
use crate::pool::{Pool, PoolPatch};
use crate::problem::ProblemKind::{
    AlreadyExists, Busy, DataBehindNewEnd, Ended, HostFailed, InUse, InvalidField, Loss, NoSpace,
    NotFound, NotSupported, PreconditionFailed, TooManyVolumes,
};
use crate::snapshot::{CloneCreate, Diff, Snapshot, SnapshotCreate, SnapshotPatch};
use crate::standby::{Promotion, Standby, StandbyPromote};
use crate::status::Status;
use crate::task::Task;
use crate::volume::{Disconnected, Volume, VolumeCreate, VolumePatch};

pub const VOLUMES_PATH: &str = "/v1/volumes";
pub const VOLUME_PATH: &str = "/v1/volumes/{name}";
pub const VOLUME_LATENCIES_PATH: &str = "/v1/volumes/{name}/latencies";
pub const DISCONNECT_PATH: &str = "/v1/volumes/{name}/disconnect";
pub const CLONE_PATH: &str = "/v1/volumes/{name}/clone";
pub const LATENCIES_PATH: &str = "/v1/latencies";
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

/// Proceeds although clients are connected.
const FORCE: Query = Query::new(
    "force",
    QueryKind::Flag,
    "Disconnect clients and override the owner instead of refusing. An attached block device \
     still has to be detached first",
);

/// Proceeds although the volume has an owner.
const OVERRULE: Query =
    Query::new("force", QueryKind::Flag, "Restore the volume although it has an owner");

pub const ENDPOINTS: &[Endpoint] = &[
    Endpoint::get(VOLUMES_PATH, "list_volumes", Viewer.on(Listed("name")), many::<Volume>())
        .about("List volumes, sorted by name"),
    Endpoint::post(VOLUMES_PATH, "create_volume", Operator.on(Created), one::<Volume>())
        .about("Create an empty volume")
        .tagged(Tag::Shown)
        .takes(schema::<VolumeCreate>())
        .refuses(&[NotSupported, AlreadyExists, TooManyVolumes, NoSpace]),
    Endpoint::get(VOLUME_PATH, "show_volume", Viewer.on(Named), one::<Volume>())
        .about("Get a volume; its ETag covers its settings, not its usage")
        .tagged(Tag::Shown)
        .refuses(&[NotFound, InvalidField]),
    Endpoint::patch(VOLUME_PATH, "change_volume", Operator.on(Changed), one::<Volume>())
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
    Endpoint::delete(VOLUME_PATH, "delete_volume", Operator.on(Named))
        .about("Delete a volume that is not in use, and free its memory")
        .asks(&[FORCE])
        .tagged(Tag::Matched)
        .refuses(&[NotFound, InUse, PreconditionFailed, InvalidField]),
    Endpoint::get(
        VOLUME_LATENCIES_PATH,
        "show_volume_latencies",
        Viewer.on(Named),
        one::<VolumeLatencies>(),
    )
    .about("Get how long requests to a volume took since the daemon started")
    .refuses(&[NotFound, InvalidField]),
    Endpoint::get(
        LATENCIES_PATH,
        "list_latencies",
        Viewer.on(Listed("volume")),
        many::<VolumeLatencies>(),
    )
    .about("List how long requests took, of volumes of which some were timed"),
    Endpoint::post(DISCONNECT_PATH, "disconnect_volume", Operator.on(Named), one::<Disconnected>())
        .answers(200)
        .about("Disconnect the clients of a volume; they may reconnect")
        .refuses(&[NotFound, InvalidField]),
    Endpoint::post(CLONE_PATH, "clone_volume", Operator.on(Cloned), one::<Volume>())
        .about("Clone a volume or a snapshot: a writable copy that shares memory with it")
        .tagged(Tag::Shown)
        .takes(schema::<CloneCreate>())
        .refuses(&[NotSupported, NotFound, AlreadyExists, TooManyVolumes, NoSpace]),
    Endpoint::get(
        SNAPSHOTS_PATH,
        "list_snapshots",
        Viewer.on(Listed("volume")),
        many::<Snapshot>(),
    )
    .about("List snapshots, sorted by volume and age")
    .asks(&[Query::new("volume", QueryKind::Text, "List only snapshots of this volume")])
    .refuses(&[NotFound, InvalidField]),
    Endpoint::post(SNAPSHOTS_PATH, "create_snapshots", Operator.on(Several), many::<Snapshot>())
        .about("Create snapshots of one or more volumes at the same instant")
        .takes(schema::<SnapshotCreate>())
        .refuses(&[NotSupported, NotFound, AlreadyExists, TooManyVolumes, NoSpace]),
    Endpoint::get(SNAPSHOT_PATH, "show_snapshot", Viewer.on(Named), one::<Snapshot>())
        .about("Get a snapshot by the name VOLUME@SNAPSHOT")
        .refuses(&[NotFound, InvalidField]),
    Endpoint::patch(SNAPSHOT_PATH, "change_snapshot", Operator.on(Named), one::<Snapshot>())
        .about("Rename a snapshot that no NBD client has open")
        .takes(schema::<SnapshotPatch>())
        .refuses(&[NotFound, AlreadyExists, InUse]),
    Endpoint::delete(SNAPSHOT_PATH, "delete_snapshot", Operator.on(Named))
        .about("Delete a snapshot that is not in use; its memory is freed in the background")
        .refuses(&[NotFound, InUse, InvalidField]),
    Endpoint::post(
        SNAPSHOT_RESTORE_PATH,
        "restore_snapshot",
        Operator.on(Restored),
        one::<Volume>(),
    )
    .answers(200)
    .about("Restore a volume from its snapshot; the volume must not be in use")
    .asks(&[OVERRULE])
    .refuses(&[NotSupported, NotFound, InUse, NoSpace, InvalidField]),
    Endpoint::get(SNAPSHOT_DIFF_PATH, "diff_snapshot", Viewer.on(Compared), one::<Diff>())
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
    Endpoint::get(IMAGES_PATH, "list_images", Viewer.on(Everything), many::<Image>())
        .about("List images in the image store, oldest first")
        .refuses(&[NotSupported, HostFailed]),
    Endpoint::begin(IMAGES_PATH, "save_image", Operator.on(Everything))
        .about("Save an image of volumes at one instant to the image store")
        .takes(schema::<ImageSave>())
        .refuses(&[NotSupported, NotFound, Busy, HostFailed, NoSpace]),
    Endpoint::begin(IMAGE_REHEARSE_PATH, "rehearse_image", Operator.on(Everything))
        .about("Measure the throughput of the image store")
        .refuses(&[NotSupported, Busy, HostFailed]),
    Endpoint::get(IMAGE_PATH, "show_image", Viewer.on(Everything), one::<Image>())
        .about("Get an image")
        .refuses(&[NotSupported, NotFound, HostFailed, InvalidField]),
    Endpoint::delete(IMAGE_PATH, "delete_image", Administrator.on(Everything))
        .about("Delete an image, and the objects that no other image uses")
        .refuses(&[NotSupported, NotFound, InUse, Busy, HostFailed, InvalidField]),
    Endpoint::begin(IMAGE_RESTORE_PATH, "restore_image", Administrator.on(Everything))
        .about("Restore volumes from an image; contents are fetched in the background")
        .takes(schema::<ImageRestore>())
        .refuses(&[NotSupported, NotFound, AlreadyExists, Busy, HostFailed, NoSpace]),
    Endpoint::begin(IMAGE_VERIFY_PATH, "verify_image", Operator.on(Everything))
        .about("Verify an image: read it and compare every checksum")
        .refuses(&[NotSupported, NotFound, Busy, HostFailed, InvalidField]),
    Endpoint::post(
        ACCEPT_LOSS_PATH,
        "accept_loss",
        Administrator.on(Everything),
        one::<AcceptedLoss>(),
    )
    .about("Accept the loss of contents that cannot be fetched from the image store")
    .answers(200)
    .refuses(&[NotFound, HostFailed, NoSpace, InvalidField]),
    Endpoint::get(TASKS_PATH, "list_tasks", Viewer.on(Everything), many::<Task>())
        .about("List running and recently finished tasks, oldest first"),
    Endpoint::get(TASK_PATH, "show_task", Viewer.on(Everything), one::<Task>())
        .about("Get a task")
        .refuses(&[NotFound, InvalidField]),
    Endpoint::delete(TASK_PATH, "cancel_task", Operator.on(Everything))
        .about("Cancel a task; it has ended when its state says so")
        .refuses(&[NotFound, InvalidField, Ended]),
    Endpoint::get(EVENTS_PATH, "list_events", Viewer.on(Everything), many::<Event>())
        .about("List recent events, oldest first")
        .asks(&[Query::new("after", QueryKind::Number, "List only events with a higher id")])
        .refuses(&[InvalidField]),
    Endpoint::get(POOL_PATH, "show_pool", Viewer.on(Everything), one::<Pool>())
        .about("Get the limits of the pool, and the forecast of when it is full"),
    Endpoint::patch(POOL_PATH, "change_pool", Administrator.on(Everything), one::<Task>())
        .answers(202)
        .about("Resize the pool while it is in use")
        .takes(schema::<PoolPatch>())
        .refuses(&[NotSupported, Busy, NoSpace, HostFailed]),
    Endpoint::get(
        ATTACHMENTS_PATH,
        "list_attachments",
        Viewer.on(Listed("volume")),
        many::<Attachment>(),
    )
    .about("List attached volumes, sorted by name"),
    Endpoint::post(ATTACHMENTS_PATH, "attach_volume", Operator.on(Everything), one::<Attachment>())
        .about("Attach a volume as a block device of this host, also after restarts")
        .takes(schema::<AttachmentCreate>())
        .refuses(&[NotSupported, NotFound, AlreadyExists, HostFailed]),
    Endpoint::get(ATTACHMENT_PATH, "show_attachment", Viewer.on(Named), one::<Attachment>())
        .about("Get an attached volume")
        .refuses(&[NotFound, InvalidField]),
    Endpoint::delete(ATTACHMENT_PATH, "detach_volume", Operator.on(Everything))
        .about("Detach a volume: remove its block device")
        .refuses(&[NotFound, InUse, HostFailed, InvalidField]),
    Endpoint::get(EXPORTS_PATH, "list_exports", Viewer.on(Listed("volume")), many::<Export>())
        .about("List volumes exported over vhost-user, sorted by name"),
    Endpoint::post(EXPORTS_PATH, "export_volume", Operator.on(Everything), one::<Export>())
        .about("Export a volume over vhost-user to a virtual machine, also after restarts")
        .takes(schema::<ExportCreate>())
        .refuses(&[NotFound, AlreadyExists, HostFailed]),
    Endpoint::get(EXPORT_PATH, "show_export", Viewer.on(Named), one::<Export>())
        .about("Get an exported volume")
        .refuses(&[NotFound, InvalidField]),
    Endpoint::delete(EXPORT_PATH, "unexport_volume", Operator.on(Everything))
        .about("Delete the export of a volume that no virtual machine uses")
        .asks(&[FORCE])
        .refuses(&[NotFound, InUse, HostFailed, InvalidField]),
    Endpoint::get(STANDBY_PATH, "show_standby", Viewer.on(Everything), one::<Standby>())
        .about("Get the state of a standby, and its lag behind the daemon that it follows")
        .refuses(&[NotFound]),
    Endpoint::post(
        STANDBY_PROMOTE_PATH,
        "promote_standby",
        Administrator.on(Everything),
        one::<Promotion>(),
    )
    .answers(200)
    .about("Promote a standby: it takes over the image store and restarts as the writer")
    .takes(schema::<StandbyPromote>())
    .refuses(&[NotFound, InUse, Busy, Loss, NoSpace, HostFailed]),
    Endpoint::get(STATUS_PATH, "status", Viewer.on(Everything), one::<Status>())
        .about("Get the status of the daemon, its pool, exports and data at risk"),
    Endpoint::get(HEALTH_PATH, "health", Viewer.on(Nothing), one::<Health>())
        .about("Check liveness; succeeds also while the daemon starts and stops"),
    Endpoint::get(READINESS_PATH, "readiness", Viewer.on(Nothing), one::<Health>())
        .about("Check readiness; fails while the daemon starts or stops, and names the step"),
    Endpoint::get(METRICS_PATH, "metrics", Viewer.on(Everything), Answer::Text)
        .about("Get metrics in Prometheus text format"),
    Endpoint::get(OPENAPI_PATH, "openapi", Viewer.on(Nothing), Answer::Json)
        .about("Get this OpenAPI document"),
];
