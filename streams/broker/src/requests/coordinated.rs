//! Requests for the coordinator of groups and transactions.
//!
//! The coordinator performs no authorization. Forbidden parts are removed from requests before, and
//! from responses afterwards.

mod shown;
mod withheld;

use access::{Operation, Resource};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{RequestKind, ResponseKind};

use super::Context;
use crate::coordinator::{Ask, refuse};
use withheld::{Withheld, withhold};

pub(super) async fn serve(context: Context, mut request: RequestKind) -> ResponseKind {
    if let Err(error) = check(&context, &request) {
        return refuse(&request, error);
    }
    let shows_operations = match &request {
        RequestKind::DescribeGroups(it) => it.include_authorized_operations,
        RequestKind::ConsumerGroupDescribe(it) => it.include_authorized_operations,
        _ => false,
    };
    let withheld = match withhold(&context, &mut request) {
        Withheld::Everything(answer) => return answer,
        Withheld::Some(answer) => Some(answer),
        Withheld::Nothing => None,
    };
    let refused = refuse(&request, ResponseError::CoordinatorNotAvailable);
    let answer = context.broker.coordinator.ask(|reply| Ask {
        request,
        api_version: context.asked.version,
        client_id: context.client_id.clone(),
        host: format!("/{}", context.client.address.ip()),
        principal: context.client.principal().to_owned(),
        owner: context.client.owner(),
        reply,
    });
    let mut answer = answer.await.unwrap_or(refused);
    shown::hide_the_rest(&context, &mut answer);
    if shows_operations {
        shown::show_operations(&context, &mut answer);
    }
    match withheld {
        Some(withheld) => withheld::merge(answer, withheld),
        None => answer,
    }
}

/// Checks whether the client may make the request at all. Requests with several names are filtered
/// by [`withhold`].
fn check(context: &Context, request: &RequestKind) -> Result<(), ResponseError> {
    let group = |operation, name: &str| {
        let error = ResponseError::GroupAuthorizationFailed;
        context.check(operation, Resource::group(name), error)
    };
    let transaction = |operation, id: &str| {
        let error = ResponseError::TransactionalIdAuthorizationFailed;
        context.check(operation, Resource::transactional_id(id), error)
    };
    match request {
        RequestKind::JoinGroup(it) => group(Operation::Read, &it.group_id),
        RequestKind::SyncGroup(it) => group(Operation::Read, &it.group_id),
        RequestKind::Heartbeat(it) => group(Operation::Read, &it.group_id),
        RequestKind::LeaveGroup(it) => group(Operation::Read, &it.group_id),
        RequestKind::OffsetCommit(it) => group(Operation::Read, &it.group_id),
        RequestKind::OffsetDelete(it) => group(Operation::Delete, &it.group_id),
        RequestKind::OffsetFetch(it) if it.groups.is_empty() => {
            group(Operation::Describe, &it.group_id)
        }
        RequestKind::TxnOffsetCommit(it) => {
            transaction(Operation::Write, &it.transactional_id)?;
            group(Operation::Read, &it.group_id)
        }
        RequestKind::InitProducerId(it) => match &it.transactional_id {
            Some(id) => transaction(Operation::Write, id),
            None if context.may(Operation::IdempotentWrite, Resource::cluster()) => Ok(()),
            None => match context.client.may_with_some_topic(&context.broker, Operation::Write) {
                true => Ok(()),
                false => Err(ResponseError::ClusterAuthorizationFailed),
            },
        },
        RequestKind::AddPartitionsToTxn(it) => {
            transaction(Operation::Write, &it.v3_and_below_transactional_id)
        }
        RequestKind::AddOffsetsToTxn(it) => {
            transaction(Operation::Write, &it.transactional_id)?;
            group(Operation::Read, &it.group_id)
        }
        RequestKind::EndTxn(it) => transaction(Operation::Write, &it.transactional_id),
        RequestKind::ConsumerGroupHeartbeat(it) => {
            group(Operation::Read, &it.group_id)?;
            let mut names = it.subscribed_topic_names.iter().flatten();
            names.try_for_each(|name| context.check_topic(Operation::Describe, name))
        }
        _ => Ok(()),
    }
}
