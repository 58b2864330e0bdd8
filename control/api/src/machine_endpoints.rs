//! Table of all operations of `memlane-machines`.

use crate::endpoint::{Answer, Endpoint, Query, QueryKind, many, one, schema};
use crate::endpoints::OPENAPI_PATH;
use crate::machine::{
    DiskAttach, DiskDetach, Machine, MachineCreate, MachineSnapshot, MachineSnapshotCreate,
    MachinesCreated,
};
use crate::permission::Reach::{Everything, Nothing};
use crate::permission::Role::{Operator, Viewer};
use crate::problem::ProblemKind::{
    AlreadyExists, Busy, HostFailed, InUse, InvalidField, InvalidRequest, NoSpace, NotFound,
    NotSupported, TooManyVolumes,
};

pub const MACHINES_PATH: &str = "/v1/machines";
pub const MACHINE_PATH: &str = "/v1/machines/{name}";
pub const MACHINE_START_PATH: &str = "/v1/machines/{name}/start";
pub const MACHINE_SHUT_DOWN_PATH: &str = "/v1/machines/{name}/shut-down";
pub const MACHINE_KILL_PATH: &str = "/v1/machines/{name}/kill";

pub const MACHINE_ATTACH_PATH: &str = "/v1/machines/{name}/attach";
pub const MACHINE_DETACH_PATH: &str = "/v1/machines/{name}/detach";
pub const MACHINE_SNAPSHOT_PATH: &str = "/v1/machines/{name}/snapshot";
pub const MACHINE_SERIAL_PATH: &str = "/v1/machines/{name}/serial";
pub const MACHINE_VNC_PATH: &str = "/v1/machines/{name}/vnc";

/// Protocol of the HTTP upgrade for consoles: a plain byte stream.
pub const CONSOLE_PROTOCOL: &str = "tcp";

/// Status code after which the connection is a console: 101 Switching Protocols.
pub const CONSOLE_STATUS: u16 = 101;

const MACHINE: Answer = one::<Machine>();

const FORCE: &[Query] =
    &[Query::new("force", QueryKind::Flag, "Disconnect the client that has the terminal now")];

const VOLUMES: &[Query] =
    &[Query::new("volumes", QueryKind::Text, "Action for its volumes: keep (default) or delete")];

/// Endpoints of `memlane-machines`. Failures of libvirt or the daemon are reported as
/// `host_failed`.
pub const MACHINE_ENDPOINTS: &[Endpoint] = &[
    Endpoint::get(MACHINES_PATH, "list_machines", Viewer.on(Everything), many::<Machine>())
        .about("List all virtual machines of this host, sorted by name")
        .refuses(&[HostFailed]),
    Endpoint::post(
        MACHINES_PATH,
        "create_machines",
        Operator.on(Everything),
        one::<MachinesCreated>(),
    )
    .about("Create one machine or several identical ones: all of them, or none")
    .takes(schema::<MachineCreate>())
    .refuses(&[InvalidField, NotFound, AlreadyExists, InUse, NoSpace, HostFailed]),
    Endpoint::get(MACHINE_PATH, "show_machine", Viewer.on(Everything), MACHINE)
        .about("Get a machine")
        .refuses(&[NotFound, HostFailed]),
    Endpoint::delete(MACHINE_PATH, "delete_machine", Operator.on(Everything))
        .about("Delete a stopped machine that Memlane created")
        .asks(VOLUMES)
        .refuses(&[NotFound, NotSupported, InUse, InvalidField, HostFailed]),
    Endpoint::post(MACHINE_START_PATH, "start_machine", Operator.on(Everything), MACHINE)
        .answers(200)
        .about("Start a stopped machine")
        .refuses(&[NotFound, Busy, HostFailed]),
    Endpoint::post(MACHINE_SHUT_DOWN_PATH, "shut_down_machine", Operator.on(Everything), MACHINE)
        .answers(200)
        .about("Ask the guest to shut down (ACPI); a guest may ignore it")
        .refuses(&[NotFound, Busy, HostFailed]),
    Endpoint::post(MACHINE_KILL_PATH, "kill_machine", Operator.on(Everything), MACHINE)
        .answers(200)
        .about("Force a machine off")
        .refuses(&[NotFound, Busy, HostFailed]),
    Endpoint::post(MACHINE_ATTACH_PATH, "attach_disk", Operator.on(Everything), MACHINE)
        .answers(200)
        .about("Attach a volume to a machine that Memlane created, also while it runs")
        .takes(schema::<DiskAttach>())
        .refuses(&[InvalidField, NotFound, NotSupported, AlreadyExists, InUse, HostFailed]),
    Endpoint::post(MACHINE_DETACH_PATH, "detach_disk", Operator.on(Everything), MACHINE)
        .answers(200)
        .about("Detach a volume from a machine that Memlane created, also while it runs")
        .takes(schema::<DiskDetach>())
        .refuses(&[InvalidField, NotFound, NotSupported, Busy, HostFailed]),
    Endpoint::post(
        MACHINE_SNAPSHOT_PATH,
        "snapshot_machine",
        Operator.on(Everything),
        one::<MachineSnapshot>(),
    )
    .about("Create snapshots of all volumes of a machine at the same instant")
    .takes(schema::<MachineSnapshotCreate>())
    .refuses(&[NotFound, NotSupported, AlreadyExists, TooManyVolumes, NoSpace, HostFailed]),
    Endpoint::get(MACHINE_SERIAL_PATH, "serial_console", Operator.on(Everything), Answer::Nothing)
        .answers(CONSOLE_STATUS)
        .about("Open the serial console; the connection is upgraded (Upgrade: tcp)")
        .asks(FORCE)
        .refuses(&[InvalidRequest, InvalidField, NotFound, InUse, Busy, HostFailed]),
    Endpoint::get(MACHINE_VNC_PATH, "graphical_console", Operator.on(Everything), Answer::Nothing)
        .answers(CONSOLE_STATUS)
        .about("Open the graphical console (VNC, RFB); the connection is upgraded (Upgrade: tcp)")
        .refuses(&[InvalidRequest, NotFound, NotSupported, Busy, HostFailed]),
    Endpoint::get(OPENAPI_PATH, "openapi", Viewer.on(Nothing), Answer::Json)
        .about("Get this OpenAPI document"),
];
