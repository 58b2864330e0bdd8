//! Topics, and a simulated client of a consumer group.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use consumer_groups::{Sight, TopicShape, Topics, Viewer};
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::answer;
use crate::support::{Owner, group_id, text, topic_name};

pub(crate) type Owned = BTreeSet<(Uuid, i32)>;

#[derive(Clone, Default)]
pub(crate) struct Catalog {
    version: u64,
    topics: BTreeMap<String, TopicShape>,
    /// Principals, and names of topics that are hidden from them.
    hidden: BTreeSet<(String, String)>,
}

impl Catalog {
    pub(crate) fn of(topics: &[(&str, u32)]) -> Self {
        let mut catalog = Self::default();
        for (name, count) in topics {
            catalog.set(name, *count);
        }
        catalog
    }

    /// Creates a topic or sets its partition count.
    pub(crate) fn set(&mut self, name: &str, partition_count: u32) {
        self.version += 1;
        let id = self.topics.get(name).map_or(Uuid::from_u128(self.version.into()), |it| it.id);
        self.topics.insert(name.to_owned(), TopicShape { id, partition_count });
    }

    pub(crate) fn hide(&mut self, principal: &str, name: &str) {
        self.version += 1;
        self.hidden.insert((principal.to_owned(), name.to_owned()));
    }

    pub(crate) fn show_all(&mut self) {
        self.version += 1;
        self.hidden.clear();
    }

    pub(crate) fn all(&self) -> Owned {
        self.topics.keys().flat_map(|name| self.partitions(name)).collect()
    }

    pub(crate) fn partitions(&self, name: &str) -> Owned {
        let shape = self.topics.get(name);
        let count = shape.map_or(0, |it| i32::try_from(it.partition_count).expect("few"));
        shape.into_iter().flat_map(|it| (0..count).map(|index| (it.id, index))).collect()
    }
}

impl Topics for Catalog {
    fn version(&self) -> u64 {
        self.version
    }

    fn sight(&self, viewer: Viewer<'_>) -> Sight<'_> {
        let principal = viewer.principal.to_owned();
        Box::new(move |name| !self.hidden.contains(&(principal.clone(), name.to_owned())))
    }

    fn by_name(&self, name: &str) -> Option<TopicShape> {
        self.topics.get(name).copied()
    }

    fn name_of(&self, id: Uuid) -> Option<String> {
        self.topics.iter().find(|(_, it)| it.id == id).map(|(name, _)| name.clone())
    }

    fn each_name(&self, visit: &mut dyn FnMut(&str) -> ControlFlow<()>) {
        let _broken = self.topics.keys().try_for_each(|name| visit(name));
    }
}

/// Topics of which every name exists, with the maximum number of partitions.
pub(crate) struct EveryTopic;

impl Topics for EveryTopic {
    fn version(&self) -> u64 {
        0
    }

    fn sight(&self, _viewer: Viewer<'_>) -> Sight<'_> {
        Box::new(|_name| true)
    }

    fn by_name(&self, _name: &str) -> Option<TopicShape> {
        Some(TopicShape { id: Uuid::nil(), partition_count: u32::MAX })
    }

    fn name_of(&self, _id: Uuid) -> Option<String> {
        None
    }

    fn each_name(&self, _visit: &mut dyn FnMut(&str) -> ControlFlow<()>) {}
}

/// A consumer that immediately follows its instructions.
#[derive(Clone)]
pub(crate) struct Consumer {
    pub(crate) id: StrBytes,
    pub(crate) instance: Option<StrBytes>,
    pub(crate) epoch: i32,
    pub(crate) owned: Owned,
    pub(crate) topics: Vec<String>,
    pub(crate) pattern: Option<StrBytes>,
    pub(crate) assignor: Option<StrBytes>,
    pub(crate) rebalance_timeout_ms: i32,
}

impl Consumer {
    pub(crate) fn new(id: &str, topics: &[&str]) -> Self {
        Self {
            id: text(id),
            instance: None,
            epoch: 0,
            owned: Owned::new(),
            topics: topics.iter().map(|it| (*it).to_owned()).collect(),
            pattern: None,
            assignor: None,
            rebalance_timeout_ms: 60_000,
        }
    }

    /// Builds a heartbeat with all fields.
    pub(crate) fn request(&self) -> ConsumerGroupHeartbeatRequest {
        let mut owned: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
        for (topic, index) in &self.owned {
            owned.entry(*topic).or_default().push(*index);
        }
        let owned = owned.into_iter().map(|(topic, indexes)| {
            TopicPartitions::default().with_topic_id(topic).with_partitions(indexes)
        });
        let names = self.topics.iter().map(|it| topic_name(it)).collect();
        ConsumerGroupHeartbeatRequest::default()
            .with_group_id(group_id())
            .with_member_id(self.id.clone())
            .with_member_epoch(self.epoch)
            .with_instance_id(self.instance.clone())
            .with_rebalance_timeout_ms(self.rebalance_timeout_ms)
            .with_subscribed_topic_names(Some(names))
            .with_subscribed_topic_regex(self.pattern.clone())
            .with_server_assignor(self.assignor.clone())
            .with_topic_partitions(Some(owned.collect()))
    }

    /// Sends a heartbeat and applies the reply. Returns the error code.
    pub(crate) fn beat(&mut self, owner: &mut Owner, catalog: &Catalog) -> i16 {
        let request = self.request();
        let response = owner.beat(&request, catalog);
        self.obey(&response);
        response.error_code
    }

    pub(crate) fn obey(&mut self, response: &ConsumerGroupHeartbeatResponse) {
        if response.error_code != 0 {
            self.epoch = 0;
            self.owned.clear();
            return;
        }
        self.epoch = response.member_epoch;
        if let Some(assignment) = &response.assignment {
            let topics = assignment.topic_partitions.iter();
            self.owned = topics
                .flat_map(|it| it.partitions.iter().map(|index| (it.topic_id, *index)))
                .collect();
        }
    }
}

impl Owner {
    pub(crate) fn beat(
        &mut self,
        request: &ConsumerGroupHeartbeatRequest,
        catalog: &Catalog,
    ) -> ConsumerGroupHeartbeatResponse {
        let ticket = self.call(1, |groups, caller, out| {
            groups.consumer_heartbeat(caller, request, catalog, out);
        });
        answer!(self, ticket, ConsumerGroupHeartbeat)
    }

    /// Lets all consumers send heartbeats until nothing changes.
    pub(crate) fn settle(&mut self, consumers: &mut [Consumer], catalog: &Catalog) {
        for _ in 0..100 {
            let before: Vec<_> = consumers.iter().map(|it| (it.epoch, it.owned.clone())).collect();
            for consumer in consumers.iter_mut() {
                consumer.beat(self, catalog);
            }
            let after: Vec<_> = consumers.iter().map(|it| (it.epoch, it.owned.clone())).collect();
            if before == after {
                return;
            }
        }
        panic!("the group does not settle");
    }
}
