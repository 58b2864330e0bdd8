//! Clients that may use volumes over NBD on TCP: `CLIENT = VOLUME, VOLUME:ro`.
//!
//! A client is a name in its certificate, or `*` for all clients. A volume is a name, which
//! includes the volume's snapshots, or `*` for all volumes.

use std::str::FromStr;

use serde::Deserialize;

/// Wildcard for all clients or all volumes.
const ALL: &str = "*";

const READ_ONLY_SUFFIX: &str = ":ro";

/// Access of a client to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NbdAccess {
    ReadOnly,
    ReadWrite,
}

/// Volumes that one client may use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct AllowRule {
    client: String,
    volumes: Vec<(String, NbdAccess)>,
}

/// Rules for all clients. Without rules, each accepted client may use every volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllowList(pub(crate) Vec<AllowRule>);

impl AllowList {
    /// Returns the access of a client to a volume. `is_called` tells whether a name is one of the
    /// client's names.
    pub(crate) fn access(
        &self,
        volume: &str,
        is_called: impl Fn(&str) -> bool,
    ) -> Option<NbdAccess> {
        if self.0.is_empty() {
            return Some(NbdAccess::ReadWrite);
        }
        let own = self.0.iter().filter(|rule| rule.client == ALL || is_called(&rule.client));
        let volume = volume.split('@').next().unwrap_or(volume);
        let granted = own.flat_map(|rule| &rule.volumes);
        let granted = granted.filter(|(name, _)| name == ALL || name == volume);
        granted.map(|(_, access)| *access).max()
    }
}

impl FromStr for AllowRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("invalid nbd-allow rule {text:?}; use CLIENT = VOLUME, VOLUME:ro");
        let (client, volumes) = text.split_once('=').ok_or_else(wrong)?;
        let client = client.trim();
        let volumes: Vec<_> =
            volumes.split(',').map(|volume| parse_volume(volume.trim())).collect();
        if client.is_empty() || volumes.iter().any(|(name, _)| name.is_empty()) {
            return Err(wrong());
        }
        Ok(Self { client: client.to_owned(), volumes })
    }
}

impl TryFrom<String> for AllowRule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

fn parse_volume(text: &str) -> (String, NbdAccess) {
    match text.strip_suffix(READ_ONLY_SUFFIX) {
        Some(name) => (name.to_owned(), NbdAccess::ReadOnly),
        None => (text.to_owned(), NbdAccess::ReadWrite),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use NbdAccess::{ReadOnly, ReadWrite};

    fn list(rules: &[&str]) -> AllowList {
        AllowList(rules.iter().map(|rule| rule.parse().expect("a rule")).collect())
    }

    #[track_caller]
    fn check(rules: &[&str], client: &str, volume: &str, expected: Option<NbdAccess>) {
        assert_eq!(list(rules).access(volume, |name| name == client), expected);
    }

    #[test]
    fn a_client_may_use_what_its_rules_name() {
        let rules = ["web = www, logs:ro", "backup=*:ro", "* = golden:ro"];
        check(&rules, "web", "www", Some(ReadWrite));
        check(&rules, "web", "www@monday", Some(ReadWrite));
        check(&rules, "web", "logs", Some(ReadOnly));
        check(&rules, "web", "db", None);
        check(&rules, "backup", "db", Some(ReadOnly));
        check(&rules, "nobody", "golden", Some(ReadOnly));
        check(&rules, "nobody", "db", None);
        check(&[], "nobody", "db", Some(ReadWrite));
    }

    #[test]
    fn the_most_that_any_rule_allows_holds() {
        check(&["* = *:ro", "web = www"], "web", "www", Some(ReadWrite));
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in ["", "web", "= www", "web =", "web = www,", "web = :ro"] {
            let error = text.parse::<AllowRule>().expect_err("it is none");
            assert!(error.contains("CLIENT = VOLUME"), "{error}");
        }
    }
}
