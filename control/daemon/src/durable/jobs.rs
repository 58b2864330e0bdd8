//! Tasks that save and fetch images, started on request or on schedule.

use std::sync::Arc;
use std::time::Instant;

use api::{Problem, ProblemKind, Task, TaskKind, TaskResult};
use durable_set::{DurableError, DurableErrorKind};
use image::{ImageError, ImageErrorKind};
use volumes::{VolumeError, VolumeErrorKind};

use crate::durable::saving::SavedImage;
use crate::durable::state::Durable;
use crate::error_text;
use crate::tasks::{Progress, TaskEnd, Tasks};

impl Durable {
    /// Starts a task that saves an image, as [`Durable::save`] does.
    pub(crate) fn begin_save(
        self: &Arc<Self>,
        tasks: &Arc<Tasks>,
        also: Vec<String>,
        label: String,
    ) -> Result<Task, Problem> {
        let durable = Arc::clone(self);
        tasks.begin(TaskKind::ImageSave, "all volumes", move |progress| {
            let saved = durable.save(&also, &label, progress).map_err(ended)?;
            Ok(TaskResult {
                image: Some(saved.number),
                volumes: Some(saved.volume_count),
                ..written(&saved)
            })
        })
    }

    /// Starts a task that measures the write throughput of the image store.
    pub(crate) fn begin_rehearsal(self: &Arc<Self>, tasks: &Arc<Tasks>) -> Result<Task, Problem> {
        let durable = Arc::clone(self);
        tasks.begin(TaskKind::ImageRehearse, "the store", move |progress| {
            durable.rehearse(progress).map(|rehearsed| written(&rehearsed)).map_err(ended)
        })
    }

    /// Starts a task that fetches absent blocks of `image`, or of the image that they were restored
    /// from.
    pub(crate) fn begin_fetch(
        self: &Arc<Self>,
        tasks: &Arc<Tasks>,
        subject: impl Into<String>,
        image: Option<u64>,
    ) -> Result<Task, Problem> {
        let durable = Arc::clone(self);
        tasks.begin(TaskKind::ImageFetch, subject, move |progress| {
            let begun = Instant::now();
            let moved_bytes = durable.fetch_absent(progress).map_err(ended)?;
            Ok(TaskResult { image, ..moved(moved_bytes, begun) })
        })
    }
}

fn written(image: &SavedImage) -> TaskResult {
    TaskResult {
        moved_bytes: image.bytes_written,
        bytes_per_second: image.bytes_per_second,
        ..TaskResult::default()
    }
}

/// Task result for this number of bytes moved since `begun`.
pub(crate) fn moved(moved_bytes: u64, begun: Instant) -> TaskResult {
    let milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
    let bytes_per_second = moved_bytes.saturating_mul(1000) / milliseconds;
    TaskResult { moved_bytes, bytes_per_second, ..TaskResult::default() }
}

impl image::Watch for Progress {
    fn on_progress(&self, progress: image::Progress) {
        self.set(progress.done_bytes, progress.total_bytes);
    }

    fn is_cancelled(&self) -> bool {
        Progress::is_cancelled(self)
    }
}

/// Converts an error to the end of a failed task.
pub(crate) fn ended(error: anyhow::Error) -> TaskEnd {
    let image_error = error.chain().find_map(|cause| cause.downcast_ref::<ImageError>());
    let volume_error = error.chain().find_map(|cause| cause.downcast_ref::<VolumeError>());
    let durable_error = error.chain().find_map(|cause| cause.downcast_ref::<DurableError>());
    let of_set = match durable_error.map(|error| error.kind) {
        Some(DurableErrorKind::StartOfJournal) => Some(ProblemKind::InUse),
        Some(DurableErrorKind::Restoring) => Some(ProblemKind::Busy),
        Some(DurableErrorKind::NotInImage) => Some(ProblemKind::NotFound),
        _ => None,
    };
    let is_short = volume_error.is_some_and(|error| error.kind == VolumeErrorKind::NoSpace);
    let kind = match image_error.map(|error| error.kind) {
        Some(ImageErrorKind::Cancelled) => return TaskEnd::Cancelled,
        Some(ImageErrorKind::NotFound | ImageErrorKind::Unfinished) => ProblemKind::NotFound,
        Some(ImageErrorKind::NoSpace | ImageErrorKind::PoolFull | ImageErrorKind::GaveWay) => {
            ProblemKind::NoSpace
        }
        Some(ImageErrorKind::InUse) => ProblemKind::InUse,
        _ if is_short => ProblemKind::NoSpace,
        _ => of_set.unwrap_or(ProblemKind::HostFailed),
    };
    TaskEnd::Failed(Problem::new(kind, error_text::in_one_line(&error)))
}
