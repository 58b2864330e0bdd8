//! An owner that performs effects immediately, for tests of single rules.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::describe_transactions_response::TransactionState;
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, DescribeTransactionsRequest, EndTxnRequest,
    GroupId, InitProducerIdRequest, ProducerId, TopicName, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use transactions::{
    Caller, Effect, Markers, Outcome, Participants, Producer, Record, Response, Settings, Ticket,
    Transactions, Write,
};

pub(crate) const TIMEOUT_MS: i32 = 60_000;

pub(crate) fn id(name: &str) -> TransactionalId {
    TransactionalId(StrBytes::from_string(name.to_owned()))
}

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

pub(crate) fn group(name: &str) -> GroupId {
    GroupId(StrBytes::from_string(name.to_owned()))
}

pub(crate) fn producer(id: i64, epoch: i16) -> Producer {
    Producer { id: ProducerId(id), epoch }
}

pub(crate) fn init_request(id: &TransactionalId, claim: Option<Producer>) -> InitProducerIdRequest {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(id.clone()))
        .with_transaction_timeout_ms(TIMEOUT_MS);
    match claim {
        Some(claim) => request.with_producer_id(claim.id).with_producer_epoch(claim.epoch),
        None => request,
    }
}

pub(crate) fn add_request(
    id: &TransactionalId,
    producer: Producer,
    partitions: &[i32],
) -> AddPartitionsToTxnRequest {
    let topic = AddPartitionsToTxnTopic::default()
        .with_name(topic("orders"))
        .with_partitions(partitions.to_vec());
    AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(id.clone())
        .with_v3_and_below_producer_id(producer.id)
        .with_v3_and_below_producer_epoch(producer.epoch)
        .with_v3_and_below_topics(vec![topic])
}

pub(crate) fn end_request(
    id: &TransactionalId,
    producer: Producer,
    outcome: Outcome,
) -> EndTxnRequest {
    EndTxnRequest::default()
        .with_transactional_id(id.clone())
        .with_producer_id(producer.id)
        .with_producer_epoch(producer.epoch)
        .with_committed(outcome == Outcome::Commit)
}

pub(crate) fn write(id: &TransactionalId, producer: Producer, partitions: &[i32]) -> Write {
    let participants = Participants::of_partitions(&topic("orders"), partitions.iter().copied());
    Write { transactional_id: id.clone(), producer, participants }
}

/// Converts an error code to a result.
pub(crate) fn result(code: i16) -> Result<(), ResponseError> {
    ResponseError::try_from_code(code).map_or(Ok(()), Err)
}

/// Returns the result of a response, and the client's new producer if the response contains it.
pub(crate) fn outcome_of(response: &Response) -> Result<Option<Producer>, ResponseError> {
    match response {
        Response::InitProducerId(it) => {
            result(it.error_code)?;
            Ok(Some(Producer { id: it.producer_id, epoch: it.producer_epoch }))
        }
        Response::AddPartitionsToTxn(it) => {
            result(it.error_code)?;
            for topic in &it.results_by_topic_v3_and_below {
                for partition in &topic.results_by_partition {
                    result(partition.partition_error_code)?;
                }
            }
            Ok(None)
        }
        Response::AddOffsetsToTxn(it) => result(it.error_code).map(|()| None),
        Response::EndTxn(it) => {
            result(it.error_code)?;
            let after = Producer { id: it.producer_id, epoch: it.producer_epoch };
            Ok(Some(after).filter(|it| it.epoch >= 0))
        }
        Response::Admitted(result) => result.map(|()| None),
        Response::ListTransactions(_) | Response::DescribeTransactions(_) => Ok(None),
    }
}

/// Performs effects immediately, except markers, which it collects.
pub(crate) struct Owner {
    pub(crate) transactions: Transactions,
    pub(crate) settings: Settings,
    pub(crate) log: Vec<Record>,
    pub(crate) markers: Vec<Markers>,
    pub(crate) replies: BTreeMap<Ticket, Response>,
    pub(crate) now_ms: i64,
    pub(crate) caller: shares::Owner,
    tickets: u64,
}

impl Owner {
    pub(crate) fn new() -> Self {
        Self::with(Settings::DEFAULTS)
    }

    pub(crate) fn with(settings: Settings) -> Self {
        Self {
            transactions: Transactions::new(settings),
            settings,
            log: Vec::new(),
            markers: Vec::new(),
            replies: BTreeMap::new(),
            now_ms: 1_000_000,
            caller: shares::Owner::NOBODY,
            tickets: 0,
        }
    }

    /// Returns the response, unless the request must wait.
    pub(crate) fn call(
        &mut self,
        api_version: i16,
        call: impl FnOnce(&mut Transactions, Caller, &mut Vec<Effect>),
    ) -> (Ticket, Option<Response>) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let mut out = Vec::new();
        let (owner, now_ms) = (self.caller, self.now_ms);
        call(&mut self.transactions, Caller { ticket, api_version, owner, now_ms }, &mut out);
        self.carry_out(out);
        (ticket, self.replies.remove(&ticket))
    }

    fn ask(
        &mut self,
        api_version: i16,
        call: impl FnOnce(&mut Transactions, Caller, &mut Vec<Effect>),
    ) -> Result<Option<Producer>, ResponseError> {
        let (_, response) = self.call(api_version, call);
        outcome_of(&response.expect("it was answered at once"))
    }

    pub(crate) fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Persist(record) => self.log.push(record),
                Effect::WriteMarkers(markers) => self.markers.push(markers),
                Effect::Reply(ticket, response) => {
                    let earlier = self.replies.insert(ticket, response);
                    assert_eq!(earlier, None, "a ticket is answered once");
                }
            }
        }
    }

    pub(crate) fn init(
        &mut self,
        api_version: i16,
        id: &TransactionalId,
        claim: Option<Producer>,
    ) -> Result<Producer, ResponseError> {
        let request = init_request(id, claim);
        let done = self.ask(api_version, |it, caller, out| {
            it.init_producer_id(caller, &request, out);
        });
        done.map(|producer| producer.expect("it says so"))
    }

    /// Creates a new producer instance with the latest client version.
    pub(crate) fn begin(&mut self, id: &TransactionalId) -> Producer {
        self.init(5, id, None).expect("nothing is open")
    }

    pub(crate) fn add(
        &mut self,
        api_version: i16,
        id: &TransactionalId,
        producer: Producer,
    ) -> Result<(), ResponseError> {
        let request = add_request(id, producer, &[1, 2]);
        let done = self.ask(api_version, |it, caller, out| {
            it.add_partitions(caller, &request, out);
        });
        done.map(drop)
    }

    pub(crate) fn add_offsets(
        &mut self,
        api_version: i16,
        id: &TransactionalId,
        producer: Producer,
        name: &str,
    ) -> Result<(), ResponseError> {
        let request = AddOffsetsToTxnRequest::default()
            .with_transactional_id(id.clone())
            .with_producer_id(producer.id)
            .with_producer_epoch(producer.epoch)
            .with_group_id(group(name));
        self.ask(api_version, |it, caller, out| it.add_offsets(caller, &request, out)).map(drop)
    }

    pub(crate) fn produce(&mut self, api_version: i16, write: Write) -> Result<(), ResponseError> {
        self.ask(api_version, |it, caller, out| it.admit_produce(caller, write, out)).map(drop)
    }

    pub(crate) fn commit_offsets(
        &mut self,
        api_version: i16,
        write: Write,
    ) -> Result<(), ResponseError> {
        let done =
            self.ask(api_version, |it, caller, out| it.admit_offset_commit(caller, write, out));
        done.map(drop)
    }

    pub(crate) fn end(
        &mut self,
        api_version: i16,
        id: &TransactionalId,
        producer: Producer,
        outcome: Outcome,
    ) -> Result<Option<Producer>, ResponseError> {
        let request = end_request(id, producer, outcome);
        self.ask(api_version, |it, caller, out| it.end(caller, &request, out))
    }

    /// Reports all collected markers as written, and returns them.
    pub(crate) fn finish(&mut self) -> Vec<Markers> {
        let done = std::mem::take(&mut self.markers);
        for markers in &done {
            let mut out = Vec::new();
            self.transactions.markers_written(markers.ticket, self.now_ms, &mut out);
            self.carry_out(out);
        }
        done
    }

    pub(crate) fn pass(&mut self, duration_ms: i64) {
        self.now_ms += duration_ms;
        let mut out = Vec::new();
        self.transactions.tick(self.now_ms, &mut out);
        self.carry_out(out);
    }

    pub(crate) fn crash(&mut self) {
        self.markers.clear();
        self.transactions = Transactions::new(self.settings);
        for record in &self.log {
            self.transactions.load(&record.key, record.value.as_deref()).expect("it is whole");
        }
        let mut out = Vec::new();
        self.transactions.resume(self.now_ms, &mut out);
        self.carry_out(out);
    }

    pub(crate) fn describe(&mut self, id: &TransactionalId) -> TransactionState {
        let request =
            DescribeTransactionsRequest::default().with_transactional_ids(vec![id.clone()]);
        let (_, response) = self.call(0, |it, caller, out| it.describe(caller, &request, out));
        let Some(Response::DescribeTransactions(response)) = response else {
            panic!("it is another answer: {response:?}")
        };
        response.transaction_states[0].clone()
    }

    pub(crate) fn state(&mut self, id: &TransactionalId) -> String {
        self.describe(id).transaction_state.to_string()
    }
}
