//! Why a command did not do what it was asked, and the exit code for it.

use api::{Problem, ProblemKind};

pub(crate) const EXIT_FAILED: u8 = 1;
pub(crate) const EXIT_USAGE: u8 = 2;
pub(crate) const EXIT_NOT_FOUND: u8 = 3;
pub(crate) const EXIT_NO_SPACE: u8 = 4;
pub(crate) const EXIT_UNREACHABLE: u8 = 5;

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    /// A stable word: a kind of problem, or `usage`, `unreachable`, `failed`.
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    pub(crate) exit_code: u8,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { kind: "usage", message: message.into(), exit_code: EXIT_USAGE }
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self { kind: "unreachable", message: message.into(), exit_code: EXIT_UNREACHABLE }
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        let kind = ProblemKind::NotFound.name();
        Self { kind, message: message.into(), exit_code: EXIT_NOT_FOUND }
    }

    /// Nothing that scripts could tell apart.
    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self { kind: "failed", message: message.into(), exit_code: EXIT_FAILED }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let exit_code = match problem.kind {
            ProblemKind::NotFound => EXIT_NOT_FOUND,
            ProblemKind::NoSpace => EXIT_NO_SPACE,
            ProblemKind::ShuttingDown => EXIT_UNREACHABLE,
            _ => EXIT_FAILED,
        };
        Self { kind: problem.kind.name(), message: problem.to_string(), exit_code }
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
        assert_eq!(code(ProblemKind::ShuttingDown), 5);
        assert_eq!(code(ProblemKind::InUse), 1);
        assert_eq!(code(ProblemKind::InvalidField), 1);
    }

    #[test]
    fn the_message_names_the_field() {
        let problem = Problem::new(ProblemKind::InvalidField, "too large").in_field("size");
        assert_eq!(Failure::from(problem).message, "size: too large");
    }
}
