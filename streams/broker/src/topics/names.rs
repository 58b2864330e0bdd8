//! Rules for names of topics.

use kafka_protocol::error::ResponseError;

use super::Refusal;

/// Kafka's maximum length.
const NAME_MAX: usize = 249;

/// Checks a topic's name by Kafka's rules.
pub(crate) fn check_name(name: &str) -> Result<(), Refusal> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let is_good = (1..=NAME_MAX).contains(&name.len())
        && name.chars().all(is_allowed)
        && !matches!(name, "." | "..");
    if is_good {
        return Ok(());
    }
    let what = format!(
        "invalid topic name {name:?}: use 1 to {NAME_MAX} of a-z A-Z 0-9 . _ -, but not . or .."
    );
    Err(Refusal::new(ResponseError::InvalidTopicException, what))
}
