//! A connection to PostgreSQL. It belongs to the thread that created it, which blocks on each
//! response.

use std::future::Future;

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, Config, NoTls};

use crate::tpcc::database::{Clerk, Observe, USERS};

const TRANSACTIONS: &str = "SELECT sum(xact_commit + xact_rollback)::int8 FROM pg_stat_database";

/// A connection with its runtime.
pub(crate) struct Connection {
    runtime: Runtime,
    client: Client,
}

impl Connection {
    pub(crate) fn open(config: &Config) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the Tokio runtime")?;
        let connected = runtime.block_on(config.connect(NoTls));
        let (client, connection) = connected.context("cannot connect to PostgreSQL")?;
        runtime.spawn(async {
            // Errors are reported by the requests that wait.
            let _ = connection.await;
        });
        Ok(Self { runtime, client })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Blocks on a request.
    pub(crate) fn wait<T>(&self, request: impl Future<Output = T>) -> T {
        self.runtime.block_on(request)
    }

    /// Executes statements without results.
    pub(crate) fn batch(&self, statements: &str) -> Result<()> {
        let done = self.wait(self.client.batch_execute(statements));
        done.with_context(|| format!("cannot run {}", beginning(statements)))
    }

    /// Returns an integer query result.
    pub(crate) fn number(&self, query: &str) -> Result<i64> {
        let row = self.wait(self.client.query_one(query, &[]));
        let row = row.with_context(|| format!("cannot query {}", beginning(query)))?;
        row.try_get(0).with_context(|| format!("{} returned no number", beginning(query)))
    }
}

impl Clerk for Connection {
    fn batch(&mut self, statements: &str) -> Result<()> {
        Connection::batch(self, statements)
    }

    fn count_of(&mut self, statement: &str) -> Result<u64> {
        let done = self.wait(self.client.execute(statement, &[]));
        done.with_context(|| format!("cannot run {}", beginning(statement)))
    }
}

impl Observe for Connection {
    fn number(&mut self, query: &str) -> Result<i64> {
        Connection::number(self, query)
    }

    fn transactions(&mut self) -> Result<Option<i64>> {
        Connection::number(self, TRANSACTIONS).map(Some)
    }

    /// Includes sessions of pgbench.
    fn user_count(&mut self) -> Result<i64> {
        Connection::number(
            self,
            &format!(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name IN ('{USERS}', \
                 'pgbench')"
            ),
        )
    }
}

/// Returns the first line, for messages.
fn beginning(statements: &str) -> &str {
    statements.trim().lines().next().unwrap_or_default()
}
