//! Rules for names of topics.

use kafka_protocol::error::ResponseError;

use super::Refusal;

/// Kafka's maximum length.
const NAME_MAX: usize = 249;

/// Name of Kafka's log of cluster metadata. Clients and tools take a topic of this name for it.
const QUORUM_LOG: &str = "__cluster_metadata";

/// Rejects names of topics that clients cannot create, with Kafka's error.
pub(super) fn check_creatable(name: &str) -> Result<(), Refusal> {
    check_name(name)?;
    if name != QUORUM_LOG {
        return Ok(());
    }
    let what = format!("topic {name:?} cannot be created: the name is reserved by Kafka");
    Err(Refusal::new(ResponseError::TopicAuthorizationFailed, what))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_kafkas_metadata_log_can_be_looked_up_and_not_created() {
        let refused = check_creatable(QUORUM_LOG).expect_err("it is reserved").error;
        assert_eq!(refused, ResponseError::TopicAuthorizationFailed);
        check_name(QUORUM_LOG).expect("it is a name");
        for name in ["__cluster_metadata-0", "_cluster_metadata", "__consumer_offsets"] {
            check_creatable(name).expect("it is not reserved");
        }
    }
}
