//! State of one transactional id: its producer and transaction, and the transitions by requests.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ProducerId;
use shares::Owner;

use crate::participants::Participants;

/// Last epoch that is assigned to a client. The next one only fences that client.
const LAST_EPOCH: i16 = i16::MAX - 1;

/// A producer id and epoch, of one producer instance or one transaction. A later epoch fences
/// earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    pub id: ProducerId,
    pub epoch: i16,
}

impl Producer {
    /// Returns the producer for a marker that fences this one.
    fn fence(self) -> Self {
        Self { epoch: self.epoch.saturating_add(1), ..self }
    }

    /// Returns the next epoch of the producer, or a new producer id if the epochs are exhausted.
    fn bump(self, fresh_id: impl FnOnce() -> ProducerId) -> Self {
        match self.epoch < LAST_EPOCH {
            true => self.fence(),
            false => Self { id: fresh_id(), epoch: 0 },
        }
    }
}

/// Outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Commit,
    Abort,
}

/// A point in time by two clocks: the owner's monotonic clock, and the host's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) steady_ms: i64,
    pub(crate) unix_ms: i64,
}

/// States of Kafka's documentation. An expired transactional id (`Dead`) is removed instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Empty,
    Ongoing {
        started_ms: i64,
        /// Timeout by the owner's clock. Not stored.
        times_out_ms: i64,
        participants: Participants,
    },
    /// The outcome is decided. `marker` is the producer in the markers.
    Prepare {
        outcome: Outcome,
        started_ms: i64,
        marker: Producer,
        participants: Participants,
    },
    Complete(Outcome),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transaction {
    /// Producer id and epoch that requests must have.
    pub(crate) producer: Producer,
    /// Producer before the client's own last request changed it, for a client that missed the
    /// response and retries. `None` if another instance took over.
    pub(crate) previous: Option<Producer>,
    pub(crate) timeout_ms: i32,
    pub(crate) updated_ms: i64,
    pub(crate) state: State,
    /// Owner that created the id, or first used it since the start. Not in the state log.
    pub(crate) owner: Owner,
    /// Set if a transaction may have written to a durable topic, which is assumed of loaded ids.
    /// Not in the state log.
    pub(crate) is_on_disk: bool,
}

/// Result of InitProducerId for a known transactional id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Initialization {
    Bump,
    /// Retry: the client already has the epoch.
    Again,
    /// An open transaction must be aborted first.
    AbortFirst,
}

/// Epoch rule of the client's version of EndTxn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndRule {
    /// The epoch stays the same (EndTxn 0 to 4).
    EpochStays,
    /// The epoch is incremented for each transaction (EndTxn 5, KIP-890).
    EpochGrows,
}

/// Action for an EndTxn request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Begin,
    /// Retry: the transaction has already ended with this outcome.
    Again,
    /// Abort by a client that does not know whether it had begun a transaction, and had not: only
    /// the epoch changes.
    OfNothing,
}

impl Transaction {
    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            State::Empty => "Empty",
            State::Ongoing { .. } => "Ongoing",
            State::Prepare { outcome: Outcome::Commit, .. } => "PrepareCommit",
            State::Prepare { outcome: Outcome::Abort, .. } => "PrepareAbort",
            State::Complete(Outcome::Commit) => "CompleteCommit",
            State::Complete(Outcome::Abort) => "CompleteAbort",
        }
    }

    pub(crate) fn started_ms(&self) -> Option<i64> {
        match self.state {
            State::Ongoing { started_ms, .. } | State::Prepare { started_ms, .. } => {
                Some(started_ms)
            }
            State::Empty | State::Complete(_) => None,
        }
    }

    pub(crate) fn participants(&self) -> Option<&Participants> {
        match &self.state {
            State::Ongoing { participants, .. } | State::Prepare { participants, .. } => {
                Some(participants)
            }
            State::Empty | State::Complete(_) => None,
        }
    }

    /// Returns the timeout of the open transaction, by the owner's clock.
    pub(crate) fn times_out_ms(&self) -> Option<i64> {
        match self.state {
            State::Ongoing { times_out_ms, .. } => Some(times_out_ms),
            State::Empty | State::Prepare { .. } | State::Complete(_) => None,
        }
    }

    /// Returns the expiration of the transactional id, by the host's clock.
    pub(crate) fn expires_ms(&self, expiration_ms: i64) -> Option<i64> {
        match self.state {
            State::Empty | State::Complete(_) => {
                Some(self.updated_ms.saturating_add(expiration_ms))
            }
            State::Ongoing { .. } | State::Prepare { .. } => None,
        }
    }

    /// Switches the timeout of an open transaction to the owner's clock. The time elapsed before is
    /// only known by the host's clock, which may have been adjusted.
    pub(crate) fn resume(&mut self, now: Now) {
        if let State::Ongoing { started_ms, times_out_ms, .. } = &mut self.state {
            let passed_ms = now.unix_ms.saturating_sub(*started_ms).max(0);
            *times_out_ms = now.steady_ms + (i64::from(self.timeout_ms) - passed_ms).max(0);
        }
    }

    /// Checks that a request comes from the current producer.
    pub(crate) fn check_producer(&self, producer: Producer) -> Result<(), ResponseError> {
        if producer.id != self.producer.id {
            return Err(ResponseError::InvalidProducerIdMapping);
        }
        // No client has an epoch that only fences.
        if producer.epoch != self.producer.epoch || producer.epoch > LAST_EPOCH {
            return Err(ResponseError::ProducerFenced);
        }
        Ok(())
    }

    /// Checks InitProducerId. `claim` is the previous producer of a recovering client (KIP-360); a
    /// new instance has none.
    pub(crate) fn check_initialization(
        &self,
        claim: Option<Producer>,
    ) -> Result<Initialization, ResponseError> {
        let is_current = claim.is_none_or(|claim| claim == self.producer);
        let is_previous = claim.is_some() && claim == self.previous;
        match self.state {
            _ if !is_current && !is_previous => Err(ResponseError::ProducerFenced),
            State::Prepare { .. } => Err(ResponseError::ConcurrentTransactions),
            State::Ongoing { .. } if !is_current => Err(ResponseError::ProducerFenced),
            State::Ongoing { .. } => Ok(Initialization::AbortFirst),
            // An epoch that only fences is not returned to the client.
            _ if is_current || self.producer.epoch > LAST_EPOCH => Ok(Initialization::Bump),
            State::Empty | State::Complete(_) => Ok(Initialization::Again),
        }
    }

    /// Bumps the epoch, without a transaction.
    pub(crate) fn bump(&mut self, claim: Option<Producer>, fresh_id: impl FnOnce() -> ProducerId) {
        self.previous = claim;
        self.producer = self.producer.bump(fresh_id);
        self.state = State::Empty;
    }

    /// Aborts the open transaction with a marker that fences its producer.
    pub(crate) fn fence(&mut self, claim: Option<Producer>) {
        let State::Ongoing { started_ms, participants, .. } = &mut self.state else { return };
        let marker = self.producer.fence();
        self.state = State::Prepare {
            outcome: Outcome::Abort,
            started_ms: *started_ms,
            marker,
            participants: std::mem::take(participants),
        };
        self.previous = claim;
        self.producer = marker;
    }

    pub(crate) fn check_end(
        &self,
        producer: Producer,
        outcome: Outcome,
        rule: EndRule,
    ) -> Result<Ending, ResponseError> {
        // With an epoch for each transaction, a transaction that has ended used the previous epoch.
        let is_again = rule == EndRule::EpochGrows
            && Some(producer) == self.previous
            && matches!(self.state, State::Prepare { .. } | State::Complete(_));
        if !is_again {
            self.check_producer(producer)?;
        }
        match (&self.state, rule) {
            (State::Ongoing { .. }, _) => Ok(Ending::Begin),
            (State::Prepare { .. }, EndRule::EpochGrows) if !is_again => {
                Err(ResponseError::ConcurrentTransactions)
            }
            (State::Prepare { outcome: decided, .. }, _) if *decided == outcome => {
                Err(ResponseError::ConcurrentTransactions)
            }
            (State::Complete(decided), _)
                if *decided == outcome && (is_again || rule == EndRule::EpochStays) =>
            {
                Ok(Ending::Again)
            }
            (State::Empty | State::Complete(_), EndRule::EpochGrows)
                if !is_again && outcome == Outcome::Abort =>
            {
                Ok(Ending::OfNothing)
            }
            _ => Err(ResponseError::InvalidTxnState),
        }
    }

    /// Decides the outcome of the open transaction.
    pub(crate) fn prepare(
        &mut self,
        outcome: Outcome,
        rule: EndRule,
        fresh_id: impl FnOnce() -> ProducerId,
    ) {
        let State::Ongoing { started_ms, participants, .. } = &mut self.state else { return };
        let (started_ms, participants) = (*started_ms, std::mem::take(participants));
        let marker = match rule {
            EndRule::EpochStays => self.producer,
            EndRule::EpochGrows => self.producer.fence(),
        };
        self.state = State::Prepare { outcome, started_ms, marker, participants };
        if rule == EndRule::EpochGrows {
            self.previous = Some(self.producer);
            self.producer = self.producer.bump(fresh_id);
        }
    }

    /// Handles an abort without a transaction: only bumps the epoch.
    pub(crate) fn end_nothing(&mut self, fresh_id: impl FnOnce() -> ProducerId) {
        self.previous = Some(self.producer);
        self.producer = self.producer.bump(fresh_id);
        self.state = State::Complete(Outcome::Abort);
    }

    /// Completes the transaction after all markers were written.
    pub(crate) fn complete(&mut self) {
        if let State::Prepare { outcome, .. } = self.state {
            self.state = State::Complete(outcome);
        }
    }

    /// Adds participants to the open transaction, or begins one with them.
    pub(crate) fn add(&mut self, added: &Participants, now: Now) {
        if let State::Ongoing { participants, .. } = &mut self.state {
            participants.add(added);
            return;
        }
        self.state = State::Ongoing {
            started_ms: now.unix_ms,
            times_out_ms: now.steady_ms.saturating_add(self.timeout_ms.into()),
            participants: added.clone(),
        };
    }
}
