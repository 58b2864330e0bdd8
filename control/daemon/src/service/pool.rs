//! Limits of the pool, and its forecast.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use api::{ByteSize, Pool, PoolPatch, Problem, ProblemKind, Task, TaskKind, TaskResult};
use volumes::{Engine, ResizeError, ResizeErrorKind};

use crate::events::EventLog;
use crate::maintenance::sample;
use crate::pool;
use crate::service::Service;
use crate::tasks::{Progress, TaskEnd};

impl Service {
    pub(crate) fn show_pool(&self) -> Pool {
        let usage = self.engine.usage();
        let name_of = |id| self.catalog.by_id(id).map(|volume| volume.name());
        let last = sample(&self.engine, Instant::now());
        let (fill_state, forecast) = self.filling.forecast(last, usage.size_bytes, name_of);
        Pool {
            max_memory_bytes: self.engine.size_bytes(),
            capacity_bytes: self.engine.capacity_bytes(),
            used_bytes: usage.used_bytes,
            guaranteed_bytes: usage.claimed_bytes,
            reserve_bytes: usage.reserved_bytes,
            daemon_bytes: maintenance::private_bytes().unwrap_or(0),
            thresholds_percent: self.watch.thresholds_percent(),
            passed_percent: self.watch.passed_percent(),
            fill_state,
            forecast,
        }
    }

    pub(crate) fn change_pool(&self, request: &PoolPatch) -> Result<Task, Problem> {
        let Some(size) = request.max_memory else {
            let problem =
                Problem::new(ProblemKind::InvalidField, "no change given; set max_memory");
            return Err(problem.in_field("max_memory"));
        };
        let resize = Resize {
            engine: Arc::clone(&self.engine),
            events: Arc::clone(&self.events),
            path: self.pool_path.clone(),
            size_bytes: size.0,
        };
        let subject = format!("the pool to {}", size.rounded());
        self.tasks.begin(TaskKind::PoolResize, subject, move |progress| resize.run(progress))
    }
}

/// A change of the pool's size.
struct Resize {
    engine: Arc<Engine>,
    events: Arc<EventLog>,
    path: PathBuf,
    size_bytes: u64,
}

impl Resize {
    fn run(self, progress: &Progress) -> Result<TaskResult, TaskEnd> {
        let unit_bytes = region::SIZE_UNIT_BYTES;
        // Less than one unit is refused as too small, and not as nothing.
        let size_bytes = (self.size_bytes & !(unit_bytes - 1)).max(unit_bytes);
        let before_bytes = self.engine.size_bytes();
        if size_bytes > before_bytes {
            pool::make_room(&self.path, before_bytes, size_bytes).map_err(|error| {
                let detail = format!("cannot grow the pool: {error:#}");
                TaskEnd::Failed(Problem::new(ProblemKind::NoSpace, detail))
            })?;
        }
        let mut left_at_first = 0;
        let mut watch = |shrinking: volumes::ResizeProgress| {
            left_at_first = shrinking.left_bytes.max(left_at_first);
            progress.set(left_at_first - shrinking.left_bytes, left_at_first);
            match progress.is_cancelled() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        self.engine.set_size(size_bytes, &mut watch).map_err(|error| ended(&error))?;
        if size_bytes < before_bytes {
            pool::give_room(&self.path, size_bytes);
        }
        let message = format!(
            "pool resized to {} from {}",
            ByteSize(size_bytes).rounded(),
            ByteSize(before_bytes).rounded()
        );
        self.events.info("pool_resized", None, message);
        Ok(TaskResult::default())
    }
}

fn ended(error: &ResizeError) -> TaskEnd {
    let kind = match error.kind {
        ResizeErrorKind::Cancelled => return TaskEnd::Cancelled,
        ResizeErrorKind::Misaligned | ResizeErrorKind::TooSmall { .. } => ProblemKind::InvalidField,
        ResizeErrorKind::BeyondCapacity { .. }
        | ResizeErrorKind::InUse { .. }
        | ResizeErrorKind::Tables { .. }
        | ResizeErrorKind::Memory => ProblemKind::NoSpace,
    };
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    let detail = format!("{error}{}", cause.unwrap_or_default());
    TaskEnd::Failed(Problem::new(kind, detail).in_field("max_memory"))
}
