//! Threads that deliver records to live queries.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;
use tokio::time::Instant;

use super::counters::Counters;
use super::service::LiveQueries;
use super::subscriber::{Command, Inbox};
use super::table::Table;
use crate::topics::Topics;

/// Interval of checks of idle topics.
const INTERVAL: Duration = Duration::from_secs(1);

/// Worker threads, which end when the broker stops.
pub(crate) struct LiveThreads(Vec<JoinHandle<()>>);

impl LiveThreads {
    pub(crate) fn start(live: &LiveQueries, stops: &watch::Receiver<bool>) -> anyhow::Result<Self> {
        let mut threads = Vec::new();
        for inbox in live.inboxes() {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
            let worker = Worker {
                topics: Arc::clone(live.topics()),
                inbox: Arc::clone(inbox),
                tables: HashMap::new(),
                counters: Arc::clone(live.counters()),
            };
            let stops = stops.clone();
            let work = move || runtime.block_on(worker.run(stops));
            let thread = std::thread::Builder::new().name("live".to_owned()).spawn(work);
            threads.push(thread.context("cannot start a thread for live queries")?);
        }
        Ok(Self(threads))
    }

    /// Waits for the end of the threads.
    pub(crate) fn join(self) {
        for thread in self.0 {
            if thread.join().is_err() {
                tracing::error!("a thread for live queries panicked");
            }
        }
    }
}

struct Worker {
    topics: Arc<Topics>,
    inbox: Arc<Inbox>,
    /// Tables by the number of their shared table.
    tables: HashMap<u64, Table>,
    counters: Arc<Counters>,
}

impl Worker {
    async fn run(mut self, mut stops: watch::Receiver<bool>) {
        let mut next_look = Instant::now() + INTERVAL;
        while !*stops.borrow() {
            self.inbox.take().into_iter().for_each(|it| self.obey(it));
            let (mut is_behind, mut next) = (false, next_look);
            for table in self.tables.values_mut() {
                is_behind |= table.go_on(&self.counters);
                next = table.tick().map_or(next, |tick| next.min(tick));
            }
            if Instant::now() >= next_look {
                next_look = Instant::now() + INTERVAL;
                self.look();
            }
            if !is_behind {
                let notify = Arc::clone(&self.inbox.notify);
                tokio::select! {
                    () = notify.notified() => {}
                    () = tokio::time::sleep_until(next) => {}
                    // Also returns if the sender is gone.
                    _ = stops.changed() => {}
                }
            }
        }
    }

    fn obey(&mut self, command: Command) {
        let shared_table = Arc::clone(&command.subscriber().shared_table);
        let number = shared_table.number;
        if let Command::Leave(subscriber) = &command {
            let mut paths = shared_table.paths.write().expect("no thread panics with this lock");
            subscriber.query.release(&mut paths);
        } else {
            self.tables.entry(number).or_insert_with(|| Table::new(shared_table));
        }
        if let Some(table) = self.tables.get_mut(&number) {
            table.obey(command);
            if table.is_empty() {
                self.tables.remove(&number);
            }
        }
    }

    fn look(&mut self) {
        for table in self.tables.values_mut() {
            let is_there = self.topics.by_id(table.shared_table.topic.id).is_some();
            table.look(is_there);
        }
        // All of its subscriptions may have been released.
        self.tables.retain(|_, table| !table.is_empty());
    }
}
