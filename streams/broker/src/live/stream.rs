//! Stream of the rows of one subscription to its connection.

use std::sync::Arc;
use std::time::Duration;

use live_queries::OutputRows;
use sql::SqlError;
use tokio::time::Instant;

use super::counters::Counters;
use super::fill::{Fill, Filled};
use super::service::{LiveClient, LiveQueries, blocking};
use super::subscriber::{Command, Found, Subscriber};

/// Interval of checks whether the client may still read.
const CHECK: Duration = Duration::from_secs(1);

/// Stream of rows. Releases all resources on drop.
pub(super) struct LiveStream {
    live: Arc<LiveQueries>,
    client: LiveClient,
    subscriber: Arc<Subscriber>,
    /// Current read for the subscription.
    pub(super) fill: Option<Fill>,
    next_check: Instant,
    is_over: bool,
    /// True if it counts among the subscriptions of its client.
    pub(super) is_noted: bool,
}

impl LiveStream {
    pub(super) fn new(
        live: Arc<LiveQueries>,
        client: LiveClient,
        subscriber: &Arc<Subscriber>,
    ) -> Self {
        Self {
            live,
            client,
            subscriber: Arc::clone(subscriber),
            fill: None,
            next_check: Instant::now() + CHECK,
            is_over: false,
            is_noted: false,
        }
    }

    /// Returns the next rows; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Result<OutputRows, SqlError>> {
        if self.is_over {
            return None;
        }
        match self.wait().await {
            Ok(Some(rows)) => Some(Ok(rows)),
            Ok(None) => {
                self.is_over = true;
                None
            }
            Err(error) => {
                self.is_over = true;
                Some(Err(error))
            }
        }
    }

    async fn wait(&mut self) -> Result<Option<OutputRows>, SqlError> {
        loop {
            if Instant::now() >= self.next_check {
                self.next_check = Instant::now() + CHECK;
                self.live.check(&self.client, &self.subscriber.shared_table.topic)?;
            }
            match self.subscriber.look() {
                Found::Rows(rows) => {
                    Counters::add(&self.live.counters().rows, rows.len() as u64);
                    return Ok(Some(rows));
                }
                Found::Ended(ended) => return ended.map(|()| None),
                Found::Task(task) => {
                    let mut fill =
                        self.fill.take().unwrap_or_else(|| Fill::new(&self.subscriber, task));
                    let subscriber = Arc::clone(&self.subscriber);
                    let step = move || fill.step(&subscriber).map(|filled| (fill, filled));
                    let (fill, filled) = blocking(step).await?;
                    match filled {
                        Filled::More => self.fill = Some(fill),
                        Filled::Later(wait_ms) => {
                            self.fill = Some(fill);
                            self.rest(Duration::from_millis(wait_ms)).await;
                        }
                        Filled::Done => {}
                    }
                }
                // Later changes are recorded by `ready`.
                Found::Nothing => self.rest(CHECK).await,
            }
        }
    }

    /// Waits for a notification, for at most `time`.
    async fn rest(&self, time: Duration) {
        let until = (Instant::now() + time).min(self.next_check);
        tokio::select! {
            () = self.subscriber.ready.notified() => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }
}

impl Drop for LiveStream {
    fn drop(&mut self) {
        self.subscriber.lock().is_left = true;
        self.subscriber.shared_table.inbox.put(Command::Leave(Arc::clone(&self.subscriber)));
        if self.is_noted {
            self.live.forget(&self.client.principal, &self.subscriber);
        }
    }
}
