//! Images: saving, restoring, verification and deletion.

use std::time::Instant;

use api::{
    AcceptedLoss, ByteSize, Image, ImageRestore, ImageSave, ImageVolume, Problem, ProblemKind,
    Task, TaskKind, TaskResult, counted,
};
use block_device::BLOCK_BYTES;
use image::{ImageSummary, ImageVolumeKind, ListedImage, OpenImage};

use crate::durable;
use crate::service::Service;
use crate::service::words::EngineWord;
use crate::tasks::{Progress, TaskEnd};

/// Maximum number of damaged chunks in a response.
const COMPLAINT_COUNT_MAX: usize = 20;

impl Service {
    /// Lists all images, the oldest first.
    pub(crate) fn list_images(&self) -> Result<Vec<Image>, Problem> {
        let images = self.durable()?.list_images().map_err(problem)?;
        Ok(images.into_iter().map(describe).collect())
    }

    pub(crate) fn show_image(&self, number: u64) -> Result<Image, Problem> {
        let image = self.durable()?.open_image(number).map_err(problem)?;
        Ok(describe_whole(image.summary()))
    }

    pub(crate) fn delete_image(&self, number: u64) -> Result<(), Problem> {
        self.durable()?.delete_image(number).map_err(problem)?;
        tracing::info!(number, "image deleted");
        Ok(())
    }

    pub(crate) fn save_image(&self, request: &ImageSave) -> Result<Task, Problem> {
        for name in &request.also {
            self.volume(name).map_err(|problem| problem.in_field("also"))?;
        }
        if request.label.len() > image::LABEL_BYTES_MAX {
            let detail = format!("the label is longer than {} bytes", image::LABEL_BYTES_MAX);
            return Err(Problem::new(ProblemKind::InvalidField, detail).in_field("label"));
        }
        self.durable()?.begin_save(&self.tasks, request.also.clone(), request.label.clone())
    }

    /// Restores volumes of an image. The volumes exist when this returns; the task fetches their
    /// contents.
    pub(crate) fn restore_image(
        &self,
        number: u64,
        request: &ImageRestore,
    ) -> Result<Task, Problem> {
        let image = self.durable()?.open_image(number).map_err(problem)?;
        let wanted = self.choose(&image, request)?;
        if let Some(number) = self.durable()?.fetching() {
            let detail = format!(
                "volumes are still being restored from image {number}; wait until memlane \
                 status shows nothing to fetch"
            );
            return Err(Problem::new(ProblemKind::Busy, detail));
        }
        {
            let _locked = self.changes.lock(wanted.iter().map(|(_, name)| name.as_str()));
            for (_, name) in &wanted {
                if self.volume(name).is_ok() {
                    let detail = format!(
                        "volume {name:?} already exists; delete it, or restore one volume under \
                         another name (--as)"
                    );
                    let problem = Problem::new(ProblemKind::AlreadyExists, detail);
                    return Err(problem.in_field("volumes"));
                }
            }
            let restored = self.durable()?.restore(number, &wanted).map_err(problem);
            // They also exist if only stable storage could not record them.
            for volume in wanted.iter().filter_map(|(_, name)| self.volume(name).ok()) {
                tracing::info!(volume = volume.name(), number, "volume restored from an image");
                self.catalog.add(volume);
            }
            restored?;
        }
        let subject = restored_text(&wanted, number);
        self.durable()?.begin_fetch(&self.tasks, subject, Some(number))
    }

    pub(crate) fn verify_image(&self, number: u64) -> Result<Task, Problem> {
        let image = self.durable()?.open_image(number).map_err(problem)?;
        self.tasks.begin(TaskKind::ImageVerify, format!("image {number}"), move |progress| {
            verify(&image, progress)
        })
    }

    pub(crate) fn accept_loss(&self, name: &str) -> Result<AcceptedLoss, Problem> {
        let volume = self.volume(name)?;
        let given_up = self.durable()?.accept_loss(&volume.name()).map_err(problem)?;
        let bytes = |blocks| blocks * BLOCK_BYTES as u64;
        Ok(AcceptedLoss {
            lost_bytes: bytes(given_up.lost),
            fetched_bytes: bytes(given_up.present),
            to_fetch_bytes: bytes(given_up.left),
        })
    }

    pub(crate) fn rehearse_image(&self) -> Result<Task, Problem> {
        self.durable()?.begin_rehearsal(&self.tasks)
    }

    /// Pairs of the names in the image and the new names of the volumes to restore: at least one.
    fn choose(
        &self,
        image: &OpenImage,
        request: &ImageRestore,
    ) -> Result<Vec<(String, String)>, Problem> {
        let records = image.volumes();
        let chosen: Vec<usize> = match &request.volumes {
            None => (0..records.len())
                .filter(|&index| records[index].kind == ImageVolumeKind::Volume)
                .collect(),
            Some(names) => names
                .iter()
                .map(|name| {
                    let found = records.iter().position(|record| record.name == *name);
                    found.ok_or_else(|| {
                        let detail = format!("{} contains no volume {name:?}", image.id());
                        Problem::new(ProblemKind::NotFound, detail).in_field("volumes")
                    })
                })
                .collect::<Result<_, _>>()?,
        };
        if chosen.is_empty() {
            return Err(nothing_chosen(image, request));
        }
        let name_of = |index: usize| records[index].name.clone();
        match (&request.name, &chosen[..]) {
            (None, _) => Ok(chosen.iter().map(|&index| (name_of(index), name_of(index))).collect()),
            (Some(name), &[index]) => Ok(vec![(name_of(index), name.clone())]),
            (Some(_), _) => {
                let detail = "a new name is only valid with exactly one volume";
                Err(Problem::new(ProblemKind::InvalidField, detail).in_field("name"))
            }
        }
    }
}

fn nothing_chosen(image: &OpenImage, request: &ImageRestore) -> Problem {
    match &request.volumes {
        None => Problem::new(ProblemKind::NotFound, format!("{} contains no volumes", image.id())),
        Some(_) => {
            let detail = "name at least one volume, or leave the list out to restore all";
            Problem::new(ProblemKind::InvalidField, detail).in_field("volumes")
        }
    }
}

/// Formats what is restored, from pairs of names in the image and new names.
fn restored_text(restored: &[(String, String)], image: u64) -> String {
    let what = match restored {
        [(name, new_name)] if name == new_name => name.clone(),
        [(name, new_name)] => format!("{name} as {new_name}"),
        several => counted(several.len() as u64, "volume"),
    };
    format!("{what} from image {image}")
}

fn verify(image: &OpenImage, progress: &Progress) -> Result<TaskResult, TaskEnd> {
    let begun = Instant::now();
    let verified = image.verify(progress).map_err(|error| durable::ended(error.into()))?;
    let mut complaints: Vec<String> = verified
        .damage
        .iter()
        .take(COMPLAINT_COUNT_MAX)
        .map(|damage| {
            format!("{} (needed by {})", damage.error, durable::name_runs(&damage.blocks))
        })
        .collect();
    let more = verified.chunks_damaged.saturating_sub(complaints.len() as u64);
    if more > 0 {
        complaints.push(format!("{more} more damaged chunks"));
    }
    if verified.lost_blocks > 0 {
        let bytes = ByteSize(verified.lost_blocks * BLOCK_BYTES as u64).rounded();
        let runs = durable::name_runs(&verified.lost);
        complaints.push(format!("{bytes} were lost before the image was saved: {runs}"));
    }
    Ok(TaskResult { complaints, ..durable::moved(verified.bytes_read, begun) })
}

fn describe(listed: ListedImage) -> Image {
    match listed {
        ListedImage::Whole(summary) => describe_whole(summary),
        ListedImage::Unreadable { number, error } => Image {
            number: u64::from(number),
            saved_unix_seconds: 0,
            label: String::new(),
            stored_bytes: 0,
            volumes: Vec::new(),
            lost_bytes: 0,
            failure: Some(format!("{:#}", anyhow::Error::from(error))),
        },
    }
}

fn describe_whole(summary: ImageSummary) -> Image {
    let volume = |record: image::ImageVolume| ImageVolume {
        name: record.name,
        size_bytes: record.size_bytes,
        durability: record.durability.to_interface(),
    };
    Image {
        number: u64::from(summary.id.number()),
        saved_unix_seconds: summary.created_seconds,
        label: summary.label,
        stored_bytes: summary.chunk_bytes,
        volumes: summary.volumes.into_iter().map(volume).collect(),
        lost_bytes: summary.lost_blocks * BLOCK_BYTES as u64,
        failure: None,
    }
}

pub(super) fn problem(error: anyhow::Error) -> Problem {
    match durable::ended(error) {
        TaskEnd::Failed(problem) => problem,
        TaskEnd::Cancelled => Problem::new(ProblemKind::ShuttingDown, "it was cancelled"),
    }
}
