//! Errors of the console as problem details (RFC 9457), in the daemon's format.

use api::PROBLEM_CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::access::AccountError;
use crate::shares::Full;

/// `Retry-After` if all slots are taken.
const FULL_WAIT_SECONDS: u64 = 5;

/// Kind of an error: a stable name and a status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Invalid,
    InvalidField,
    TooLarge,
    /// The body did not arrive in time.
    Slow,
    /// The credentials are missing or invalid.
    Unauthorized,
    Forbidden,
    /// The rules let the user do nothing but enable a second factor.
    MustEnrol,
    /// The request may come from another site (CSRF).
    Forged,
    NotFound,
    NoMethod,
    Exists,
    Conflict,
    /// The object does not have the entity tag in `If-Match`.
    Changed,
    OverQuota,
    TooManyAttempts,
    /// All slots are taken, by the caller or others.
    Busy,
    /// No broker is configured.
    NoBroker,
    BrokerDown,
    /// Virtual machines are not configured.
    NoMachines,
    MachinesDown,
    DaemonDown,
    BadGateway,
    Late,
    Internal,
}

impl Kind {
    pub(crate) const ALL: &'static [Self] = &[
        Self::Invalid,
        Self::InvalidField,
        Self::TooLarge,
        Self::Slow,
        Self::Unauthorized,
        Self::Forbidden,
        Self::MustEnrol,
        Self::Forged,
        Self::NotFound,
        Self::NoMethod,
        Self::Exists,
        Self::Conflict,
        Self::Changed,
        Self::OverQuota,
        Self::TooManyAttempts,
        Self::Busy,
        Self::NoBroker,
        Self::BrokerDown,
        Self::NoMachines,
        Self::MachinesDown,
        Self::DaemonDown,
        Self::BadGateway,
        Self::Late,
        Self::Internal,
    ];

    /// Returns name in JSON, status code and title.
    pub(crate) const fn parts(self) -> (&'static str, u16, &'static str) {
        match self {
            Self::Invalid => ("invalid_request", 400, "The request is malformed"),
            Self::InvalidField => ("invalid_field", 422, "A field has an invalid value"),
            Self::TooLarge => ("body_too_large", 413, "The request body is too large"),
            Self::Slow => ("timeout", 408, "Timed out reading the request"),
            Self::Unauthorized => ("unauthorized", 401, "Log in, or send a valid token"),
            Self::Forbidden => ("forbidden", 403, "The user lacks the right to do this"),
            Self::MustEnrol => {
                ("second_factor_required", 403, "The user has to enable two-factor login first")
            }
            Self::Forged => ("forged", 403, "The request may come from another site (CSRF)"),
            Self::NotFound => ("not_found", 404, "No object has this name"),
            Self::NoMethod => ("method_not_allowed", 405, "The path does not support this method"),
            Self::Exists => ("already_exists", 409, "An object of this name exists already"),
            Self::Conflict => ("conflict", 409, "The request conflicts with the current state"),
            Self::Changed => {
                ("precondition_failed", 412, "The object has changed since it was read")
            }
            Self::OverQuota => ("over_quota", 409, "The quota of the project is exceeded"),
            Self::TooManyAttempts => ("too_many_attempts", 429, "Too many failed attempts"),
            Self::Busy => ("busy", 429, "Too many concurrent requests"),
            Self::NoBroker => ("no_broker", 404, "No broker is configured"),
            Self::BrokerDown => ("broker_down", 503, "The broker does not answer"),
            Self::NoMachines => ("no_machines", 404, "No virtual machine service is configured"),
            Self::MachinesDown => ("machines_down", 503, "memlane-machines does not answer"),
            Self::DaemonDown => ("daemon_down", 503, "The daemon does not answer"),
            Self::BadGateway => {
                ("bad_gateway", 502, "Invalid response from a service of this host")
            }
            Self::Late => ("daemon_late", 504, "Timed out waiting for a service of this host"),
            Self::Internal => ("internal", 500, "Internal error of the console"),
        }
    }
}

/// An error response.
#[derive(Debug)]
pub(crate) struct Refusal {
    kind: Kind,
    detail: String,
    field: Option<&'static str>,
    retry_after_seconds: Option<u64>,
}

impl Refusal {
    /// Creates an error. `detail` says what is wrong and what to do.
    pub(crate) fn new(kind: Kind, detail: &str) -> Self {
        Self { kind, detail: detail.to_owned(), field: None, retry_after_seconds: None }
    }

    pub(crate) fn forbidden(detail: &str) -> Self {
        Self::new(Kind::Forbidden, detail)
    }

    pub(crate) fn in_field(field: &'static str, detail: &str) -> Self {
        Self { field: Some(field), ..Self::new(Kind::InvalidField, detail) }
    }

    pub(crate) fn wait(detail: &str, seconds: u64) -> Self {
        let refusal = Self::new(Kind::TooManyAttempts, detail);
        Self { retry_after_seconds: Some(seconds), ..refusal }
    }

    /// Creates a temporary error: the request may be repeated later.
    pub(crate) fn busy(detail: &str, seconds: u64) -> Self {
        Self { retry_after_seconds: Some(seconds), ..Self::new(Kind::Busy, detail) }
    }

    /// Creates an error for a full limit on `things`, of the caller or in total.
    pub(crate) fn full(things: &str, full: Full) -> Self {
        let what = match full {
            Full::OfOne(count) => format!("you already have {count} {things}; close one first"),
            Full::OfAll(count) => {
                format!("too many {things} ({count}), and no other user has more than you")
            }
        };
        Self::busy(&what, FULL_WAIT_SECONDS)
    }

    pub(crate) fn internal(error: &anyhow::Error) -> Self {
        Self::new(Kind::Internal, &format!("{error:#}"))
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<AccountError> for Refusal {
    fn from(error: AccountError) -> Self {
        match error {
            AccountError::Invalid(field, what) => Self::in_field(field, &what),
            AccountError::NotFound(what) => Self::new(Kind::NotFound, &what),
            AccountError::Exists(what) => Self::new(Kind::Exists, &what),
            AccountError::Conflict(what) => Self::new(Kind::Conflict, &what),
            AccountError::Changed(what) => Self::new(Kind::Changed, &what),
            AccountError::NotStored(what) => Self::new(Kind::Internal, &what),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (name, status, title) = self.kind.parts();
        if status == 500 {
            tracing::error!(detail = self.detail, "request failed");
        }
        let mut problem = json!({
            "type": format!("urn:memlane:problem:{name}"),
            "title": title,
            "status": status,
            "kind": name,
            "detail": self.detail,
        });
        if let Some(field) = self.field {
            problem["field"] = field.into();
        }
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, problem.to_string()).into_response();
        let content_type = HeaderValue::from_static(PROBLEM_CONTENT_TYPE);
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
        if let Some(seconds) = self.retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}
