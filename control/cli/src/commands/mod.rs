//! Commands: requests to the daemon, and formatting of the responses.

mod connection;
mod console;
mod doctor;
mod exports;
mod images;
mod latencies;
mod machines;
mod pool;
mod program;
mod run;
mod snapshots;
mod sql;
mod standby;
mod status;
mod streams;
mod tasks;
mod terminal;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process;

use api::{
    Attachment, AttachmentCreate, ByteSize, Disconnected, Method, Pool, Snapshot, Status, Volume,
    VolumeCreate, VolumeLatencies, VolumePatch, counted,
};
use clap::CommandFactory;
use serde::Serialize;
use serde_json::{Value, json};

use crate::arguments::{Arguments, Command, Create, ListVolumes, Setting, VolumeCommand};
use crate::failure::Failure;
use crate::output::{self, Form, Report};
use crate::table::{Cell, Table, View};
use crate::visible;
use rest_client::Client;

/// The benchmark program, in the same directory as this program.
const BENCH_PROGRAM: &str = "memlane-bench";

/// Programs in the same directory that write their own manual pages.
const OTHER_PROGRAMS: [&str; 5] =
    ["memlaned", "memlane-broker", "memlane-console", "memlane-csi", "memlane-machines"];

/// Executes the command.
pub(crate) fn run(arguments: Arguments) -> Result<Report, Failure> {
    let form = arguments.form();
    let proved_by = console::proved_by(&arguments.command);
    let client = Client { address: connection::address(&arguments.connection, proved_by)? };
    match arguments.command {
        Command::Volume(command) => run_volume(&client, command),
        Command::Snapshot(command) => snapshots::run(&client, command),
        Command::Clone { source, name } => snapshots::clone(&client, &source, name),
        Command::Image(command) => images::run(&client, command, form),
        Command::Console(command) => console::run(&client, command),
        Command::Task(command) => tasks::run(&client, command, form),
        Command::Pool(command) => pool::run(&client, command, form),
        Command::Standby(command) => standby::run(&client, command),
        Command::Events { after, view } => pool::events(&client, after, &view),
        Command::Attach { name, attach_as, share, flush_each_write } => {
            let request = AttachmentCreate { volume: name, attach_as, share, flush_each_write };
            let attachment: Attachment =
                client.ask(Method::Post, api::ATTACHMENTS_PATH, &request)?;
            connection::remark_host(&client.address, "the block device is", form);
            let device = attachment.device.clone().unwrap_or_default();
            Ok(Report::of(device, &attachment))
        }
        Command::Detach { name } => {
            client.delete(&api::path_of(api::ATTACHMENT_PATH, &name))?;
            Ok(Report::silent(&json!({"detached": name})))
        }
        Command::Export(command) => exports::run(&client, command, form),
        Command::Vm(arguments) => machines::run(&client, arguments),
        Command::Streams(command) => streams::run(command, form),
        Command::Sql(command) => sql::run(command, form),
        Command::Run(arguments) => Err(run::run(&client, arguments)),
        Command::Status { watch: None } => status_report(&client),
        Command::Status { watch: Some(seconds) } => watch_status(&client, seconds, form),
        Command::Doctor => doctor::run(&client, form),
        Command::Bench { arguments: rest } => Err(bench(rest, arguments.json)),
        Command::Advise { arguments: mut rest } => {
            rest.insert(0, "advise".into());
            Err(bench(rest, arguments.json))
        }
        Command::Completions { shell } => Ok(completions(shell)),
        Command::Man { folder } => write_manual(&folder),
    }
}

fn status_report(client: &Client) -> Result<Report, Failure> {
    let status: Status = client.get(api::STATUS_PATH)?;
    Ok(Report::of(status::text(&status), &status))
}

/// Shows the status repeatedly until the output is closed.
fn watch_status(client: &Client, seconds: u64, form: Form) -> Result<Report, Failure> {
    loop {
        let report = status_report(client)?;
        if !output::refresh(&report, form) {
            return Ok(Report::silent(&report.json));
        }
        std::thread::sleep(std::time::Duration::from_secs(seconds));
    }
}

fn run_volume(client: &Client, command: VolumeCommand) -> Result<Report, Failure> {
    match command {
        VolumeCommand::Create(create) => {
            let volume: Volume =
                client.ask(Method::Post, api::VOLUMES_PATH, &create_request(create)?)?;
            Ok(Report::silent(&volume))
        }
        VolumeCommand::List(ListVolumes { owner, labels, view }) => {
            let mut volumes: Vec<Volume> = client.get(api::VOLUMES_PATH)?;
            let has = |volume: &Volume, (key, text): &(String, String)| {
                volume.labels.get(key) == Some(text)
            };
            volumes.retain(|volume| {
                let is_owned = owner.is_none() || volume.owner == owner;
                is_owned && labels.iter().all(|label| has(volume, label))
            });
            let snapshots: Vec<Snapshot> = client.get(api::SNAPSHOTS_PATH)?;
            let mut text = list_text(&volumes, &snapshots, &view)?;
            if view.has_all_columns() {
                let pool: Pool = client.get(api::POOL_PATH)?;
                text.extend(overcommit_text(&volumes, pool.max_memory_bytes));
            }
            Ok(Report::of(text, &volumes))
        }
        VolumeCommand::Show { name } => show_volume(client, &name),
        VolumeCommand::Resize { name, size, force } => {
            change(client, &name, &VolumePatch { size: Some(size), force, ..Default::default() })
        }
        VolumeCommand::Rename { name, new_name, force } => {
            let patch = VolumePatch { name: Some(new_name), force, ..Default::default() };
            change(client, &name, &patch)
        }
        VolumeCommand::Set { name, settings } => {
            let keys: Vec<String> = settings.iter().map(Setting::key).collect();
            check_once("setting", keys.iter().map(String::as_str))?;
            let mut patch = VolumePatch::default();
            settings.into_iter().for_each(|setting| setting.apply_to(&mut patch));
            change(client, &name, &patch)
        }
        VolumeCommand::Delete { name, force } => {
            client.delete(&forced(api::path_of(api::VOLUME_PATH, &name), force))?;
            Ok(Report::silent(&json!({"deleted": name})))
        }
        VolumeCommand::Disconnect { name } => {
            let path = api::path_of(api::DISCONNECT_PATH, &name);
            let gone: Disconnected = client.ask(Method::Post, &path, &Option::<()>::None)?;
            let Disconnected { nbd, ring, vhost_user } = gone;
            let text = format!(
                "disconnected {}, {} and {}",
                counted(nbd, "NBD connection"),
                counted(ring, "ring client"),
                counted(vhost_user, "vhost-user front end")
            );
            Ok(Report::of(text, &gone))
        }
    }
}

/// Adds the query parameter `force` to a path, if requested.
fn forced(path: String, force: bool) -> String {
    if force { api::with_query(&path, &[("force", "true")]) } else { path }
}

/// Fails if a key occurs twice: which value counts would depend on their order.
fn check_once<'a>(what: &str, keys: impl IntoIterator<Item = &'a str>) -> Result<(), Failure> {
    let mut known = BTreeSet::new();
    match keys.into_iter().find(|key| !known.insert(*key)) {
        Some(key) => Err(Failure::usage(format!("{what} {key} is given twice"))),
        None => Ok(()),
    }
}

fn create_request(create: Create) -> Result<VolumeCreate, Failure> {
    check_once("label", create.labels.iter().map(|(key, _)| key.as_str()))?;
    Ok(VolumeCreate {
        name: create.name,
        size: create.size,
        sector_bytes: create.sector,
        reduction: create.reduction,
        durability: create.durability,
        capacity: create.capacity,
        mirror: create.mirror,
        owner: create.owner,
        labels: create.labels.into_iter().collect(),
    })
}

/// Shows a volume and its request latencies.
fn show_volume(client: &Client, name: &str) -> Result<Report, Failure> {
    let volume: Volume = client.get(&api::path_of(api::VOLUME_PATH, name))?;
    let latencies: VolumeLatencies = client.get(&api::path_of(api::VOLUME_LATENCIES_PATH, name))?;
    let mut answer = to_json(&volume);
    answer["latencies"] = to_json(&latencies);
    let text = format!("{}\n\n{}", volume_text(&volume), latencies::text(&latencies));
    Ok(Report::of(text, &answer))
}

fn change(client: &Client, name: &str, patch: &VolumePatch) -> Result<Report, Failure> {
    let path = api::path_of(api::VOLUME_PATH, name);
    let volume: Volume = client.ask(Method::Patch, &path, patch)?;
    Ok(Report::silent(&volume))
}

fn to_json(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).expect("answers are plain data")
}

/// Line below the list if the sizes of the volumes, except those of a broker, exceed the pool.
fn overcommit_text(volumes: &[Volume], pool_bytes: u64) -> Option<String> {
    // Topics of a broker have a large size of which they use little.
    let own = volumes.iter().filter(|it| it.owner.as_deref() != Some(api::BROKER_OWNER));
    let bytes = own.map(|it| it.size_bytes).fold(0, u64::saturating_add);
    let times = bytes as f64 / pool_bytes.max(1) as f64;
    let size = |bytes| ByteSize(bytes).rounded();
    (bytes > pool_bytes).then(|| {
        format!("\n{} together, {times:.1} times the pool of {}", size(bytes), size(pool_bytes))
    })
}

fn list_text(volumes: &[Volume], snapshots: &[Snapshot], view: &View) -> Result<String, Failure> {
    let in_snapshots = |volume: &Volume| {
        let own = snapshots.iter().filter(|snapshot| snapshot.volume == volume.name);
        own.map(|snapshot| snapshot.ram_bytes).sum()
    };
    let table = Table::of(
        volumes,
        &[
            ("NAME", &|it| Cell::text(&it.name)),
            ("SIZE", &|it| Cell::size(it.size_bytes)),
            ("WRITTEN", &|it| Cell::size(it.written_bytes)),
            ("RAM", &|it| Cell::size(it.ram_bytes)),
            ("SNAP-RAM", &|it| Cell::size(in_snapshots(it))),
            ("RATIO", &|it| Cell::figure(ratio_text(it.ratio), it.ratio)),
            ("REDUCTION", &|it| Cell::text(word_of(&it.reduction))),
            ("DURABILITY", &|it| Cell::text(word_of(&it.durability))),
            ("CAPACITY", &|it| Cell::text(word_of(&it.capacity))),
            ("DEVICE", &|it| Cell::text(or_dash(it.device.clone()))),
            ("OWNER", &|it| Cell::text(or_dash(it.owner.clone()))),
            ("LABELS", &|it| Cell::text(labels_text(it))),
        ],
    );
    table.viewed(view)
}

fn labels_text(volume: &Volume) -> String {
    let labels: Vec<_> = volume.labels.iter().map(|(key, text)| format!("{key}={text}")).collect();
    or_dash((!labels.is_empty()).then(|| labels.join(", ")))
}

fn volume_text(volume: &Volume) -> String {
    lines(&[
        ("name", volume.name.clone()),
        ("id", volume.id.to_string()),
        ("size", ByteSize(volume.size_bytes).to_string()),
        ("sector", format!("{} B logical, 4 KiB physical", u32::from(volume.sector_bytes))),
        ("reduction", word_of(&volume.reduction)),
        ("durability", word_of(&volume.durability)),
        ("capacity", word_of(&volume.capacity)),
        ("mirror", word_of(&volume.mirror)),
        ("written", ByteSize(volume.written_bytes).rounded()),
        ("fill patterns", ByteSize(volume.fill_bytes).rounded()),
        ("RAM", ByteSize(volume.ram_bytes).rounded()),
        ("ratio", ratio_text(volume.ratio)),
        ("device", or_dash(volume.device.clone())),
        ("NBD", or_dash(volume.nbd_uri.clone())),
        ("NBD connections", volume.nbd_connections.to_string()),
        ("ring clients", volume.ring_clients.to_string()),
        ("users", or_dash((!volume.users.is_empty()).then(|| volume.users.join(", ")))),
        ("owner", or_dash(volume.owner.clone())),
        ("labels", labels_text(volume)),
    ])
}

/// Word of the API for a value.
fn word_of(value: &impl Serialize) -> String {
    to_json(value).as_str().unwrap_or("?").to_owned()
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// Formats a time in UTC.
fn time_text(unix_seconds: u64) -> String {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(unix_seconds);
    humantime::format_rfc3339_seconds(time).to_string()
}

fn ratio_text(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn lines(fields: &[(&str, String)]) -> String {
    lines_of(fields, 0)
}

/// Formats lines as `lines` does, with names of at least this width.
fn lines_of(fields: &[(&str, String)], width_min: usize) -> String {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(width_min);
    let line =
        |(name, value): &(&str, String)| format!("{name:<width$}  {}", visible::in_line(value));
    fields.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Path of a program in the directory of this one.
fn beside(name: &str) -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name(name)
}

/// Replaces this process by the benchmark program. Returns only on an error.
fn bench(mut arguments: Vec<std::ffi::OsString>, json: bool) -> Failure {
    let program = beside(BENCH_PROGRAM);
    if json {
        arguments.push("--json".into());
    }
    let error = process::Command::new(&program).args(arguments).exec();
    let hint = match error.kind() {
        std::io::ErrorKind::NotFound => {
            "; packages do not contain it: build it from the sources (cargo build --release \
             -p bench)"
        }
        _ => "",
    };
    Failure::other(format!("cannot start {}: {error}{hint}", program.display()))
}

/// Writes a page for the program and one for each command to `man1`, as `man memlane-volume-create`
/// finds them. The servers in the same directory write their own to `man8`. Earlier versions wrote
/// these to `man1`, and their package of the console has such a page. So they are removed, and the
/// group `console` gets no page.
fn write_manual(folder: &Path) -> Result<Report, Failure> {
    let failed = |why: &str| {
        Failure::other(format!("cannot write manual pages to {}: {why}", folder.display()))
    };
    let commands = folder.join("man1");
    std::fs::create_dir_all(&commands)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), &commands))
        .map_err(|error| failed(&error.to_string()))?;
    for page in OTHER_PROGRAMS.map(|program| commands.join(format!("{program}.1"))) {
        match std::fs::remove_file(&page) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(failed(&error.to_string()));
            }
            _ => {}
        }
    }
    for program in OTHER_PROGRAMS.map(beside).iter().filter(|program| program.exists()) {
        let output = process::Command::new(program).arg("--man").arg(folder).output();
        let output = output.map_err(|error| failed(&error.to_string()))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim()));
        }
    }
    Ok(Report::silent(&json!({"manual": folder})))
}

fn completions(shell: clap_complete::Shell) -> Report {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "memlane", &mut script);
    let script = String::from_utf8_lossy(&script).trim_end().to_owned();
    let answer = json!({"completions": script});
    Report::of(script, &answer)
}
