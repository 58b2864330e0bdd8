//! Creation, expansion and deletion of topics.

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
};

use crate::client::{Client, text, topic_name};
use crate::error::{ClientError, check, check_right};

/// A topic to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    pub name: String,
    /// `None` for the broker's default.
    pub partitions: Option<i32>,
    /// Configuration keys and values, as Kafka names them.
    pub configs: Vec<(String, String)>,
}

/// Value of a request field that selects the broker's default.
const BROKERS_DEFAULT: i16 = -1;

impl Client {
    fn time_max_ms(&self) -> i32 {
        i32::try_from(self.settings().request_time_max.as_millis()).unwrap_or(i32::MAX)
    }

    /// Creates a topic with the broker's default replication factor.
    pub async fn create_topic(&self, topic: &NewTopic) -> Result<(), ClientError> {
        /// First version with broker defaults.
        const VERSION_OF_DEFAULTS: i16 = 4;
        let connection = self.first().await?;
        let version = connection.version_of::<CreateTopicsRequest>()?;
        let replicas = if version >= VERSION_OF_DEFAULTS { BROKERS_DEFAULT } else { 1 };
        let configs = topic.configs.iter().map(|(name, value)| {
            CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
        });
        let creatable = CreatableTopic::default()
            .with_name(topic_name(&topic.name))
            .with_num_partitions(topic.partitions.unwrap_or(BROKERS_DEFAULT.into()))
            .with_replication_factor(replicas)
            .with_configs(configs.collect());
        let request = CreateTopicsRequest::default()
            .with_topics(vec![creatable])
            .with_timeout_ms(self.time_max_ms());
        let response = connection.call(&request, version).await?;
        let attempt = format!("create topic {:?}", topic.name);
        let result = response.topics.first().ok_or_else(|| no_result(&attempt))?;
        check(result.error_code, result.error_message.as_deref(), attempt)
    }

    /// Increases the number of a topic's partitions to `count`.
    pub async fn enlarge_topic(&self, name: &str, count: i32) -> Result<(), ClientError> {
        let topic = CreatePartitionsTopic::default().with_name(topic_name(name)).with_count(count);
        let request = CreatePartitionsRequest::default()
            .with_topics(vec![topic.with_assignments(None)])
            .with_timeout_ms(self.time_max_ms());
        let response = self.ask(&request).await?;
        let attempt = format!("set the number of partitions of topic {name:?} to {count}");
        let result = response.results.first().ok_or_else(|| no_result(&attempt))?;
        check(result.error_code, result.error_message.as_deref(), attempt)
    }

    pub async fn delete_topic(&self, name: &str) -> Result<(), ClientError> {
        /// First version that identifies topics by name or id.
        const VERSION_OF_IDS: i16 = 6;
        let connection = self.first().await?;
        let version = connection.version_of::<DeleteTopicsRequest>()?;
        let request = DeleteTopicsRequest::default().with_timeout_ms(self.time_max_ms());
        let request = match version >= VERSION_OF_IDS {
            true => request
                .with_topics(vec![DeleteTopicState::default().with_name(Some(topic_name(name)))]),
            false => request.with_topic_names(vec![topic_name(name)]),
        };
        let response = connection.call(&request, version).await?;
        let attempt = format!("delete topic {name:?}");
        let result = response.responses.first().ok_or_else(|| no_result(&attempt))?;
        check(result.error_code, result.error_message.as_deref(), attempt)
    }

    /// Deletes the records of a partition before `offset`, or all of them if `offset` is -1.
    /// Returns the new log start offset.
    pub async fn delete_records(
        &self,
        name: &str,
        partition: i32,
        offset: i64,
    ) -> Result<i64, ClientError> {
        let attempt = format!("delete records of {name:?}, partition {partition}");
        let leaders = self.leaders(name).await?;
        let leader = usize::try_from(partition).ok().and_then(|at| leaders.get(at));
        let leader = leader
            .ok_or_else(|| ClientError::invalid(format!("cannot {attempt}: no such partition")))?;
        let place =
            DeleteRecordsPartition::default().with_partition_index(partition).with_offset(offset);
        let topic =
            DeleteRecordsTopic::default().with_name(topic_name(name)).with_partitions(vec![place]);
        let request = DeleteRecordsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(self.time_max_ms());
        let version = leader.version_of::<DeleteRecordsRequest>()?;
        let response = leader.call(&request, version).await?;
        let result = response.topics.first().and_then(|topic| topic.partitions.first());
        let result = result.ok_or_else(|| no_result(&attempt))?;
        let right = format_args!("Delete on topic {name:?}");
        check_right(result.error_code, None, attempt, right)?;
        Ok(result.low_watermark)
    }
}

/// The response lacks the entry that was requested.
pub(crate) fn no_result(attempt: &str) -> ClientError {
    ClientError::protocol(format!("cannot {attempt}: the broker's response does not contain it"))
}
