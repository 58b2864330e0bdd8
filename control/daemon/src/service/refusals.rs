//! Problems that requests are refused with.

use api::{Problem, ProblemKind};
use durable_set::DurableError;
use volumes::{Volume, VolumeError, VolumeErrorKind};

use crate::exports::DeviceFailure;

/// Converts an error of the engine. The engine's message describes the error; this adds the field.
pub(super) fn of_volume(error: &VolumeError) -> Problem {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    let detail = format!("{error}{}", cause.unwrap_or_default());
    match error.kind {
        VolumeErrorKind::InvalidName => {
            Problem::new(ProblemKind::InvalidField, detail).in_field("name")
        }
        VolumeErrorKind::InvalidSize => {
            Problem::new(ProblemKind::InvalidField, detail).in_field("size")
        }
        VolumeErrorKind::AlreadyExists => {
            Problem::new(ProblemKind::AlreadyExists, detail).in_field("name")
        }
        VolumeErrorKind::NotFound => Problem::new(ProblemKind::NotFound, detail),
        VolumeErrorKind::TooManyVolumes | VolumeErrorKind::TooManyDurable => {
            Problem::new(ProblemKind::TooManyVolumes, detail)
        }
        VolumeErrorKind::DataPastNewEnd => {
            Problem::new(ProblemKind::DataBehindNewEnd, detail).in_field("size")
        }
        VolumeErrorKind::IsSnapshot => Problem::new(ProblemKind::NotSupported, detail),
        VolumeErrorKind::HasSnapshots => Problem::new(ProblemKind::InUse, detail),
        VolumeErrorKind::NoSpace => Problem::new(ProblemKind::NoSpace, detail),
        VolumeErrorKind::Damaged => Problem::new(ProblemKind::HostFailed, detail),
    }
}

/// Converts a change that the engine refused or that could not be made durable; the latter with
/// advice.
pub(super) fn of_change(error: DurableError, way_on: Option<String>) -> Problem {
    if let Some(refusal) = error.volume_error() {
        return of_volume(refusal);
    }
    let way_on = way_on.map(|way_on| format!("; {way_on}")).unwrap_or_default();
    let detail = format!("{:#}{way_on}", anyhow::Error::from(error));
    Problem::new(ProblemKind::HostFailed, detail)
}

pub(super) fn of_device(action: &str, name: &str, failure: &DeviceFailure) -> Problem {
    let kind = match failure {
        DeviceFailure::InUse(_) => ProblemKind::InUse,
        DeviceFailure::Host(_) => ProblemKind::HostFailed,
        DeviceFailure::Missing(_) => ProblemKind::NotSupported,
    };
    Problem::new(kind, format!("cannot {action} volume {name:?}: {failure}"))
}

/// Problem of two independent writers of one volume, which would corrupt its contents.
pub(super) fn of_sharing(volume: &Volume, user: &str, remedy: &str) -> Problem {
    let detail = format!(
        "volume {:?} is {user}; two hosts that mount one file system corrupt it; {remedy} \
         first, or use share (--share) for a cluster file system",
        volume.name()
    );
    Problem::new(ProblemKind::InUse, detail).in_field("volume")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: VolumeErrorKind, expected: ProblemKind, field: Option<&str>) {
        let problem = of_volume(&VolumeError::new(kind, "db"));
        assert_eq!((problem.kind, problem.field.as_deref()), (expected, field));
        assert!(problem.detail.contains("\"db\""), "{problem:?}");
    }

    #[test]
    fn each_refusal_of_the_engine_has_its_kind_and_field() {
        check(VolumeErrorKind::InvalidName, ProblemKind::InvalidField, Some("name"));
        check(VolumeErrorKind::InvalidSize, ProblemKind::InvalidField, Some("size"));
        check(VolumeErrorKind::AlreadyExists, ProblemKind::AlreadyExists, Some("name"));
        check(VolumeErrorKind::NotFound, ProblemKind::NotFound, None);
        check(VolumeErrorKind::TooManyVolumes, ProblemKind::TooManyVolumes, None);
        check(VolumeErrorKind::TooManyDurable, ProblemKind::TooManyVolumes, None);
        check(VolumeErrorKind::IsSnapshot, ProblemKind::NotSupported, None);
        check(VolumeErrorKind::HasSnapshots, ProblemKind::InUse, None);
        check(VolumeErrorKind::NoSpace, ProblemKind::NoSpace, None);
        check(VolumeErrorKind::Damaged, ProblemKind::HostFailed, None);
        check(VolumeErrorKind::DataPastNewEnd, ProblemKind::DataBehindNewEnd, Some("size"));
        check(VolumeErrorKind::HasSnapshots, ProblemKind::InUse, None);
        check(VolumeErrorKind::IsSnapshot, ProblemKind::NotSupported, None);
    }
}
