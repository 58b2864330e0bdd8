//! Conversion of object store errors to image errors.

use std::iter::successors;

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
    ImageError::new(kind, attempt).with_source(told_once(&source))
}

/// Formats an error and its causes. Those that the text above already contains are omitted: errors
/// of the client usually repeat their cause.
fn told_once(error: &dyn std::error::Error) -> String {
    let causes = successors(error.source(), |cause| cause.source()).map(ToString::to_string);
    causes.fold(error.to_string(), |text, cause| match text.contains(&cause) {
        true => text,
        false => format!("{text}: {cause}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: Error, expected: ImageErrorKind) {
        assert_eq!(image_error(error, "read").kind, expected);
    }

    #[test]
    fn a_cause_is_told_once() {
        let refused = std::io::Error::other("connection refused");
        let inner = Error::Generic { store: "HTTP", source: Box::new(refused) };
        let error = Error::Generic { store: "S3", source: Box::new(inner) };
        let error = image_error(error, "list the images");
        let told = error.source.expect("the cause").to_string();
        assert_eq!(told, "Generic S3 error: Generic HTTP error: connection refused");
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
