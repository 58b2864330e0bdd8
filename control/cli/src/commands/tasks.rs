//! Commands on tasks: waiting for completion, listing and cancelling.

use std::io::IsTerminal;
use std::time::Duration;

use api::{ByteSize, ProblemKind, Task, TaskKind, TaskState};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::word_of;
use crate::arguments::TaskCommand;
use crate::failure::Failure;
use crate::output::{Form, Report, tell};
use crate::table::{Cell, Table, View};
use rest_client::{Client, RestError};

/// Polling interval of a task's progress.
const ASK_INTERVAL: Duration = Duration::from_millis(100);

const BAR: &str = "{msg} {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta}";

pub(super) fn run(client: &Client, command: TaskCommand, form: Form) -> Result<Report, Failure> {
    match command {
        TaskCommand::List(view) => {
            let tasks: Vec<Task> = client.get(api::TASKS_PATH)?;
            Ok(Report::of(list_text(&tasks, &view)?, &tasks))
        }
        TaskCommand::Wait { id } => follow(client, false, form, || client.get(&path_of(id))),
        TaskCommand::Cancel { id } => {
            client.delete(&path_of(id))?;
            Ok(Report::silent(&json!({"cancelled": id})))
        }
    }
}

/// Starts a task and shows its progress until completion, unless it runs in the background. The
/// task also continues without this program. First waits for conflicting tasks, such as a scheduled
/// save of an image.
pub(super) fn follow(
    client: &Client,
    background: bool,
    form: Form,
    begin: impl Fn() -> Result<Task, RestError>,
) -> Result<Report, Failure> {
    // Installed first, so that an interruption before the start does not claim that the task
    // continues.
    let mut interruption = Interruption::listen()?;
    let task = match background {
        true => begin()?,
        false => begin_after_others(&begin, &mut interruption)?,
    };
    if background {
        return Ok(Report::of(format!("task {}", task.id), &task));
    }
    let bar = bar(&task, form);
    let mut task = task;
    while !task.state.is_over() {
        bar.set_length(task.total_bytes.max(task.done_bytes));
        bar.set_position(task.done_bytes);
        if interruption.came_within(ASK_INTERVAL) {
            bar.finish_and_clear();
            return Err(Failure::interrupted(format!(
                "task {id} ({}) continues in the daemon; wait for it with memlane task wait \
                 {id}, cancel it with memlane task cancel {id}",
                task.subject,
                id = task.id
            )));
        }
        task = client.get(&path_of(task.id))?;
    }
    bar.finish_and_clear();
    match task.state {
        TaskState::Failed => Err(match task.problem {
            Some(problem) => problem.into(),
            None => Failure::other(format!("task {} failed; see the daemon's log", task.id)),
        }),
        TaskState::Cancelled => Err(Failure::other(format!("task {} was cancelled", task.id))),
        TaskState::Running | TaskState::Done => report_of(&task),
    }
}

/// Starts a task when no conflicting task is running.
fn begin_after_others(
    begin: impl Fn() -> Result<Task, RestError>,
    interruption: &mut Interruption,
) -> Result<Task, Failure> {
    let mut told = 0;
    loop {
        let refusal = match begin() {
            Err(RestError::Refused(problem)) if problem.kind == ProblemKind::Busy => problem,
            begun => return Ok(begun?),
        };
        // A refusal for another reason than a task cannot be resolved by waiting.
        let Some(id) = refusal.task else { return Err(refusal.into()) };
        if told != id {
            tell(format_args!("waiting for task {id} to finish"));
            told = id;
        }
        if interruption.came_within(ASK_INTERVAL) {
            let why = format!("task {id} still runs; nothing was started");
            return Err(Failure::interrupted(why));
        }
    }
}

/// Reports a completed task. If it found defects, the command fails.
fn report_of(task: &Task) -> Result<Report, Failure> {
    let complaints = task.result.as_ref().map_or(&[][..], |result| &result.complaints);
    if !complaints.is_empty() {
        return Err(Failure::other(format!("{}: {}", task.subject, complaints.join("; "))));
    }
    Ok(Report::of(done_text(task), task))
}

/// Handler of Ctrl-C while waiting for a task.
struct Interruption {
    runtime: tokio::runtime::Runtime,
    signal: tokio::signal::unix::Signal,
}

impl Interruption {
    fn listen() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::other(format!("cannot handle Ctrl-C (SIGINT): {error}"))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let signal = {
            let _inside = runtime.enter();
            signal(SignalKind::interrupt()).map_err(failed)?
        };
        Ok(Self { runtime, signal })
    }

    /// Waits at most `time` for Ctrl-C.
    fn came_within(&mut self, time: Duration) -> bool {
        let waiting = async { tokio::time::timeout(time, self.signal.recv()).await };
        self.runtime.block_on(waiting).is_ok()
    }
}

fn bar(task: &Task, form: Form) -> ProgressBar {
    if form == Form::Json || !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template(BAR).expect("the template is well-formed");
    ProgressBar::new(task.total_bytes).with_style(style).with_message(task.subject.clone())
}

fn done_text(task: &Task) -> String {
    let Some(result) = &task.result else { return task.subject.clone() };
    let what = match (task.kind, result.image) {
        (TaskKind::ImageFetch, Some(_)) => format!("restored {}", task.subject),
        (TaskKind::PoolResize, _) => {
            let size = task.subject.rsplit(" to ").next().unwrap_or_default();
            return format!("pool resized to {size} in {:.1} s", task.elapsed_seconds);
        }
        (_, Some(number)) => format!("image {number}"),
        (_, None) => task.subject.clone(),
    };
    if result.volumes == Some(0) {
        return format!(
            "{what} contains no volumes: there are none of class image or journal; to include \
             volumes of class ram, name them: memlane image save VOLUME"
        );
    }
    let size = |bytes| ByteSize(bytes).rounded();
    if result.moved_bytes == 0 {
        return format!("{what}: done in {:.1} s", task.elapsed_seconds);
    }
    format!(
        "{what}: {} in {:.1} s, {}/s",
        size(result.moved_bytes),
        task.elapsed_seconds,
        size(result.bytes_per_second)
    )
}

fn list_text(tasks: &[Task], view: &View) -> Result<String, Failure> {
    let table = Table::of(
        tasks,
        &[
            ("TASK", &|it| Cell::number(it.id)),
            ("WHAT", &|it| Cell::text(word_of(&it.kind).replace('_', " "))),
            ("ABOUT", &|it| Cell::text(&it.subject)),
            ("STATE", &|it| Cell::text(word_of(&it.state))),
            ("DONE", &|it| Cell::size(it.done_bytes)),
            ("OF", &|it| Cell::size(it.total_bytes)),
        ],
    );
    table.viewed(view)
}

fn path_of(id: u64) -> String {
    api::path_of(api::TASK_PATH, &id.to_string())
}

#[cfg(test)]
mod tests {
    use api::TaskResult;

    use super::*;

    #[test]
    fn the_result_of_a_task_says_what_was_done() {
        for (kind, subject, image, moved_bytes, expected) in [
            (
                TaskKind::PoolResize,
                "the pool to 10.0 MiB",
                None,
                0,
                "pool resized to 10.0 MiB in 0.5 s",
            ),
            (
                TaskKind::ImageFetch,
                "a as b from image 8",
                Some(8),
                0,
                "restored a as b from image 8: done in 0.5 s",
            ),
            (
                TaskKind::ImageSave,
                "an image",
                Some(8),
                4096,
                "image 8: 4.00 KiB in 0.5 s, 8.00 KiB/s",
            ),
            (TaskKind::ImageFetch, "restored volumes", None, 0, "restored volumes: done in 0.5 s"),
        ] {
            let result = TaskResult {
                image,
                moved_bytes,
                bytes_per_second: 2 * moved_bytes,
                ..TaskResult::default()
            };
            let task = Task {
                id: 1,
                kind,
                subject: subject.to_owned(),
                state: TaskState::Done,
                done_bytes: moved_bytes,
                total_bytes: moved_bytes,
                begun_unix_seconds: 0,
                elapsed_seconds: 0.5,
                result: Some(result),
                problem: None,
            };
            assert_eq!(done_text(&task), expected);
        }
    }
}
