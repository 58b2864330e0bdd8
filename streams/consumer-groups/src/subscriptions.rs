//! Subscriptions of a group's members: topic names, or patterns that match whole names.

use std::collections::BTreeSet;

use kafka_protocol::error::ResponseError;
use kafka_protocol::protocol::StrBytes;
use regex::{Regex, RegexBuilder};

/// Maximum size of a compiled pattern.
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

/// Compiles a pattern in RE2's syntax, as members send it (KIP-848), which must match a whole name.
pub(crate) fn compile(pattern: &str) -> Result<Regex, ResponseError> {
    let build = |pattern: &str| {
        let built = RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build();
        built.map_err(|_| ResponseError::InvalidRegularExpression)
    };
    // Compiled on its own first, so that unbalanced parentheses cannot close the enclosing ones.
    build(pattern)?;
    build(&format!("^(?:{pattern})$"))
}
