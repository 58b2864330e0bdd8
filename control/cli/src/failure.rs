//! Failures of commands, with exit codes.

use api::{Problem, ProblemKind};
use kafka_client::{ClientError, ErrorKind, ResponseError};
use rest_client::{ConsoleRefusal, RestError};

pub(crate) const EXIT_FAILED: u8 = 1;
pub(crate) const EXIT_USAGE: u8 = 2;
pub(crate) const EXIT_NOT_FOUND: u8 = 3;
pub(crate) const EXIT_NO_SPACE: u8 = 4;
pub(crate) const EXIT_UNREACHABLE: u8 = 5;

/// Exit codes as in shells: a program that cannot be run, one that does not exist, and an end by
/// Ctrl-C.
pub(crate) const EXIT_NOT_EXECUTABLE: u8 = 126;
pub(crate) const EXIT_NO_PROGRAM: u8 = 127;
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    /// A stable identifier: a kind of problem, or `usage`, `unreachable`, `interrupted`, `failed`.
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    /// Invalid field of the request, for programs.
    pub(crate) field: Option<String>,
    pub(crate) exit_code: u8,
}

impl Failure {
    fn new(kind: &'static str, message: impl Into<String>, exit_code: u8) -> Self {
        Self { kind, message: message.into(), field: None, exit_code }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new("usage", message, EXIT_USAGE)
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self::new("unreachable", message, EXIT_UNREACHABLE)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(ProblemKind::NotFound.name(), message, EXIT_NOT_FOUND)
    }

    /// Failure of `memlane run`: the program does not exist.
    pub(crate) fn no_program(message: impl Into<String>) -> Self {
        Self::new(ProblemKind::NotFound.name(), message, EXIT_NO_PROGRAM)
    }

    /// Failure of `memlane run`: the program exists but cannot be run.
    pub(crate) fn not_executable(message: impl Into<String>) -> Self {
        Self::new("failed", message, EXIT_NOT_EXECUTABLE)
    }

    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Self::new("interrupted", message, EXIT_INTERRUPTED)
    }

    fn of_console(kind: ConsoleRefusal, detail: String) -> Self {
        match kind {
            ConsoleRefusal::Unauthorized => Self::new(
                "unauthorized",
                format!("the token is invalid: it has expired or was revoked ({detail})"),
                EXIT_FAILED,
            ),
            ConsoleRefusal::OverQuota => Self::new("over_quota", detail, EXIT_NO_SPACE),
            ConsoleRefusal::TooManyAttempts => Self::new("too_many_attempts", detail, EXIT_FAILED),
            ConsoleRefusal::DaemonAway => Self::unreachable(detail),
        }
    }

    pub(crate) fn is_interruption(&self) -> bool {
        self.exit_code == EXIT_INTERRUPTED
    }

    /// Failure of no specific kind.
    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self::new("failed", message, EXIT_FAILED)
    }
}

impl From<ClientError> for Failure {
    /// Converts an error of a broker, with the whole chain of causes, because users get no other
    /// information.
    fn from(error: ClientError) -> Self {
        let message = chain_of(&error);
        match error.kind() {
            _ if error.is_no_space() => {
                Self::new(ProblemKind::NoSpace.name(), message, EXIT_NO_SPACE)
            }
            ErrorKind::Unreachable | ErrorKind::TimedOut => Self::unreachable(message),
            ErrorKind::Invalid => Self::usage(message),
            ErrorKind::Refused(
                ResponseError::UnknownTopicOrPartition | ResponseError::GroupIdNotFound,
            ) => Self::not_found(message),
            ErrorKind::Refused(ResponseError::TopicAlreadyExists) => {
                Self::new(ProblemKind::AlreadyExists.name(), message, EXIT_FAILED)
            }
            _ => Self::other(message),
        }
    }
}

impl From<tokio_postgres::Error> for Failure {
    /// Converts an error of an SQL server, with its SQLSTATE, or the reason for which it cannot be
    /// reached.
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(answer) = error.as_db_error() else {
            let message = chain_of(&error);
            let is_gone = error.is_closed()
                || std::error::Error::source(&error).is_some_and(|it| it.is::<std::io::Error>());
            return if is_gone { Self::unreachable(message) } else { Self::other(message) };
        };
        let code = answer.code().code();
        let mut message = format!("{} ({code})", answer.message());
        for more in [answer.detail(), answer.hint()].into_iter().flatten() {
            message = format!("{message}; {more}");
        }
        match code {
            // undefined_table
            "42P01" => Self::not_found(message),
            // disk_full
            "53100" => Self::new(ProblemKind::NoSpace.name(), message, EXIT_NO_SPACE),
            _ => Self::other(message),
        }
    }
}

/// Formats an error and its chain of causes.
pub(crate) fn chain_of(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(reason) = source {
        message = format!("{message}: {reason}");
        source = reason.source();
    }
    message
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let exit_code = match problem.kind {
            ProblemKind::NotFound => EXIT_NOT_FOUND,
            ProblemKind::NoSpace => EXIT_NO_SPACE,
            ProblemKind::Starting | ProblemKind::ShuttingDown => EXIT_UNREACHABLE,
            _ => EXIT_FAILED,
        };
        // The field is not mentioned in the message, because users know only command-line options.
        Self { field: problem.field, ..Self::new(problem.kind.name(), problem.detail, exit_code) }
    }
}

impl From<RestError> for Failure {
    fn from(error: RestError) -> Self {
        match error {
            RestError::Unreachable(message) => Self::unreachable(message),
            RestError::Refused(problem) => problem.into(),
            RestError::RefusedByConsole { kind, detail } => Self::of_console(kind, detail),
            RestError::Other(message) => Self::other(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_problem_have_their_exit_codes() {
        let code = |kind| Failure::from(Problem::new(kind, "why")).exit_code;
        assert_eq!(code(ProblemKind::NotFound), 3);
        assert_eq!(code(ProblemKind::NoSpace), 4);
        assert_eq!(code(ProblemKind::Starting), 5);
        assert_eq!(code(ProblemKind::ShuttingDown), 5);
        assert_eq!(code(ProblemKind::InUse), 1);
        assert_eq!(code(ProblemKind::InvalidField), 1);
    }

    #[tokio::test]
    async fn a_broker_that_is_not_there_is_unreachable() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        drop(listener);
        let client = kafka_client::Client::new(&address, kafka_client::Settings::default());
        let failure = Failure::from(client.cluster().await.expect_err("nothing listens"));
        assert_eq!((failure.kind, failure.exit_code), ("unreachable", EXIT_UNREACHABLE));
        assert!(failure.message.contains(&address), "{}", failure.message);
        assert!(failure.message.contains("refused"), "the reason: {}", failure.message);
    }

    #[test]
    fn the_field_is_told_apart_from_the_message() {
        let problem = Problem::new(ProblemKind::InvalidField, "too large").in_field("size");
        let failure = Failure::from(problem);
        assert_eq!((&failure.message[..], failure.field.as_deref()), ("too large", Some("size")));
    }
}
