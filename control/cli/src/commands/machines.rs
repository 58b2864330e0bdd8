//! Commands on virtual machines.

use std::path::{Path, PathBuf};

use api::{
    ByteSize, DiskAttach, DiskDetach, Machine, MachineCreate, MachineDisk, MachineSnapshot,
    MachineSnapshotCreate, MachinesCreated, Method,
};
use rest_client::{Address, Client, RestError};
use serde_json::json;

use crate::arguments::{CreateMachine, MachineCommand, Machines};
use crate::commands::terminal;
use crate::commands::{lines, or_dash, word_of};
use crate::failure::Failure;
use crate::output::Report;
use crate::table::{Cell, Table, View};

const SOCKET_DEFAULT: &str = "/run/memlane-machines/api.sock";
const SOCKET_VARIABLE: &str = "MEMLANE_MACHINES_SOCKET";

/// Runs a command, through a console if `--url` is given and no socket is.
pub(super) fn run(client: &Client, arguments: Machines) -> Result<Report, Failure> {
    let from_environment = || std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from);
    let socket = match (arguments.machines_socket, &client.address) {
        (Some(socket), _) => socket,
        (None, Address::Console(_)) => {
            return run_with(client, arguments.command).map_err(Failure::from);
        }
        (None, _) => from_environment().unwrap_or_else(|| SOCKET_DEFAULT.into()),
    };
    let client = Client { address: Address::Socket(socket.clone()) };
    run_with(&client, arguments.command).map_err(|error| match error {
        Asked::Refused(RestError::Unreachable(_)) => Failure::unreachable(format!(
            "cannot connect to memlane-machines at {}; check that the service runs and that you \
             may use its socket",
            socket.display()
        )),
        error => error.into(),
    })
}

/// Error of a command, from the other end or from this program.
enum Asked {
    Refused(RestError),
    Failed(Failure),
}

impl From<Asked> for Failure {
    fn from(asked: Asked) -> Self {
        match asked {
            Asked::Refused(error) => error.into(),
            Asked::Failed(failure) => failure,
        }
    }
}

impl From<RestError> for Asked {
    fn from(error: RestError) -> Self {
        Self::Refused(error)
    }
}

impl From<Failure> for Asked {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

fn run_with(client: &Client, command: MachineCommand) -> Result<Report, Asked> {
    match command {
        MachineCommand::Create(create) => {
            let request = request(*create)?;
            let made: MachinesCreated = client.ask(Method::Post, api::MACHINES_PATH, &request)?;
            let names = made.machines.iter().map(|machine| machine.name.clone());
            let warnings = made.warnings.iter().map(|warning| format!("warning: {warning}"));
            let text = names.chain(warnings).collect::<Vec<_>>().join("\n");
            Ok(Report::of(text, &made))
        }
        MachineCommand::List(view) => {
            let machines: Vec<Machine> = client.get(api::MACHINES_PATH)?;
            Ok(Report::of(list_text(&machines, &view)?, &machines))
        }
        MachineCommand::Show { name } => {
            let machine: Machine = client.get(&api::path_of(api::MACHINE_PATH, &name))?;
            Ok(Report::of(text(&machine), &machine))
        }
        MachineCommand::Start { names } => each(client, api::MACHINE_START_PATH, &names),
        MachineCommand::Stop { names } => each(client, api::MACHINE_SHUT_DOWN_PATH, &names),
        MachineCommand::Kill { names } => each(client, api::MACHINE_KILL_PATH, &names),
        MachineCommand::Attach { name, volume, protocol } => {
            let path = api::path_of(api::MACHINE_ATTACH_PATH, &name);
            let machine: Machine =
                client.ask(Method::Post, &path, &DiskAttach { volume, protocol })?;
            Ok(Report::silent(&machine))
        }
        MachineCommand::Detach { name, volume } => {
            let path = api::path_of(api::MACHINE_DETACH_PATH, &name);
            let machine: Machine = client.ask(Method::Post, &path, &DiskDetach { volume })?;
            Ok(Report::silent(&machine))
        }
        MachineCommand::Snapshot { name, snapshot, freeze } => {
            let path = api::path_of(api::MACHINE_SNAPSHOT_PATH, &name);
            let request = MachineSnapshotCreate { snapshot, needs_freeze: freeze };
            let taken: MachineSnapshot = client.ask(Method::Post, &path, &request)?;
            Ok(Report::of(snapshot_text(&taken), &taken))
        }
        MachineCommand::Console { name, force } => Ok(terminal::run(client, &name, force)?),
        MachineCommand::Delete { names, with_volumes } => {
            for name in &names {
                let path = api::path_of(api::MACHINE_PATH, name);
                let volumes = if with_volumes { "delete" } else { "keep" };
                client.delete(&api::with_query(&path, &[("volumes", volumes)]))?;
            }
            Ok(Report::silent(&json!({"deleted": names})))
        }
    }
}

/// Sends the same request for each machine, and reports the new states.
fn each(client: &Client, path: &str, names: &[String]) -> Result<Report, Asked> {
    let mut machines: Vec<Machine> = Vec::new();
    for name in names {
        machines.push(client.ask(Method::Post, &api::path_of(path, name), &Option::<()>::None)?);
    }
    Ok(Report::silent(&machines))
}

fn request(create: CreateMachine) -> Result<MachineCreate, Failure> {
    Ok(MachineCreate {
        name: create.name,
        count: create.count,
        cpus: create.cpus,
        memory: create.memory,
        volume: create.volume,
        clone_of: create.clone,
        kernel: create.kernel,
        initrd: create.initrd,
        kernel_args: create.kernel_args,
        start: create.start,
        size: create.size,
        protocol: create.protocol,
        cdrom: create.cdrom,
        networks: create.networks,
        graphics: create.graphics,
        user_data: create.user_data.as_deref().map(text_of).transpose()?,
        network_config: create.network_config.as_deref().map(text_of).transpose()?,
    })
}

fn text_of(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file)
        .map_err(|error| Failure::other(format!("cannot read {}: {error}", file.display())))
}

fn snapshot_text(taken: &MachineSnapshot) -> String {
    let warnings = taken.warnings.iter().map(|warning| format!("warning: {warning}"));
    taken.snapshots.iter().cloned().chain(warnings).collect::<Vec<_>>().join("\n")
}

fn list_text(machines: &[Machine], view: &View) -> Result<String, Failure> {
    let table = Table::of(
        machines,
        &[
            ("NAME", &|it| Cell::text(&it.name)),
            ("STATE", &|it| Cell::text(word_of(&it.state))),
            ("CPUS", &|it| Cell::number(it.cpus.into())),
            ("MEMORY", &|it| Cell::size(it.memory_bytes)),
            ("OWN", &|it| Cell::text(yes_or_no(it.is_own))),
            ("VOLUMES", &|it| Cell::text(volumes(it))),
        ],
    );
    table.viewed(view)
}

fn text(machine: &Machine) -> String {
    lines(&[
        ("name", machine.name.clone()),
        ("state", word_of(&machine.state)),
        ("CPUs", machine.cpus.to_string()),
        ("memory", ByteSize(machine.memory_bytes).rounded()),
        ("made here", yes_or_no(machine.is_own)),
        ("emulated", yes_or_no(machine.is_emulated)),
        ("disks", or_dash((!machine.disks.is_empty()).then(|| disks(machine)))),
    ])
}

/// Formats the disks, as in `vda vhost-user web, sda file`.
fn disks(machine: &Machine) -> String {
    let text = |disk: &MachineDisk| {
        let volume = disk.volume.as_ref().map(|volume| format!(" {volume}")).unwrap_or_default();
        format!("{} {}{volume}", disk.target, word_of(&disk.kind))
    };
    machine.disks.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn yes_or_no(holds: bool) -> String {
    if holds { "yes" } else { "no" }.to_owned()
}

fn volumes(machine: &Machine) -> String {
    or_dash((!machine.volumes.is_empty()).then(|| machine.volumes.join(", ")))
}
