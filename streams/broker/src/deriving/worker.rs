//! Thread that fills all derived topics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use live_queries::TableKind;
use sql::{Definition, DefinitionKind, SqlError, SqlState};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::each_record::{EachRecord, Maker};
use super::groups::Groups;
use super::lookup::Lookup;
use super::plan::{Plan, PlanTopics, Shape};
use super::state::State;
use super::upserts::Upserts;
use super::{DERIVED_COUNT_MAX, Deriving, NO_PANIC, objects_of, of_refusal};
use crate::topics::{MERGING_COUNT_MAX, NewTopic, OpenTopic, Topics};

/// Interval of checks of idle topics.
const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of topics to fill.
const FILLED_COUNT_MAX: usize = DERIVED_COUNT_MAX + MERGING_COUNT_MAX;

/// Delay before a retry after an error.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) struct Worker {
    deriving: Arc<Deriving>,
    derived: BTreeMap<String, Derived>,
    /// Notified when a partition has new records.
    notify: Arc<Notify>,
}

/// Reason why a topic is filled.
#[derive(Clone, PartialEq)]
enum Origin {
    Definition(Arc<Definition>),
    /// The topic with this name has `memlane.values=merge`.
    Merge(String),
}

struct Derived {
    origin: Origin,
    state: Arc<State>,
    /// Plan of the definition; `None` for merged objects.
    plan: Option<Result<Arc<Plan>, SqlError>>,
    /// The current topics, once all exist.
    topics: Option<FoundTopics>,
    runner: Option<Runner>,
    /// Time of the next attempt.
    at: Instant,
}

struct FoundTopics {
    read: PlanTopics,
    output: Arc<OpenTopic>,
}

enum Runner {
    EachRecord(EachRecord),
    Upserts(Upserts),
    Groups(Box<Groups>),
}

impl Worker {
    pub(super) fn new(deriving: Arc<Deriving>) -> Self {
        let (derived, notify) = Default::default();
        Self { deriving, derived, notify }
    }

    /// Runs until `stops` is true. `waits` only runs waits: creating a topic calls the daemon, and
    /// a runtime's task must not block on that.
    pub(super) fn run(mut self, mut stops: watch::Receiver<bool>, waits: &Runtime) {
        let mut defined = self.deriving.definitions.watch();
        let mut next_look = Instant::now();
        while !*stops.borrow() {
            let is_look = Instant::now() >= next_look || defined.has_changed().unwrap_or(false);
            if is_look {
                defined.mark_unchanged();
                self.find();
                next_look = Instant::now() + INTERVAL;
            }
            if !self.turn_all(is_look) {
                waits.block_on(async {
                    tokio::select! {
                        () = self.notify.notified() => {}
                        () = tokio::time::sleep_until(next_look) => {}
                        _ = defined.changed() => next_look = Instant::now(),
                        // Also returns if the sender is gone.
                        _ = stops.changed() => {}
                    }
                });
            }
        }
    }

    /// Does a limited step for each topic. Returns whether more can be done immediately.
    pub(super) fn turn_all(&mut self, is_look: bool) -> bool {
        let mut is_behind = false;
        for derived in self.derived.values_mut() {
            // First: later records notify again.
            derived.watch(&self.notify);
            is_behind |= derived.go_on(is_look);
        }
        is_behind
    }

    /// Starts deriving new topics, and stops deriving removed ones.
    pub(super) fn find(&mut self) {
        let mut before = std::mem::take(&mut self.derived);
        let mut found = BTreeMap::new();
        let mut wanted: BTreeMap<String, Origin> = BTreeMap::new();
        for definition in self.deriving.definitions.all() {
            if definition.kind != DefinitionKind::Table {
                wanted.insert(definition.name.clone(), Origin::Definition(definition));
            }
        }
        for topic in self.deriving.topics.all() {
            if topic.settings().merges_values {
                wanted.insert(objects_of(&topic.name), Origin::Merge(topic.name.to_string()));
            }
        }
        if wanted.len() > FILLED_COUNT_MAX {
            let count = wanted.len();
            tracing::warn!(
                count,
                most = FILLED_COUNT_MAX,
                "too many derived topics; some are not filled"
            );
        }
        for (name, origin) in wanted.into_iter().take(FILLED_COUNT_MAX) {
            let known = before.remove(&name).filter(|it| it.origin == origin);
            let mut derived = known.unwrap_or_else(|| Derived::new(&name, origin));
            derived.look(self);
            found.insert(name, derived);
        }
        self.derived = found;
        let states = self.derived.iter().map(|(name, it)| (name.clone(), Arc::clone(&it.state)));
        self.deriving.set(states.collect());
    }

    /// Creates the derived topic, unless its definition was dropped meanwhile.
    fn make(&self, origin: &Origin, new: &NewTopic) -> Result<Arc<OpenTopic>, SqlError> {
        let _one = self.deriving.changing.lock().expect(NO_PANIC);
        if let Origin::Definition(definition) = origin
            && self.deriving.definitions.get(&new.name).as_ref() != Some(definition)
        {
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, "the derived topic was dropped"));
        }
        if let Some(there) = self.deriving.topics.by_name(&new.name) {
            return Ok(there);
        }
        self.deriving.topics.create(new).map_err(of_refusal)
    }
}

impl Derived {
    fn new(name: &str, origin: Origin) -> Self {
        let (plan, state) = match &origin {
            Origin::Merge(source) => (None, State::new(name, "merged values", source)),
            Origin::Definition(definition) => {
                let plan = Plan::of(&definition.statement).map(Arc::new);
                let source = plan.as_ref().map(|it| it.source.clone()).unwrap_or_default();
                (Some(plan), State::new(name, definition.kind.name(), &source))
            }
        };
        let (state, at) = (Arc::new(state), Instant::now());
        Self { origin, state, plan, topics: None, runner: None, at }
    }

    /// Looks up the current topics. If one was replaced, deriving starts again.
    fn look(&mut self, worker: &Worker) {
        let found = match self.find_topics(worker) {
            Ok(found) => found,
            Err(error) => {
                self.state.wait(&error.message);
                (self.topics, self.runner) = (None, None);
                return;
            }
        };
        if !self.topics.as_ref().is_some_and(|it| it.is_same(&found)) {
            self.runner = None;
            self.topics = Some(found);
        }
    }

    /// Returns the source, and the derived topic, which is created if missing.
    fn find_topics(&self, worker: &Worker) -> Result<FoundTopics, SqlError> {
        let topics = &*worker.deriving.topics;
        let (read, new) = match &self.origin {
            Origin::Definition(definition) => {
                let plan = self.plan()?;
                let read = plan.find_topics(topics)?;
                let new = plan.new_topic(&definition.name, &read.source)?;
                (read, new)
            }
            Origin::Merge(name) => {
                let source = topics.by_name(name).ok_or_else(|| {
                    let what = format!("relation {name:?} does not exist");
                    SqlError::new(SqlState::UNDEFINED_TABLE, what)
                })?;
                let new = objects_topic(&source);
                (PlanTopics { source, joined: None }, new)
            }
        };
        let output = match topics.by_name(&new.name) {
            Some(output) => output,
            None => worker.make(&self.origin, &new)?,
        };
        if !output.is_derived {
            let what = format!("topic {:?} already exists, and clients write to it", new.name);
            return Err(SqlError::new(SqlState::DUPLICATE_TABLE, what));
        }
        if matches!(self.origin, Origin::Merge(_)) {
            follow_ttl(topics, &read.source, &output)?;
        }
        if output.log.partition_count() < new.partition_count {
            let count = i32::try_from(new.partition_count).expect("partitions have a limit");
            topics.add_partitions(&new.name, count, false).map_err(of_refusal)?;
        }
        Ok(FoundTopics { read, output })
    }

    fn plan(&self) -> Result<&Arc<Plan>, SqlError> {
        let plan = self.plan.as_ref().expect("the caller looked for a definition");
        plan.as_ref().map_err(SqlError::clone)
    }

    fn watch(&self, notify: &Arc<Notify>) {
        let Some(topics) = &self.topics else { return };
        topics.read.source.partitions().iter().for_each(|partition| partition.watchers.add(notify));
    }

    /// Does a limited step. Returns whether more can be done immediately.
    fn go_on(&mut self, is_look: bool) -> bool {
        if self.topics.is_none() || Instant::now() < self.at {
            return false;
        }
        match self.turn(is_look) {
            Ok(is_behind) => {
                self.state.goes_on();
                is_behind
            }
            Err(error) => {
                self.state.wait(&error.message);
                self.at = Instant::now() + AGAIN;
                // State in memory remains valid while the log is only full; otherwise it is
                // rebuilt.
                if error.state != SqlState::STORAGE_FULL {
                    self.runner = None;
                }
                false
            }
        }
    }

    fn turn(&mut self, is_look: bool) -> Result<bool, SqlError> {
        if self.runner.is_none() {
            self.runner = Some(self.begin()?);
        }
        match self.runner.as_mut().expect("it was begun") {
            Runner::EachRecord(runner) => runner.turn(is_look, &self.state),
            Runner::Upserts(runner) => runner.turn(is_look, &self.state),
            Runner::Groups(runner) => runner.turn(is_look, &self.state),
        }
    }

    fn begin(&self) -> Result<Runner, SqlError> {
        let topics = self.topics.as_ref().expect("the caller looked");
        let (source, output) = (Arc::clone(&topics.read.source), Arc::clone(&topics.output));
        // Records appended before an error were derived, although not flushed. The position is
        // determined from stable records only.
        output.flush()?;
        if matches!(self.origin, Origin::Merge(_)) {
            return Ok(Runner::EachRecord(EachRecord::new(Maker::Merge, source, output)));
        }
        let plan = Arc::clone(self.plan()?);
        Ok(match (&plan.shape, plan.source_kind) {
            (Shape::Groups, _) => Runner::Groups(Box::new(Groups::new(plan, source, output))),
            (Shape::Records(_), TableKind::Values) => {
                Runner::Upserts(Upserts::new(plan, source, output))
            }
            (Shape::Records(_), TableKind::Log) => {
                let lookup = topics.read.joined.clone().map(Lookup::new);
                let maker = Maker::Query { plan, lookup };
                Runner::EachRecord(EachRecord::new(maker, source, output))
            }
        })
    }
}

impl FoundTopics {
    fn is_same(&self, other: &Self) -> bool {
        let joined = [self, other].map(|it| it.read.joined.as_ref().map(Arc::as_ptr));
        joined[0] == joined[1]
            && Arc::ptr_eq(&self.read.source, &other.read.source)
            && Arc::ptr_eq(&self.output, &other.output)
    }
}

/// Returns the definition of the topic with complete objects for `memlane.values=merge`.
fn objects_topic(source: &OpenTopic) -> NewTopic {
    let settings = source.settings();
    let mut own: BTreeMap<String, String> = ["memlane.durability", "memlane.reduction"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), settings.own.get(name)?.clone())))
        .collect();
    own.insert("cleanup.policy".to_owned(), "compact".to_owned());
    own.insert("memlane.values".to_owned(), "latest".to_owned());
    let partition_count = source.log.partition_count();
    NewTopic {
        name: objects_of(&source.name),
        partition_count,
        settings: own,
        is_derived: true,
        owner: shares::Owner::NOBODY,
    }
}

/// Applies the source's time to live of values to the complete objects.
fn follow_ttl(topics: &Topics, source: &OpenTopic, output: &OpenTopic) -> Result<(), SqlError> {
    const TTL: &str = "memlane.values.ttl.ms";
    let (wanted, there) = (source.settings(), output.settings());
    if wanted.values_ttl_ms == there.values_ttl_ms {
        return Ok(());
    }
    let value = wanted.values_ttl_ms.unwrap_or(-1).to_string();
    let changed = topics.configure(&output.name, false, &|own| {
        own.insert(TTL.to_owned(), value.clone());
        Ok(())
    });
    changed.map_err(of_refusal)
}
