//! Problems that the service refuses requests with.

use api::{Capacity, Durability, Problem, ProblemKind};
use volume::{VolumeError, VolumeErrorKind};

use crate::exports::DeviceFailure;

/// The engine's refusal, in the words of the interface. The engine's own message says what is
/// wrong; what is added is the field.
pub(super) fn of_volume(error: &VolumeError) -> Problem {
    let detail = error.to_string();
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
        VolumeErrorKind::TooManyVolumes => Problem::new(ProblemKind::TooManyVolumes, detail),
        VolumeErrorKind::DataBehindNewEnd => {
            Problem::new(ProblemKind::DataBehindNewEnd, detail).in_field("size")
        }
        VolumeErrorKind::NoSpace => Problem::new(ProblemKind::NoSpace, detail),
        VolumeErrorKind::HasSnapshots => {
            let which = error.source.as_ref().map(|names| format!(": {names}")).unwrap_or_default();
            Problem::new(ProblemKind::InUse, detail + &which)
        }
        VolumeErrorKind::IsSnapshot => Problem::new(ProblemKind::NotSupported, detail),
        VolumeErrorKind::Damaged => Problem::new(ProblemKind::HostFailed, detail),
    }
}

pub(super) fn of_device(action: &str, name: &str, failure: &DeviceFailure) -> Problem {
    let kind = match failure {
        DeviceFailure::InUse(_) => ProblemKind::InUse,
        DeviceFailure::Host(_) => ProblemKind::HostFailed,
    };
    Problem::new(kind, format!("cannot {action} the volume {name:?}: {failure}"))
}

/// The classes that this version has.
pub(super) fn check_classes(
    durability: Option<Durability>,
    capacity: Option<Capacity>,
) -> Result<(), Problem> {
    if durability.is_some_and(|class| class != Durability::Ram) {
        let detail = "only the durability ram is available in this version";
        return Err(Problem::new(ProblemKind::NotSupported, detail).in_field("durability"));
    }
    if capacity.is_some_and(|class| class != Capacity::Thin) {
        let detail = "only the capacity thin is available in this version";
        return Err(Problem::new(ProblemKind::NotSupported, detail).in_field("capacity"));
    }
    Ok(())
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
        check(VolumeErrorKind::DataBehindNewEnd, ProblemKind::DataBehindNewEnd, Some("size"));
        check(VolumeErrorKind::HasSnapshots, ProblemKind::InUse, None);
        check(VolumeErrorKind::IsSnapshot, ProblemKind::NotSupported, None);
    }

    #[test]
    fn classes_that_do_not_exist_yet_are_refused_by_field() {
        let field = |durability, capacity| {
            check_classes(durability, capacity).map_err(|problem| problem.field)
        };
        assert_eq!(field(Some(Durability::Ram), Some(Capacity::Thin)), Ok(()));
        assert_eq!(field(Some(Durability::Image), None), Err(Some("durability".to_owned())));
        assert_eq!(field(Some(Durability::Journal), None), Err(Some("durability".to_owned())));
        assert_eq!(field(None, Some(Capacity::Guaranteed)), Err(Some("capacity".to_owned())));
    }
}
