//! Memory limits of queries: one for each query, and one for all together. Of the total, the
//! queries of a user leave as much to others as they use.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion::logical_expr::ScalarFunctionArgs;
use shares::{Limit, Owner, Share};

const NO_PANIC: &str = "no thread panics with this lock";

/// Memory pool of one query.
#[derive(Debug)]
pub(crate) struct QueryMemory {
    used: Mutex<Share>,
    limit: usize,
}

impl QueryMemory {
    pub(crate) fn new(total: &Arc<Limit>, owner: Owner, limit: usize) -> Self {
        Self { used: Mutex::new(total.nothing(owner)), limit }
    }

    fn used(&self) -> MutexGuard<'_, Share> {
        self.used.lock().expect(NO_PANIC)
    }
}

/// Memory that the engine uses to parse and plan a word of a statement: measured with long lists
/// after IN and VALUES. This memory is not accounted for otherwise.
const WORD_BYTES: usize = 1 << 10;

/// Number of words that are not accounted for, beyond the size of statements written by hand.
const WORD_COUNT_FREE: usize = 4_096;

/// Reserves the memory that a statement of `word_count` words holds while it is prepared.
///
/// # Errors
/// The amount exceeds the limit of a query, or what is left for this owner.
pub(super) fn take_for_statement(
    total: &Arc<Limit>,
    owner: Owner,
    word_count: usize,
    limit: usize,
) -> Result<Share> {
    let bytes = word_count.saturating_sub(WORD_COUNT_FREE).saturating_mul(WORD_BYTES);
    if bytes > limit {
        return Err(beyond_query(limit));
    }
    total.try_take(owner, bytes).ok_or_else(|| beyond_share(total))
}

fn beyond_share(total: &Limit) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!(
        "{} of {} bytes of query memory are free; queries of one user may not use more than \
         remains free",
        total.most().saturating_sub(total.taken()),
        total.most()
    ))
}

fn beyond_query(limit: usize) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!("memory limit of {limit} bytes per query exceeded"))
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
        self.used().grow(additional);
    }

    fn shrink(&self, _: &MemoryReservation, shrink: usize) {
        self.used().shrink(shrink);
    }

    fn try_grow(&self, _: &MemoryReservation, additional: usize) -> Result<()> {
        let mut used = self.used();
        let sum = used.amount().checked_add(additional).filter(|sum| *sum <= self.limit);
        let sum = sum.ok_or_else(|| beyond_query(self.limit))?;
        used.try_resize(sum).then_some(()).ok_or_else(|| beyond_share(used.limit()))
    }

    fn reserved(&self) -> usize {
        self.used().amount()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit)
    }
}

/// Memory held by function calls, per call of the plan and thread: at most the size of the latest
/// results of all calls. Passed to functions in the statement's configuration options.
#[derive(Clone, Debug)]
pub(super) struct CallMemory(Arc<Calls>);

#[derive(Debug)]
struct Calls {
    pool: Arc<dyn MemoryPool>,
    /// Keyed by the address of the call in the plan, and the thread.
    held: Mutex<HashMap<(usize, ThreadId), MemoryReservation>>,
}

impl CallMemory {
    pub(super) fn new(pool: Arc<dyn MemoryPool>) -> Self {
        Self(Arc::new(Calls { pool, held: Mutex::default() }))
    }

    /// Returns whether a call belongs to a running statement, or one about to run.
    pub(super) fn counts(args: &ScalarFunctionArgs) -> bool {
        args.config_options.extensions.get::<Self>().is_some()
    }

    /// Reserves memory for the next result of a call, and releases that of the previous one.
    ///
    /// # Errors
    /// The statement's memory limit is reached.
    pub(super) fn take(args: &ScalarFunctionArgs, bytes: u64) -> Result<()> {
        let Some(Self(calls)) = args.config_options.extensions.get::<Self>() else {
            return Ok(());
        };
        let call = (Arc::as_ptr(&args.return_field).addr(), std::thread::current().id());
        let mut held = calls.held.lock().expect(NO_PANIC);
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
        Err(DataFusionError::Configuration(format!("option {key} does not exist")))
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
        let total = Limit::new(300);
        let pool = |owner| -> Arc<dyn MemoryPool> {
            Arc::new(QueryMemory::new(&total, Owner(owner), 100))
        };
        let (first, second, other) = (pool(1), pool(1), pool(2));
        let one = MemoryConsumer::new("one").register(&first);
        let two = MemoryConsumer::new("two").register(&second);
        let three = MemoryConsumer::new("three").register(&other);
        one.try_grow(101).expect_err("more than a query may take");
        one.try_grow(100).expect("as much as it may take");
        two.try_grow(51).expect_err("more than it leaves to other users");
        two.try_grow(50).expect("as much as it leaves");
        three.try_grow(75).expect("half of the rest");
        three.try_grow(1).expect_err("more than it leaves");
        assert_eq!((total.taken(), other.reserved()), (225, 75));
        drop(one);
        assert_eq!(total.taken(), 125);
        two.try_grow(50).expect("what the other query gave back");
        let take = |word_count| take_for_statement(&total, Owner(1), word_count, 100);
        assert_eq!(take(WORD_COUNT_FREE).expect("no more than is free").amount(), 0);
        take(WORD_COUNT_FREE + 1).expect_err("a word takes more than a query may");
        drop((two, three));
        let left = [&first, &second, &other].map(|it| it.reserved());
        assert_eq!((total.taken(), left), (0, [0; 3]));
    }
}
