//! OffsetFetch: committed offsets of groups.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{OffsetFetchRequest, OffsetFetchResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use crate::effect::{Caller, Effect};
use crate::groups::{Group, Groups, Kind};
use crate::offsets::Place;

impl Groups {
    /// OffsetFetch, versions 1 to 9; for several groups from version 8 on.
    pub fn offset_fetch(
        &mut self,
        caller: Caller<'_>,
        request: &OffsetFetchRequest,
        out: &mut Vec<Effect>,
    ) {
        let response = if caller.api_version >= 8 {
            let groups = request.groups.iter().map(|it| self.fetch_group(it, request));
            OffsetFetchResponse::default().with_groups(groups.collect())
        } else {
            let topics = request.topics.as_ref().map(|topics| {
                let topics = topics.iter().map(|topic| {
                    OffsetFetchRequestTopics::default()
                        .with_name(topic.name.clone())
                        .with_partition_indexes(topic.partition_indexes.clone())
                });
                topics.collect()
            });
            let asked = OffsetFetchRequestGroup::default()
                .with_group_id(request.group_id.clone())
                .with_member_epoch(-1)
                .with_topics(topics);
            for_one_group(self.fetch_group(&asked, request))
        };
        out.push(Effect::Reply(caller.ticket, response.into()));
    }

    fn fetch_group(
        &self,
        asked: &OffsetFetchRequestGroup,
        request: &OffsetFetchRequest,
    ) -> OffsetFetchResponseGroup {
        let answer = OffsetFetchResponseGroup::default().with_group_id(asked.group_id.clone());
        let group = self.groups.get(&asked.group_id.0);
        if let Err(error) = check_member(group, asked) {
            return answer.with_error_code(error.code());
        }
        let topics = match &asked.topics {
            Some(topics) => topics.iter().map(|it| (it.name.clone(), &it.partition_indexes[..])),
            None => return answer.with_topics(fetch_all(group, request.require_stable)),
        };
        let topics = topics.map(|(name, partitions)| {
            let partitions = partitions.iter().map(|index| {
                let place = Place { topic: name.0.clone(), partition: *index };
                fetch(group, &place, request.require_stable)
            });
            let partitions = partitions.collect();
            OffsetFetchResponseTopics::default().with_name(name.clone()).with_partitions(partitions)
        });
        answer.with_topics(topics.collect())
    }
}

/// Checks the member, which requests contain from version 9 on, so that outdated members are
/// fenced.
fn check_member(
    group: Option<&Group>,
    asked: &OffsetFetchRequestGroup,
) -> Result<(), ResponseError> {
    let Some(Kind::Consumer(group)) = group.map(|it| &it.kind) else { return Ok(()) };
    match &asked.member_id {
        Some(member_id) => group.check_epoch(member_id, asked.member_epoch),
        None if asked.member_epoch < 0 => Ok(()),
        None => Err(ResponseError::UnknownMemberId),
    }
}

/// Returns all partitions with committed offsets. As in Kafka, those with pending offsets alone are
/// not listed.
fn fetch_all(group: Option<&Group>, require_stable: bool) -> Vec<OffsetFetchResponseTopics> {
    let Some(group) = group else { return Vec::new() };
    let mut topics: Vec<OffsetFetchResponseTopics> = Vec::new();
    for (place, _) in group.offsets.committed() {
        if topics.last().is_none_or(|it| it.name.0 != place.topic) {
            let name = TopicName(place.topic.clone());
            topics.push(OffsetFetchResponseTopics::default().with_name(name));
        }
        let topic = topics.last_mut().expect("just pushed if there was none");
        topic.partitions.push(fetch(Some(group), place, require_stable));
    }
    topics
}

fn fetch(
    group: Option<&Group>,
    place: &Place,
    require_stable: bool,
) -> OffsetFetchResponsePartitions {
    let answer = OffsetFetchResponsePartitions::default()
        .with_partition_index(place.partition)
        .with_committed_offset(-1)
        .with_committed_leader_epoch(-1)
        .with_metadata(Some(StrBytes::default()));
    let Some(group) = group else { return answer };
    if require_stable && group.offsets.has_pending(place) {
        return answer.with_error_code(ResponseError::UnstableOffsetCommit.code());
    }
    match group.offsets.get(place) {
        Some(offset) => answer
            .with_committed_offset(offset.offset)
            .with_committed_leader_epoch(offset.leader_epoch)
            .with_metadata(Some(offset.metadata.clone())),
        None => answer,
    }
}

/// Converts the reply to its form before version 8.
fn for_one_group(group: OffsetFetchResponseGroup) -> OffsetFetchResponse {
    let topics = group.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|it| {
            OffsetFetchResponsePartition::default()
                .with_partition_index(it.partition_index)
                .with_committed_offset(it.committed_offset)
                .with_committed_leader_epoch(it.committed_leader_epoch)
                .with_metadata(it.metadata)
                .with_error_code(it.error_code)
        });
        let partitions = partitions.collect();
        OffsetFetchResponseTopic::default().with_name(topic.name).with_partitions(partitions)
    });
    OffsetFetchResponse::default().with_error_code(group.error_code).with_topics(topics.collect())
}
