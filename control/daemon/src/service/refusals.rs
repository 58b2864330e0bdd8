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
    // Drivers name the device, and some the volume, with the same verb.
    let failure = failure.to_string();
    let own = [format!("cannot {action} volume {name}: "), format!("cannot {action} ")];
    let cause = own.iter().find_map(|own| failure.strip_prefix(own)).unwrap_or(&failure);
    Problem::new(kind, format!("cannot {action} volume {name:?}: {cause}"))
}

/// Problem of two independent writers of one volume, which would corrupt its contents.
pub(super) fn of_sharing(volume: &Volume, user: &str, remedy: &str) -> Problem {
    let detail = format!(
        "volume {:?} is {user}; {remedy}, or use share (--share) for a cluster file system: two \
         hosts that mount any other file system corrupt it",
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

    #[track_caller]
    fn check_device(failure: &str, expected: &str) {
        let failure = DeviceFailure::InUse(anyhow::anyhow!("{failure}"));
        assert_eq!(of_device("detach", "db", &failure).detail, expected);
    }

    #[test]
    fn what_a_driver_attempted_is_not_repeated() {
        let (busy, told) = ("it is mounted", "cannot detach volume \"db\": ");
        check_device(
            &format!("cannot detach /dev/loop3: {busy}"),
            &format!("{told}/dev/loop3: {busy}"),
        );
        check_device(&format!("cannot detach volume db: {busy}"), &format!("{told}{busy}"));
        check_device("cannot open /dev/loop3", &format!("{told}cannot open /dev/loop3"));
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
