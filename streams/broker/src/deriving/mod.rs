//! Derived topics: `CREATE TOPIC … AS`, `CREATE MATERIALIZED VIEW`, and the complete objects of
//! topics with `memlane.values=merge`.
//!
//! ```text
//! source's log ────▶ each_record ─▶ output's log       one for one, exactly once
//!                         ▲ lookup: current values of the joined topic
//! source's values ─▶ changes ─▶ upserts, groups ─▶ output's values    differences only
//! ```
//!
//! One thread does the work in bounded steps. The output records the position in the source, so
//! that processing is exactly once even if the process is killed at any instant: see
//! `docs/decisions/0043`.

mod changes;
mod committed;
mod each_record;
mod groups;
mod lookup;
mod merge;
mod output;
mod plan;
mod row;
mod state;
#[cfg(test)]
mod tests;
mod upserts;
mod worker;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, RwLock};
use std::thread::JoinHandle;

use anyhow::Context;
use kafka_protocol::error::ResponseError;
use sql::{Definition, DefinitionKind, NewDefinition, SqlError, SqlState};
use tokio::sync::watch;

pub(crate) use self::state::State;

use self::plan::Plan;
use self::worker::Worker;
use crate::definitions::Definitions;
use crate::topics::{NewTopic, Refusal, Topics};

const NO_PANIC: &str = "no thread panics with this lock";

/// Maximum number of topics filled by definitions: twice as many as one owner can have.
const DERIVED_COUNT_MAX: usize = 200;

/// Returns the name of the topic with complete objects of a topic with `memlane.values=merge`.
pub(crate) fn objects_of(topic: &str) -> String {
    format!("{topic}.values")
}

/// Derived topics and their progress.
pub(crate) struct Deriving {
    topics: Arc<Topics>,
    definitions: Arc<Definitions>,
    /// States by name of the derived topic.
    states: RwLock<BTreeMap<String, Arc<State>>>,
    /// Serializes creation and deletion of topics together with their definitions.
    changing: Mutex<()>,
}

impl Deriving {
    pub(crate) fn new(topics: Arc<Topics>, definitions: Arc<Definitions>) -> Self {
        let (states, changing) = Default::default();
        Self { topics, definitions, states, changing }
    }

    pub(crate) fn states(&self) -> Vec<Arc<State>> {
        self.states.read().expect(NO_PANIC).values().map(Arc::clone).collect()
    }

    fn set(&self, states: BTreeMap<String, Arc<State>>) {
        *self.states.write().expect(NO_PANIC) = states;
    }
}

/// Result of checking a definition, for its authorization.
pub(crate) struct Checked {
    /// Topics that the statement reads.
    pub(crate) sources: Vec<String>,
    new_topic: NewTopic,
}

impl Deriving {
    /// Rejects a definition that cannot be derived.
    pub(crate) fn check(
        &self,
        new: &NewDefinition,
        may_see: impl Fn(&str) -> bool,
    ) -> Result<Checked, SqlError> {
        let plan = Plan::of(&new.statement)?;
        plan.check_seen(may_see)?;
        let kind = |name: &str| self.definitions.get(name).map(|it| it.kind);
        // An existing definition is reported as such.
        if kind(&new.name).is_none() {
            plan.check_new(|name| kind(name) == Some(DefinitionKind::View))?;
        }
        let found = plan.find_topics(&self.topics)?;
        let new_topic = plan.new_topic(&new.name, &found.source)?;
        Ok(Checked { sources: found.names(), new_topic })
    }

    /// Stores a definition, and creates its topic. May block.
    pub(crate) fn define(&self, new: NewDefinition, owner: &str) -> Result<(), SqlError> {
        let new_topic = self.check(&new, |_| true)?.new_topic;
        let _one = self.changing.lock().expect(NO_PANIC);
        self.topics.check_new(&new_topic).map_err(of_refusal)?;
        let derived = |it: &Definition| usize::from(it.kind != DefinitionKind::Table);
        let limit = (DERIVED_COUNT_MAX, "derived topics");
        self.definitions.check_room(owner, 1, limit, derived)?;
        // First: if the broker dies before the topic exists, it is created after the start.
        let definition = self.definitions.put(new, owner)?;
        if let Err(refusal) = self.topics.create(&new_topic) {
            self.definitions.remove(&definition)?;
            return Err(of_refusal(refusal));
        }
        Ok(())
    }

    /// Deletes a definition's topic, then the definition, so that a failed call can be repeated.
    /// Returns whether the definition existed. May block.
    pub(crate) fn undefine(&self, definition: &Definition) -> Result<bool, SqlError> {
        let _one = self.changing.lock().expect(NO_PANIC);
        let known = self.definitions.get(&definition.name);
        if known.is_none_or(|it| it.version != definition.version) {
            return Ok(false);
        }
        let topic = self.topics.by_name(&definition.name);
        if topic.is_some_and(|it| it.is_derived) {
            let deleted = self.topics.delete(&definition.name);
            deleted.or_else(is_gone).map_err(of_refusal)?;
        }
        self.definitions.remove(definition)
    }

    /// Deletes a topic, and the definition that fills it. May block.
    pub(crate) fn delete(&self, name: &str) -> Result<(), Refusal> {
        let _one = self.changing.lock().expect(NO_PANIC);
        let topic = self.topics.demand(name)?;
        let definition = self.definitions.get(name).filter(|_| topic.is_derived);
        self.topics.delete(name).or_else(is_gone)?;
        if let Some(definition) = definition {
            self.definitions
                .remove(&definition)
                .map_err(|error| Refusal::new(ResponseError::KafkaStorageError, error.message))?;
        }
        Ok(())
    }
}

/// Accepts that the topic is gone: an earlier attempt deleted it, but its reply was lost.
fn is_gone(refusal: Refusal) -> Result<(), Refusal> {
    match refusal.error {
        ResponseError::UnknownTopicOrPartition => Ok(()),
        _ => Err(refusal),
    }
}

/// Converts a rejection to an error for SQL clients.
fn of_refusal(refusal: Refusal) -> SqlError {
    let state = match refusal.error {
        ResponseError::TopicAlreadyExists => SqlState::DUPLICATE_TABLE,
        ResponseError::UnknownTopicOrPartition => SqlState::UNDEFINED_TABLE,
        ResponseError::NotEnoughReplicas => SqlState::STORAGE_FULL,
        ResponseError::KafkaStorageError => SqlState::IO,
        ResponseError::PolicyViolation => SqlState::TOO_MANY,
        _ => SqlState::INVALID_PARAMETER,
    };
    SqlError::new(state, refusal.message)
}

/// Thread that fills derived topics. It ends when the broker stops.
pub(crate) struct DerivingThread(JoinHandle<()>);

impl DerivingThread {
    pub(crate) fn start(
        deriving: &Arc<Deriving>,
        stops: &watch::Receiver<bool>,
    ) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let worker = Worker::new(Arc::clone(deriving));
        let stops = stops.clone();
        let work = move || worker.run(stops, &runtime);
        let thread = std::thread::Builder::new().name("derive".to_owned()).spawn(work);
        Ok(Self(thread.context("cannot start the thread for derived topics")?))
    }

    /// Waits for the end of the thread.
    pub(crate) fn join(self) {
        if self.0.join().is_err() {
            tracing::error!("the thread that fills derived topics panicked");
        }
    }
}
