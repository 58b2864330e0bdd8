//! The transaction coordinator: validates requests, changes the state, and emits effects.

use std::collections::{BTreeMap, VecDeque};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    DescribeTransactionsRequest, DescribeTransactionsResponse, EndTxnRequest, EndTxnResponse,
    InitProducerIdRequest, InitProducerIdResponse, ListTransactionsRequest, ProducerId,
    TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use shares::Owner;

use crate::adding::{Adding, Api};
use crate::effect::{Caller, Effect, Markers, MarkersTicket, Response};
use crate::known::{self, Known};
use crate::listing;
use crate::participants::Participants;
use crate::producer_ids::ProducerIds;
use crate::state_log::{self, Entry, Record, StateError, value_bytes};
use crate::table::Table;
use crate::transaction::{
    EndRule, Ending, Initialization, Now, Outcome, Producer, State, Transaction,
};

/// Maximum length of a transactional id.
pub const TRANSACTIONAL_ID_BYTES_MAX: usize = 1_024;

/// Maximum size of a value in the state log. Participants that would exceed it are rejected.
pub const STATE_VALUE_BYTES_MAX: usize = 1 << 20;

/// Maximum number of requests that wait for the end of a transaction. Further clients must retry.
pub const WAITING_COUNT_MAX: usize = 256;

/// Maximum time that a request waits for markers before the client is told to retry.
const WAIT_MS_MAX: i64 = 100;

/// Maximum number of transactional ids with expired deadlines that one tick handles.
const TICK_COUNT_MAX: usize = 1_000;

/// First versions whose clients support `PRODUCER_FENCED`.
const INIT_KNOWS_FENCED: i16 = 4;
const END_KNOWS_FENCED: i16 = 2;

/// First version of EndTxn that increments the epoch for each transaction (KIP-890).
const END_BUMPS_EPOCH: i16 = 5;

/// First version of AddPartitionsToTxn that is sent between brokers.
const ADD_PARTITIONS_OF_BROKERS: i16 = 4;

/// Limits, named after Kafka's settings if those exist.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `transaction.max.timeout.ms`
    pub transaction_timeout_ms_max: i32,
    /// `transactional.id.expiration.ms`
    pub transactional_id_expiration_ms: i64,
    /// Maximum number of known transactional ids. A single owner gets at most half of it. Further
    /// ids are rejected.
    pub transactional_id_count_max: usize,
    /// Maximum bytes of the participants of all open transactions. A single owner gets at most half
    /// of it. Beyond it, clients that add participants must retry.
    pub participants_bytes_max: usize,
}

impl Settings {
    /// Kafka's defaults, and limits that Kafka lacks. The maximum timeout is an hour, which
    /// is Flink's default timeout.
    pub const DEFAULTS: Self = Self {
        transaction_timeout_ms_max: 60 * 60 * 1_000,
        transactional_id_expiration_ms: 7 * 24 * 60 * 60 * 1_000,
        transactional_id_count_max: 200_000,
        participants_bytes_max: 64 << 20,
    };
}

/// Records, or offset commits, of a producer that are about to be written.
#[derive(Clone, Debug)]
pub struct Write {
    pub transactional_id: TransactionalId,
    pub producer: Producer,
    pub participants: Participants,
}

#[derive(Debug)]
pub struct Transactions {
    settings: Settings,
    producer_ids: ProducerIds,
    table: Table,
    /// Transactions with markers in progress.
    unfinished: BTreeMap<MarkersTicket, TransactionalId>,
    markers_count: u64,
    /// Waiting requests of all transactional ids, oldest first.
    waiting: VecDeque<Adding>,
    host_ahead_ms: i64,
}

impl Transactions {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            producer_ids: ProducerIds::default(),
            table: Table::new(settings.transactional_id_expiration_ms),
            unfinished: BTreeMap::new(),
            markers_count: 0,
            waiting: VecDeque::new(),
            host_ahead_ms: 0,
        }
    }

    /// Sets the difference of the host's clock to the owner's monotonic clock. Transactions time
    /// out by the owner's clock. Persistent timestamps are the host's.
    pub fn set_host_ahead(&mut self, ahead_ms: i64) {
        self.host_ahead_ms = ahead_ms;
    }

    fn now(&self, now_ms: i64) -> Now {
        Now { steady_ms: now_ms, unix_ms: now_ms.saturating_add(self.host_ahead_ms) }
    }

    /// Loads a record of the state log. Records must be loaded in the order of their append, but
    /// superseded ones may be omitted.
    pub fn load(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), StateError> {
        match state_log::parse(key, value)? {
            Entry::ProducerIds(end) => self.producer_ids.note_taken(end),
            Entry::Transaction(id, Some(transaction)) => self.table.put(&id, *transaction),
            Entry::Transaction(id, None) => self.table.remove(&id),
        }
        Ok(())
    }

    /// Completes transactions that were about to end, and continues the timeouts of open ones by
    /// the owner's clock. Must be called once, after the last record was loaded, before requests.
    pub fn resume(&mut self, now_ms: i64, out: &mut Vec<Effect>) {
        let now = self.now(now_ms);
        let is_open =
            |transaction: &Transaction| matches!(transaction.state, State::Ongoing { .. });
        let open = self.table.iter().filter(|(_, transaction)| is_open(transaction));
        let open: Vec<TransactionalId> = open.map(|(id, _)| id.clone()).collect();
        for id in open {
            self.table.change(&id, |transaction| transaction.resume(now));
        }
        let is_ending =
            |transaction: &Transaction| matches!(transaction.state, State::Prepare { .. });
        let ending = self.table.iter().filter(|(_, transaction)| is_ending(transaction));
        let ending: Vec<TransactionalId> = ending.map(|(id, _)| id.clone()).collect();
        for id in ending {
            self.write_markers(&id, out);
        }
    }

    /// Reconciles the loaded state with the partitions, which may be newer if the state log was
    /// lost or is outdated. Producer ids in partitions are not allocated again. Transactions that
    /// are open in a partition but unknown here, which nobody could end, are aborted. Must be
    /// called after [`Transactions::resume`].
    pub fn meet(&mut self, known: Vec<Known>, out: &mut Vec<Effect>) {
        known.iter().for_each(|it| self.producer_ids.note_used(it.producer.id.0));
        for (producer, participants) in known::unknown_to(&self.table, known) {
            let ticket = MarkersTicket(self.markers_count);
            self.markers_count += 1;
            out.push(Effect::WriteMarkers(Markers {
                ticket,
                transactional_id: TransactionalId::default(),
                producer,
                outcome: Outcome::Abort,
                participants,
            }));
        }
    }

    /// Returns records equivalent to all records so far, for compaction of the state log.
    pub fn state(&self) -> impl Iterator<Item = Record> {
        let ids = state_log::producer_ids_record(self.producer_ids.reserved_end());
        let transactions = self.table.iter();
        let transactions = transactions
            .map(|(id, transaction)| state_log::transaction_record(id, Some(transaction)));
        std::iter::once(ids).chain(transactions)
    }

    /// InitProducerId, versions 0 to 5.
    pub fn init_producer_id(
        &mut self,
        caller: Caller,
        request: &InitProducerIdRequest,
        out: &mut Vec<Effect>,
    ) {
        let response = match self.try_init(caller, request, out) {
            Ok(producer) => InitProducerIdResponse::default()
                .with_producer_id(producer.id)
                .with_producer_epoch(producer.epoch),
            Err(error) => InitProducerIdResponse::default()
                .with_error_code(wording(error, caller, INIT_KNOWS_FENCED))
                .with_producer_epoch(-1),
        };
        out.push(Effect::Reply(caller.ticket, Response::InitProducerId(response)));
    }

    /// AddPartitionsToTxn, versions 0 to 3. The owner has verified that the partitions exist and
    /// may be written, and responds for all others.
    pub fn add_partitions(
        &mut self,
        caller: Caller,
        request: &AddPartitionsToTxnRequest,
        out: &mut Vec<Effect>,
    ) {
        if caller.api_version >= ADD_PARTITIONS_OF_BROKERS {
            let response = AddPartitionsToTxnResponse::default()
                .with_error_code(ResponseError::UnsupportedVersion.code());
            out.push(Effect::Reply(caller.ticket, Response::AddPartitionsToTxn(response)));
            return;
        }
        let mut participants = Participants::default();
        for topic in &request.v3_and_below_topics {
            participants.add_partitions(&topic.name, topic.partitions.iter().copied());
        }
        let producer = Producer {
            id: request.v3_and_below_producer_id,
            epoch: request.v3_and_below_producer_epoch,
        };
        let transactional_id = request.v3_and_below_transactional_id.clone();
        let write = Write { transactional_id, producer, participants };
        self.add(Adding::new(Api::AddPartitions, caller, write), caller.now_ms, out);
    }

    /// AddOffsetsToTxn, versions 0 to 4.
    pub fn add_offsets(
        &mut self,
        caller: Caller,
        request: &AddOffsetsToTxnRequest,
        out: &mut Vec<Effect>,
    ) {
        let write = Write {
            transactional_id: request.transactional_id.clone(),
            producer: Producer { id: request.producer_id, epoch: request.producer_epoch },
            participants: Participants::of_group(&request.group_id),
        };
        self.add(Adding::new(Api::AddOffsets, caller, write), caller.now_ms, out);
    }

    /// Decides whether the records of a Produce request may be appended: all or none. From version
    /// 12 on, their partitions are added to the transaction; before, they must have been added.
    ///
    /// An admission ends with the transaction. The owner must append admitted records before a
    /// marker of the producer, or ask again: the partition detects late records only by their
    /// epoch, and clients of EndTxn 0 to 4 keep theirs.
    pub fn admit_produce(&mut self, caller: Caller, write: Write, out: &mut Vec<Effect>) {
        self.add(Adding::new(Api::Produce, caller, write), caller.now_ms, out);
    }

    /// Same for the group of a TxnOffsetCommit request, added implicitly from version 5 on.
    pub fn admit_offset_commit(&mut self, caller: Caller, write: Write, out: &mut Vec<Effect>) {
        self.add(Adding::new(Api::OffsetCommit, caller, write), caller.now_ms, out);
    }

    /// Returns the participants of the transaction that is open or about to end, or `None`.
    pub fn participants(&self, id: &TransactionalId) -> Option<&Participants> {
        self.table.get(id)?.participants()
    }

    /// Marks the transactional id as having written to a durable topic.
    pub fn note_on_disk(&mut self, id: &TransactionalId) {
        if self.table.get(id).is_some_and(|it| !it.is_on_disk) {
            self.table.change(id, |transaction| transaction.is_on_disk = true);
        }
    }

    /// Returns whether a transaction of this id has written to a durable topic, or may have before
    /// the start. New epochs fence such transactions, so a new epoch must be durable before a
    /// client learns it: a lost epoch would be assigned to the next instance again.
    pub fn is_on_disk(&self, id: &TransactionalId) -> bool {
        self.table.get(id).is_some_and(|it| it.is_on_disk)
    }

    /// EndTxn, versions 0 to 5. Answered when the outcome is durable, before markers are written.
    pub fn end(&mut self, caller: Caller, request: &EndTxnRequest, out: &mut Vec<Effect>) {
        let mut markers = Vec::new();
        let result = self.try_end(caller, request, out, &mut markers);
        let response = match result {
            Ok(producer) if caller.api_version >= END_BUMPS_EPOCH => EndTxnResponse::default()
                .with_producer_id(producer.id)
                .with_producer_epoch(producer.epoch),
            Ok(_) => EndTxnResponse::default(),
            Err(error) => {
                EndTxnResponse::default().with_error_code(wording(error, caller, END_KNOWS_FENCED))
            }
        };
        out.push(Effect::Reply(caller.ticket, Response::EndTxn(response)));
        out.append(&mut markers);
    }

    /// All markers of an [`Effect::WriteMarkers`] are durable. Repeated calls have no effect.
    pub fn markers_written(&mut self, ticket: MarkersTicket, now_ms: i64, out: &mut Vec<Effect>) {
        let Some(id) = self.unfinished.remove(&ticket) else { return };
        let unix_ms = self.now(now_ms).unix_ms;
        self.change(&id, out, |transaction, _| {
            transaction.complete();
            transaction.updated_ms = unix_ms;
        });
        let all = std::mem::take(&mut self.waiting);
        let (due, others): (VecDeque<Adding>, _) =
            all.into_iter().partition(|it| it.transactional_id == id);
        self.waiting = others;
        for adding in due {
            self.add(adding, now_ms, out);
        }
    }

    /// ListTransactions, versions 0 to 2.
    pub fn list(&self, caller: Caller, request: &ListTransactionsRequest, out: &mut Vec<Effect>) {
        let unix_ms = self.now(caller.now_ms).unix_ms;
        let response = listing::list(request, self.table.iter(), unix_ms);
        out.push(Effect::Reply(caller.ticket, Response::ListTransactions(response)));
    }

    /// DescribeTransactions, version 0.
    pub fn describe(
        &self,
        caller: Caller,
        request: &DescribeTransactionsRequest,
        out: &mut Vec<Effect>,
    ) {
        let ids = request.transactional_ids.iter();
        let described = ids.map(|id| listing::describe(id, self.table.get(id)));
        let response =
            DescribeTransactionsResponse::default().with_transaction_states(described.collect());
        out.push(Effect::Reply(caller.ticket, Response::DescribeTransactions(response)));
    }

    /// Aborts transactions that have timed out, removes expired transactional ids, and answers
    /// requests that have waited too long. If much is due, only a part is done, and
    /// [`Self::next_deadline_ms`] is then in the past.
    pub fn tick(&mut self, now_ms: i64, out: &mut Vec<Effect>) {
        let now = self.now(now_ms);
        for _ in 0..TICK_COUNT_MAX {
            let Some(id) = self.table.due(now) else { break };
            let transaction = self.table.get(&id).expect("what is due is there");
            if matches!(transaction.state, State::Ongoing { .. }) {
                self.fence(&id, None, now_ms, out);
            } else {
                self.table.remove(&id);
                out.push(Effect::Persist(state_log::transaction_record(&id, None)));
            }
        }
        let late = self.waiting.iter().take_while(|it| it.waits_until_ms() <= now_ms).count();
        for adding in self.waiting.drain(..late) {
            out.push(adding.reply(Err(ResponseError::ConcurrentTransactions)));
        }
    }

    /// Returns the earliest time at which [`Self::tick`] has work.
    pub fn next_deadline_ms(&self) -> Option<i64> {
        let waiting = self.waiting.front().map(Adding::waits_until_ms);
        let deadline = self.table.next_deadline_ms(self.host_ahead_ms);
        deadline.into_iter().chain(waiting).min()
    }

    fn try_init(
        &mut self,
        caller: Caller,
        request: &InitProducerIdRequest,
        out: &mut Vec<Effect>,
    ) -> Result<Producer, ResponseError> {
        let Some(id) = &request.transactional_id else {
            let id = take_id(&mut self.producer_ids, out);
            return Ok(Producer { id, epoch: 0 });
        };
        let claim = claim(request)?;
        let timeout_ms = request.transaction_timeout_ms;
        if id.is_empty() || id.len() > TRANSACTIONAL_ID_BYTES_MAX {
            return Err(ResponseError::InvalidRequest);
        }
        if !(1..=self.settings.transaction_timeout_ms_max).contains(&timeout_ms) {
            return Err(ResponseError::InvalidTransactionTimeout);
        }
        let unix_ms = self.now(caller.now_ms).unix_ms;
        let Some(known) = self.table.get(id) else {
            return self.create(id, timeout_ms, (caller.owner, unix_ms), out);
        };
        let initialization = known.check_initialization(claim)?;
        if initialization == Initialization::AbortFirst {
            self.fence(id, claim, caller.now_ms, out);
            return Err(ResponseError::ConcurrentTransactions);
        }
        let changed = self.change(id, out, |transaction, fresh_id| {
            if initialization == Initialization::Bump {
                transaction.bump(claim, fresh_id);
            }
            if transaction.owner == Owner::NOBODY {
                transaction.owner = caller.owner;
            }
            transaction.state = State::Empty;
            transaction.timeout_ms = timeout_ms;
            transaction.updated_ms = unix_ms;
        });
        Ok(changed)
    }

    fn create(
        &mut self,
        id: &TransactionalId,
        timeout_ms: i32,
        (owner, unix_ms): (Owner, i64),
        out: &mut Vec<Effect>,
    ) -> Result<Producer, ResponseError> {
        let most = self.settings.transactional_id_count_max;
        if !self.table.ids().has_room(owner, 1, most) {
            return Err(ResponseError::PolicyViolation);
        }
        let producer = Producer { id: take_id(&mut self.producer_ids, out), epoch: 0 };
        let transaction = Transaction {
            producer,
            previous: None,
            timeout_ms,
            updated_ms: unix_ms,
            state: State::Empty,
            owner,
            is_on_disk: false,
        };
        // An own copy, instead of a reference to the request's buffer.
        let id = TransactionalId(StrBytes::from_string(id.to_string()));
        out.push(Effect::Persist(state_log::transaction_record(&id, Some(&transaction))));
        self.table.put(&id, transaction);
        Ok(producer)
    }

    fn add(&mut self, adding: Adding, now_ms: i64, out: &mut Vec<Effect>) {
        match self.try_add(&adding, now_ms, out) {
            // The markers take less time than the client's retry delay.
            Err(ResponseError::ConcurrentTransactions)
                if self.waiting.len() < WAITING_COUNT_MAX =>
            {
                self.waiting.push_back(adding);
            }
            result => out.push(adding.reply(result)),
        }
    }

    fn try_add(
        &mut self,
        adding: &Adding,
        now_ms: i64,
        out: &mut Vec<Effect>,
    ) -> Result<(), ResponseError> {
        let (id, added) = (&adding.transactional_id, &adding.participants);
        if id.is_empty() || !added.has_valid_names() {
            return Err(ResponseError::InvalidRequest);
        }
        let transaction = self.table.get(id).ok_or(ResponseError::InvalidProducerIdMapping)?;
        transaction.check_producer(adding.producer)?;
        if matches!(transaction.state, State::Prepare { .. }) {
            return Err(ResponseError::ConcurrentTransactions);
        }
        let known = transaction.participants();
        if added.is_empty() || known.is_some_and(|known| known.contains(added)) {
            return Ok(());
        }
        if !adding.may_add() {
            return Err(ResponseError::TransactionAbortable);
        }
        let added_bytes = value_bytes(added);
        if known.map_or(0, value_bytes) + added_bytes > STATE_VALUE_BYTES_MAX {
            return Err(ResponseError::PolicyViolation);
        }
        let (owner, most) = (transaction.owner, self.settings.participants_bytes_max);
        if !self.table.participants().has_room(owner, added_bytes, most) {
            return Err(ResponseError::CoordinatorLoadInProgress);
        }
        let now = self.now(now_ms);
        self.change(id, out, |transaction, _| {
            transaction.add(added, now);
            transaction.updated_ms = now.unix_ms;
        });
        Ok(())
    }

    /// Returns the client's next producer. The markers must be started after the reply.
    fn try_end(
        &mut self,
        caller: Caller,
        request: &EndTxnRequest,
        out: &mut Vec<Effect>,
        markers: &mut Vec<Effect>,
    ) -> Result<Producer, ResponseError> {
        let id = &request.transactional_id;
        let producer = Producer { id: request.producer_id, epoch: request.producer_epoch };
        let outcome = match request.committed {
            true => Outcome::Commit,
            false => Outcome::Abort,
        };
        let rule = match caller.api_version >= END_BUMPS_EPOCH {
            true => EndRule::EpochGrows,
            false => EndRule::EpochStays,
        };
        if id.is_empty() {
            return Err(ResponseError::InvalidRequest);
        }
        let transaction = self.table.get(id).ok_or(ResponseError::InvalidProducerIdMapping)?;
        let ending = transaction.check_end(producer, outcome, rule)?;
        if ending == Ending::Again {
            return Ok(transaction.producer);
        }
        let unix_ms = self.now(caller.now_ms).unix_ms;
        let producer = self.change(id, out, |transaction, fresh_id| {
            transaction.updated_ms = unix_ms;
            if ending == Ending::OfNothing {
                transaction.end_nothing(fresh_id);
                return;
            }
            transaction.prepare(outcome, rule, fresh_id);
        });
        self.write_markers(id, markers);
        Ok(producer)
    }

    fn fence(
        &mut self,
        id: &TransactionalId,
        claim: Option<Producer>,
        now_ms: i64,
        out: &mut Vec<Effect>,
    ) {
        let unix_ms = self.now(now_ms).unix_ms;
        self.change(id, out, |transaction, _| {
            transaction.fence(claim);
            transaction.updated_ms = unix_ms;
        });
        self.write_markers(id, out);
    }

    fn write_markers(&mut self, id: &TransactionalId, out: &mut Vec<Effect>) {
        let Some((id, transaction)) = self.table.entry(id) else { return };
        let State::Prepare { outcome, marker, participants, .. } = &transaction.state else {
            return;
        };
        let ticket = MarkersTicket(self.markers_count);
        self.markers_count += 1;
        self.unfinished.insert(ticket, id.clone());
        out.push(Effect::WriteMarkers(Markers {
            ticket,
            transactional_id: id.clone(),
            producer: *marker,
            outcome: *outcome,
            participants: participants.clone(),
        }));
    }

    /// Changes an existing transactional id, and persists the change.
    fn change(
        &mut self,
        id: &TransactionalId,
        out: &mut Vec<Effect>,
        change: impl FnOnce(&mut Transaction, &mut dyn FnMut() -> ProducerId),
    ) -> Producer {
        let producer_ids = &mut self.producer_ids;
        let changed = self.table.change(id, |transaction| {
            change(transaction, &mut || take_id(producer_ids, out));
        });
        out.push(Effect::Persist(state_log::transaction_record(id, Some(changed))));
        changed.producer
    }
}

impl Adding {
    fn new(api: Api, caller: Caller, write: Write) -> Self {
        let Write { transactional_id, producer, participants } = write;
        Self { api, caller, transactional_id, producer, participants }
    }

    fn waits_until_ms(&self) -> i64 {
        self.caller.now_ms.saturating_add(WAIT_MS_MAX)
    }
}

fn take_id(producer_ids: &mut ProducerIds, out: &mut Vec<Effect>) -> ProducerId {
    let reserve = |end| out.push(Effect::Persist(state_log::producer_ids_record(end)));
    ProducerId(producer_ids.take(reserve))
}

/// Returns the previous producer that a recovering client claims.
fn claim(request: &InitProducerIdRequest) -> Result<Option<Producer>, ResponseError> {
    let claim = Producer { id: request.producer_id, epoch: request.producer_epoch };
    match (claim.id.0, claim.epoch) {
        (-1, -1) => Ok(None),
        (0.., 0..) => Ok(Some(claim)),
        _ => Err(ResponseError::InvalidRequest),
    }
}

/// Returns the code that clients of this version handle correctly.
fn wording(error: ResponseError, caller: Caller, knows_fenced: i16) -> i16 {
    match error {
        ResponseError::ProducerFenced if caller.api_version < knows_fenced => {
            ResponseError::InvalidProducerEpoch.code()
        }
        other => other.code(),
    }
}
