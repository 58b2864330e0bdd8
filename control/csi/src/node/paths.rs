//! Paths in requests.

use std::path::{Path, PathBuf};

use tonic::Status;

use super::mounts::resolved;

/// A path of a request, resolved.
pub(super) fn target(path: &str, field: &str) -> Result<PathBuf, Status> {
    match Path::new(path) {
        path if path.is_absolute() => resolved(path),
        path => {
            let why = format!("{field} {:?} is not an absolute path", path.display());
            Err(Status::invalid_argument(why))
        }
    }
}

/// Refuses a path that is left out.
pub(super) fn check_path(path: &str, field: &str) -> Result<(), Status> {
    match path.is_empty() {
        true => Err(Status::invalid_argument(format!("the request has no {field}"))),
        false => Ok(()),
    }
}

/// A path at which a volume is said to be.
pub(super) fn published(path: &str) -> Result<PathBuf, Status> {
    match Path::new(path) {
        path if path.is_absolute() => resolved(path),
        path => Err(Status::not_found(format!("nothing is mounted at {:?}", path.display()))),
    }
}
