//! Status of a standby.

use api::{
    AtRisk, DurabilityStatus, ImagesStatus, SkippedImage, StandbyMirroring, StandbyState, Warning,
};
use image::Mirroring;

use crate::standby::following::Standby;
use crate::standby::lag::{journal_lag_seconds, lag_seconds};

impl Standby {
    pub(crate) fn status(&self) -> api::Standby {
        let known = self.known().clone();
        let progress = self.follower.progress();
        let image = self.follower.generation().map(|read| read.image_number());
        let state = match (&known.failure, progress.image_number) {
            (Some(_), _) => StandbyState::Failing,
            (None, None) if known.has_looked => StandbyState::Waiting,
            (None, newest) if image.is_some() && image == newest => StandbyState::Following,
            (None, _) => StandbyState::Fetching,
        };
        let cause = known.failure.or_else(|| {
            let waits = || "the image store has no image yet".to_owned();
            (state == StandbyState::Waiting).then(waits)
        });
        let skipped = progress.skipped.into_iter();
        let skipped =
            skipped.map(|(number, cause)| SkippedImage { number: u64::from(number), cause });
        api::Standby {
            state,
            cause,
            store: self.place.clone(),
            image: image.map(u64::from),
            newest_image: progress.image_number.map(u64::from),
            newest_saved_unix_seconds: progress.saved_unix_seconds,
            lag_seconds: progress.saved_unix_seconds.and_then(lag_seconds),
            journal_lag_seconds: progress.shipped_unix_micros.and_then(journal_lag_seconds),
            mirroring: match progress.mirroring {
                Mirroring::Off | Mirroring::Unused => StandbyMirroring::Off,
                Mirroring::MayStop => StandbyMirroring::MayStop,
                Mirroring::Always => StandbyMirroring::Always,
            },
            journal_gap: progress.gap.map(|gap| gap.what),
            lag_bytes: progress.to_fetch_bytes,
            skipped: skipped.collect(),
        }
    }

    /// A standby accepts no writes, so no data is at risk.
    pub(crate) fn durability(&self) -> DurabilityStatus {
        let status = self.status();
        DurabilityStatus {
            at_risk: AtRisk { ram_bytes: 0, image_bytes: 0, journal_bytes: 0 },
            hold_up: None,
            encryption: None,
            journal: None,
            images: Some(ImagesStatus {
                store: status.store,
                last_image: status.newest_image,
                last_saved_unix_seconds: status.newest_saved_unix_seconds,
                every_seconds: None,
                shipping: None,
                mirror: None,
                failure: None,
                to_fetch_bytes: status.lag_bytes,
                unfetched_bytes: 0,
                unfetched: Vec::new(),
            }),
        }
    }

    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let status = self.status();
        let failing = status.cause.filter(|_| status.state == StandbyState::Failing);
        let failing = failing.map(|cause| Warning {
            kind: "standby_failing".to_owned(),
            message: format!("the standby cannot follow {}: {cause}", status.store),
        });
        let skipped = status.skipped.into_iter().map(|image| Warning {
            kind: "image_unreadable".to_owned(),
            message: format!("image {} cannot be followed: {}", image.number, image.cause),
        });
        failing.into_iter().chain(skipped).collect()
    }
}
