//! Settings of Kafka's brokers without effect here. Like those of topics, they are accepted and
//! shown for compatibility with tools that set them.
//!
//! They are kept in memory only, and are lost when the broker ends. Settings with effect are
//! options of the broker, and cannot be changed by requests.

use std::collections::BTreeMap;
use std::sync::Mutex;

use kafka_protocol::error::ResponseError;

use crate::topics::{Change, Kind, Refusal, Setting};

const NO_PANIC: &str = "no thread panics with this lock";

const INT: Kind = Kind::Long(1, i32::MAX as i64);
const LONG: Kind = Kind::Long(0, i64::MAX);
const LONG_MAX: &str = "9223372036854775807";

const fn setting(name: &'static str, default: &'static str, kind: Kind) -> Setting {
    Setting { name, default, kind, meaning: "" }
}

/// Dynamic broker settings of Kafka 4.3 that have no counterpart here.
const WITHOUT_EFFECT: &[Setting] = &[
    setting("background.threads", "10", INT),
    setting("follower.replication.throttled.rate", LONG_MAX, LONG),
    setting("leader.replication.throttled.rate", LONG_MAX, LONG),
    setting("log.cleaner.backoff.ms", "15000", LONG),
    setting("log.cleaner.dedupe.buffer.size", "134217728", LONG),
    setting("log.cleaner.io.buffer.load.factor", "0.9", Kind::Double),
    setting("log.cleaner.io.buffer.size", "524288", INT),
    setting("log.cleaner.threads", "1", INT),
    setting("num.io.threads", "8", INT),
    setting("num.network.threads", "3", INT),
    setting("num.recovery.threads.per.data.dir", "2", INT),
    setting("num.replica.fetchers", "1", INT),
    setting("replica.alter.log.dirs.io.max.bytes.per.second", LONG_MAX, LONG),
    setting("sasl.kerberos.min.time.before.relogin", "60000", LONG),
    setting("sasl.kerberos.ticket.renew.jitter", "0.05", Kind::Double),
    setting("sasl.kerberos.ticket.renew.window.factor", "0.8", Kind::Double),
];

/// Returns an accepted setting.
pub(crate) fn find(name: &str) -> Option<&'static Setting> {
    WITHOUT_EFFECT.iter().find(|setting| setting.name == name)
}

/// Settings that were set for the broker, and for all brokers of the cluster.
#[derive(Debug, Default)]
pub(crate) struct BrokerSettings {
    by_resource: Mutex<BTreeMap<String, BTreeMap<String, String>>>,
}

impl BrokerSettings {
    /// Changes the settings of a resource: the broker's id, or empty for all brokers.
    pub(crate) fn configure(
        &self,
        resource: &str,
        validate_only: bool,
        change: &Change<'_>,
    ) -> Result<(), Refusal> {
        let mut by_resource = self.by_resource.lock().expect(NO_PANIC);
        let mut set = by_resource.get(resource).cloned().unwrap_or_default();
        change(&mut set)?;
        for (name, value) in &set {
            let setting = find(name).expect("a change checks the names that it sets");
            setting.check(value).map_err(|why| Refusal::new(ResponseError::InvalidConfig, why))?;
        }
        if validate_only {
            return Ok(());
        }
        let names: Vec<_> = set.keys().map(String::as_str).collect();
        tracing::info!(settings = names.join(","), "broker settings accepted without effect");
        by_resource.insert(resource.to_owned(), set);
        Ok(())
    }

    /// Returns the names and values that are set for a resource.
    pub(crate) fn of(&self, resource: &str) -> BTreeMap<String, String> {
        let by_resource = self.by_resource.lock().expect(NO_PANIC);
        by_resource.get(resource).cloned().unwrap_or_default()
    }
}
