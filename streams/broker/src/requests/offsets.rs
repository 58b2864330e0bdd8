//! ListOffsets and OffsetForLeaderEpoch.

use access::Operation;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{
    ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
};
use record_log::Partition;

use super::once::list_once;
use super::{Context, on_blocking_thread};
use crate::topics::error_of;

/// Special timestamps (KIP-79, KIP-405, KIP-734).
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const NEWEST: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;

/// Versions in which each of them was introduced.
const PLACES_SINCE: &[(i64, i16)] =
    &[(LATEST, 1), (EARLIEST, 1), (NEWEST, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9)];

/// ListOffsets. Searches by time read the log. A repeated partition is rejected, and is listed once
/// in the response.
pub(super) async fn list(context: Context, mut request: ListOffsetsRequest) -> ListOffsetsResponse {
    on_blocking_thread(context.client.owner(), move || {
        let twice = list_once(&mut request);
        let is_committed_only = request.isolation_level == 1;
        let topics = request.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|asked| {
                let key = (topic.name.clone(), asked.partition_index);
                let checked = check(&context, &topic.name, asked, twice.contains(&key));
                let found = checked
                    .and_then(|()| find(&context, &topic.name, asked, is_committed_only))
                    .map_err(|error| error.code());
                let place = found.unwrap_or(Place::NONE);
                let response = ListOffsetsPartitionResponse::default()
                    .with_partition_index(asked.partition_index)
                    .with_error_code(found.err().unwrap_or(0))
                    .with_offset(place.offset)
                    .with_timestamp(place.timestamp);
                match context.asked.version {
                    4.. => response.with_leader_epoch(place.leader_epoch),
                    _ => response,
                }
            });
            ListOffsetsTopicResponse::default()
                .with_partitions(partitions.collect())
                .with_name(topic.name.clone())
        });
        ListOffsetsResponse::default().with_topics(topics.collect())
    })
    .await
}

#[derive(Clone, Copy)]
struct Place {
    offset: i64,
    timestamp: i64,
    leader_epoch: i32,
}

impl Place {
    /// Result if no record has the requested or a later timestamp.
    const NONE: Self = Self { offset: -1, timestamp: -1, leader_epoch: -1 };
}

/// Performs Kafka's checks before the lookup of the partition.
fn check(
    context: &Context,
    name: &str,
    asked: &ListOffsetsPartition,
    is_twice: bool,
) -> Result<(), ResponseError> {
    context.check_topic(Operation::Describe, name)?;
    if is_twice {
        return Err(ResponseError::InvalidRequest);
    }
    let is_known =
        |(time, since): &(i64, i16)| *time == asked.timestamp && *since <= context.asked.version;
    if asked.timestamp < 0 && !PLACES_SINCE.iter().any(is_known) {
        return Err(ResponseError::UnsupportedVersion);
    }
    Ok(())
}

fn find(
    context: &Context,
    name: &str,
    asked: &ListOffsetsPartition,
    is_committed_only: bool,
) -> Result<Place, ResponseError> {
    let partition = context.partition(Operation::Describe, name, asked.partition_index)?;
    let log = &partition.log;
    check_epoch(log, asked.current_leader_epoch)?;
    let at = |offset: i64, timestamp: i64| Place { offset, timestamp, leader_epoch: log.epoch() };
    let end = match is_committed_only {
        true => log.last_stable_offset(),
        false => log.stable_offset(),
    };
    match asked.timestamp {
        LATEST => Ok(at(end, -1)),
        EARLIEST | EARLIEST_LOCAL => Ok(at(log.start_offset(), -1)),
        // There is no tiered storage.
        LATEST_TIERED => Ok(Place::NONE),
        NEWEST => {
            match log.max_timestamp().map_err(|error| error_of(error.kind))?.filter(|it| *it >= 0) {
                None => Ok(Place::NONE),
                Some(newest) => by_time(log, newest, end, &at),
            }
        }
        time => by_time(log, time, end, &at),
    }
}

/// Returns the first record with this or a later timestamp.
fn by_time(
    log: &Partition,
    unix_ms: i64,
    end: i64,
    at: &dyn Fn(i64, i64) -> Place,
) -> Result<Place, ResponseError> {
    let found = log.find_time(unix_ms).map_err(|error| error_of(error.kind))?;
    Ok(found.filter(|it| it.offset < end).map_or(Place::NONE, |it| at(it.offset, it.timestamp)))
}

fn check_epoch(log: &Partition, known: i32) -> Result<(), ResponseError> {
    match known {
        ..0 => Ok(()),
        known if known < log.epoch() => Err(ResponseError::FencedLeaderEpoch),
        known if known > log.epoch() => Err(ResponseError::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}

/// OffsetForLeaderEpoch: returns the end of an epoch, by which clients detect truncation.
pub(super) fn for_epoch(
    context: &Context,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let response = EpochEndOffset::default().with_partition(asked.partition);
            match end_of_epoch(context, &topic.topic, asked) {
                Ok((epoch, end)) => response.with_leader_epoch(epoch).with_end_offset(end),
                Err(error) => {
                    response.with_error_code(error.code()).with_leader_epoch(-1).with_end_offset(-1)
                }
            }
        });
        OffsetForLeaderTopicResult::default()
            .with_partitions(partitions.collect())
            .with_topic(topic.topic.clone())
    });
    OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
}

fn end_of_epoch(
    context: &Context,
    name: &str,
    asked: &OffsetForLeaderPartition,
) -> Result<(i32, i64), ResponseError> {
    let partition = context.partition(Operation::Describe, name, asked.partition)?;
    check_epoch(&partition.log, asked.current_leader_epoch)?;
    Ok(partition.log.end_of_epoch(asked.leader_epoch).unwrap_or((-1, -1)))
}
