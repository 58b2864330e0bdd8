//! Refusals and failures, as RFC 9457 problem details.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The media type of a problem.
pub const PROBLEM_CONTENT_TYPE: &str = "application/problem+json";

/// The class of a problem: stable words to match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The body is not the JSON that is expected.
    InvalidRequest,
    /// The field that `field` names has a value that it cannot have.
    InvalidField,
    /// The field that `field` names does not exist.
    UnknownField,
    /// The value is understood, but not available in this version or on this host.
    NotSupported,
    /// The caller is neither root, the daemon's own user, nor in the group `memlane`.
    Forbidden,
    /// There is nothing of that name or number.
    NotFound,
    /// Nothing is served at this path.
    UnknownPath,
    MethodNotAllowed,
    AlreadyExists,
    /// Somebody uses it; `detail` says who.
    InUse,
    /// Another operation has to end first; `detail` says which.
    Busy,
    /// It is not as it was when the caller read it (`If-Match`).
    PreconditionFailed,
    /// A shrink would drop data and `force` was not given.
    DataBehindNewEnd,
    /// The pool, or the store of images, has no room left.
    NoSpace,
    /// The pool holds as many volumes as it can.
    TooManyVolumes,
    BodyTooLarge,
    /// The body did not arrive in time.
    Timeout,
    /// The daemon has not finished starting; `detail` says what it is at.
    Starting,
    /// The daemon is draining.
    ShuttingDown,
    /// The host refused something that the daemon needs; `detail` says what.
    HostFailed,
    /// A bug in the daemon.
    Internal,
}

impl ProblemKind {
    pub const ALL: [Self; 21] = [
        Self::InvalidRequest,
        Self::InvalidField,
        Self::UnknownField,
        Self::NotSupported,
        Self::Forbidden,
        Self::NotFound,
        Self::UnknownPath,
        Self::MethodNotAllowed,
        Self::AlreadyExists,
        Self::InUse,
        Self::Busy,
        Self::PreconditionFailed,
        Self::DataBehindNewEnd,
        Self::NoSpace,
        Self::TooManyVolumes,
        Self::BodyTooLarge,
        Self::Timeout,
        Self::Starting,
        Self::ShuttingDown,
        Self::HostFailed,
        Self::Internal,
    ];

    /// The word that stands for the kind in JSON.
    pub const fn name(self) -> &'static str {
        self.parts().0
    }

    /// The HTTP status code that goes with the kind.
    pub const fn status(self) -> u16 {
        self.parts().1
    }

    /// One sentence on the kind, the same for every problem of it.
    pub const fn title(self) -> &'static str {
        self.parts().2
    }

    const fn parts(self) -> (&'static str, u16, &'static str) {
        match self {
            Self::InvalidRequest => ("invalid_request", 400, "The request cannot be read"),
            Self::InvalidField => ("invalid_field", 422, "A field has an impossible value"),
            Self::UnknownField => ("unknown_field", 422, "A field is not known"),
            Self::NotSupported => ("not_supported", 422, "The request is not supported"),
            Self::Forbidden => ("forbidden", 403, "The caller may not use this socket"),
            Self::NotFound => ("not_found", 404, "There is nothing of that name"),
            Self::UnknownPath => ("unknown_path", 404, "Nothing is served at this path"),
            Self::MethodNotAllowed => ("method_not_allowed", 405, "The path has no such method"),
            Self::AlreadyExists => ("already_exists", 409, "It exists already"),
            Self::InUse => ("in_use", 409, "It is in use"),
            Self::Busy => ("busy", 409, "Another operation has to end first"),
            Self::PreconditionFailed => {
                ("precondition_failed", 412, "It has changed since it was read")
            }
            Self::DataBehindNewEnd => {
                ("data_behind_new_end", 409, "The new size would cut off data")
            }
            Self::NoSpace => ("no_space", 507, "There is no room left"),
            Self::TooManyVolumes => ("too_many_volumes", 409, "The volume table is full"),
            Self::BodyTooLarge => ("body_too_large", 413, "The body is too large"),
            Self::Timeout => ("timeout", 408, "The request did not arrive in time"),
            Self::Starting => ("starting", 503, "The daemon is starting"),
            Self::ShuttingDown => ("shutting_down", 503, "The daemon is shutting down"),
            Self::HostFailed => ("host_failed", 500, "The host refused what the daemon needs"),
            Self::Internal => ("internal", 500, "The daemon has a bug"),
        }
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
    /// One sentence on the kind.
    pub title: String,
    /// The HTTP status code.
    pub status: u16,
    pub kind: ProblemKind,
    /// What was attempted, on what, what is wrong and what to do.
    pub detail: String,
    /// The field of the request that is to blame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
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
        }
    }

    /// The same problem, with the field that is to blame.
    #[must_use]
    pub fn in_field(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
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
        for kind in ProblemKind::ALL {
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
                "title": "A field has an impossible value",
                "status": 422,
                "kind": "invalid_field",
                "detail": "too large",
                "field": "size",
            })
        );
    }
}
