//! Errors of requests.

use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use record_batch::Unencodable;

/// Beginning of the broker's messages about requests for which the pool has no memory. Kafka's
/// protocol has no error code for that.
pub const POOL_IS_FULL: &str = "the pool is full";

/// Classes of errors that callers distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Connection refused or lost.
    Unreachable,
    /// No response within the time limit.
    TimedOut,
    /// The broker rejected the credentials.
    Authentication,
    /// Broker and client have no common version of a request.
    Unsupported,
    /// The broker violated the protocol.
    Protocol,
    /// The broker returned an error code.
    Refused(ResponseError),
    /// The request cannot be encoded or is not valid.
    Invalid,
}

/// Error of this crate. The message says what was attempted and on what; the source says why it
/// failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{context}")]
pub struct ClientError {
    kind: ErrorKind,
    context: String,
    /// The request must not be retried, whatever the kind is.
    is_final: bool,
    /// The broker refused it because the pool is full.
    is_no_space: bool,
    #[source]
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl From<Unencodable> for ClientError {
    fn from(why: Unencodable) -> Self {
        Self::invalid("cannot encode the records as a batch").because(why)
    }
}

impl ClientError {
    pub(crate) fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        let context = context.into();
        Self { kind, context, is_final: false, is_no_space: false, source: None }
    }

    pub(crate) fn because(
        mut self,
        source: impl Into<Box<dyn Error + Send + Sync + 'static>>,
    ) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    pub(crate) fn protocol(context: impl Into<String>) -> Self {
        Self::new(ErrorKind::Protocol, context)
    }

    pub(crate) fn invalid(context: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, context)
    }

    pub(crate) fn for_good(mut self) -> Self {
        self.is_final = true;
        self
    }

    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The error code that the broker returned, if it returned one.
    pub fn refusal(&self) -> Option<ResponseError> {
        match self.kind {
            ErrorKind::Refused(error) => Some(error),
            _ => None,
        }
    }

    /// Returns whether the broker refused the request because the pool is full.
    pub fn is_no_space(&self) -> bool {
        self.is_no_space
    }

    /// Returns whether the same request may succeed later.
    pub fn is_retriable(&self) -> bool {
        match self.kind {
            _ if self.is_final => false,
            ErrorKind::Unreachable | ErrorKind::TimedOut => true,
            // The previous transaction is still being completed.
            ErrorKind::Refused(ResponseError::ConcurrentTransactions) => true,
            ErrorKind::Refused(error) => error.is_retriable(),
            _ => false,
        }
    }
}

/// Turns an error code into a `Result`. `attempt` describes the request, such as `create topic
/// "a"`.
pub(crate) fn check(
    code: i16,
    message: Option<&str>,
    attempt: impl Display,
) -> Result<(), ClientError> {
    let Some(error) = ResponseError::try_from_code(code) else { return Ok(()) };
    let name = error_name(error);
    let reason = match message.filter(|message| !message.is_empty()) {
        Some(message) => format!("{name}: {message}"),
        None => name,
    };
    let is_no_space = message.is_some_and(|message| message.starts_with(POOL_IS_FULL));
    let refused = ClientError::new(ErrorKind::Refused(error), format!("cannot {attempt}"));
    Err(ClientError { is_no_space, ..refused }.because(reason))
}

/// Checks an error code as [`check`] does. If a right is missing and the broker does not say which,
/// the error names `right`.
pub(crate) fn check_right(
    code: i16,
    message: Option<&str>,
    attempt: impl Display,
    right: impl Display,
) -> Result<(), ClientError> {
    let is_for_right = matches!(
        ResponseError::try_from_code(code),
        Some(
            ResponseError::TopicAuthorizationFailed
                | ResponseError::GroupAuthorizationFailed
                | ResponseError::TransactionalIdAuthorizationFailed
                | ResponseError::ClusterAuthorizationFailed
        )
    );
    match message.filter(|message| !message.is_empty()) {
        None if is_for_right => check(code, Some(&format!("requires {right}")), attempt),
        message => check(code, message, attempt),
    }
}

/// Name of an error in Kafka's documentation, such as `UNKNOWN_TOPIC_OR_PARTITION`.
pub fn error_name(error: ResponseError) -> String {
    if let ResponseError::Unknown(code) = error {
        return format!("error {code}");
    }
    let mut name = String::new();
    for letter in format!("{error:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_names_of_kafkas_documentation() {
        let name = error_name(ResponseError::UnknownTopicOrPartition);
        assert_eq!(name, "UNKNOWN_TOPIC_OR_PARTITION");
        assert_eq!(error_name(ResponseError::Unknown(4711)), "error 4711");
    }

    #[test]
    fn a_refusal_says_what_was_attempted_and_its_source_why() {
        let error = check(36, Some("it is there"), "create topic \"a\"").expect_err("a code");
        assert_eq!(error.to_string(), "cannot create topic \"a\"");
        let source = error.source().map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("TOPIC_ALREADY_EXISTS: it is there"));
        assert_eq!(error.refusal(), Some(ResponseError::TopicAlreadyExists));
        assert!(!error.is_retriable());
        assert!(!error.is_no_space());
        let error = check(19, Some("the pool is full; delete topics"), "append");
        assert!(error.expect_err("a code").is_no_space());
        assert!(check(0, None, "do nothing").is_ok());
    }

    #[test]
    fn a_missing_right_is_named_unless_the_broker_names_it() {
        let source_of = |code, message| {
            let error = check_right(code, message, "read", "Read on topic \"a\"");
            error.expect_err("a code").source().map(ToString::to_string)
        };
        let named = "TOPIC_AUTHORIZATION_FAILED: requires Read on topic \"a\"";
        assert_eq!(source_of(29, None).as_deref(), Some(named));
        let told = source_of(29, Some("no"));
        assert_eq!(told.as_deref(), Some("TOPIC_AUTHORIZATION_FAILED: no"));
        assert_eq!(source_of(3, None).as_deref(), Some("UNKNOWN_TOPIC_OR_PARTITION"));
    }

    #[test]
    fn a_coordinator_that_loads_is_worth_another_try() {
        let error = check(14, None, "join group \"g\"").expect_err("a code");
        assert!(error.is_retriable());
    }
}
