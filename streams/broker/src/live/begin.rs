//! Start of a live query.

use std::sync::Arc;

use futures::StreamExt;
use live_queries::{
    GroupLimits, OutputColumn, Paths, Query, QueueLimits, Subscribe, Subscription, Table, TableKind,
};
use sql::{LiveQuery, LiveRows, SqlError, SqlState};

use super::fill::Fill;
use super::points::Start;
use super::service::{LiveClient, LiveQueries, blocking};
use super::stream::LiveStream;
use super::subscriber::{Command, Place, Subscriber, Task};
use crate::clock;

const NO_PANIC: &str = "no thread panics with this lock";

/// Limits of the queue of one client, which can exceed them by one change.
const QUEUE: QueueLimits = QueueLimits { rows_max: 8_192, bytes_max: 1 << 20 };

/// Limits of groups in a query, and of values kept for `min` and `max`.
const GROUPS: GroupLimits = GroupLimits { groups_max: 1_000_000, kept_values_max: 10_000_000 };

impl LiveQueries {
    /// Returns the columns of a live query without starting it.
    ///
    /// # Errors
    /// The table does not exist, the client may not read it, or the query is not supported.
    pub(crate) fn columns(
        &self,
        client: &LiveClient,
        live: &LiveQuery,
    ) -> Result<Vec<OutputColumn>, SqlError> {
        self.find(client, live)?;
        let (_, subscription) = compile(&live.subscribe, &live.table, &mut Paths::new())?;
        Ok(subscription.columns())
    }

    /// Starts a live query.
    ///
    /// # Errors
    /// Same as for its columns. In addition, the client has too many, or the start is not in the
    /// log.
    pub(crate) async fn subscribe(
        self: Arc<Self>,
        client: LiveClient,
        live: LiveQuery,
    ) -> Result<LiveRows, SqlError> {
        let topic = self.find(&client, &live)?;
        let LiveQuery { table, subscribe, .. } = live;
        let shared_table = self.shared_table(&topic, table.kind);
        let compiled = {
            let mut paths = shared_table.paths.write().expect(NO_PANIC);
            compile(&subscribe, &table, &mut paths)?
        };
        let (place, is_values) = match table.kind {
            TableKind::Log => (Place::Filling(Task::Log), false),
            TableKind::Values => (Place::Joining, true),
        };
        let layout = compiled.1.layout().clone();
        let as_of = subscribe.as_of.clone();
        let subscriber = Arc::new(Subscriber::new(shared_table, compiled.1, as_of, place));
        // From here on, dropping the stream releases everything.
        let mut stream = LiveStream::new(Arc::clone(&self), client.clone(), &subscriber);
        self.note(&client.principal, &subscriber)?;
        stream.is_noted = true;
        if is_values {
            check_values(&subscribe)?;
            subscriber.shared_table.inbox.put(Command::Join(Arc::clone(&subscriber)));
        } else {
            let begin = move || {
                let start = Start::of_log(&topic, &subscribe, clock::unix_ms())?;
                Ok::<Fill, SqlError>(Fill::from_start(&subscriber, &start))
            };
            stream.fill = Some(blocking(begin).await?);
        }
        let rows = futures::stream::unfold(stream, |mut stream| async {
            stream.next().await.map(|rows| (rows, stream))
        });
        Ok(LiveRows { layout, rows: rows.boxed() })
    }
}

fn compile(
    subscribe: &Subscribe,
    table: &Table,
    paths: &mut Paths,
) -> Result<(Arc<Query>, Subscription), SqlError> {
    let query = Arc::new(Query::compile(&subscribe.query, table, paths)?);
    match Subscription::new(Arc::clone(&query), subscribe, QUEUE, GROUPS) {
        Ok(subscription) => Ok((query, subscription)),
        Err(error) => {
            query.release(paths);
            Err(error.into())
        }
    }
}

/// Rejects options that current values do not support.
fn check_values(subscribe: &Subscribe) -> Result<(), SqlError> {
    if subscribe.options.speed.is_none() {
        return Ok(());
    }
    let what = "live queries do not support SPEED over current values";
    Err(SqlError::new(SqlState::NOT_SUPPORTED, what).with_hint("Subscribe to the log."))
}
