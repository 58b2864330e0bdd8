//! ListTransactions and DescribeTransactions.

use std::collections::BTreeSet;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_transactions_response::{
    TopicData, TransactionState as Description,
};
use kafka_protocol::messages::list_transactions_response::TransactionState as Listed;
use kafka_protocol::messages::{
    ListTransactionsRequest, ListTransactionsResponse, ProducerId, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use regex::{Regex, RegexBuilder};

use crate::transaction::Transaction;

/// State names accepted in filters. No transactional id is ever listed in the last two states.
const STATE_NAMES: [&str; 8] = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];

/// Maximum size of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Lists transactional ids. An invalid pattern is an error, and an empty one matches all.
pub(crate) fn list<'all>(
    request: &ListTransactionsRequest,
    all: impl Iterator<Item = (&'all TransactionalId, &'all Transaction)>,
    unix_ms: i64,
) -> ListTransactionsResponse {
    let pattern = request.transactional_id_pattern.as_ref().filter(|it| !it.is_empty());
    let pattern = match pattern.map(|it| compile(it)).transpose() {
        Ok(pattern) => pattern,
        Err(error) => return ListTransactionsResponse::default().with_error_code(error.code()),
    };
    let is_named =
        |id: &TransactionalId| pattern.as_ref().is_none_or(|pattern| pattern.is_match(id));
    let states: BTreeSet<&str> = request.state_filters.iter().map(|it| it.as_str()).collect();
    let producers: BTreeSet<ProducerId> = request.producer_id_filters.iter().copied().collect();
    let is_wanted = |transaction: &Transaction| {
        let running_ms = transaction.started_ms().map(|started| unix_ms.saturating_sub(started));
        (states.is_empty() || states.contains(transaction.state_name()))
            && (producers.is_empty() || producers.contains(&transaction.producer.id))
            && (request.duration_filter < 0
                || running_ms.is_some_and(|it| it > request.duration_filter))
    };
    let wanted = all.filter(|(id, transaction)| is_wanted(transaction) && is_named(id));
    let listed = wanted.map(|(id, transaction)| {
        Listed::default()
            .with_transactional_id(id.clone())
            .with_producer_id(transaction.producer.id)
            .with_transaction_state(StrBytes::from_static_str(transaction.state_name()))
    });
    let names = request.state_filters.iter();
    let unknown = names.filter(|name| !STATE_NAMES.contains(&name.as_str())).cloned().collect();
    ListTransactionsResponse::default()
        .with_unknown_state_filters(unknown)
        .with_transaction_states(listed.collect())
}

/// Compiles a pattern in RE2's syntax, which must match a whole id (KIP-1152).
fn compile(pattern: &str) -> Result<Regex, ResponseError> {
    let build = |pattern: &str| {
        let built = RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build();
        built.map_err(|_| ResponseError::InvalidRegularExpression)
    };
    // Compiled on its own first, so that unbalanced parentheses cannot close the enclosing ones.
    build(pattern)?;
    build(&format!("^(?:{pattern})$"))
}

pub(crate) fn describe(id: &TransactionalId, transaction: Option<&Transaction>) -> Description {
    let description = Description::default().with_transactional_id(id.clone());
    let Some(transaction) = transaction else {
        let error = match id.is_empty() {
            true => ResponseError::InvalidRequest,
            false => ResponseError::TransactionalIdNotFound,
        };
        return description.with_error_code(error.code());
    };
    let topics = transaction.participants().into_iter().flat_map(|it| &it.topics);
    let topics = topics.map(|(topic, partitions)| {
        TopicData::default()
            .with_topic(topic.clone())
            .with_partitions(partitions.iter().copied().collect())
    });
    description
        .with_transaction_state(StrBytes::from_static_str(transaction.state_name()))
        .with_transaction_timeout_ms(transaction.timeout_ms)
        .with_transaction_start_time_ms(transaction.started_ms().unwrap_or(-1))
        .with_producer_id(transaction.producer.id)
        .with_producer_epoch(transaction.producer.epoch)
        .with_topics(topics.collect())
}
