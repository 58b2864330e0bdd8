//! Rounds of the coordinator: receive commands, write records to the log, then send replies and
//! write markers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use consumer_groups::{Groups, TickTime};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{RequestKind, ResponseKind, TransactionalId};
use record_log::LogError;
use tokio::sync::{Notify, mpsc, oneshot};
use transactions::{Outcome, Participants, Producer, Response, Transactions, Write};
use uuid::Uuid;

use super::assignable::{Assignable, producers};
use super::deeds::{Deed, WaitsFor, id_of_part};
use super::effects::Effects;
use super::endings::Endings;
use super::fullness::Fullness;
use super::keys::{Owner, of_epoch, of_groups, of_transactions, owner_of, read_epoch};
use super::refusals::refuse;
use super::{Admission, Ask, Command, CoordinatorOptions, NO_PANIC, Queued, Trouble};
use crate::clock::SteadyClock;
use crate::state_log::{StateLog, StatePlace, StateRecord};
use crate::storage::{Storage, VolumeClass, state_bytes_max};
use crate::topics::{FlushNumber, Found, OpenPartition};

/// Maximum number of commands in a round.
const ROUND_LENGTH_MAX: usize = 1_024;

/// Maximum interval between two readings of the clocks.
const TURN_TIME_MAX: Duration = Duration::from_secs(1);

/// Minimum interval between readings that counts as a stall of the thread. Sessions and
/// transactions are extended by it, because heartbeats could not be received meanwhile.
const STALL_TIME_MIN: Duration = Duration::from_secs(2);

/// Delay before a retry after a failed write of the log.
const PAUSE: Duration = Duration::from_millis(100);

/// Destination of a reply.
enum Reply {
    Client(oneshot::Sender<ResponseKind>),
    Admission(oneshot::Sender<Admission>, Vec<Arc<OpenPartition>>),
    /// An offset commit in a transaction, which proceeds once the transaction is known to be open.
    Offsets(Box<Ask>),
}

/// State owned by the coordinator's thread.
pub(super) struct State {
    groups: Groups,
    transactions: Transactions,
    log: StateLog,
    topics: Assignable,
    options: CoordinatorOptions,
    /// Pending replies by ticket.
    replies: BTreeMap<u64, (WaitsFor, Reply)>,
    /// Actions deferred until the log is stable up to an offset, in order of offsets.
    held: VecDeque<(i64, Deed)>,
    /// End offset of the log up to which it must be stable before producer ids are returned.
    ids_end_offset: i64,
    /// Last flush that was started on another thread.
    flushing: Option<FlushNumber>,
    /// Signalled when a flush has completed.
    stirred: Arc<Notify>,
    last_ticket: u64,
    endings: Endings,
    /// Clock of the timeouts of sessions and transactions.
    clock: SteadyClock,
    /// False after a failed write, until the log was loaded again: the state in memory may differ
    /// from the log. Meanwhile no request is answered.
    is_current: bool,
    /// Reason why the log cannot be written, if the last attempt failed.
    pub(super) trouble: Trouble,
    fullness: Fullness,
}

impl State {
    pub(super) fn open(
        storage: &dyn Storage,
        class: VolumeClass,
        topics: Assignable,
        options: CoordinatorOptions,
    ) -> anyhow::Result<Self> {
        let log = StateLog::open(storage, StatePlace::COORDINATOR, class)?;
        let options = options.within(state_bytes_max(storage)?);
        let mut state = Self {
            groups: Groups::new(options.groups, seed()),
            transactions: Transactions::new(options.transactions),
            log,
            topics,
            options,
            replies: BTreeMap::new(),
            held: VecDeque::new(),
            ids_end_offset: 0,
            flushing: None,
            stirred: Arc::default(),
            last_ticket: 0,
            endings: Endings::default(),
            clock: SteadyClock::begin(STALL_TIME_MIN),
            is_current: true,
            trouble: Trouble::default(),
            fullness: Fullness::default(),
        };
        state.load()?;
        Ok(state)
    }

    pub(super) fn log_id(&self) -> Uuid {
        self.log.id()
    }

    /// Loads the state from the log, and reconciles it with the partitions.
    fn load(&mut self) -> anyhow::Result<()> {
        let mut groups = Groups::new(self.options.groups, seed());
        let mut transactions = Transactions::new(self.options.transactions);
        self.log.load(&mut |key, value| match owner_of(key)
            .context("invalid key in the state log")?
        {
            (Owner::Groups, key) => groups.load(key, value).map_err(anyhow::Error::new),
            (Owner::Transactions, key) => transactions.load(key, value).map_err(anyhow::Error::new),
            (Owner::Epoch, _) => {
                let epoch = read_epoch(value).context("invalid epoch in the state log")?;
                self.topics.topics.raise_epoch(epoch);
                Ok(())
            }
        })?;
        (self.groups, self.transactions) = (groups, transactions);
        if !self.waits_for_disk() {
            self.flush()?;
        }
        self.look_at_clocks();
        let now_ms = self.clock.now_ms();
        self.groups.start(now_ms);
        let mut effects = Effects::default();
        self.transactions.resume(now_ms, &mut effects.transactions);
        self.transactions.meet(producers(self.topics.topics.all()), &mut effects.transactions);
        // The effects consist of markers only, which are written in the next round.
        self.reply(effects, &mut Effects::default());
        self.is_current = true;
        Ok(())
    }

    /// Marks the state in memory as unreliable after a failed write. Waiting requests are not
    /// answered: their clients retry.
    fn doubt(&mut self) {
        self.replies.clear();
        self.held.clear();
        self.flushing = None;
        self.endings.clear();
        self.is_current = false;
    }

    /// Loads the log again if necessary. While that fails, the requests of the round are not
    /// answered.
    fn reload(&mut self, round: &mut Vec<Queued>) -> bool {
        if self.is_current {
            return true;
        }
        std::thread::sleep(PAUSE);
        let loaded = self.load().and_then(|()| Ok(self.flush()?));
        if let Err(error) = loaded {
            let error = format!("{error:#}");
            tracing::error!(error, "cannot load the state of groups and transactions");
            self.is_current = false;
            round.clear();
        }
        self.is_current
    }

    pub(super) async fn run(&mut self, mut commands: mpsc::Receiver<Queued>) {
        let mut round = Vec::new();
        let stirred = Arc::clone(&self.stirred);
        // Records that were loaded may not be stable yet.
        if let Err(error) = self.flush() {
            let error = error.with_causes();
            tracing::error!(error, "cannot flush the state of groups and transactions");
            self.doubt();
        }
        loop {
            let received = tokio::select! {
                received = commands.recv_many(&mut round, ROUND_LENGTH_MAX) => Some(received),
                () = stirred.notified() => None,
                () = tokio::time::sleep(self.idle_time()) => None,
            };
            if received == Some(0) {
                return;
            }
            if !self.reload(&mut round) {
                continue;
            }
            self.look_at_clocks();
            let heard_ms = self.heard_ms(&commands, &round);
            let mut effects = Effects::default();
            for queued in round.drain(..) {
                self.take(queued.command, &mut effects);
            }
            let time = TickTime { now_ms: self.clock.now_ms(), heard_ms };
            self.groups.tick(time, &self.topics, &mut effects.groups);
            // `heard_ms`: a transaction is not aborted while a request to end it may be in the
            // queue.
            self.transactions.tick(heard_ms, &mut effects.transactions);
            self.settle(effects);
            self.fullness.look(&mut self.groups);
            self.look_at_clocks();
        }
    }

    /// Returns the time up to which all commands sent are part of the round. Commands behind it in
    /// the queue, for example after a slow write, were not seen yet.
    fn heard_ms(&self, commands: &mpsc::Receiver<Queued>, round: &[Queued]) -> i64 {
        // The clock must be read before the queue is checked.
        match round.last() {
            Some(last) if !commands.is_empty() => self.clock.at_ms(last.since),
            _ => self.clock.now_ms(),
        }
    }

    /// Updates the clock, and the offset of the host's clock from it.
    fn look_at_clocks(&mut self) {
        if let Some(stall) = self.clock.look(Instant::now()) {
            let seconds = stall.as_secs();
            let what = "the broker was paused; extending group sessions by that time";
            tracing::warn!(seconds, "{what}");
        }
        let ahead_ms = self.clock.host_ahead_ms();
        self.groups.set_host_ahead(ahead_ms);
        self.transactions.set_host_ahead(ahead_ms);
    }

    /// Returns the time until the next deadline, at most `TURN_TIME_MAX`.
    fn idle_time(&self) -> Duration {
        if !self.is_current {
            return Duration::ZERO;
        }
        let deadlines = [self.groups.next_deadline_ms(), self.transactions.next_deadline_ms()];
        let due_ms = deadlines.into_iter().flatten().min().unwrap_or(i64::MAX);
        let left_ms = due_ms.saturating_sub(self.clock.now_ms());
        let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0));
        left.min(self.endings.idle_time().unwrap_or(TURN_TIME_MAX)).min(TURN_TIME_MAX)
    }

    pub(super) fn take(&mut self, command: Command, effects: &mut Effects) {
        let now_ms = self.clock.now_ms();
        match command {
            Command::Ask(ask) => self.answer(*ask, now_ms, effects),
            Command::Admit { write, partitions, api_version, owner, reply } => {
                let reply = Reply::Admission(reply, partitions);
                let waits_for = WaitsFor::of_write(&write, &self.topics.topics);
                self.note_disk(Some(&write.transactional_id), waits_for);
                let ticket = transactions::Ticket(self.ticket(waits_for, reply));
                let caller = transactions::Caller { ticket, api_version, owner, now_ms };
                self.transactions.admit_produce(caller, write, &mut effects.transactions);
            }
            Command::Meet(topic) => {
                self.transactions.meet(producers(vec![topic]), &mut effects.transactions);
            }
            Command::Groups(reply) => {
                // The HTTP interface may have timed out.
                let _gone = reply.send(self.groups.views().collect());
            }
            Command::Forget { names, done } => {
                // A topic that was created again, or is not served now, has its own offsets.
                let is_gone =
                    |name: &&Arc<str>| matches!(self.topics.topics.find(name), Found::Gone);
                let before = effects.groups.len();
                for name in names.iter().filter(is_gone) {
                    self.groups.delete_topic(name, &mut effects.groups);
                }
                effects.epoch = self.topics.topics.epoch_ahead();
                match effects.groups.len() == before && effects.epoch.is_none() {
                    // The caller may have timed out.
                    true => drop(done.try_send(())),
                    false => effects.forgotten.push(done),
                }
            }
        }
    }

    pub(super) fn waits_for(&self, request: &RequestKind) -> WaitsFor {
        WaitsFor::of(request, &self.groups, &self.transactions, &self.topics.topics)
    }

    /// Records for a transactional id that its transaction includes partitions on disk.
    fn note_disk(&mut self, id: Option<&TransactionalId>, waits_for: WaitsFor) {
        if let (Some(id), WaitsFor::Everything) = (id, waits_for) {
            self.transactions.note_on_disk(id);
        }
    }

    fn ticket(&mut self, waits_for: WaitsFor, reply: Reply) -> u64 {
        self.last_ticket += 1;
        self.replies.insert(self.last_ticket, (waits_for, reply));
        self.last_ticket
    }

    fn answer(&mut self, ask: Ask, now_ms: i64, effects: &mut Effects) {
        let waits_for = self.waits_for(&ask.request);
        self.note_disk(id_of_part(&ask.request), waits_for);
        if let RequestKind::TxnOffsetCommit(request) = &ask.request {
            let write = Write {
                transactional_id: request.transactional_id.clone(),
                producer: Producer { id: request.producer_id, epoch: request.producer_epoch },
                participants: Participants::of_group(&request.group_id),
            };
            let (api_version, owner) = (ask.api_version, ask.owner);
            // Offsets are committed in this round, and the reply follows when the log is stable.
            let ticket = self.ticket(WaitsFor::Nothing, Reply::Offsets(Box::new(ask)));
            let ticket = transactions::Ticket(ticket);
            let caller = transactions::Caller { ticket, api_version, owner, now_ms };
            let out = &mut effects.transactions;
            self.transactions.admit_offset_commit(caller, write, out);
            return;
        }
        let Ask { request, api_version, client_id, host, principal, owner, reply } = ask;
        let ticket = self.ticket(waits_for, Reply::Client(reply));
        let own = transactions::Ticket(ticket);
        let of_transactions = transactions::Caller { ticket: own, api_version, owner, now_ms };
        let caller = consumer_groups::Caller {
            ticket: consumer_groups::Ticket(ticket),
            api_version,
            client_id: &client_id,
            host: &host,
            principal: &principal,
            owner,
            now_ms,
        };
        let (groups, transactions) = (&mut self.groups, &mut self.transactions);
        let (out, transactional) = (&mut effects.groups, &mut effects.transactions);
        match &request {
            RequestKind::JoinGroup(it) => groups.join(caller, it, &self.topics, out),
            RequestKind::SyncGroup(it) => groups.sync(caller, it, &self.topics, out),
            RequestKind::Heartbeat(it) => groups.heartbeat(caller, it, out),
            RequestKind::LeaveGroup(it) => groups.leave(caller, it, &self.topics, out),
            RequestKind::OffsetCommit(it) => groups.offset_commit(caller, it, &self.topics, out),
            RequestKind::OffsetFetch(it) => groups.offset_fetch(caller, it, out),
            RequestKind::OffsetDelete(it) => groups.offset_delete(caller, it, &self.topics, out),
            RequestKind::ListGroups(it) => groups.list(caller, it, out),
            RequestKind::DescribeGroups(it) => groups.describe(caller, it, out),
            RequestKind::DeleteGroups(it) => groups.delete(caller, it, out),
            RequestKind::ConsumerGroupHeartbeat(it) => {
                groups.consumer_heartbeat(caller, it, &self.topics, out);
            }
            RequestKind::ConsumerGroupDescribe(it) => {
                groups.consumer_group_describe(caller, it, &self.topics, out);
            }
            RequestKind::InitProducerId(it) => {
                transactions.init_producer_id(of_transactions, it, transactional);
            }
            RequestKind::AddPartitionsToTxn(it) => {
                transactions.add_partitions(of_transactions, it, transactional);
            }
            RequestKind::AddOffsetsToTxn(it) => {
                transactions.add_offsets(of_transactions, it, transactional);
            }
            RequestKind::EndTxn(it) => transactions.end(of_transactions, it, transactional),
            RequestKind::ListTransactions(it) => {
                transactions.list(of_transactions, it, transactional);
            }
            RequestKind::DescribeTransactions(it) => {
                transactions.describe(of_transactions, it, transactional);
            }
            // Not reached: the sender lists the requests for the coordinator.
            _ => drop(self.replies.remove(&ticket)),
        }
    }

    /// Applies effects, and the further effects that result from them.
    pub(super) fn settle(&mut self, mut effects: Effects) {
        loop {
            if let Err(error) = self.persist(&effects) {
                let error = error.with_causes();
                tracing::error!(error, "cannot write the state of groups and transactions");
                *self.trouble.lock().expect(NO_PANIC) = Some((Instant::now(), error));
                self.doubt();
                return;
            }
            if self.flushing.is_some_and(|flush| self.log.has_failed(flush)) {
                tracing::error!("cannot flush the state of groups and transactions");
                self.doubt();
                return;
            }
            let mut next = Effects::default();
            self.release(&mut next);
            self.reply(effects, &mut next);
            effects = next;
            self.write_markers(&mut effects);
            if effects.is_empty() {
                break;
            }
        }
        if self.log.is_outdated() {
            self.rewrite();
        }
    }

    pub(super) fn persist(&mut self, effects: &Effects) -> Result<(), LogError> {
        let records = effects.records();
        if records.is_empty() {
            return Ok(());
        }
        self.log.write(&records)?;
        if effects.draw_ids() {
            self.ids_end_offset = self.log.ends().0;
        }
        self.flush()?;
        *self.trouble.lock().expect(NO_PANIC) = None;
        Ok(())
    }

    /// Flushes the log: synchronously, or on another thread if the flush may wait for a disk.
    fn flush(&mut self) -> Result<(), LogError> {
        let (end_offset, stable_offset) = self.log.ends();
        if stable_offset >= end_offset {
            return Ok(());
        }
        if !self.waits_for_disk() {
            return self.log.flush();
        }
        self.flushing = Some(self.log.flush_later(&self.stirred));
        Ok(())
    }

    fn waits_for_disk(&self) -> bool {
        self.log.waits_for_disk() || self.topics.topics.state_waits_for_disk()
    }

    /// Executes actions, and defers those that must wait for the log. Effects of admitted offset
    /// commits are added to `next`.
    fn reply(&mut self, effects: Effects, next: &mut Effects) {
        let (end_offset, stable_offset) = self.log.ends();
        for deed in self.deeds(effects) {
            let waits = match &deed {
                _ if stable_offset >= end_offset => false,
                Deed::Respond(ticket, _) | Deed::Admit(ticket, _) => {
                    match self.replies.get(ticket).map(|(waits_for, _)| waits_for) {
                        Some(WaitsFor::Everything) => true,
                        Some(WaitsFor::ProducerIds) => stable_offset < self.ids_end_offset,
                        Some(WaitsFor::Nothing) => deed.shows_offsets_on_disk(&self.topics.topics),
                        None => false,
                    }
                }
                Deed::WriteMarkers(markers) => {
                    let offsets = self.groups.pending_topics(markers.producer.id.0);
                    let participants = Some(&markers.participants);
                    WaitsFor::of_end(participants, offsets, &self.topics.topics)
                        == WaitsFor::Everything
                }
                Deed::Forgotten(_) => true,
            };
            match waits {
                true => self.held.push_back((end_offset, deed)),
                false => self.act(deed, next),
            }
        }
    }

    /// Executes deferred actions for which the log is stable now.
    fn release(&mut self, next: &mut Effects) {
        let (_, stable_offset) = self.log.ends();
        while self.held.front().is_some_and(|(end, _)| *end <= stable_offset) {
            let (_, deed) = self.held.pop_front().expect("it was just seen");
            self.act(deed, next);
        }
    }

    fn deeds(&self, effects: Effects) -> Vec<Deed> {
        let forgotten = effects.forgotten.into_iter().map(Deed::Forgotten);
        let of_groups = effects.groups.into_iter().filter_map(|effect| match effect {
            consumer_groups::Effect::Persist(_) => None,
            consumer_groups::Effect::Reply(ticket, response) => {
                Some(Deed::Respond(ticket.0, response))
            }
        });
        let of_transactions = effects.transactions.into_iter().filter_map(|effect| {
            let (ticket, response) = match effect {
                transactions::Effect::Persist(_) => return None,
                transactions::Effect::WriteMarkers(markers) => {
                    return Some(Deed::WriteMarkers(markers));
                }
                transactions::Effect::Reply(ticket, response) => (ticket.0, response),
            };
            let response = match response {
                Response::InitProducerId(it) => it.into(),
                Response::AddPartitionsToTxn(it) => it.into(),
                Response::AddOffsetsToTxn(it) => it.into(),
                Response::EndTxn(it) => it.into(),
                Response::ListTransactions(it) => it.into(),
                Response::DescribeTransactions(it) => it.into(),
                Response::Admitted(result) => {
                    let ends = result.map(|()| self.partition_ends(ticket));
                    return Some(Deed::Admit(ticket, ends));
                }
            };
            Some(Deed::Respond(ticket, response))
        });
        forgotten.chain(of_groups).chain(of_transactions).collect()
    }

    /// Returns the ends of the partitions of an admission. This thread writes all markers: those of
    /// earlier transactions are written, and none of the one that is admitted now.
    fn partition_ends(&self, ticket: u64) -> Vec<i64> {
        match self.replies.get(&ticket) {
            Some((_, Reply::Admission(_, partitions))) => {
                partitions.iter().map(|it| it.log.next_offset()).collect()
            }
            _ => Vec::new(),
        }
    }

    fn act(&mut self, deed: Deed, next: &mut Effects) {
        match deed {
            Deed::Respond(ticket, response) => self.send(ticket, response),
            Deed::Admit(ticket, result) => match self.replies.remove(&ticket) {
                Some((_, Reply::Admission(reply, _))) => {
                    // The connection may be closed.
                    let _gone = reply.send(result);
                }
                Some((_, Reply::Offsets(ask))) => {
                    self.commit_offsets(*ask, result.map(drop), next);
                }
                Some((_, Reply::Client(_))) | None => {}
            },
            Deed::WriteMarkers(markers) => self.endings.push(markers),
            Deed::Forgotten(done) => {
                // The caller may have timed out.
                let _gone = done.try_send(());
            }
        }
    }

    /// Commits offsets in an open transaction, or rejects them.
    fn commit_offsets(&mut self, ask: Ask, result: Result<(), ResponseError>, next: &mut Effects) {
        let Ask { request, api_version, client_id, host, principal, owner, reply } = ask;
        if let Err(error) = result {
            // The connection may be closed.
            let _gone = reply.send(refuse(&request, error));
            return;
        }
        let ticket = self.ticket(self.waits_for(&request), Reply::Client(reply));
        let RequestKind::TxnOffsetCommit(request) = &request else { return };
        let ticket = consumer_groups::Ticket(ticket);
        let caller = consumer_groups::Caller {
            ticket,
            api_version,
            client_id: &client_id,
            host: &host,
            principal: &principal,
            owner,
            now_ms: self.clock.now_ms(),
        };
        self.groups.txn_offset_commit(caller, request, &self.topics, &mut next.groups);
    }

    fn send(&mut self, ticket: u64, response: ResponseKind) {
        if let Some((_, Reply::Client(reply))) = self.replies.remove(&ticket) {
            // The connection may be closed.
            let _gone = reply.send(response);
        }
    }

    /// Writes the markers of ending transactions, as far as possible now.
    fn write_markers(&mut self, effects: &mut Effects) {
        let now_ms = self.clock.now_ms();
        for markers in self.endings.write(&self.topics.topics, &self.stirred) {
            let end = match markers.outcome {
                Outcome::Commit => consumer_groups::TransactionEnd::Commit,
                Outcome::Abort => consumer_groups::TransactionEnd::Abort,
            };
            let producer = markers.producer;
            self.groups.end_transaction(producer.id.0, producer.epoch, end, &mut effects.groups);
            self.transactions.markers_written(markers.ticket, now_ms, &mut effects.transactions);
        }
    }

    /// Rewrites the log without outdated records. If that fails, the old log remains in use.
    fn rewrite(&mut self) {
        let groups = self.groups.state();
        let mut state: Vec<StateRecord> = groups.map(|record| of_groups(&record)).collect();
        state.extend(self.transactions.state().map(|record| of_transactions(&record)));
        state.extend(self.topics.topics.epoch_ahead().map(of_epoch));
        let rewritten = match self.waits_for_disk() {
            true => self.log.rewrite_later(&state),
            false => self.log.rewrite(&state),
        };
        if let Err(error) = rewritten {
            let error = error.with_causes();
            tracing::warn!(error, "cannot compact the state of groups and transactions");
        }
    }
}

/// Returns a random seed for each start.
fn seed() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the kernel has random bytes");
    u64::from_ne_bytes(bytes)
}
