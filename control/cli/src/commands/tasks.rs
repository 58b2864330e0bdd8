//! Tasks: watched to their end, listed and cancelled.

use std::io::IsTerminal;
use std::time::Duration;

use api::{ByteSize, ProblemKind, Task, TaskState};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::word_of;
use crate::arguments::TaskCommand;
use crate::failure::Failure;
use crate::output::{Form, Report};
use crate::table::{Cell, Table, View};
use rest_client::{Client, RestError};

/// How often a task is asked how far it is.
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

/// Begins a task and shows its progress until it is over, unless it is to run in the background.
/// The task goes on without this program, too. First waits for a task that conflicts with it, such
/// as the daemon's own save of an image.
pub(super) fn follow(
    client: &Client,
    background: bool,
    form: Form,
    begin: impl Fn() -> Result<Task, RestError>,
) -> Result<Report, Failure> {
    // First, so that a task is never said to go on that was not begun.
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

/// Begins a task as soon as no other runs that the daemon refuses it for.
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
        // It may be refused for something else than a task, which no wait ends.
        let Some(id) = refusal.task else { return Err(refusal.into()) };
        if told != id {
            eprintln!("memlane: waiting for task {id} to finish");
            told = id;
        }
        if interruption.came_within(ASK_INTERVAL) {
            let why = format!("task {id} still runs; nothing was started");
            return Err(Failure::interrupted(why));
        }
    }
}

/// A task that found something wrong has done its work, and the command has failed all the same.
fn report_of(task: &Task) -> Result<Report, Failure> {
    let complaints = task.result.as_ref().map_or(&[][..], |result| &result.complaints);
    if !complaints.is_empty() {
        return Err(Failure::other(format!("{}: {}", task.subject, complaints.join("; "))));
    }
    Ok(Report::of(done_text(task), task))
}

/// Ctrl-C, while a task is watched.
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

    /// Waits for it, for as long as `time`.
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
    let what = match result.image {
        Some(number) => format!("image {number}"),
        None => task.subject.clone(),
    };
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
