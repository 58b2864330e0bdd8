//! DeleteRecords, DescribeProducers and DescribeLogDirs.

use std::collections::{BTreeMap, BTreeSet};

use access::{Operation, Resource};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::{
    DeleteRecordsRequest, DeleteRecordsResponse, DescribeLogDirsRequest, DescribeLogDirsResponse,
    DescribeProducersRequest, DescribeProducersResponse, ProducerId, TopicName,
};

use super::cluster::index;
use super::placement::FOLDER;
use super::{Context, on_blocking_thread, text};
use crate::topics::error_of;

/// Requests the deletion of all records that consumers can read.
const UP_TO_THE_END: i64 = -1;

pub(super) async fn delete(
    context: Context,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    on_blocking_thread(context.client.owner(), move || {
        let topics = request.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let deleted =
                    delete_before(&context, &topic.name, asked.partition_index, asked.offset);
                let response = DeleteRecordsPartitionResult::default()
                    .with_partition_index(asked.partition_index);
                match deleted {
                    Ok(start) => response.with_low_watermark(start),
                    Err(error) => response.with_error_code(error.code()).with_low_watermark(-1),
                }
            });
            DeleteRecordsTopicResult::default()
                .with_partitions(partitions.collect())
                .with_name(topic.name.clone())
        });
        DeleteRecordsResponse::default().with_topics(topics.collect())
    })
    .await
}

fn delete_before(
    context: &Context,
    name: &str,
    number: i32,
    offset: i64,
) -> Result<i64, ResponseError> {
    let topic = context.topic(Operation::Delete, name)?;
    let partition = topic.partition(number).ok_or(ResponseError::UnknownTopicOrPartition)?;
    let settings = topic.settings();
    if settings.compacts && !settings.deletes {
        return Err(ResponseError::PolicyViolation);
    }
    let offset = match offset {
        UP_TO_THE_END => partition.log.stable_offset(),
        ..0 => return Err(ResponseError::OffsetOutOfRange),
        offset => offset,
    };
    let start = partition.log.delete_before(offset).map_err(|error| error_of(error.kind))?;
    // Frees the memory. What cannot be freed now is freed by retention later.
    partition.log.cut().map_err(|error| error_of(error.kind))?;
    topic.flush().map_err(|error| error_of(error.kind))?;
    Ok(start)
}

pub(super) fn producers(
    context: &Context,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partition_indexes.iter().map(|number| {
            let response = PartitionResponse::default().with_partition_index(*number);
            match producers_of(context, &topic.name, *number) {
                Ok(producers) => response.with_active_producers(producers),
                Err(error) => response.with_error_code(error.code()),
            }
        });
        TopicResponse::default().with_partitions(partitions.collect()).with_name(topic.name.clone())
    });
    DescribeProducersResponse::default().with_topics(topics.collect())
}

fn producers_of(
    context: &Context,
    name: &str,
    number: i32,
) -> Result<Vec<ProducerState>, ResponseError> {
    let partition = context.partition(Operation::Read, name, number)?;
    let producers = partition.log.producers().into_iter().map(|it| {
        ProducerState::default()
            .with_producer_id(ProducerId(it.producer_id))
            .with_producer_epoch(i32::from(it.epoch))
            .with_last_sequence(it.last_sequence)
            .with_last_timestamp(it.last_unix_ms)
            .with_coordinator_epoch(-1)
            .with_current_txn_start_offset(it.transaction_offset.unwrap_or(-1))
    });
    Ok(producers.collect())
}

/// Describes the single log directory, which represents the broker's memory.
pub(super) fn log_dirs(
    context: &Context,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    if !context.may(Operation::Describe, Resource::cluster()) {
        let error = ResponseError::ClusterAuthorizationFailed.code();
        return DescribeLogDirsResponse::default().with_error_code(error);
    }
    let topics = context.broker.topics.all();
    let asked = request.topics.map(|topics| {
        let mut asked: BTreeMap<TopicName, BTreeSet<i32>> = BTreeMap::new();
        for it in topics {
            asked.entry(it.topic).or_default().extend(it.partitions);
        }
        asked
    });
    let wanted = |name: &TopicName, number: i32| {
        let of_topic = asked.as_ref().map(|asked| asked.get(name));
        of_topic.is_none_or(|numbers| numbers.is_some_and(|it| it.contains(&number)))
    };
    let topics = topics.iter().filter_map(|topic| {
        let name = TopicName(text(&*topic.name));
        let partitions: Vec<_> = topic
            .partitions()
            .iter()
            .filter(|partition| wanted(&name, index(partition.log.number())))
            .map(|partition| {
                let bytes = i64::try_from(partition.log.size_bytes()).unwrap_or(i64::MAX);
                DescribeLogDirsPartition::default()
                    .with_partition_index(index(partition.log.number()))
                    .with_partition_size(bytes)
            })
            .collect();
        (!partitions.is_empty())
            .then(|| DescribeLogDirsTopic::default().with_name(name).with_partitions(partitions))
    });
    let folder = DescribeLogDirsResult::default()
        .with_log_dir(text(FOLDER))
        .with_topics(topics.collect())
        .with_total_bytes(-1)
        .with_usable_bytes(-1);
    DescribeLogDirsResponse::default().with_results(vec![folder])
}
