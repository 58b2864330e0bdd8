//! Authorization of responses of the coordinator: parts that the client may not see are removed.

use std::collections::BTreeMap;

use access::{Operation, Resource};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::consumer_group_describe_response::DescribedGroup;
use kafka_protocol::messages::{ResponseKind, TopicName};

use super::super::{Context, OF_GROUPS, text};

const HIDDEN_TOPIC: &str = "permission denied: the group reads a topic that the client may not \
                            describe";

/// Removes what the client may not describe.
pub(super) fn hide_the_rest(context: &Context, answer: &mut ResponseKind) {
    let mut topics = Sight { context, topics: BTreeMap::new() };
    match answer {
        ResponseKind::ListGroups(it) if !context.may(Operation::Describe, Resource::cluster()) => {
            it.groups.retain(|it| context.may(Operation::Describe, Resource::group(&it.group_id)));
        }
        ResponseKind::ListTransactions(it) => it.transaction_states.retain(|it| {
            let id = Resource::transactional_id(&it.transactional_id);
            context.may(Operation::Describe, id)
        }),
        ResponseKind::DescribeTransactions(it) => {
            for transaction in &mut it.transaction_states {
                transaction.topics.retain(|it| topics.shows(&it.topic));
            }
        }
        ResponseKind::OffsetFetch(it) => {
            it.topics.retain(|it| topics.shows(&it.name));
            for group in &mut it.groups {
                group.topics.retain(|it| topics.shows(&it.name));
            }
        }
        ResponseKind::ConsumerGroupDescribe(it) => {
            for group in &mut it.groups {
                if !names(group).all(|name| topics.shows(name)) {
                    *group = DescribedGroup::default()
                        .with_group_id(group.group_id.clone())
                        .with_error_code(ResponseError::TopicAuthorizationFailed.code())
                        .with_error_message(Some(text(HIDDEN_TOPIC)));
                }
            }
        }
        _ => {}
    }
}

/// Adds the client's authorized operations for each group.
pub(super) fn show_operations(context: &Context, answer: &mut ResponseKind) {
    let operations = |name: &str| context.operations(true, &OF_GROUPS, Resource::group(name));
    match answer {
        ResponseKind::DescribeGroups(it) => {
            for group in it.groups.iter_mut().filter(|it| it.error_code == 0) {
                group.authorized_operations = operations(&group.group_id);
            }
        }
        ResponseKind::ConsumerGroupDescribe(it) => {
            for group in it.groups.iter_mut().filter(|it| it.error_code == 0) {
                group.authorized_operations = operations(&group.group_id);
            }
        }
        _ => {}
    }
}

/// Returns all topics that the description of a group names.
fn names(group: &DescribedGroup) -> impl Iterator<Item = &TopicName> {
    group.members.iter().flat_map(|member| {
        let assignments = [&member.assignment, &member.target_assignment];
        let assigned = assignments.into_iter().flat_map(|it| &it.topic_partitions);
        member.subscribed_topic_names.iter().chain(assigned.map(|it| &it.topic_name))
    })
}

/// Cache of authorizations for the topics of one response.
struct Sight<'a> {
    context: &'a Context,
    topics: BTreeMap<TopicName, bool>,
}

impl Sight<'_> {
    fn shows(&mut self, name: &TopicName) -> bool {
        if let Some(shows) = self.topics.get(name) {
            return *shows;
        }
        let shows = self.context.may(Operation::Describe, Resource::topic(name));
        self.topics.insert(name.clone(), shows);
        shows
    }
}
