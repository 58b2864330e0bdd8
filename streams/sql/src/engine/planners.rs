//! Threads for parsing and planning statements. The engine's planning cannot be interrupted at
//! arbitrary points, so it never runs on threads that serve connections: clients can cancel
//! immediately, and the number of abandoned plannings is bounded, in total and for each user.

use std::sync::Arc;

use access::Principal;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use tokio::runtime::Handle;

use crate::error::{SqlError, SqlState};
use crate::giving_up::{Waiting, check};
use crate::panics::contain;
use crate::permits::{PermitsByUser, UserPermits};

/// Minimum number of simultaneous plannings, and the part of them that one user may take.
const COUNT_MIN: usize = 8;
const PART_OF_ONE: usize = 4;

/// Permits for planning, of all users.
#[derive(Debug)]
pub(super) struct Planners {
    all: UserPermits,
    of_each: PermitsByUser,
}

impl Planners {
    pub(super) fn new(query_threads: usize) -> Self {
        let count = query_threads.saturating_mul(2).max(COUNT_MIN);
        Self { all: UserPermits::shared(count), of_each: PermitsByUser::new(count / PART_OF_ONE) }
    }

    /// Returns the planner of a user.
    pub(super) fn of(&self, principal: &Principal) -> Planner {
        Planner { all: self.all.clone(), own: self.of_each.of(principal) }
    }
}

/// Planner of one user's statements.
#[derive(Clone, Debug)]
pub(crate) struct Planner {
    all: UserPermits,
    own: UserPermits,
}

impl Planner {
    /// Runs the work on a separate thread, once permits are available. If the future is dropped,
    /// the work ends at its next cancellation check, and holds its permits until then.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, SqlError> {
        let waiting = Waiting::default();
        let permits = (self.own.wait().await, self.all.wait().await);
        let begin = waiting.work();
        let task = tokio::task::spawn_blocking(move || {
            let _permits = permits;
            let _working = begin();
            contain(work)
        });
        let stops = || SqlError::new(SqlState::SHUTDOWN, "the database system is shutting down");
        task.await.map_err(|_| stops())?
    }

    /// Same as [`Self::run`] for work that the engine exposes as a future.
    pub(super) async fn run_future<T, F>(
        &self,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> Result<T, SqlError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, SqlError>>,
    {
        let handle = Handle::current();
        self.run(move || handle.block_on(work())).await
    }
}

/// Cancellation check at each operator in planning.
#[derive(Debug)]
pub(super) struct Look;

impl ExprPlanner for Look {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        _: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        check().map_err(SqlError::into_engine)?;
        Ok(PlannerResult::Original(expr))
    }
}

/// Wrapper of an engine's rule that checks for cancellation before each part of a plan that it
/// rewrites, or before a whole plan.
#[derive(Debug)]
pub(super) struct Looking<R: ?Sized>(pub(super) Arc<R>);

impl OptimizerRule for Looking<dyn OptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        check().map_err(SqlError::into_engine)?;
        self.0.rewrite(plan, config)
    }
}

impl AnalyzerRule for Looking<dyn AnalyzerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        check().map_err(SqlError::into_engine)?;
        self.0.analyze(plan, config)
    }
}

impl PhysicalOptimizerRule for Looking<dyn PhysicalOptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check().map_err(SqlError::into_engine)?;
        self.0.optimize(plan, config)
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::giving_up::is_given_up;

    #[test]
    fn work_that_is_given_up_ends_and_other_users_go_on_meanwhile() {
        crate::runtime().expect("threads").block_on(async {
            let planners = Planners::new(1);
            let of = |name| planners.of(&Principal::user(name).expect("a name"));
            let (ended, all_ended) = channel();
            let (begun, has_begun) = channel();
            let endless = || {
                let (begun, ended) = (begun.clone(), ended.clone());
                let (planner, work) = (of("ann"), move || {
                    begun.send(()).expect("the test waits");
                    while !is_given_up() {
                        std::thread::yield_now();
                    }
                    ended.send(()).expect("the test waits");
                    check()
                });
                tokio::spawn(async move { planner.run(work).await })
            };
            let count = COUNT_MIN / PART_OF_ONE;
            let tasks: Vec<_> = (0..count).map(|_| endless()).collect();
            (0..count).for_each(|_| has_begun.recv().expect("it begins"));
            let waits = endless();
            has_begun.try_recv().expect_err("no more of one user");
            assert_eq!(of("bob").run(|| Ok(7)).await, Ok(7));
            tasks.iter().for_each(tokio::task::JoinHandle::abort);
            (0..count).for_each(|_| all_ended.recv().expect("it ends"));
            has_begun.recv().expect("its turn came");
            waits.abort();
            all_ended.recv().expect("it ends");
        });
    }
}
