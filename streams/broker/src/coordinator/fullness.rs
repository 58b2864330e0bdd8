//! Log messages about requests that the limits of all groups refused.

use std::time::{Duration, Instant};

use consumer_groups::{Groups, Usage};

/// Minimum interval between messages. Clients retry, and the largest group is searched for each.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Time of the last message.
#[derive(Debug, Default)]
pub(super) struct Fullness {
    logged: Option<Instant>,
}

impl Fullness {
    /// Logs that requests were refused since the last message.
    pub(super) fn look(&mut self, groups: &mut Groups) {
        if self.logged.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
            return;
        }
        if let Some(usage) = groups.take_refusal() {
            self.logged = Some(Instant::now());
            tracing::warn!("{}", message(&usage));
        }
    }
}

fn message(usage: &Usage) -> String {
    let Usage { group_count, groups_max, bytes, bytes_max, largest } = usage;
    let largest = largest.as_ref().map_or_else(String::new, |(id, bytes)| {
        format!("; the largest group is {id:?} with {bytes} bytes")
    });
    format!(
        "refusing members or offsets of consumer groups: {group_count} groups of at most \
         {groups_max} use {bytes} bytes of at most {bytes_max}, of which one user gets at most \
         half{largest}; delete unused groups or their offsets, or enlarge the pool and restart \
         the broker, because the limit in bytes is 1/32 of the pool's size"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_the_limits_and_the_largest_group() {
        let largest = Some(("news".to_owned(), 300));
        let usage = Usage { group_count: 2, groups_max: 9, bytes: 400, bytes_max: 500, largest };
        let told = message(&usage);
        assert!(told.contains("2 groups of at most 9 use 400 bytes of at most 500"), "{told}");
        assert!(told.contains("the largest group is \"news\" with 300 bytes"), "{told}");
        let none = message(&Usage { largest: None, ..usage });
        assert!(!none.contains("largest"), "{none}");
    }
}
