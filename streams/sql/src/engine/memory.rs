//! Memory that queries take: each has a limit, and all of them together have one.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion::logical_expr::ScalarFunctionArgs;

/// Memory that all queries have taken.
#[derive(Debug)]
pub(crate) struct MemoryTotal {
    used: AtomicUsize,
    limit: usize,
}

impl MemoryTotal {
    pub(crate) fn new(limit: usize) -> Self {
        Self { used: AtomicUsize::new(0), limit }
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// The memory of one query.
#[derive(Debug)]
pub(crate) struct QueryMemory {
    total: Arc<MemoryTotal>,
    used: AtomicUsize,
    limit: usize,
}

impl QueryMemory {
    pub(crate) fn new(total: Arc<MemoryTotal>, limit: usize) -> Self {
        Self { total, used: AtomicUsize::new(0), limit }
    }
}

/// Memory that the engine takes for a word of a statement that is parsed and planned: measured with
/// long lists after IN and VALUES, of which nothing else is counted.
const WORD_BYTES: usize = 1 << 10;

/// Words of a statement that are not counted: more than people write.
const WORD_COUNT_FREE: usize = 4_096;

/// Memory that a statement holds as long as it is prepared, by the number of its words.
#[derive(Debug)]
pub(crate) struct StatementMemory {
    total: Arc<MemoryTotal>,
    bytes: usize,
}

impl StatementMemory {
    /// Takes the memory of a statement of so many words.
    ///
    /// # Errors
    /// That is more than a query may take, or than is left for all of them.
    pub(super) fn take(total: &Arc<MemoryTotal>, word_count: usize, limit: usize) -> Result<Self> {
        let bytes = word_count.saturating_sub(WORD_COUNT_FREE).saturating_mul(WORD_BYTES);
        if bytes > limit {
            return Err(beyond_query(limit));
        }
        if !take(&total.used, bytes, total.limit) {
            return Err(beyond_total(total.limit));
        }
        Ok(Self { total: Arc::clone(total), bytes })
    }

    /// Bytes of the limit of its query.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for StatementMemory {
    fn drop(&mut self) {
        self.total.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn beyond_query(limit: usize) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!("a query may take {limit} bytes"))
}

fn beyond_total(limit: usize) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!("all queries may take {limit} bytes"))
}

/// Takes so much where the limit leaves it.
fn take(used: &AtomicUsize, bytes: usize, limit: usize) -> bool {
    let add = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

impl std::fmt::Display for QueryMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "memory of a query, {} bytes at most", self.limit)
    }
}

impl MemoryPool for QueryMemory {
    fn name(&self) -> &'static str {
        "query"
    }

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        self.used.fetch_add(additional, Ordering::Relaxed);
        self.total.used.fetch_add(additional, Ordering::Relaxed);
    }

    fn shrink(&self, _: &MemoryReservation, shrink: usize) {
        self.used.fetch_sub(shrink, Ordering::Relaxed);
        self.total.used.fetch_sub(shrink, Ordering::Relaxed);
    }

    fn try_grow(&self, _: &MemoryReservation, additional: usize) -> Result<()> {
        if !take(&self.used, additional, self.limit) {
            return Err(beyond_query(self.limit));
        }
        if !take(&self.total.used, additional, self.total.limit) {
            self.used.fetch_sub(additional, Ordering::Relaxed);
            return Err(beyond_total(self.total.limit));
        }
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit)
    }
}

/// Memory that calls of functions hold, one call of a statement each on one thread: at most what
/// the last results of all of them take. It travels with the options of the statement, which
/// functions see.
#[derive(Clone, Debug)]
pub(super) struct CallMemory(Arc<Calls>);

#[derive(Debug)]
struct Calls {
    pool: Arc<dyn MemoryPool>,
    /// By where the call lies in the plan, and the thread.
    held: Mutex<HashMap<(usize, ThreadId), MemoryReservation>>,
}

impl CallMemory {
    pub(super) fn new(pool: Arc<dyn MemoryPool>) -> Self {
        Self(Arc::new(Calls { pool, held: Mutex::default() }))
    }

    /// Returns whether a call is one of a statement that runs, or is about to.
    pub(super) fn counts(args: &ScalarFunctionArgs) -> bool {
        args.config_options.extensions.get::<Self>().is_some()
    }

    /// Takes what the next result of a call is going to need, in the place of the one before.
    ///
    /// # Errors
    /// The statement has no more.
    pub(super) fn take(args: &ScalarFunctionArgs, bytes: u64) -> Result<()> {
        let Some(Self(calls)) = args.config_options.extensions.get::<Self>() else {
            return Ok(());
        };
        let call = (Arc::as_ptr(&args.return_field).addr(), std::thread::current().id());
        let mut held = calls.held.lock().expect("no thread panics with this lock");
        let reservation = held
            .entry(call)
            .or_insert_with(|| MemoryConsumer::new("function").register(&calls.pool));
        reservation.try_resize(usize::try_from(bytes).unwrap_or(usize::MAX))
    }
}

impl ConfigExtension for CallMemory {
    const PREFIX: &'static str = "memory_of_calls";
}

impl ExtensionOptions for CallMemory {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _: &str) -> Result<()> {
        Err(DataFusionError::Configuration(format!("there is no option {key}")))
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_and_all_of_them_have_limits_and_give_back_what_they_took() {
        let total = Arc::new(MemoryTotal::new(150));
        let pool =
            || -> Arc<dyn MemoryPool> { Arc::new(QueryMemory::new(Arc::clone(&total), 100)) };
        let (first, second) = (pool(), pool());
        let one = MemoryConsumer::new("one").register(&first);
        let two = MemoryConsumer::new("two").register(&second);
        one.try_grow(101).expect_err("more than a query may take");
        one.try_grow(100).expect("as much as it may take");
        two.try_grow(51).expect_err("more than is left of the total");
        two.try_grow(50).expect("what is left");
        assert_eq!(total.used(), 150);
        drop(one);
        assert_eq!(total.used(), 50);
        two.try_grow(50).expect("what the other gave back");
        let take = |word_count| StatementMemory::take(&total, word_count, 100);
        assert_eq!(take(WORD_COUNT_FREE).expect("no more than is free").bytes(), 0);
        take(WORD_COUNT_FREE + 1).expect_err("a word takes more than a query may");
        drop(two);
        assert_eq!((total.used(), first.reserved(), second.reserved()), (0, 0, 0));
    }
}
