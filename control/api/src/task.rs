//! Tasks: operations that are too long to wait for a response. A task continues when the client
//! that started it disconnects.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::problem::Problem;

/// Kind of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    ImageSave,
    /// Fetches the contents of restored volumes in the background.
    ImageFetch,
    ImageVerify,
    /// Measures the throughput of the image store without saving an image.
    ImageRehearse,
    /// Resizes the pool.
    PoolResize,
}

/// State of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    Running,
    Done,
    Failed,
    /// Cancelled. Partial results were removed.
    Cancelled,
}

impl TaskState {
    pub fn is_over(self) -> bool {
        self != Self::Running
    }
}

/// A long operation. The daemon keeps the last 100 finished tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Task {
    /// Id of the task: increases with each task of this run of the daemon.
    #[schema(minimum = 1)]
    pub id: u64,
    pub kind: TaskKind,
    /// Subject of the task, as `image 7`.
    pub subject: String,
    pub state: TaskState,
    pub done_bytes: u64,
    /// Zero while it is not known yet.
    pub total_bytes: u64,
    /// When it began, in seconds since 1970.
    pub begun_unix_seconds: u64,
    /// Elapsed time of the task.
    #[schema(minimum = 0)]
    pub elapsed_seconds: f64,
    /// Result of the task; null until it is done.
    #[schema(required)]
    pub result: Option<TaskResult>,
    /// Error of the task; null unless it failed.
    #[schema(required)]
    pub problem: Option<Problem>,
}

/// Result of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TaskResult {
    /// The image that was saved, restored or verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub image: Option<u64>,
    /// Number of volumes and snapshots in an image that was saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<u64>,
    /// Bytes that went to the store or came from it.
    pub moved_bytes: u64,
    /// Throughput: `moved_bytes` per second.
    pub bytes_per_second: u64,
    /// Faults that were found, one line each; empty when all is well.
    pub complaints: Vec<String>,
}
