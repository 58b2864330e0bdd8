//! Commands on topics.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_client::{Client, ConfigChange, ConfigEntry, Extent, Isolation, NewTopic, Topic};
use serde_json::{Value, json};

use super::super::lines;
use crate::arguments::streams::{Config, TopicCommand, TopicCreate};
use crate::failure::Failure;
use crate::output::Report;
use crate::table::{Cell, Table, View};

/// Topic settings with their own options.
const DURABILITY: &str = "memlane.durability";
const CAPACITY: &str = "memlane.capacity";
const REDUCTION: &str = "memlane.reduction";

pub(super) async fn run(client: Arc<Client>, command: TopicCommand) -> Result<Report, Failure> {
    match command {
        TopicCommand::Create(create) => {
            let topic = new_topic(create)?;
            client.create_topic(&topic).await?;
            Ok(Report::silent(&json!({"created": topic.name})))
        }
        TopicCommand::List { internal, view } => list(&client, internal, &view).await,
        TopicCommand::Show { name } => show(&client, &name).await,
        TopicCommand::Set { name, settings, partitions } => {
            if !settings.is_empty() {
                let changes: Vec<_> = settings.into_iter().map(change).collect();
                client.alter_topic_configs(&name, &changes).await?;
            }
            if let Some(count) = partitions {
                client.enlarge_topic(&name, count).await?;
            }
            Ok(Report::silent(&json!({"changed": name})))
        }
        TopicCommand::Delete { name } => {
            client.delete_topic(&name).await?;
            Ok(Report::silent(&json!({"deleted": name})))
        }
    }
}

/// Converts to a topic with settings, each of which may be given once.
fn new_topic(create: TopicCreate) -> Result<NewTopic, Failure> {
    let own = [
        (DURABILITY, create.durability),
        (CAPACITY, create.capacity),
        (REDUCTION, create.reduction),
    ];
    let own = own.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let mut configs = BTreeMap::new();
    let given = create.configs.into_iter().map(|Config { key, value }| (key, value));
    for (key, value) in given.chain(own) {
        if configs.insert(key.clone(), value).is_some() {
            return Err(Failure::usage(format!("setting {key} is given twice")));
        }
    }
    let configs = configs.into_iter().collect();
    Ok(NewTopic { name: create.name, partitions: create.partitions, configs })
}

/// Converts a setting. An empty value restores the default.
fn change(Config { key, value }: Config) -> ConfigChange {
    ConfigChange { name: key, value: Some(value).filter(|value| !value.is_empty()) }
}

/// A line of the list.
struct Listed {
    topic: Topic,
    record_count: u64,
}

async fn list(client: &Client, internal: bool, view: &View) -> Result<Report, Failure> {
    let mut listed = Vec::new();
    for topic in client.cluster().await?.topics {
        if topic.is_internal && !internal {
            continue;
        }
        let extents = client.extents(&topic.name, Isolation::ReadUncommitted).await?;
        let record_count = extents.values().map(Extent::count).sum();
        listed.push(Listed { topic, record_count });
    }
    let json = listed.iter().map(|it| {
        json!({
            "name": it.topic.name,
            "partitions": it.topic.partitions.len(),
            "records": it.record_count,
            "internal": it.topic.is_internal,
        })
    });
    let json: Value = json.collect();
    let table = Table::of(
        &listed,
        &[
            ("NAME", &|it| Cell::text(&it.topic.name)),
            ("PARTITIONS", &|it| Cell::number(it.topic.partitions.len() as u64)),
            ("RECORDS", &|it| Cell::number(it.record_count)),
        ],
    );
    Ok(Report::of(table.viewed(view)?, &json))
}

async fn show(client: &Client, name: &str) -> Result<Report, Failure> {
    let topic = client.topic(name).await?;
    let extents = client.extents(name, Isolation::ReadUncommitted).await?;
    let configs = client.topic_configs(name).await?;
    let partitions = topic.partitions.iter().map(|it| {
        let extent = extents.get(&it.index);
        json!({
            "partition": it.index,
            "leader": it.leader,
            "earliest": extent.map(|it| it.earliest),
            "latest": extent.map(|it| it.latest),
        })
    });
    let config = |it: &ConfigEntry| (it.name.clone(), json!({"value": it.value, "own": it.is_own}));
    let json = json!({
        "name": topic.name,
        "internal": topic.is_internal,
        "partitions": partitions.collect::<Value>(),
        "settings": configs.iter().map(config).collect::<serde_json::Map<_, _>>(),
    });
    Ok(Report::of(topic_text(&topic, &extents, &configs), &json))
}

/// Formats a topic: settings that differ from the defaults, and partitions.
fn topic_text(topic: &Topic, extents: &BTreeMap<i32, Extent>, configs: &[ConfigEntry]) -> String {
    let is_shown = |it: &&ConfigEntry| it.is_own || it.name.starts_with("memlane.");
    let value = |it: &ConfigEntry| it.value.clone().unwrap_or_else(|| "(secret)".to_owned());
    let settings = configs.iter().filter(is_shown).map(|it| (it.name.as_str(), value(it)));
    let fields: Vec<_> = [("name", topic.name.clone())].into_iter().chain(settings).collect();
    let rows: Vec<_> = extents.iter().collect();
    let leader = |index: i32| {
        let found = topic.partitions.iter().find(|it| it.index == index);
        found.map_or_else(|| "-".to_owned(), |it| it.leader.to_string())
    };
    let offset = |offset: i64| Cell::number(u64::try_from(offset).unwrap_or(0));
    let table = Table::of(
        &rows,
        &[
            ("PARTITION", &|it| Cell::number(u64::from(it.0.unsigned_abs()))),
            ("LEADER", &|it| Cell::text(leader(*it.0))),
            ("EARLIEST", &|it| offset(it.1.earliest)),
            ("LATEST", &|it| offset(it.1.latest)),
            ("RECORDS", &|it| Cell::number(it.1.count())),
        ],
    );
    format!("{}\n\n{}", lines(&fields), table.to_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_settings_that_may_be_given_once() {
        let create = |configs: &[(&str, &str)]| TopicCreate {
            name: "t".to_owned(),
            partitions: None,
            configs: configs
                .iter()
                .map(|&(key, value)| Config { key: key.to_owned(), value: value.to_owned() })
                .collect(),
            durability: Some("journal".to_owned()),
            capacity: None,
            reduction: None,
        };
        let topic = new_topic(create(&[("retention.ms", "5")])).expect("two settings");
        let settings = [("memlane.durability", "journal"), ("retention.ms", "5")];
        assert_eq!(topic.configs, settings.map(|(key, value)| (key.to_owned(), value.to_owned())));
        for twice in [&[("memlane.durability", "ram")][..], &[("a", "1"), ("a", "2")]] {
            assert_eq!(new_topic(create(twice)).expect_err("twice").kind, "usage");
        }
    }

    #[test]
    fn a_setting_without_a_value_is_taken_away() {
        let config = |value: &str| Config { key: "k".to_owned(), value: value.to_owned() };
        assert_eq!(change(config("")).value, None);
        assert_eq!(change(config("1")).value.as_deref(), Some("1"));
    }
}
