//! Conversion of object store errors to image errors.

use image::{ImageError, ImageErrorKind};
use object_store::Error;

pub(crate) fn image_error(source: Error, attempt: impl Into<String>) -> ImageError {
    let kind = match &source {
        Error::NotFound { .. } => ImageErrorKind::NotFound,
        Error::AlreadyExists { .. } | Error::Precondition { .. } => ImageErrorKind::AlreadyExists,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => ImageErrorKind::Denied,
        Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::InvalidPath { .. }
        | Error::UnknownConfigurationKey { .. } => ImageErrorKind::Invalid,
        _ => ImageErrorKind::Unavailable,
    };
    ImageError::new(kind, attempt).with_source(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: Error, expected: ImageErrorKind) {
        assert_eq!(image_error(error, "read").kind, expected);
    }

    #[test]
    fn errors_fall_into_classes() {
        let (path, source) = (String::new, || "reason".into());
        check(Error::NotFound { path: path(), source: source() }, ImageErrorKind::NotFound);
        check(
            Error::AlreadyExists { path: path(), source: source() },
            ImageErrorKind::AlreadyExists,
        );
        check(
            Error::Precondition { path: path(), source: source() },
            ImageErrorKind::AlreadyExists,
        );
        check(Error::PermissionDenied { path: path(), source: source() }, ImageErrorKind::Denied);
        check(Error::Unauthenticated { path: path(), source: source() }, ImageErrorKind::Denied);
        check(Error::NotSupported { source: source() }, ImageErrorKind::Invalid);
        check(Error::Generic { store: "S3", source: source() }, ImageErrorKind::Unavailable);
    }
}
