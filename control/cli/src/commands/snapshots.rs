//! Snapshots and clones.

use api::{ByteSize, CloneCreate, Diff, Method, Snapshot, SnapshotCreate, SnapshotPatch, Volume};
use serde_json::json;

use super::{or_dash, time_text, to_json};
use crate::arguments::SnapshotCommand;
use crate::client::Client;
use crate::failure::Failure;
use crate::output::Report;
use crate::table::{Side, Table};

pub(super) fn run(client: &Client, command: SnapshotCommand) -> Result<Report, Failure> {
    match command {
        SnapshotCommand::Create { mut names } => {
            let snapshot = names.pop().expect("two names at least are asked for");
            let request = SnapshotCreate { volumes: names, snapshot };
            let made: Vec<Snapshot> = client.ask(Method::Post, api::SNAPSHOTS_PATH, &request)?;
            Ok(Report { text: String::new(), json: to_json(&made) })
        }
        SnapshotCommand::List { volume } => {
            let path = match volume {
                Some(volume) => api::with_query(api::SNAPSHOTS_PATH, &[("volume", &volume)]),
                None => api::SNAPSHOTS_PATH.to_owned(),
            };
            let snapshots: Vec<Snapshot> = client.get(&path)?;
            Ok(Report { text: list_text(&snapshots), json: to_json(&snapshots) })
        }
        SnapshotCommand::Rename { name, new_name } => {
            let path = api::path_of(api::SNAPSHOT_PATH, &name);
            let request = SnapshotPatch { snapshot: new_name };
            let snapshot: Snapshot = client.ask(Method::Patch, &path, &request)?;
            Ok(Report { text: String::new(), json: to_json(&snapshot) })
        }
        SnapshotCommand::Delete { name } => {
            client.delete(&api::path_of(api::SNAPSHOT_PATH, &name))?;
            Ok(Report { text: String::new(), json: json!({"deleted": name}) })
        }
        SnapshotCommand::Restore { volume, snapshot } => {
            let name = format!("{volume}@{snapshot}");
            let path = api::path_of(api::SNAPSHOT_RESTORE_PATH, &name);
            let volume: Volume = client.ask(Method::Post, &path, &None::<()>)?;
            Ok(Report { text: String::new(), json: to_json(&volume) })
        }
        SnapshotCommand::Diff { from, to } => {
            let diff = whole_diff(client, &from, to.as_deref())?;
            Ok(Report { text: diff_text(&diff), json: to_json(&diff) })
        }
    }
}

pub(super) fn clone(client: &Client, source: &str, name: String) -> Result<Report, Failure> {
    let path = api::path_of(api::CLONE_PATH, source);
    let volume: Volume = client.ask(Method::Post, &path, &CloneCreate { name })?;
    Ok(Report { text: String::new(), json: to_json(&volume) })
}

/// All parts of a comparison. Each answer is bounded; the ranges are not.
fn whole_diff(client: &Client, from: &str, to: Option<&str>) -> Result<Diff, Failure> {
    let path = api::path_of(api::SNAPSHOT_DIFF_PATH, from);
    let ask = |offset: u64| {
        let offset = offset.to_string();
        let mut query = vec![("offset", offset.as_str())];
        query.extend(to.map(|to| ("to", to)));
        client.get::<Diff>(&api::with_query(&path, &query))
    };
    let mut diff = ask(0)?;
    while let Some(offset) = diff.next_offset {
        let next = ask(offset)?;
        diff.next_offset = next.next_offset;
        for range in next.changed {
            match diff.changed.last_mut() {
                Some(last) if last.offset + last.length == range.offset => {
                    last.length += range.length;
                }
                _ => diff.changed.push(range),
            }
        }
    }
    Ok(diff)
}

fn list_text(snapshots: &[Snapshot]) -> String {
    let mut table = Table::new(&[
        ("NAME", Side::Left),
        ("SIZE", Side::Right),
        ("WRITTEN", Side::Right),
        ("TAKEN", Side::Left),
        ("DEVICE", Side::Left),
    ]);
    for snapshot in snapshots {
        table.row(vec![
            snapshot.name.clone(),
            ByteSize(snapshot.size_bytes).rounded(),
            ByteSize(snapshot.written_bytes).rounded(),
            time_text(snapshot.created_unix_seconds),
            or_dash(snapshot.device.clone()),
        ]);
    }
    table.to_text()
}

fn diff_text(diff: &Diff) -> String {
    let mut table = Table::new(&[("OFFSET", Side::Right), ("LENGTH", Side::Right)]);
    for range in &diff.changed {
        table.row(vec![range.offset.to_string(), range.length.to_string()]);
    }
    let bytes = diff.changed.iter().map(|range| range.length).sum();
    let sum = format!("{} differ between {} and {}", ByteSize(bytes).rounded(), diff.from, diff.to);
    format!("{}\n{sum}", table.to_text())
}
