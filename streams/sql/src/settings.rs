//! Settings with which the server is started.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// Of each thread that queries are planned and run on: plans are walked as deep as they nest, which
/// the bounds of statements keep within this. Address space, of which little is touched.
const STACK_BYTES: usize = 64 << 20;

/// Threads for a server of SQL.
///
/// # Errors
/// The system gives no threads.
pub fn runtime() -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.enable_all().thread_name("sql").thread_stack_size(STACK_BYTES).build()
}

/// Limits of clients and their queries.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connection_count: usize,
    /// Size of one message of a client, and so of a statement's text and its parameters.
    pub message_bytes: usize,
    /// Memory of one query, and of all that run.
    pub query_bytes: usize,
    pub total_bytes: usize,
    /// Queries of one principal that run at a time.
    pub queries_per_principal: usize,
    /// A statement is cancelled after so long, unless the client sets `statement_timeout`.
    pub statement_time: Option<Duration>,
    /// Threads that queries run on, and streams that one is divided into.
    pub query_threads: usize,
    /// Prepared statements, and cursors, of one connection.
    pub statement_count: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connection_count: 400,
            message_bytes: 16 << 20,
            query_bytes: 256 << 20,
            total_bytes: 1 << 30,
            queries_per_principal: 50,
            statement_time: None,
            query_threads: std::thread::available_parallelism().map_or(2, usize::from),
            statement_count: 1_000,
        }
    }
}
