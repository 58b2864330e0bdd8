//! Service of live queries, and their shared state.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};

use access::{Operation, Principal, Resource};
use live_queries::{Paths, TableKind};
use sql::{LiveQuery, SqlError, SqlState};
use uuid::Uuid;

use super::counters::{Counters, LiveTotals};
use super::subscriber::{Inbox, SharedTable, Subscriber};
use crate::access_rules::AccessRules;
use crate::topics::{OpenTopic, Topics};

const NO_PANIC: &str = "no thread panics with this lock";

/// Number of workers by processors. A worker delivers several 100,000 records per second.
const PROCESSORS_FOR_WORKER: usize = 4;
const WORKERS_MAX: usize = 4;

/// Limits per client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveLimits {
    /// Maximum number of subscriptions of a principal.
    pub(crate) per_principal: usize,
}

/// Live queries of all clients.
pub(crate) struct LiveQueries {
    topics: Arc<Topics>,
    rules: Arc<AccessRules>,
    limits: LiveLimits,
    inboxes: Vec<Arc<Inbox>>,
    shared_tables: Mutex<HashMap<(Uuid, TableKind), Weak<SharedTable>>>,
    last_number: AtomicU64,
    counters: Arc<Counters>,
    subscribers: Mutex<Subscribers>,
}

/// Current subscriptions.
#[derive(Default)]
struct Subscribers {
    all: Vec<Weak<Subscriber>>,
    by_principal: HashMap<Principal, usize>,
}

/// Client of a subscription.
#[derive(Clone, Debug)]
pub(crate) struct LiveClient {
    pub(crate) principal: Principal,
    /// Another principal that must be authorized too.
    pub(crate) on_behalf_of: Option<Principal>,
    pub(crate) host: IpAddr,
}

impl LiveQueries {
    pub(crate) fn new(topics: Arc<Topics>, rules: Arc<AccessRules>, limits: LiveLimits) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let count = (processors / PROCESSORS_FOR_WORKER).clamp(1, WORKERS_MAX);
        Self {
            topics,
            rules,
            limits,
            inboxes: (0..count).map(|_| Arc::default()).collect(),
            shared_tables: Mutex::default(),
            last_number: AtomicU64::new(0),
            counters: Arc::default(),
            subscribers: Mutex::default(),
        }
    }

    pub(super) fn topics(&self) -> &Arc<Topics> {
        &self.topics
    }

    pub(super) fn inboxes(&self) -> &[Arc<Inbox>] {
        &self.inboxes
    }

    pub(super) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Returns the topic of a live query after authorization.
    ///
    /// # Errors
    /// The topic does not exist, or the query needs current values that it does not keep.
    pub(super) fn find(
        &self,
        client: &LiveClient,
        live: &LiveQuery,
    ) -> Result<Arc<OpenTopic>, SqlError> {
        let name = &live.topic;
        let topic = self.topics.by_name(name).ok_or_else(|| {
            let what = format!("relation {name:?} does not exist");
            SqlError::new(SqlState::UNDEFINED_TABLE, what)
        })?;
        self.check(client, &topic)?;
        if live.table.kind == TableKind::Values && !topic.settings().keeps_values {
            let what = format!("topic {name:?} keeps no current values");
            let error = SqlError::new(SqlState::UNDEFINED_TABLE, what);
            return Err(error.with_hint("Set memlane.values=latest for the topic."));
        }
        Ok(topic)
    }

    /// Checks that the client may still read the topic, and that the topic exists.
    ///
    /// # Errors
    /// The client is not authorized, or the topic is gone.
    pub(super) fn check(&self, client: &LiveClient, topic: &OpenTopic) -> Result<(), SqlError> {
        let LiveClient { principal, on_behalf_of, host } = client;
        let name = &topic.name;
        let may_read =
            |it: &Principal| self.rules.allows(it, *host, Operation::Read, Resource::topic(name));
        if ![principal].into_iter().chain(on_behalf_of).all(may_read) {
            let what = format!("permission denied for table {name}");
            return Err(SqlError::new(SqlState::PERMISSION, what));
        }
        match self.topics.by_id(topic.id) {
            Some(_) => Ok(()),
            None => {
                let what = format!("the topic {name:?} was deleted");
                Err(SqlError::new(SqlState::UNDEFINED_TABLE, what))
            }
        }
    }

    /// Returns the state that all live queries on one table share.
    pub(super) fn shared_table(&self, topic: &Arc<OpenTopic>, kind: TableKind) -> Arc<SharedTable> {
        let mut shared_tables = self.shared_tables.lock().expect(NO_PANIC);
        shared_tables.retain(|_, shared_table| shared_table.strong_count() > 0);
        if let Some(shared_table) = shared_tables.get(&(topic.id, kind)).and_then(Weak::upgrade) {
            return shared_table;
        }
        let number = self.last_number.fetch_add(1, Ordering::Relaxed);
        let worker = usize::try_from(number).unwrap_or_default() % self.inboxes.len();
        let shared_table = Arc::new(SharedTable {
            number,
            topic: Arc::clone(topic),
            kind,
            paths: RwLock::new(Paths::new()),
            inbox: Arc::clone(&self.inboxes[worker]),
        });
        shared_tables.insert((topic.id, kind), Arc::downgrade(&shared_table));
        shared_table
    }

    /// Adds a subscription to those of its client.
    ///
    /// # Errors
    /// The client has reached its limit.
    pub(super) fn note(
        &self,
        principal: &Principal,
        subscriber: &Arc<Subscriber>,
    ) -> Result<(), SqlError> {
        let mut subscribers = self.subscribers.lock().expect(NO_PANIC);
        let most = self.limits.per_principal;
        let count = subscribers.by_principal.entry(principal.clone()).or_default();
        if *count >= most {
            let what =
                format!("too many subscriptions of {}: the limit is {most}", principal.name());
            return Err(SqlError::new(SqlState::TOO_MANY, what));
        }
        *count += 1;
        subscribers.all.push(Arc::downgrade(subscriber));
        Ok(())
    }

    /// Removes a subscription whose client has disconnected.
    pub(super) fn forget(&self, principal: &Principal, subscriber: &Arc<Subscriber>) {
        let machine = subscriber.lock();
        let (failed, conflated) =
            (machine.subscription.failed_count(), machine.subscription.conflated_count());
        drop(machine);
        Counters::add(&self.counters.failed_records, failed);
        Counters::add(&self.counters.conflated, conflated);
        let mut subscribers = self.subscribers.lock().expect(NO_PANIC);
        subscribers.all.retain(|it| !std::ptr::eq(it.as_ptr(), Arc::as_ptr(subscriber)));
        if let Some(count) = subscribers.by_principal.get_mut(principal) {
            *count -= 1;
            if *count == 0 {
                subscribers.by_principal.remove(principal);
            }
        }
    }

    /// Returns the number of live queries, and their counters since the start.
    pub(crate) fn totals(&self) -> LiveTotals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut totals = LiveTotals {
            records: read(&self.counters.records),
            rows: read(&self.counters.rows),
            failed_records: read(&self.counters.failed_records),
            conflated: read(&self.counters.conflated),
            ..LiveTotals::default()
        };
        let all: Vec<_> = self.subscribers.lock().expect(NO_PANIC).all.clone();
        for subscriber in all.iter().filter_map(Weak::upgrade) {
            let machine = subscriber.lock();
            totals.subscriptions += 1;
            totals.queued_rows += machine.subscription.queued_count() as u64;
            totals.failed_records += machine.subscription.failed_count();
            totals.conflated += machine.subscription.conflated_count();
        }
        totals
    }
}

/// Runs work that may block on the device.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SqlError> + Send + 'static,
) -> Result<T, SqlError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => {
            let what = format!("the live query failed: {error}");
            Err(SqlError::new(SqlState::INTERNAL, what))
        }
    }
}
