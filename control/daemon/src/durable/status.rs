//! Data at risk in a power loss, and the state of journal and images.

use std::time::Duration;

use api::{
    AtRisk, ByteSize, DurabilityStatus, EncryptionStatus, HoldUp, ImagesStatus, JournalStatus,
    VolumeBytes, Warning,
};
use block_device::BLOCK_BYTES;
use durable_set::UnfetchedObject;
use journal::JournalState;
use volumes::Durability;

use crate::config::OnJournalFailure;
use crate::durable::state::{Durable, place_of};
use crate::error_text;

/// A disk that takes longer for one write is reported as slow.
const SLOW_WRITE_MIN: Duration = Duration::from_secs(1);

impl Durable {
    pub(crate) fn status(&self) -> DurabilityStatus {
        let now = self.set.hold_up();
        let at_risk = at_risk(&now);
        let known = self.known().clone();
        let unfetched = self.set.unfetched();
        let hold_up = now.save_bytes_per_second.map(|bytes_per_second| HoldUp {
            bytes: at_risk.image_bytes,
            bytes_per_second,
            seconds: at_risk.image_bytes as f64 / bytes_per_second.max(1) as f64,
            measured_unix_seconds: known.measured_unix_seconds,
        });
        DurabilityStatus {
            at_risk,
            hold_up,
            encryption: self.encryption_status(),
            journal: self.journal_status(),
            images: Some(ImagesStatus {
                store: place_of(&self.images_config.store),
                last_image: known.newest.map(|newest| u64::from(newest.number)),
                last_saved_unix_seconds: known.newest.map(|newest| newest.saved_unix_seconds),
                every_seconds: self.images_config.every.map(|every| every.as_secs()),
                shipping: self.shipping_status(),
                mirror: self.mirror_status(),
                failure: known.failure,
                to_fetch_bytes: self.set.absent_blocks() * BLOCK_BYTES as u64,
                unfetched_bytes: unfetched.blocks * BLOCK_BYTES as u64,
                unfetched: unfetched.objects.iter().map(describe_unfetched).collect(),
            }),
        }
    }

    /// Warnings for the status.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let warning = |kind: &str, message| Warning { kind: kind.to_owned(), message };
        let mut warnings = Vec::new();
        if let Some(cause) = self.journal_failure() {
            let dir = self.journal_config.dir.display();
            let message = format!("cannot write the journal in {dir}: {cause}");
            warnings.push(warning("journal_failing", message));
        } else if let Some(cause) = self.journal_status().and_then(|status| status.cause) {
            warnings.push(warning("journal_slow", format!("the journal is slow: {cause}")));
        } else if self.journal().is_out_of_room() {
            let message =
                format!("the journal cannot grow: its file system is full; {}", self.way_to_room());
            warnings.push(warning("journal_disk_full", message));
        }
        if let Some(mirror) = self.mirror_status()
            && mirror.state != api::MirrorState::InSync
        {
            let what = match mirror.state {
                api::MirrorState::Alone => "are acknowledged without the image store",
                api::MirrorState::TakenOver => "fail",
                _ => "wait for the image store",
            };
            let cause = mirror.cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            let message = format!("flushes of class journal {what}{cause}");
            warnings.push(warning("mirror_degraded", message));
        }
        if let Some(failure) = self.known().failure.clone() {
            let message = error_text::failed("cannot save an image", &failure);
            warnings.push(warning("image_failed", message));
        }
        if let Some(failure) = self.known().fetch_failure.clone() {
            let message = format!(
                "cannot fetch contents of restored volumes; reads of them fail, and the fetch \
                 is retried: {failure}"
            );
            warnings.push(warning("image_unreachable", message));
        }
        if let Some(failure) = self.known().look_failure.clone() {
            let place = place_of(&self.images_config.store);
            let message = format!("cannot list the images in {place}; retrying: {failure}");
            warnings.push(warning("image_unreachable", message));
        }
        warnings.extend(self.key_warning());
        let unfetched = self.set.unfetched();
        warnings.extend(unfetched.objects.iter().map(|object| {
            let message = tell_unfetched(object, &place_of(&self.images_config.store));
            warning("image_object_missing", message)
        }));
        warnings
    }

    fn encryption_status(&self) -> Option<EncryptionStatus> {
        let encryption = self.encryption.as_ref()?;
        Some(EncryptionStatus {
            data_key: encryption.key.id().to_string(),
            wrapped_by: encryption.wrapped_by().to_string(),
            images_wrapped_by: self.known().store_key.map(|id| id.to_string()),
        })
    }

    /// Warns while the store can be opened only with the previous key.
    fn key_warning(&self) -> Option<Warning> {
        let wrapped_by = self.encryption.as_ref()?.wrapped_by();
        let old = self.known().store_key.filter(|&id| id != wrapped_by)?;
        let message = format!(
            "the newest image is still encrypted with the previous key {old}: keep that key until \
             the next image is saved, or run memlane image save now"
        );
        Some(Warning { kind: "image_key_previous".to_owned(), message })
    }
    fn journal_status(&self) -> Option<JournalStatus> {
        if !self.set.has_journal() {
            return None;
        }
        let status = self.journal().status();
        let slowness = status.writing_for.filter(|&time| time >= SLOW_WRITE_MIN).map(|time| {
            format!("the disk has not finished a write for {:.1} s", time.as_secs_f64())
        });
        let failure = match status.state {
            JournalState::Working => None,
            JournalState::Failing { failure, .. } => Some(failure.cause),
        };
        let is_failing = failure.is_some();
        let cause = failure.or(slowness);
        let state = match (&cause, self.journal_config.on_failure) {
            (None, _) => api::JournalState::Ok,
            (Some(_), OnJournalFailure::ReadOnly) if is_failing => api::JournalState::ReadOnly,
            (Some(_), _) => api::JournalState::Waiting,
        };
        Some(JournalStatus {
            dir: self.journal_config.dir.display().to_string(),
            state,
            cause,
            used_bytes: status.file_bytes,
            max_bytes: status.length_bytes_max,
            transactions: status.transactions,
            flushes: status.flushes,
        })
    }
}

fn describe_unfetched(object: &UnfetchedObject) -> api::UnfetchedObject {
    let volume = |(name, blocks): (&String, &u64)| VolumeBytes {
        name: name.clone(),
        bytes: blocks * BLOCK_BYTES as u64,
    };
    api::UnfetchedObject {
        object: format!("packs/{}", object.pack),
        cause: object.cause.clone(),
        volumes: object.volumes.iter().map(volume).collect(),
    }
}

/// Describes an object of the store at `place` that cannot be fetched.
pub(super) fn tell_unfetched(object: &UnfetchedObject, place: &str) -> String {
    let size = |blocks: u64| ByteSize(blocks * BLOCK_BYTES as u64).rounded();
    let volumes =
        object.volumes.iter().map(|(name, &blocks)| format!("{} of {name}", size(blocks)));
    format!(
        "cannot read packs/{} in {place} ({}): reads of {} fail. Bring the object back to \
         recover them; if it is lost for good, run memlane image accept-loss",
        object.pack,
        object.cause,
        volumes.collect::<Vec<_>>().join(", ")
    )
}

fn at_risk(now: &durable_set::HoldUp) -> AtRisk {
    let lost = |class: Durability| {
        now.losses.iter().find(|loss| loss.class == class).map_or(0, |loss| loss.lost_bytes)
    };
    AtRisk {
        ram_bytes: lost(Durability::Ram),
        image_bytes: lost(Durability::Image),
        journal_bytes: lost(Durability::Journal),
    }
}
