//! One transactional id: its producer, its transaction, and what each request makes of them.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::ProducerId;
use shares::Owner;

use crate::participants::Participants;

/// The last epoch of a producer id that a client is given; the one after it fences that client.
const LAST_EPOCH: i16 = i16::MAX - 1;

/// One instance of a producer, or one transaction of it: later epochs fence earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    pub id: ProducerId,
    pub epoch: i16,
}

impl Producer {
    /// The epoch of a marker that fences this producer.
    fn fence(self) -> Self {
        Self { epoch: self.epoch.saturating_add(1), ..self }
    }

    /// What the client goes on as. An exhausted id is followed by another one.
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

/// An instant by two clocks: the owner's, which nobody sets, and the host's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) steady_ms: i64,
    pub(crate) unix_ms: i64,
}

/// The states of Kafka's documentation. A transactional id that expires (`Dead`) has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Empty,
    Ongoing {
        started_ms: i64,
        /// By the owner's clock. It is not stored.
        times_out_ms: i64,
        participants: Participants,
    },
    /// The outcome is decided. `marker` is what the markers say.
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
    /// Producer that a client must be to be heard.
    pub(crate) producer: Producer,
    /// Producer that the client was before its own request changed that: it may not have got the
    /// response, and ask again. `None` where another instance took over.
    pub(crate) previous: Option<Producer>,
    pub(crate) timeout_ms: i32,
    pub(crate) updated_ms: i64,
    pub(crate) state: State,
    /// Who made or first used it since the start. Not in the state log.
    pub(crate) owner: Owner,
    /// A transaction of it may have had a part on a disk, as is assumed of those that were loaded.
    /// Not in the state log.
    pub(crate) is_on_disk: bool,
}

/// Effect of InitProducerId on a transactional id that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Initialization {
    Bump,
    /// The client asks again: it had the epoch already.
    Again,
    /// A transaction is open, which has to be aborted before.
    AbortFirst,
}

/// Rule by which a client's EndTxn ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndRule {
    /// The epoch stays (EndTxn 0 to 4).
    EpochStays,
    /// Each transaction has its own epoch (EndTxn 5, KIP-890).
    EpochGrows,
}

/// Effect of EndTxn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Begin,
    /// The client asks again: the transaction has ended so.
    Again,
    /// The client is not sure whether it had begun one, and has not: only the epoch changes.
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

    /// When the transaction times out, by the owner's clock.
    pub(crate) fn times_out_ms(&self) -> Option<i64> {
        match self.state {
            State::Ongoing { times_out_ms, .. } => Some(times_out_ms),
            State::Empty | State::Prepare { .. } | State::Complete(_) => None,
        }
    }

    /// When the transactional id expires, by the host's clock.
    pub(crate) fn expires_ms(&self, expiration_ms: i64) -> Option<i64> {
        match self.state {
            State::Empty | State::Complete(_) => {
                Some(self.updated_ms.saturating_add(expiration_ms))
            }
            State::Ongoing { .. } | State::Prepare { .. } => None,
        }
    }

    /// Counts an open transaction's time by the owner's clock from now on. What passed before is
    /// known by the host's alone, which may have been set.
    pub(crate) fn resume(&mut self, now: Now) {
        if let State::Ongoing { started_ms, times_out_ms, .. } = &mut self.state {
            let passed_ms = now.unix_ms.saturating_sub(*started_ms).max(0);
            *times_out_ms = now.steady_ms + (i64::from(self.timeout_ms) - passed_ms).max(0);
        }
    }

    /// Returns whether requests of this producer are heard.
    pub(crate) fn check_producer(&self, producer: Producer) -> Result<(), ResponseError> {
        if producer.id != self.producer.id {
            return Err(ResponseError::InvalidProducerIdMapping);
        }
        // No client was given an epoch that only fences.
        if producer.epoch != self.producer.epoch || producer.epoch > LAST_EPOCH {
            return Err(ResponseError::ProducerFenced);
        }
        Ok(())
    }

    /// `claim` is what a client that recovers says it is (KIP-360); a new instance says nothing.
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
            // An epoch that only fences is not given to the client.
            _ if is_current || self.producer.epoch > LAST_EPOCH => Ok(Initialization::Bump),
            State::Empty | State::Complete(_) => Ok(Initialization::Again),
        }
    }

    /// Begins anew without a transaction.
    pub(crate) fn bump(&mut self, claim: Option<Producer>, fresh_id: impl FnOnce() -> ProducerId) {
        self.previous = claim;
        self.producer = self.producer.bump(fresh_id);
        self.state = State::Empty;
    }

    /// Aborts the open transaction, and has its producer fenced by that.
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
        // Of a transaction that began, an epoch of its own is the previous one when it ends.
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

    /// Ends a transaction that had not begun.
    pub(crate) fn end_nothing(&mut self, fresh_id: impl FnOnce() -> ProducerId) {
        self.previous = Some(self.producer);
        self.producer = self.producer.bump(fresh_id);
        self.state = State::Complete(Outcome::Abort);
    }

    /// Every marker is written.
    pub(crate) fn complete(&mut self) {
        if let State::Prepare { outcome, .. } = self.state {
            self.state = State::Complete(outcome);
        }
    }

    /// Makes them participants of the open transaction, or begins one.
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
