//! Request errors.

use api::Problem;

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub enum RestError {
    /// The daemon cannot be reached, or has an incompatible version.
    #[error("{0}")]
    Unreachable(String),
    /// The daemon responded with a problem.
    #[error("{}", .0.detail)]
    Refused(Problem),
    /// The console in front of the daemon rejected the request.
    #[error("{detail}")]
    RefusedByConsole { kind: ConsoleRefusal, detail: String },
    #[error("{0}")]
    Other(String),
}

/// Kinds of problems that only consoles report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleRefusal {
    /// The token is unknown, expired or revoked.
    Unauthorized,
    /// The project's quota is exhausted.
    OverQuota,
    /// Too many failed attempts. Retry later.
    TooManyAttempts,
    /// The console cannot reach the daemon.
    DaemonAway,
}

impl ConsoleRefusal {
    /// Returns the refusal with this kind in JSON.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        match word {
            "unauthorized" => Some(Self::Unauthorized),
            "over_quota" => Some(Self::OverQuota),
            "too_many_attempts" => Some(Self::TooManyAttempts),
            "daemon_down" | "daemon_late" | "bad_gateway" => Some(Self::DaemonAway),
            _ => None,
        }
    }
}
