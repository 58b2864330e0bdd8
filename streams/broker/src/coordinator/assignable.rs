//! View of topics for the group coordinator, with the members' authorizations.

use std::ops::ControlFlow;
use std::sync::Arc;

use consumer_groups::{Sight, TopicShape, Viewer};
use kafka_protocol::messages::{ProducerId, TopicName};
use kafka_protocol::protocol::StrBytes;
use transactions::{Known, Producer};
use uuid::Uuid;

use crate::access_rules::AccessRules;
use crate::topics::{OpenTopic, Topics};

pub(crate) struct Assignable {
    pub(crate) topics: Arc<Topics>,
    pub(crate) rules: Arc<AccessRules>,
}

impl consumer_groups::Topics for Assignable {
    /// Both numbers only grow, so the sum is unique.
    fn version(&self) -> u64 {
        self.topics.version() + self.rules.acl_version()
    }

    fn sight(&self, viewer: Viewer<'_>) -> Sight<'_> {
        let host = viewer.host.trim_start_matches('/').parse();
        self.rules.sight(viewer.principal, host.ok())
    }

    fn by_name(&self, name: &str) -> Option<TopicShape> {
        let topic = self.topics.by_name(name)?;
        let partition_count = topic.log.partition_count();
        Some(TopicShape { id: topic.id, partition_count })
    }

    fn name_of(&self, id: Uuid) -> Option<String> {
        self.topics.by_id(id).map(|topic| topic.name.to_string())
    }

    fn each_name(&self, visit: &mut dyn FnMut(&str) -> ControlFlow<()>) {
        self.topics.each_name(visit);
    }
}

/// Returns all producers that the partitions of topics remember.
pub(super) fn producers(topics: Vec<Arc<OpenTopic>>) -> Vec<Known> {
    let mut known = Vec::new();
    for topic in topics {
        for (partition, it) in (0..).zip(topic.partitions().iter()) {
            known.extend(it.log.producers().iter().map(|state| Known {
                producer: Producer { id: ProducerId(state.producer_id), epoch: state.epoch },
                open:
                    state.transaction_offset.map(|_| {
                        (TopicName(StrBytes::from_string(topic.name.to_string())), partition)
                    }),
            }));
        }
    }
    known
}
