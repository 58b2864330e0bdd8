//! Why requests fail.

use api::Problem;

/// Why a request was not served.
#[derive(Debug, thiserror::Error)]
pub enum RestError {
    /// No daemon answers, or it is of another version.
    #[error("{0}")]
    Unreachable(String),
    /// The daemon answered with a problem.
    #[error("{}", .0.detail)]
    Refused(Problem),
    /// The console before the daemon has a problem of its own.
    #[error("{detail}")]
    RefusedByConsole { kind: ConsoleRefusal, detail: String },
    #[error("{0}")]
    Other(String),
}

/// Refusals of a console that daemons do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleRefusal {
    /// The token is not known, has expired, or was taken back.
    Unauthorized,
    /// The project's quota is used up.
    OverQuota,
    /// Too many attempts failed: later ones may succeed.
    TooManyAttempts,
    /// The console answers, and the daemon behind it does not.
    DaemonAway,
}

impl ConsoleRefusal {
    /// The one that has this word in JSON.
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
