//! Topics that the members of a group read: by name, or by a pattern for whole names.

use std::collections::BTreeSet;

use kafka_protocol::error::ResponseError;
use kafka_protocol::protocol::StrBytes;
use regex::{Regex, RegexBuilder};

/// What a compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct Subscriptions {
    pub(crate) names: BTreeSet<StrBytes>,
    pub(crate) patterns: Vec<Regex>,
}

impl Subscriptions {
    pub(crate) fn contains(&self, topic: &StrBytes) -> bool {
        self.names.contains(topic) || self.patterns.iter().any(|it| it.is_match(topic))
    }
}

/// A pattern in RE2's syntax that must match a whole name, as members give it (KIP-848).
pub(crate) fn compile(pattern: &str) -> Result<Regex, ResponseError> {
    let build = |pattern: &str| {
        let built = RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build();
        built.map_err(|_| ResponseError::InvalidRegularExpression)
    };
    // By itself first: parentheses that do not match must not close the ones around it.
    build(pattern)?;
    build(&format!("^(?:{pattern})$"))
}
