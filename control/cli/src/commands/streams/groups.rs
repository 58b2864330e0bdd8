//! Commands on consumer groups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kafka_client::{
    Client, Extent, GroupDetails, GroupMember, Isolation, OffsetMove, ResponseError,
};
use serde_json::{Value, json};

use super::super::{lines, or_dash};
use super::offsets::at_present;
use crate::arguments::streams::{GroupCommand, OffsetSpec};
use crate::failure::Failure;
use crate::output::Report;
use crate::table::{Cell, Table, View};

pub(super) async fn run(client: Arc<Client>, command: GroupCommand) -> Result<Report, Failure> {
    match command {
        GroupCommand::List(view) => list(&client, &view).await,
        GroupCommand::Show { name } => show(&client, &name).await,
        GroupCommand::Reset { name, to, topics, dry_run } => {
            let moves = moves(&client, &name, to, &topics).await?;
            if !dry_run {
                set(&client, &name, &moves).await?;
            }
            Ok(moves_report(&moves))
        }
        GroupCommand::Delete { name } => {
            client.delete_group(&name).await?;
            Ok(Report::silent(&json!({"deleted": name})))
        }
    }
}

async fn list(client: &Client, view: &View) -> Result<Report, Failure> {
    let groups = client.groups().await?;
    let json = groups.iter().map(|it| {
        json!({
            "name": it.name,
            "state": it.state,
            "type": it.kind,
            "protocol_type": it.protocol_type,
        })
    });
    let json: Value = json.collect();
    let table = Table::of(
        &groups,
        &[
            ("NAME", &|it| Cell::text(&it.name)),
            ("STATE", &|it| Cell::text(&it.state)),
            ("TYPE", &|it| Cell::text(&it.kind)),
        ],
    );
    Ok(Report::of(table.viewed(view)?, &json))
}

/// Progress of a group in a partition.
struct Progress {
    topic: String,
    partition: i32,
    committed: Option<i64>,
    latest: Option<i64>,
    member: Option<String>,
}

impl Progress {
    /// Lag in records, if both offsets are known.
    fn lag(&self) -> Option<u64> {
        let lag = self.latest?.saturating_sub(self.committed?);
        Some(u64::try_from(lag).unwrap_or(0))
    }
}

async fn show(client: &Client, name: &str) -> Result<Report, Failure> {
    let group = client.group(name).await?;
    let progress = progress(client, &group).await?;
    let members = group.members.iter().map(|it| {
        json!({
            "id": it.id,
            "client_id": it.client_id,
            "host": it.host,
            "partitions": it.partitions,
        })
    });
    let offsets = progress.iter().map(|it| {
        json!({
            "topic": it.topic,
            "partition": it.partition,
            "committed": it.committed,
            "latest": it.latest,
            "lag": it.lag(),
            "member": it.member,
        })
    });
    let json = json!({
        "name": group.name,
        "state": group.state,
        "assignor": group.assignor,
        "members": members.collect::<Value>(),
        "offsets": offsets.collect::<Value>(),
        "lag": progress.iter().filter_map(Progress::lag).sum::<u64>(),
    });
    Ok(Report::of(group_text(&group, &progress), &json))
}

/// Progress in all partitions with committed offsets or an assigned member, in order.
async fn progress(client: &Client, group: &GroupDetails) -> Result<Vec<Progress>, Failure> {
    let committed = client.group_offsets(&group.name).await?;
    let mut rows = BTreeMap::<(String, i32), Progress>::new();
    let row = |topic: &str, partition, committed, member| {
        let key = (topic.to_owned(), partition);
        let topic = topic.to_owned();
        (key, Progress { topic, partition, committed, latest: None, member })
    };
    for it in &committed {
        let (key, progress) = row(&it.topic, it.partition, Some(it.offset), None);
        rows.insert(key, progress);
    }
    for member in &group.members {
        for (topic, partitions) in &member.partitions {
            for &partition in partitions {
                let (key, progress) = row(topic, partition, None, None);
                rows.entry(key).or_insert(progress).member = Some(member.id.clone());
            }
        }
    }
    let topics: BTreeSet<String> = rows.keys().map(|(topic, _)| topic.clone()).collect();
    for topic in topics {
        // A deleted topic has no latest offset, but its group can still be shown.
        let Some(extents) = extents_if_there(client, &topic).await? else { continue };
        for ((_, partition), progress) in rows.iter_mut().filter(|((it, _), _)| *it == topic) {
            progress.latest = extents.get(partition).map(|it| it.latest);
        }
    }
    Ok(rows.into_values().collect())
}

async fn extents_if_there(
    client: &Client,
    topic: &str,
) -> Result<Option<BTreeMap<i32, Extent>>, Failure> {
    match client.topic(topic).await {
        Err(error) if error.refusal() == Some(ResponseError::UnknownTopicOrPartition) => Ok(None),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(Some(client.extents(topic, Isolation::ReadUncommitted).await?)),
    }
}

fn offset_cell(offset: Option<i64>) -> Cell {
    let number = offset.and_then(|it| u64::try_from(it).ok());
    let text = number.map_or_else(|| "-".to_owned(), |it| it.to_string());
    Cell::figure(text, number.map(|it| it as f64))
}

fn group_text(group: &GroupDetails, progress: &[Progress]) -> String {
    let lag: u64 = progress.iter().filter_map(Progress::lag).sum();
    let mut text = lines(&[
        ("name", group.name.clone()),
        ("state", group.state.clone()),
        ("assignor", or_dash(Some(group.assignor.clone()).filter(|it| !it.is_empty()))),
        ("members", group.members.len().to_string()),
        ("lag", lag.to_string()),
    ]);
    if !group.members.is_empty() {
        let count = |it: &GroupMember| it.partitions.values().map(Vec::len).sum::<usize>();
        let table = Table::of(
            &group.members,
            &[
                ("MEMBER", &|it| Cell::text(&it.id)),
                ("CLIENT", &|it| Cell::text(&it.client_id)),
                ("HOST", &|it| Cell::text(&it.host)),
                ("PARTITIONS", &|it| Cell::number(count(it) as u64)),
            ],
        );
        text = format!("{text}\n\n{}", table.to_text());
    }
    if !progress.is_empty() {
        let lag = |it: &Progress| offset_cell(it.lag().and_then(|it| i64::try_from(it).ok()));
        let table = Table::of(
            progress,
            &[
                ("TOPIC", &|it| Cell::text(&it.topic)),
                ("PARTITION", &|it| Cell::number(u64::from(it.partition.unsigned_abs()))),
                ("COMMITTED", &|it| offset_cell(it.committed)),
                ("LATEST", &|it| offset_cell(it.latest)),
                ("LAG", &|it| lag(it)),
                ("MEMBER", &|it| Cell::text(it.member.as_deref().unwrap_or("-"))),
            ],
        );
        text = format!("{text}\n\n{}", table.to_text());
    }
    text
}

async fn moves(
    client: &Client,
    group: &str,
    to: OffsetSpec,
    topics: &[String],
) -> Result<Vec<OffsetMove>, Failure> {
    let moves = client.offset_moves(group, at_present(to), topics).await?;
    match moves.is_empty() {
        true => Err(Failure::not_found(format!(
            "group {group:?} has no committed offsets; give topics with --topic"
        ))),
        false => Ok(moves),
    }
}

async fn set(client: &Client, group: &str, moves: &[OffsetMove]) -> Result<(), Failure> {
    client.move_group_offsets(group, moves).await.map_err(|error| match error.is_of_members() {
        true => Failure::other(format!(
            "cannot reset group {group:?}: it has members; stop its consumers first"
        )),
        false => error.into(),
    })
}

fn moves_report(moves: &[OffsetMove]) -> Report {
    let json = moves.iter().map(
        |it| json!({"topic": it.topic, "partition": it.partition, "from": it.from, "to": it.to}),
    );
    let json: Value = json.collect();
    let table = Table::of(
        moves,
        &[
            ("TOPIC", &|it| Cell::text(&it.topic)),
            ("PARTITION", &|it| Cell::number(u64::from(it.partition.unsigned_abs()))),
            ("FROM", &|it| offset_cell(it.from)),
            ("TO", &|it| offset_cell(Some(it.to))),
        ],
    );
    Report::of(table.to_text(), &json)
}
