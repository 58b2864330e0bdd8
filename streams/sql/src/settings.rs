//! Startup settings of the server.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// Stack size of each thread that plans and runs queries. Plans are walked recursively, and the
/// limits on statements keep their depth within this. This is address space, of which little is
/// touched.
const STACK_BYTES: usize = 64 << 20;

/// Creates the runtime for a SQL server.
///
/// # Errors
/// The system cannot create threads.
pub fn runtime() -> io::Result<Runtime> {
    threads("sql").build()
}

pub(crate) fn threads(name: &str) -> Builder {
    let mut builder = Builder::new_multi_thread();
    builder.enable_all().thread_name(name).thread_stack_size(STACK_BYTES);
    builder
}

/// Limits of clients and their queries.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of simultaneous connections.
    pub connection_count: usize,
    /// Maximum size of a client's message, and thus of a statement's text and its parameters.
    pub message_bytes: usize,
    /// Maximum memory of one query, and of all running queries.
    pub query_bytes: usize,
    pub total_bytes: usize,
    /// Maximum number of simultaneous queries of a principal.
    pub queries_per_principal: usize,
    /// Default statement timeout, unless the client sets `statement_timeout`.
    pub statement_time: Option<Duration>,
    /// Number of threads that run queries, and of partitions that a query is divided into.
    pub query_threads: usize,
    /// Maximum number of prepared statements, and of cursors, per connection.
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
