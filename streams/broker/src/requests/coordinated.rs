//! Requests for the coordinator of groups and transactions.

use access::{Operation, Resource};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{RequestKind, ResponseKind};

use super::Context;
use super::refusals::refuse;
use crate::coordinator::Ask;

pub(super) async fn serve(context: Context, request: RequestKind) -> ResponseKind {
    if let Err(error) = check(&context, &request) {
        return refuse(&request, error);
    }
    let refused = refuse(&request, ResponseError::CoordinatorNotAvailable);
    let Context { broker, client, client_id, asked } = context;
    let answer = broker.coordinator.ask(|reply| Ask {
        request,
        api_version: asked.version,
        client_id,
        host: format!("/{}", client.address.ip()),
        reply,
    });
    answer.await.unwrap_or(refused)
}

/// Whether the client may ask for that.
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
        RequestKind::TxnOffsetCommit(it) => {
            transaction(Operation::Write, &it.transactional_id)?;
            group(Operation::Read, &it.group_id)
        }
        RequestKind::OffsetFetch(it) => match it.groups.is_empty() {
            true => group(Operation::Describe, &it.group_id),
            false => it.groups.iter().try_for_each(|it| group(Operation::Describe, &it.group_id)),
        },
        RequestKind::DescribeGroups(it) => {
            it.groups.iter().try_for_each(|it| group(Operation::Describe, it))
        }
        RequestKind::DeleteGroups(it) => {
            it.groups_names.iter().try_for_each(|it| group(Operation::Delete, it))
        }
        RequestKind::InitProducerId(it) => match &it.transactional_id {
            Some(id) => transaction(Operation::Write, id),
            None => match context.client.may_with_some_topic(&context.broker, Operation::Write) {
                true => Ok(()),
                false => Err(ResponseError::ClusterAuthorizationFailed),
            },
        },
        RequestKind::AddPartitionsToTxn(it) => {
            transaction(Operation::Write, &it.v3_and_below_transactional_id)
        }
        RequestKind::AddOffsetsToTxn(it) => transaction(Operation::Write, &it.transactional_id),
        RequestKind::EndTxn(it) => transaction(Operation::Write, &it.transactional_id),
        _ => Ok(()),
    }
}
