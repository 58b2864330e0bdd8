//! State that a transaction keeps until it ends: what was inserted and what was set. Without BEGIN,
//! the statements of a text are one, and those up to a Sync.
//!
//! What CREATE and DROP do is done at once.

use std::sync::Arc;

use access::Operation;
use datafusion::common::ScalarValue;
use futures::StreamExt;

use super::outcome::Outcome;
use super::state::Connection;
use super::work::{Kept, Set, Work};
use crate::engine::TRANSACTION_READ_ONLY;
use crate::error::{SqlError, SqlState};
use crate::host::{Published, PublishedRecord};
use crate::statements::{Access, Assignment, Chain, InsertPlan, Savepoint, Scope, Variables};
use crate::wire::TransactionState;

/// Bytes that a transaction may insert.
const INSERTED_BYTES_MAX: usize = 64 << 20;

/// Savepoints that a transaction may have at a time.
const SAVEPOINT_COUNT_MAX: usize = 1_000;

/// What goes on although it does nothing, and what its client is told.
fn warned(tag: &'static str, state: SqlState, what: &str) -> Outcome {
    Outcome::Warned(tag, SqlError::new(state, what))
}

/// Records of a statement that runs, and the bytes of all that its transaction inserts.
pub(super) struct Taken {
    records: Vec<PublishedRecord>,
    bytes: usize,
}

impl Taken {
    /// None yet, of a transaction that has so many bytes of others.
    pub(super) fn new(bytes: usize) -> Self {
        Self { records: Vec::new(), bytes }
    }

    /// # Errors
    /// They are too many for a transaction.
    pub(super) fn add(&mut self, records: Vec<PublishedRecord>) -> Result<(), SqlError> {
        let size = |it: &PublishedRecord| it.size_bytes() + size_of_val(it);
        self.bytes += records.iter().map(size).sum::<usize>();
        if self.bytes > INSERTED_BYTES_MAX {
            let what = format!("a transaction inserts {INSERTED_BYTES_MAX} bytes at most");
            return Err(SqlError::new(SqlState::TOO_LARGE, what)
                .with_hint("Insert a part at a time, each in a transaction of its own."));
        }
        self.records.extend(records);
        Ok(())
    }
}

impl Connection {
    pub(super) fn begin_transaction(&mut self, access: Option<Access>) -> Outcome {
        if self.transaction == TransactionState::Open {
            let what = "there is already a transaction in progress";
            return warned("BEGIN", SqlState::ACTIVE_TRANSACTION, what);
        }
        self.transaction = TransactionState::Open;
        self.variables.begin_transaction(access);
        self.settings_changed();
        Outcome::Done("BEGIN".to_owned())
    }

    /// Ends the transaction, whose work is done where that did not fail.
    pub(super) async fn commit(&mut self, chain: Chain) -> Result<Outcome, SqlError> {
        let (access, state) = (self.variables.access(), self.transaction);
        self.check_chain("COMMIT", chain)?;
        let outcome = match state {
            TransactionState::Failed => {
                self.roll_back_work();
                Outcome::Done("ROLLBACK".to_owned())
            }
            TransactionState::Open => {
                self.transaction = TransactionState::Idle;
                self.commit_work().await?;
                Outcome::Done("COMMIT".to_owned())
            }
            TransactionState::Idle => {
                self.commit_work().await?;
                let what = "there is no transaction in progress";
                warned("COMMIT", SqlState::NO_ACTIVE_TRANSACTION, what)
            }
        };
        self.begin_chained(chain, access);
        Ok(outcome)
    }

    pub(super) fn roll_back(&mut self, chain: Chain) -> Result<Outcome, SqlError> {
        let (access, state) = (self.variables.access(), self.transaction);
        self.check_chain("ROLLBACK", chain)?;
        self.roll_back_work();
        self.begin_chained(chain, access);
        Ok(match state {
            TransactionState::Idle => {
                let what = "there is no transaction in progress";
                warned("ROLLBACK", SqlState::NO_ACTIVE_TRANSACTION, what)
            }
            _ => Outcome::Done("ROLLBACK".to_owned()),
        })
    }

    fn check_chain(&self, word: &str, chain: Chain) -> Result<(), SqlError> {
        if chain == Chain::Yes && self.transaction == TransactionState::Idle {
            let what = format!("{word} AND CHAIN can only be used in transaction blocks");
            return Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, what));
        }
        Ok(())
    }

    fn begin_chained(&mut self, chain: Chain, access: Access) {
        if chain == Chain::Yes {
            self.transaction = TransactionState::Open;
            self.variables.begin_transaction(Some(access));
            self.settings_changed();
        }
    }

    /// Publishes what was inserted, all of it or, but for a failure of the storage, nothing. What
    /// was set for the transaction alone is over.
    pub(super) async fn commit_work(&mut self) -> Result<(), SqlError> {
        if self.work.has_inserted() {
            let inserted = std::mem::take(&mut self.work.inserted);
            let published = Arc::clone(&self.server.host).publish(inserted).await;
            published.inspect_err(|_| self.roll_back_work())?;
        }
        for cursor in self.cursors.values_mut() {
            cursor.depth = None;
        }
        self.cursors.retain(|_, cursor| cursor.has_hold);
        let set = self.work.set.take();
        self.end_work(set.map(|it| it.committed));
        Ok(())
    }

    /// Forgets what was inserted and set. The transaction is over.
    pub(super) fn roll_back_work(&mut self) {
        self.cursors.retain(|_, cursor| cursor.depth.is_none());
        self.transaction = TransactionState::Idle;
        let set = self.work.set.take();
        self.end_work(set.map(|it| it.rolled_back));
    }

    fn end_work(&mut self, variables: Option<Variables>) {
        let is_set = variables.is_some();
        let had_access = self.variables.end_transaction();
        if let Some(variables) = variables {
            self.variables = variables;
            self.variables.end_transaction();
        }
        if is_set || had_access {
            self.settings_changed();
        }
        self.work = Work::default();
    }

    /// A statement has failed: so has the transaction, which is over unless it was begun by BEGIN.
    pub(super) fn fail_transaction(&mut self) {
        match self.transaction {
            TransactionState::Open => self.transaction = TransactionState::Failed,
            TransactionState::Failed => {}
            TransactionState::Idle => self.roll_back_work(),
        }
    }

    pub(super) fn savepoint(&mut self, savepoint: &Savepoint) -> Result<Outcome, SqlError> {
        let tag = match savepoint {
            Savepoint::Set(_) => "SAVEPOINT",
            Savepoint::Release(_) => "RELEASE",
            Savepoint::RollBackTo(_) => "ROLLBACK",
        };
        if self.transaction == TransactionState::Idle {
            let word = match savepoint {
                Savepoint::Set(_) => "SAVEPOINT",
                Savepoint::Release(_) => "RELEASE SAVEPOINT",
                Savepoint::RollBackTo(_) => "ROLLBACK TO SAVEPOINT",
            };
            let what = format!("{word} can only be used in transaction blocks");
            return Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, what));
        }
        match savepoint {
            Savepoint::Set(name) => self.keep(name)?,
            Savepoint::Release(name) => {
                let at = self.work.position(name)?;
                self.work.savepoints.truncate(at);
                for cursor in self.cursors.values_mut() {
                    cursor.depth = cursor.depth.map(|it| it.min(at));
                }
            }
            Savepoint::RollBackTo(name) => self.go_back(name)?,
        }
        Ok(Outcome::Done(tag.to_owned()))
    }

    fn keep(&mut self, name: &str) -> Result<(), SqlError> {
        let work = &mut self.work;
        if work.savepoints.len() >= SAVEPOINT_COUNT_MAX {
            let what = format!("a transaction has {SAVEPOINT_COUNT_MAX} savepoints at most");
            return Err(SqlError::new(SqlState::TOO_MANY, what));
        }
        work.savepoints.push(Kept {
            name: name.to_owned(),
            inserted_count: work.inserted.len(),
            inserted_bytes: work.inserted_bytes,
            set: work.set.clone(),
            variables: self.variables.clone(),
        });
        Ok(())
    }

    /// Forgets what was done since a savepoint, which stays.
    fn go_back(&mut self, name: &str) -> Result<(), SqlError> {
        let at = self.work.position(name)?;
        self.cursors.retain(|_, cursor| cursor.depth.is_none_or(|it| it <= at));
        let work = &mut self.work;
        work.savepoints.truncate(at + 1);
        let kept = &work.savepoints[at];
        work.inserted.truncate(kept.inserted_count);
        work.inserted_bytes = kept.inserted_bytes;
        work.set.clone_from(&kept.set);
        self.variables.clone_from(&kept.variables);
        self.transaction = TransactionState::Open;
        self.settings_changed();
        Ok(())
    }

    /// Sets a parameter of the connection, for good or up to the transaction's end.
    pub(super) fn assign(
        &mut self,
        tag: &'static str,
        assignment: &Assignment,
    ) -> Result<Outcome, SqlError> {
        self.check_access(assignment)?;
        self.change_variables(assignment.scope, |it| it.set(assignment))?;
        Ok(match assignment.scope {
            Scope::Transaction(words) if self.is_alone() => {
                let what = format!("{words} can only be used in transaction blocks");
                warned(tag, SqlState::NO_ACTIVE_TRANSACTION, &what)
            }
            _ => Outcome::Done(tag.to_owned()),
        })
    }

    /// Sets all parameters to what they were when the client connected.
    pub(super) fn reset_all(&mut self) -> Result<(), SqlError> {
        self.change_variables(Scope::Session, |it| {
            it.reset_all();
            Ok(())
        })
    }

    fn change_variables(
        &mut self,
        scope: Scope,
        change: impl Fn(&mut Variables) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let before = self.variables.clone();
        change(&mut self.variables)?;
        let set = self
            .work
            .set
            .get_or_insert_with(|| Set { committed: before.clone(), rolled_back: before });
        if scope == Scope::Session {
            change(&mut set.committed)?;
        }
        self.settings_changed();
        Ok(())
    }

    /// Refuses that a transaction writes which has begun to read alone.
    fn check_access(&self, assignment: &Assignment) -> Result<(), SqlError> {
        if assignment.name != TRANSACTION_READ_ONLY
            || assignment.value.as_deref() == Some(Access::ReadOnly.as_switch())
            || self.variables.access() == Access::ReadWrite
        {
            return Ok(());
        }
        let what = if self.work.depth() > 0 {
            "cannot set transaction read-write mode inside a read-only transaction"
        } else if self.work.has_run {
            "transaction read-write mode must be set before any query"
        } else {
            return Ok(());
        };
        Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, what))
    }

    /// Keeps the rows of an INSERT for the end of the transaction.
    pub(super) async fn insert(
        &mut self,
        (insert, held_bytes): (&InsertPlan, usize),
        parameters: &[ScalarValue],
    ) -> Result<usize, SqlError> {
        self.check_insert(insert)?;
        let (plan, _) = self.session.plan(insert.query(parameters)?).await?;
        let mut rows = self.session.run((plan, held_bytes), Vec::new()).await?;
        let mut taken = Taken::new(self.work.inserted_bytes);
        while let Some(batch) = rows.next().await {
            taken.add(insert.records(&batch?)?)?;
        }
        self.keep_inserted(&insert.topic, taken)
    }

    /// Refuses what the client may not insert into, or what is not there.
    pub(super) fn check_insert(&self, insert: &InsertPlan) -> Result<(), SqlError> {
        let host = &*self.server.host;
        self.client.check(host, Operation::Write, &insert.topic)?;
        if host.topic(&insert.topic).is_none() {
            let what = format!("relation {:?} does not exist", insert.topic);
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, what));
        }
        Ok(())
    }

    /// Keeps records for the end of the transaction, all of them or none; their number.
    pub(super) fn keep_inserted(
        &mut self,
        topic: &Arc<str>,
        Taken { records, bytes }: Taken,
    ) -> Result<usize, SqlError> {
        let count = records.len();
        if count > 0 {
            let published = Published { topic: Arc::clone(topic), records };
            self.server.host.check(&published)?;
            self.work.inserted.push(published);
            self.work.inserted_bytes = bytes;
        }
        self.count_rows(&self.server.counters.rows_in, count);
        Ok(count)
    }
}
