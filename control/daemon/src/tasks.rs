//! Long operations on their own threads. They can be watched and cancelled, and remain listed for
//! some time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use api::{Problem, ProblemKind, TaskKind, TaskResult, TaskState};

use crate::events::unix_seconds;

/// Maximum number of completed tasks that are kept.
const ENDED_COUNT_MAX: usize = 100;

/// Progress of a task. Shared by the working thread and observers.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    done_bytes: AtomicU64,
    total_bytes: AtomicU64,
    is_cancelled: AtomicBool,
}

// Relaxed throughout: the values are for display and guard no other memory.
impl Progress {
    pub(crate) fn set(&self, done_bytes: u64, total_bytes: u64) {
        self.done_bytes.store(done_bytes, Ordering::Relaxed);
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }
}

/// Reason for which a task ended without success.
#[derive(Debug)]
pub(crate) enum TaskEnd {
    /// The task was cancelled, and has undone its changes.
    Cancelled,
    Failed(Problem),
}

impl From<Problem> for TaskEnd {
    fn from(problem: Problem) -> Self {
        Self::Failed(problem)
    }
}

/// All tasks of this run.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    list: Mutex<List>,
    something_ended: Condvar,
}

#[derive(Debug, Default)]
struct List {
    last_id: u64,
    is_closed: bool,
    /// In order of their start.
    entries: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    kind: TaskKind,
    subject: String,
    begun: Instant,
    begun_unix_seconds: u64,
    progress: Arc<Progress>,
    ended: Option<(Duration, Result<TaskResult, TaskEnd>)>,
}

impl Tasks {
    /// Starts a task that runs `work` on its own thread, unless a task of the same class is
    /// running.
    pub(crate) fn begin(
        self: &Arc<Self>,
        kind: TaskKind,
        subject: impl Into<String>,
        work: impl FnOnce(&Progress) -> Result<TaskResult, TaskEnd> + Send + 'static,
    ) -> Result<api::Task, Problem> {
        let (id, progress) = self.enlist(kind, subject.into())?;
        let tasks = Arc::clone(self);
        let run = move || tasks.end(id, work(&progress));
        let started = std::thread::Builder::new().name("task".to_owned()).spawn(run);
        if let Err(error) = started {
            let detail = format!("cannot start a thread for a task: {error}");
            let problem = Problem::new(ProblemKind::HostFailed, detail);
            self.end(id, Err(TaskEnd::Failed(problem.clone())));
            return Err(problem);
        }
        self.show(id)
    }

    pub(crate) fn list(&self) -> Vec<api::Task> {
        self.lock().entries.iter().map(describe).collect()
    }

    pub(crate) fn show(&self, id: u64) -> Result<api::Task, Problem> {
        self.lock().find(id).map(describe)
    }

    pub(crate) fn running_count(&self) -> usize {
        self.lock().running().count()
    }

    /// Cancels a task that has not ended.
    pub(crate) fn cancel(&self, id: u64) -> Result<(), Problem> {
        let list = self.lock();
        let entry = list.find(id)?;
        let end = match &entry.ended {
            None => {
                entry.progress.cancel();
                return Ok(());
            }
            Some((_, Ok(_))) => "done",
            Some((_, Err(TaskEnd::Cancelled))) => "cancelled",
            Some((_, Err(TaskEnd::Failed(_)))) => "failed",
        };
        Err(Problem::new(ProblemKind::Ended, format!("task {id} has already ended: {end}")))
    }

    /// Waits until no task of the class of `kind` is running, at most `time_max`. Returns whether
    /// none is running.
    #[cfg(test)]
    pub(crate) fn wait_for_class(&self, kind: TaskKind, time_max: Duration) -> bool {
        let runs = |list: &mut List| list.running().any(|entry| class(entry.kind) == class(kind));
        let waited = self.something_ended.wait_timeout_while(self.lock(), time_max, runs);
        !waited.expect(NO_PANIC).1.timed_out()
    }

    /// Refuses new tasks, cancels running ones, and waits for them at most `time_max`.
    pub(crate) fn close(&self, time_max: Duration) {
        let mut list = self.lock();
        list.is_closed = true;
        list.running().for_each(|entry| entry.progress.cancel());
        let runs = |list: &mut List| list.running().next().is_some();
        let waited = self.something_ended.wait_timeout_while(list, time_max, runs);
        if waited.expect(NO_PANIC).1.timed_out() {
            tracing::warn!("abandoning a task that did not stop in time; the next start cleans up");
        }
    }

    fn enlist(&self, kind: TaskKind, subject: String) -> Result<(u64, Arc<Progress>), Problem> {
        let mut list = self.lock();
        if list.is_closed {
            let detail = "the daemon is shutting down; retry when it is back";
            return Err(Problem::new(ProblemKind::ShuttingDown, detail));
        }
        if let Some(entry) = list.running().find(|entry| class(entry.kind) == class(kind)) {
            let detail = format!(
                "task {} ({}) is running; wait for it, or cancel it with memlane task cancel {}",
                entry.id, entry.subject, entry.id
            );
            return Err(Problem::new(ProblemKind::Busy, detail).behind_task(entry.id));
        }
        list.last_id += 1;
        let (id, progress) = (list.last_id, Arc::<Progress>::default());
        list.entries.push_back(Entry {
            id,
            kind,
            subject,
            begun: Instant::now(),
            begun_unix_seconds: unix_seconds(),
            progress: Arc::clone(&progress),
            ended: None,
        });
        Ok((id, progress))
    }

    fn end(&self, id: u64, outcome: Result<TaskResult, TaskEnd>) {
        let mut list = self.lock();
        if let Some(entry) = list.entries.iter_mut().find(|entry| entry.id == id) {
            if let Err(TaskEnd::Failed(problem)) = &outcome {
                let subject = &entry.subject;
                match is_loss_near(entry.kind, problem.kind) {
                    true => tracing::error!(task = id, subject, %problem, "task failed"),
                    false => tracing::warn!(task = id, subject, %problem, "task refused"),
                }
            }
            entry.ended = Some((entry.begun.elapsed(), outcome));
        }
        let ended_count = list.entries.iter().filter(|entry| entry.ended.is_some()).count();
        if ended_count > ENDED_COUNT_MAX {
            let oldest = list.entries.iter().position(|entry| entry.ended.is_some());
            oldest.and_then(|oldest| list.entries.remove(oldest));
        }
        self.something_ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().expect(NO_PANIC)
    }
}

impl List {
    fn running(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.ended.is_none())
    }

    fn find(&self, id: u64) -> Result<&Entry, Problem> {
        self.entries.iter().find(|entry| entry.id == id).ok_or_else(|| {
            let detail = format!("no task {id}; finished tasks are kept only for a while");
            Problem::new(ProblemKind::NotFound, detail)
        })
    }
}

/// Class of an operation. Operations of one class conflict or are redundant, so only one runs at a
/// time.
fn class(kind: TaskKind) -> u8 {
    match kind {
        TaskKind::ImageSave => 0,
        TaskKind::ImageFetch => 1,
        TaskKind::ImageVerify | TaskKind::ImageRehearse => 2,
        TaskKind::PoolResize => 3,
    }
}

/// Returns whether data or service is at risk after a task failed with this problem. Otherwise only
/// the request was wrong, such as the number of an image that does not exist.
fn is_loss_near(task: TaskKind, problem: ProblemKind) -> bool {
    // Without room for an image, volumes lose what changed since the last one.
    problem.is_failure() || (task == TaskKind::ImageSave && problem == ProblemKind::NoSpace)
}

fn describe(entry: &Entry) -> api::Task {
    let (state, result, problem) = match &entry.ended {
        None => (TaskState::Running, None, None),
        Some((_, Ok(result))) => (TaskState::Done, Some(result.clone()), None),
        Some((_, Err(TaskEnd::Cancelled))) => (TaskState::Cancelled, None, None),
        Some((_, Err(TaskEnd::Failed(problem)))) => {
            (TaskState::Failed, None, Some(problem.clone()))
        }
    };
    let elapsed = entry.ended.as_ref().map_or_else(|| entry.begun.elapsed(), |&(took, _)| took);
    api::Task {
        id: entry.id,
        kind: entry.kind,
        subject: entry.subject.clone(),
        state,
        done_bytes: entry.progress.done_bytes.load(Ordering::Relaxed),
        total_bytes: entry.progress.total_bytes.load(Ordering::Relaxed),
        begun_unix_seconds: entry.begun_unix_seconds,
        elapsed_seconds: elapsed.as_secs_f64(),
        result,
        problem,
    }
}

const NO_PANIC: &str = "no thread panics with this lock";

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Starts a task that runs until the sender is dropped or sends a result, or until it is
    /// cancelled.
    fn begin(tasks: &Arc<Tasks>, kind: TaskKind) -> (u64, mpsc::Sender<Result<(), TaskEnd>>) {
        let (sender, receiver) = mpsc::channel::<Result<(), TaskEnd>>();
        let work = move |progress: &Progress| {
            progress.set(1, 2);
            loop {
                match receiver.recv_timeout(Duration::from_millis(1)) {
                    Ok(end) => return end.map(|()| TaskResult::default()),
                    Err(_) if progress.is_cancelled() => return Err(TaskEnd::Cancelled),
                    Err(_) => {}
                }
            }
        };
        (tasks.begin(kind, "a test", work).expect("nothing else runs").id, sender)
    }

    #[track_caller]
    fn check_end(end: Result<(), TaskEnd>, expected: TaskState) -> api::Task {
        let tasks = Arc::<Tasks>::default();
        let (id, sender) = begin(&tasks, TaskKind::ImageSave);
        assert_eq!(tasks.show(id).expect("it runs").state, TaskState::Running);
        sender.send(end).expect("it listens");
        assert!(tasks.wait_for_class(TaskKind::ImageSave, PATIENCE));
        let task = tasks.show(id).expect("it is remembered");
        assert_eq!(task.state, expected);
        task
    }

    #[test]
    fn a_task_ends_as_its_work_does() {
        assert!(check_end(Ok(()), TaskState::Done).result.is_some());
        let problem = Problem::new(ProblemKind::HostFailed, "no disk");
        let failed = check_end(Err(TaskEnd::Failed(problem.clone())), TaskState::Failed);
        assert_eq!(failed.problem, Some(problem));
        check_end(Err(TaskEnd::Cancelled), TaskState::Cancelled);
    }

    #[test]
    fn only_failures_that_put_data_or_service_at_risk_are_errors_in_the_log() {
        let is_error = is_loss_near;
        assert!(is_error(TaskKind::ImageVerify, ProblemKind::HostFailed));
        assert!(is_error(TaskKind::ImageSave, ProblemKind::NoSpace));
        assert!(!is_error(TaskKind::PoolResize, ProblemKind::NoSpace));
        assert!(!is_error(TaskKind::ImageVerify, ProblemKind::NotFound));
        assert!(!is_error(TaskKind::PoolResize, ProblemKind::InvalidField));
    }

    #[test]
    fn operations_of_one_class_take_turns() {
        let tasks = Arc::<Tasks>::default();
        let (id, _sender) = begin(&tasks, TaskKind::ImageSave);
        let refused = tasks.begin(TaskKind::ImageSave, "", |_| Ok(TaskResult::default()));
        let refusal = refused.expect_err("a save runs");
        assert_eq!((refusal.kind, refusal.task), (ProblemKind::Busy, Some(id)));
        begin(&tasks, TaskKind::PoolResize);
        assert_eq!(tasks.running_count(), 2);
        tasks.close(PATIENCE);
    }

    #[test]
    fn a_closed_list_has_ended_its_tasks_and_takes_no_more() {
        let tasks = Arc::<Tasks>::default();
        let (id, _sender) = begin(&tasks, TaskKind::ImageSave);
        tasks.close(PATIENCE);
        assert_eq!(tasks.show(id).expect("remembered").state, TaskState::Cancelled);
        let refused = tasks.begin(TaskKind::ImageSave, "", |_| Ok(TaskResult::default()));
        assert_eq!(refused.expect_err("closed").kind, ProblemKind::ShuttingDown);
    }

    #[test]
    fn tasks_that_are_over_are_forgotten_in_the_end() {
        let tasks = Arc::<Tasks>::default();
        for _ in 0..=ENDED_COUNT_MAX {
            tasks.begin(TaskKind::ImageSave, "", |_| Ok(TaskResult::default())).expect("it begins");
            assert!(tasks.wait_for_class(TaskKind::ImageSave, PATIENCE));
        }
        assert_eq!(tasks.show(1).expect_err("too long ago").kind, ProblemKind::NotFound);
        assert_eq!(tasks.list().len(), ENDED_COUNT_MAX);
    }
}
