//! Error codes in responses, for the error counters.

use kafka_protocol::messages::ResponseKind;

/// Returns the first error code in a response without records; 0 if there is none. Errors in fields
/// that are not listed here are not counted.
pub(crate) fn error_code_of(response: &ResponseKind) -> i16 {
    match response {
        ResponseKind::JoinGroup(it) => it.error_code,
        ResponseKind::SyncGroup(it) => it.error_code,
        ResponseKind::Heartbeat(it) => it.error_code,
        ResponseKind::LeaveGroup(it) => it.error_code,
        ResponseKind::ConsumerGroupHeartbeat(it) => it.error_code,
        ResponseKind::InitProducerId(it) => it.error_code,
        ResponseKind::AddOffsetsToTxn(it) => it.error_code,
        ResponseKind::EndTxn(it) => it.error_code,
        ResponseKind::ListGroups(it) => it.error_code,
        ResponseKind::ApiVersions(it) => it.error_code,
        ResponseKind::CreateTopics(it) => first(it.topics.iter().map(|it| it.error_code)),
        ResponseKind::DeleteTopics(it) => first(it.responses.iter().map(|it| it.error_code)),
        ResponseKind::CreatePartitions(it) => first(it.results.iter().map(|it| it.error_code)),
        ResponseKind::DeleteGroups(it) => first(it.results.iter().map(|it| it.error_code)),
        ResponseKind::IncrementalAlterConfigs(it) => {
            first(it.responses.iter().map(|it| it.error_code))
        }
        ResponseKind::AlterConfigs(it) => first(it.responses.iter().map(|it| it.error_code)),
        ResponseKind::DescribeConfigs(it) => first(it.results.iter().map(|it| it.error_code)),
        ResponseKind::Metadata(it) => first(it.topics.iter().map(|it| it.error_code)),
        ResponseKind::FindCoordinator(it) => {
            first(it.coordinators.iter().map(|it| it.error_code).chain([it.error_code]))
        }
        ResponseKind::ListOffsets(it) => first(
            it.topics.iter().flat_map(|topic| topic.partitions.iter().map(|it| it.error_code)),
        ),
        ResponseKind::OffsetCommit(it) => first(
            it.topics.iter().flat_map(|topic| topic.partitions.iter().map(|it| it.error_code)),
        ),
        ResponseKind::TxnOffsetCommit(it) => first(
            it.topics.iter().flat_map(|topic| topic.partitions.iter().map(|it| it.error_code)),
        ),
        ResponseKind::OffsetFetch(it) => {
            first(it.groups.iter().map(|it| it.error_code).chain([it.error_code]))
        }
        _ => 0,
    }
}

fn first(mut codes: impl Iterator<Item = i16>) -> i16 {
    codes.find(|code| *code != 0).unwrap_or(0)
}
