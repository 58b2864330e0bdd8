//! Transactions: buffered inserts and settings until the end. Without BEGIN, the statements of a
//! simple query, or all messages up to a Sync, form an implicit transaction.
//!
//! CREATE and DROP take effect immediately.

use std::sync::Arc;

use access::Operation;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::ScalarValue;
use futures::StreamExt;

use super::outcome::Outcome;
use super::state::Connection;
use super::work::{Kept, Set, Work};
use crate::engine::{Assigned, TRANSACTION_READ_ONLY};
use crate::error::{SqlError, SqlState};
use crate::host::{Flow, Published, PublishedRecord};
use crate::statements::{Access, Assignment, Chain, InsertPlan, Savepoint, Scope, Variables};
use crate::wire::TransactionState;

/// Maximum bytes inserted by a transaction.
const INSERTED_BYTES_MAX: usize = 64 << 20;

/// Maximum number of savepoints of a transaction.
const SAVEPOINT_COUNT_MAX: usize = 1_000;

/// Returns a result with a warning for a command that has no effect.
fn warned(tag: &'static str, state: SqlState, what: &str) -> Outcome {
    Outcome::Warned(tag, SqlError::new(state, what))
}

/// Records of the running statement, and the bytes of all inserts of its transaction.
pub(super) struct Taken {
    records: Vec<PublishedRecord>,
    bytes: usize,
}

impl Taken {
    /// Creates an empty buffer for a transaction that has inserted `bytes` so far.
    pub(super) fn new(bytes: usize) -> Self {
        Self { records: Vec::new(), bytes }
    }

    /// # Errors
    /// The transaction's limit is exceeded.
    pub(super) fn add(&mut self, records: Vec<PublishedRecord>) -> Result<(), SqlError> {
        let size = |it: &PublishedRecord| it.size_bytes() + size_of_val(it);
        self.bytes += records.iter().map(size).sum::<usize>();
        if self.bytes > INSERTED_BYTES_MAX {
            let what = format!(
                "transaction too large: at most {INSERTED_BYTES_MAX} bytes can be inserted"
            );
            return Err(SqlError::new(SqlState::TOO_LARGE, what)
                .with_hint("Split the insert into several transactions."));
        }
        self.records.extend(records);
        Ok(())
    }
}

impl Connection {
    pub(super) fn begin_transaction(
        &mut self,
        access: Option<Access>,
        tag: &'static str,
    ) -> Outcome {
        if self.transaction == TransactionState::Open {
            let what = "there is already a transaction in progress";
            return warned(tag, SqlState::ACTIVE_TRANSACTION, what);
        }
        self.transaction = TransactionState::Open;
        self.variables.begin_transaction(access);
        self.settings_changed();
        Outcome::Done(tag.to_owned())
    }

    /// Ends the transaction: commits it, or rolls it back if it failed.
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

    /// Publishes the inserted records, all or nothing except for storage failures. Reverts settings
    /// made by SET LOCAL.
    pub(super) async fn commit_work(&mut self) -> Result<(), SqlError> {
        if self.work.has_inserted() {
            self.wait_for_rate(Flow::Inserted).await?;
            self.server.host.charge(&self.client, Flow::Inserted, self.work.inserted_bytes);
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

    /// Discards inserted records and settings, and ends the transaction.
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

    /// Fails the transaction after a failed statement. An implicit transaction is rolled back.
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
            let what =
                format!("too many savepoints: at most {SAVEPOINT_COUNT_MAX} per transaction");
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

    /// Rolls back to a savepoint, which remains defined.
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

    /// Sets a parameter, for the session or until the end of the transaction.
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

    /// Sets the parameters that the statement has set by `set_config`.
    pub(super) fn assign_all(&mut self) -> Result<(), SqlError> {
        for Assigned { name, value, is_local } in self.viewer.take_assigned() {
            let scope = match is_local {
                true => Scope::Transaction("SET LOCAL"),
                false => Scope::Session,
            };
            // As in PostgreSQL, there is no warning outside of a transaction.
            self.assign("SELECT", &Assignment { name, value: Some(value), scope })?;
        }
        Ok(())
    }

    /// Resets all parameters to their values at the login.
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

    /// Rejects switching a read-only transaction to read-write after its first query or inside a
    /// savepoint.
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

    /// Buffers the rows of an INSERT until the end of the transaction.
    pub(super) async fn insert(
        &mut self,
        (insert, held_bytes): (&InsertPlan, usize),
        parameters: &[ScalarValue],
    ) -> Result<usize, SqlError> {
        self.check_insert(insert)?;
        let (plan, _) = self.session.plan(Box::new(insert.query(parameters)?)).await?;
        let mut rows = self.session.run((plan, held_bytes), Vec::new()).await?;
        // Types are checked even if there are no rows.
        insert.records(&RecordBatch::new_empty(rows.schema()))?;
        let mut taken = Taken::new(self.work.inserted_bytes);
        while let Some(batch) = rows.next().await {
            taken.add(insert.records(&batch?)?)?;
        }
        self.keep_inserted(&insert.topic, taken)
    }

    /// Fails if the topic does not exist or the client is not authorized to insert.
    pub(super) fn check_insert(&self, insert: &InsertPlan) -> Result<(), SqlError> {
        let host = &*self.server.host;
        self.client.check(host, Operation::Write, &insert.topic)?;
        if host.topic(&insert.topic).is_none() {
            let what = format!("relation {:?} does not exist", insert.topic);
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, what));
        }
        Ok(())
    }

    /// Buffers records until the end of the transaction, all or none. Returns their number.
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
