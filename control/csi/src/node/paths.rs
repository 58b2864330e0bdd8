//! Paths in requests.

use std::path::{Path, PathBuf};

use tonic::Status;

use super::mounts::resolved;

/// Validates and resolves a path in a request.
pub(super) fn target(path: &str, field: &str) -> Result<PathBuf, Status> {
    match Path::new(path) {
        path if path.is_absolute() => resolved(path),
        path => {
            let why = format!("{field} {:?} is not an absolute path", path.display());
            Err(Status::invalid_argument(why))
        }
    }
}

/// Rejects a missing path.
pub(super) fn check_path(path: &str, field: &str) -> Result<(), Status> {
    match path.is_empty() {
        true => Err(Status::invalid_argument(format!("the request has no {field}"))),
        false => Ok(()),
    }
}

/// Resolves the path of a published volume. A relative path is `NOT_FOUND`.
pub(super) fn published(path: &str) -> Result<PathBuf, Status> {
    match Path::new(path) {
        path if path.is_absolute() => resolved(path),
        path => Err(Status::not_found(format!("nothing is mounted at {:?}", path.display()))),
    }
}
