//! Commands on snapshots and clones.

use api::{ByteSize, CloneCreate, Diff, Method, Snapshot, SnapshotCreate, SnapshotPatch, Volume};
use serde_json::json;

use super::{or_dash, time_text};
use crate::arguments::SnapshotCommand;
use crate::failure::Failure;
use crate::output::Report;
use crate::table::{Cell, Table, View};
use rest_client::Client;

pub(super) fn run(client: &Client, command: SnapshotCommand) -> Result<Report, Failure> {
    match command {
        SnapshotCommand::Create { names } => {
            let request = create_request(names)?;
            let made: Vec<Snapshot> = client.ask(Method::Post, api::SNAPSHOTS_PATH, &request)?;
            Ok(Report::silent(&made))
        }
        SnapshotCommand::List { volume, view } => {
            let path = match volume {
                Some(snapshot) if snapshot.contains('@') => {
                    let shown = client.get(&api::path_of(api::SNAPSHOT_PATH, &snapshot))?;
                    let snapshots: Vec<Snapshot> = vec![shown];
                    return Ok(Report::of(list_text(&snapshots, &view)?, &snapshots));
                }
                Some(volume) => api::with_query(api::SNAPSHOTS_PATH, &[("volume", &volume)]),
                None => api::SNAPSHOTS_PATH.to_owned(),
            };
            let snapshots: Vec<Snapshot> = client.get(&path)?;
            Ok(Report::of(list_text(&snapshots, &view)?, &snapshots))
        }
        SnapshotCommand::Rename { name, new_name } => {
            let path = api::path_of(api::SNAPSHOT_PATH, &name);
            let request = SnapshotPatch { snapshot: own_name(&name, &new_name)? };
            let snapshot: Snapshot = client.ask(Method::Patch, &path, &request)?;
            Ok(Report::silent(&snapshot))
        }
        SnapshotCommand::Delete { name } => {
            client.delete(&api::path_of(api::SNAPSHOT_PATH, &name))?;
            Ok(Report::silent(&json!({"deleted": name})))
        }
        SnapshotCommand::Restore { name, snapshot, force } => {
            let name = match snapshot {
                Some(snapshot) => format!("{name}@{snapshot}"),
                None => name,
            };
            let path = super::forced(api::path_of(api::SNAPSHOT_RESTORE_PATH, &name), force);
            let volume: Volume = client.ask(Method::Post, &path, &None::<()>)?;
            Ok(Report::silent(&volume))
        }
        SnapshotCommand::Diff { from, to } => {
            let diff = whole_diff(client, &from, to.as_deref())?;
            Ok(Report::of(diff_text(&diff), &diff))
        }
    }
}

/// New name of a snapshot after the `@`, which may also be given in full, with the same volume.
fn own_name(name: &str, new_name: &str) -> Result<String, Failure> {
    let Some((volume, own)) = new_name.split_once('@') else { return Ok(new_name.to_owned()) };
    match name.split_once('@') {
        Some((same, _)) if same != volume => Err(Failure::usage(format!(
            "snapshot {name:?} stays a snapshot of volume {same:?}; to copy it to another volume, \
             use memlane clone"
        ))),
        _ => Ok(own.to_owned()),
    }
}

/// Request for snapshots, from full names with the same part after `@`: they are taken at one
/// instant, with one name. Names of volumes followed by the snapshot's name are also accepted.
fn create_request(mut names: Vec<String>) -> Result<SnapshotCreate, Failure> {
    if !names.iter().any(|name| name.contains('@')) {
        let snapshot = names.pop().unwrap_or_default();
        return match names.is_empty() {
            true => Err(Failure::usage(format!("no snapshot given; use {snapshot}@SNAPSHOT"))),
            false => Ok(SnapshotCreate { volumes: names, snapshot }),
        };
    }
    let mut request = SnapshotCreate { volumes: Vec::new(), snapshot: String::new() };
    for name in &names {
        let Some((volume, snapshot)) = name.split_once('@') else {
            return Err(Failure::usage(format!("no snapshot given; use {name}@SNAPSHOT")));
        };
        if !request.snapshot.is_empty() && request.snapshot != snapshot {
            return Err(Failure::usage(format!(
                "snapshots taken together must have the same name, not {:?} and {snapshot:?}",
                request.snapshot
            )));
        }
        request.volumes.push(volume.to_owned());
        snapshot.clone_into(&mut request.snapshot);
    }
    Ok(request)
}

pub(super) fn clone(client: &Client, source: &str, name: String) -> Result<Report, Failure> {
    let path = api::path_of(api::CLONE_PATH, source);
    let volume: Volume = client.ask(Method::Post, &path, &CloneCreate { name })?;
    Ok(Report::silent(&volume))
}

/// Collects all parts of a comparison. Each response is limited, but the number of ranges is not.
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

fn list_text(snapshots: &[Snapshot], view: &View) -> Result<String, Failure> {
    let table = Table::of(
        snapshots,
        &[
            ("NAME", &|it| Cell::text(&it.name)),
            ("SIZE", &|it| Cell::size(it.size_bytes)),
            ("WRITTEN", &|it| Cell::size(it.written_bytes)),
            ("RAM", &|it| Cell::size(it.ram_bytes)),
            ("TAKEN", &|it| Cell::text(time_text(it.created_unix_seconds))),
            ("DEVICE", &|it| Cell::text(or_dash(it.device.clone()))),
        ],
    );
    table.viewed(view)
}

fn diff_text(diff: &Diff) -> String {
    let table = Table::of(
        &diff.changed,
        &[("OFFSET", &|it| Cell::number(it.offset)), ("LENGTH", &|it| Cell::number(it.length))],
    );
    let bytes = diff.changed.iter().map(|range| range.length).sum();
    let sum = format!("{} differ between {} and {}", ByteSize(bytes).rounded(), diff.from, diff.to);
    format!("{}\n{sum}", table.to_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(names: &[&str], expected: Option<(&[&str], &str)>) {
        let request = create_request(names.iter().map(|&name| name.to_owned()).collect());
        let found = request.as_ref().ok().map(|it| (it.volumes.clone(), it.snapshot.as_str()));
        let volumes = |names: &[&str]| names.iter().map(|&it| it.to_owned()).collect();
        assert_eq!(found, expected.map(|(names, snapshot)| (volumes(names), snapshot)));
    }

    #[test]
    fn a_snapshot_is_renamed_to_its_own_or_its_full_name() {
        assert_eq!(own_name("a@x", "y").expect("short"), "y");
        assert_eq!(own_name("a@x", "a@y").expect("in full"), "y");
        let refused = own_name("a@x", "b@y").expect_err("another volume");
        assert!(format!("{refused:?}").contains("stays a snapshot of volume"), "{refused:?}");
    }

    #[test]
    fn snapshots_are_named_in_full_or_after_their_volumes() {
        check(&["db@now"], Some((&["db"], "now")));
        check(&["db@now", "wal@now"], Some((&["db", "wal"], "now")));
        check(&["db", "wal", "now"], Some((&["db", "wal"], "now")));
        check(&["db"], None);
        check(&["db@now", "wal"], None);
        check(&["db@now", "wal@then"], None);
    }
}
