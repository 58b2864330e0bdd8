//! Errors as RFC 9457 problem details.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Media type of a problem.
pub const PROBLEM_CONTENT_TYPE: &str = "application/problem+json";

/// Defines each kind with its name in JSON, its HTTP status code and its title.
macro_rules! problem_kinds {
    ($($(#[$about:meta])* $kind:ident = ($name:literal, $status:literal, $title:literal),)*) => {
        /// The class of a problem: stable words to match on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum ProblemKind {
            $($(#[$about])* $kind,)*
        }

        impl ProblemKind {
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            const fn parts(self) -> (&'static str, u16, &'static str) {
                match self {
                    $(Self::$kind => ($name, $status, $title),)*
                }
            }
        }
    };
}

problem_kinds! {
    /// The body is not valid JSON of the expected form.
    InvalidRequest = ("invalid_request", 400, "The request is malformed"),
    /// The field named by `field` has an invalid value.
    InvalidField = ("invalid_field", 422, "A field has an invalid value"),
    /// The field named by `field` does not exist.
    UnknownField = ("unknown_field", 422, "The request has an unknown field"),
    /// The value is valid, but not supported by this version or host.
    NotSupported = ("not_supported", 422, "The request is not supported"),
    /// The caller is neither root, the daemon's own user, nor in the group `memlane`.
    Forbidden = ("forbidden", 403, "The caller may not use this socket"),
    /// No object has this name or number.
    NotFound = ("not_found", 404, "No object has this name"),
    /// The path does not exist.
    UnknownPath = ("unknown_path", 404, "The path does not exist"),
    MethodNotAllowed = ("method_not_allowed", 405, "The path does not support this method"),
    AlreadyExists = ("already_exists", 409, "An object of this name exists already"),
    /// The object is in use; `detail` says by what.
    InUse = ("in_use", 409, "The object is in use"),
    /// Another operation is running; `detail` says which.
    Busy = ("busy", 409, "Another operation is running"),
    /// The task has ended, so it cannot be cancelled.
    Ended = ("ended", 409, "The task has already ended"),
    /// The daemon is a standby: its volumes are read-only until it is promoted.
    Standby = ("standby", 409, "The daemon is a standby"),
    /// Acknowledged data would be lost and `accept_loss` was not given; `detail` says which.
    Loss = ("loss", 409, "Acknowledged data would be lost"),
    /// The object has changed since the caller read it (`If-Match`).
    PreconditionFailed = ("precondition_failed", 412, "The object has changed since it was read"),
    /// A shrink would drop data and `force` was not given.
    DataBehindNewEnd = ("data_behind_new_end", 409, "The new size would cut off data"),
    /// The pool or the image store is full.
    NoSpace = ("no_space", 507, "No space left"),
    /// The maximum number of volumes, or of durable volumes, is reached; `detail` says which.
    TooManyVolumes = ("too_many_volumes", 409, "The limit on the number of volumes is reached"),
    BodyTooLarge = ("body_too_large", 413, "The request body is too large"),
    /// The body did not arrive in time.
    Timeout = ("timeout", 408, "Timed out reading the request"),
    /// The daemon is starting; `detail` names the step.
    Starting = ("starting", 503, "The daemon is starting"),
    /// The daemon is stopping.
    ShuttingDown = ("shutting_down", 503, "The daemon is shutting down"),
    /// An operation of the host failed; `detail` says which.
    HostFailed = ("host_failed", 500, "An operation of the host failed"),
    /// Internal error: a bug in the daemon.
    Internal = ("internal", 500, "Internal error of the daemon"),
}

impl ProblemKind {
    /// Name of the kind in JSON.
    pub const fn name(self) -> &'static str {
        self.parts().0
    }

    /// HTTP status code of the kind.
    pub const fn status(self) -> u16 {
        self.parts().1
    }

    /// Title of the kind, the same for all its problems.
    pub const fn title(self) -> &'static str {
        self.parts().2
    }

    /// Returns whether the daemon or its host failed. Other requests are refused: the caller can
    /// change them, or repeat them later.
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::HostFailed | Self::Internal)
    }
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a request was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `urn:memlane:problem:` and the kind.
    #[serde(rename = "type")]
    pub type_uri: String,
    /// Summary of the kind.
    pub title: String,
    /// The HTTP status code.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    pub kind: ProblemKind,
    /// Description of the failure: what was attempted, on what, what is wrong and what to do.
    pub detail: String,
    /// The invalid field of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The running task that has to end first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u64>,
}

impl Problem {
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self {
            type_uri: format!("urn:memlane:problem:{kind}"),
            title: kind.title().to_owned(),
            status: kind.status(),
            kind,
            detail: detail.into(),
            field: None,
            task: None,
        }
    }

    /// Adds the invalid field to the problem.
    #[must_use]
    pub fn in_field(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// Adds the running task that must end first.
    #[must_use]
    pub fn behind_task(self, id: u64) -> Self {
        Self { task: Some(id), ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "{field}: {}", self.detail),
            None => f.write_str(&self.detail),
        }
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_the_same_name_in_code_and_in_json() {
        for &kind in ProblemKind::ALL {
            let json = serde_json::to_value(kind).expect("a kind is plain text");
            assert_eq!(json, kind.name());
        }
    }

    #[test]
    fn a_problem_is_written_as_problem_details() {
        let problem = Problem::new(ProblemKind::InvalidField, "too large").in_field("size");
        let json = serde_json::to_value(&problem).expect("a problem is plain data");
        assert_eq!(
            json,
            serde_json::json!({
                "type": "urn:memlane:problem:invalid_field",
                "title": "A field has an invalid value",
                "status": 422,
                "kind": "invalid_field",
                "detail": "too large",
                "field": "size",
            })
        );
    }
}
