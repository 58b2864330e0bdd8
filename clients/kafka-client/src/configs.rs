//! Topic configurations.

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{DescribeConfigsRequest, IncrementalAlterConfigsRequest};

use crate::client::{Client, text};
use crate::error::{ClientError, check};
use crate::topics::no_result;

/// Resource type of a topic.
const TOPIC: i8 = 2;

/// Source of a value that is set on the topic itself.
const SOURCE_TOPIC: i8 = 1;

const OPERATION_SET: i8 = 0;
const OPERATION_DELETE: i8 = 1;

/// Current value of a configuration key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    pub name: String,
    /// `None` if the value is sensitive.
    pub value: Option<String>,
    /// Set on this topic, not a default.
    pub is_own: bool,
    pub is_read_only: bool,
}

/// Change of a configuration key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    pub name: String,
    /// `None` resets the key to its default.
    pub value: Option<String>,
}

impl Client {
    /// Lists all configuration keys of a topic, sorted by name.
    pub async fn topic_configs(&self, topic: &str) -> Result<Vec<ConfigEntry>, ClientError> {
        let resource = DescribeConfigsResource::default()
            .with_resource_type(TOPIC)
            .with_resource_name(text(topic))
            .with_configuration_keys(None);
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        let response = self.ask(&request).await?;
        let attempt = format!("read the settings of topic {topic:?}");
        let result = response.results.first().ok_or_else(|| no_result(&attempt))?;
        check(result.error_code, result.error_message.as_deref(), attempt)?;
        let entry = |it: &DescribeConfigsResourceResult| ConfigEntry {
            name: it.name.to_string(),
            value: it.value.as_ref().map(ToString::to_string),
            is_own: it.config_source == SOURCE_TOPIC,
            is_read_only: it.read_only,
        };
        let mut entries: Vec<_> = result.configs.iter().map(entry).collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Changes configuration keys of a topic atomically.
    pub async fn alter_topic_configs(
        &self,
        topic: &str,
        changes: &[ConfigChange],
    ) -> Result<(), ClientError> {
        let config = |change: &ConfigChange| {
            let operation = if change.value.is_some() { OPERATION_SET } else { OPERATION_DELETE };
            AlterableConfig::default()
                .with_name(text(&change.name))
                .with_config_operation(operation)
                .with_value(change.value.as_deref().map(text))
        };
        let resource = AlterConfigsResource::default()
            .with_resource_type(TOPIC)
            .with_resource_name(text(topic))
            .with_configs(changes.iter().map(config).collect());
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        let response = self.ask(&request).await?;
        let attempt = format!("change the settings of topic {topic:?}");
        let result = response.responses.first().ok_or_else(|| no_result(&attempt))?;
        check(result.error_code, result.error_message.as_deref(), attempt)
    }
}
