//! Topic configuration: Kafka's names, and a few settings of Memlane.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use record_batch::Codec;
use volumes::{Durability, Reduction};

use crate::storage::VolumeClass;

/// Type of a setting's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Boolean,
    /// Integer from a minimum to a maximum.
    Long(i64, i64),
    Double,
    Choice(&'static [&'static str]),
    /// One or more of these, separated by commas.
    Choices(&'static [&'static str]),
    /// Any text, for settings without effect.
    Text,
    /// Partition and broker pairs, as `0:1,1:1`, or `*` for all.
    Replicas,
}

/// Definition of a topic setting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) default: &'static str,
    pub(crate) kind: Kind,
    /// Description for people. Empty if the setting is accepted for compatibility, without effect.
    pub(crate) meaning: &'static str,
}

const fn setting(
    name: &'static str,
    default: &'static str,
    kind: Kind,
    meaning: &'static str,
) -> Setting {
    Setting { name, default, kind, meaning }
}

/// Maximum of Kafka's 32-bit settings.
const INT_MAX: i64 = i32::MAX as i64;
const POSITIVE: Kind = Kind::Long(0, i64::MAX);
const POSITIVE_INT: Kind = Kind::Long(0, INT_MAX);
const LIMIT: Kind = Kind::Long(-1, i64::MAX);

/// Maximum size of a batch in the log.
const BATCH_BYTES_MAX: i64 = 31 << 20;

pub(crate) const SETTINGS: &[Setting] = &[
    setting(
        "cleanup.policy",
        "delete",
        Kind::Choices(&["delete", "compact"]),
        "delete drops whole segments by age and size; compact keeps the latest record of each key",
    ),
    setting("compression.gzip.level", "-1", Kind::Long(-1, 9), ""),
    setting("compression.lz4.level", "9", Kind::Long(1, 17), ""),
    setting("compression.zstd.level", "3", Kind::Long(-131_072, 22), ""),
    setting(
        "compression.type",
        "producer",
        Kind::Choice(&["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]),
        "producer: batches are stored as the producer compressed them; otherwise the broker \
         recompresses batches of other codecs, which costs CPU time",
    ),
    setting(
        "delete.retention.ms",
        "86400000",
        POSITIVE,
        "time for which a compacted topic keeps tombstones",
    ),
    setting("file.delete.delay.ms", "60000", POSITIVE, ""),
    setting("flush.messages", "9223372036854775807", POSITIVE, ""),
    setting("flush.ms", "9223372036854775807", POSITIVE, ""),
    setting("follower.replication.throttled.replicas", "", Kind::Replicas, ""),
    setting("index.interval.bytes", "4096", POSITIVE_INT, ""),
    setting("leader.replication.throttled.replicas", "", Kind::Replicas, ""),
    setting("local.retention.bytes", "-2", Kind::Long(-2, i64::MAX), ""),
    setting("local.retention.ms", "-2", Kind::Long(-2, i64::MAX), ""),
    setting(
        "max.compaction.lag.ms",
        "9223372036854775807",
        Kind::Long(1, i64::MAX),
        "maximum time until a record is compacted, regardless of min.cleanable.dirty.ratio",
    ),
    setting(
        "max.message.bytes",
        "1048588",
        Kind::Long(0, BATCH_BYTES_MAX),
        "maximum size of a record batch as sent; at most 31 MiB, the size of one write to the \
         topic's volume",
    ),
    setting(
        "memlane.capacity",
        "thin",
        Kind::Choice(&["thin"]),
        "thin, the only value: a full pool refuses producers until retention frees memory",
    ),
    setting(
        "memlane.durability",
        "ram",
        Kind::Choice(&["ram", "image", "journal"]),
        "guarantee of an acknowledged record: ram survives crashes of processes; journal \
         survives power loss; image survives power loss up to the last image",
    ),
    setting(
        "memlane.reduction",
        // Producers compress batches if that is effective, and batches rarely repeat at block
        // boundaries. Reduction would cost processor time and save little.
        "none",
        Kind::Choice(&["full", "compress", "dedup", "none"]),
        "reduction of the topic's volume, beyond the producers' compression",
    ),
    setting(
        "memlane.values",
        "none",
        Kind::Choice(&["none", "latest", "merge"]),
        "latest: index the current value of each key, about 24 bytes of memory per key; merge: a \
         JSON object updates only the fields that it has, and the topic NAME.values has whole \
         objects",
    ),
    setting(
        "memlane.values.ttl.ms",
        "-1",
        LIMIT,
        "lifetime of a current value after the time of its record; -1: no limit",
    ),
    setting("message.downconversion.enable", "true", Kind::Boolean, ""),
    setting("message.format.version", "3.0-IV1", Kind::Text, ""),
    setting(
        "message.timestamp.difference.max.ms",
        "9223372036854775807",
        POSITIVE,
        "maximum difference between a record's time and the broker's clock, if the two settings \
         for before and after are not set",
    ),
    setting(
        "message.timestamp.type",
        "CreateTime",
        Kind::Choice(&["CreateTime", "LogAppendTime"]),
        "time of a record: set by the producer, or by the broker at the append",
    ),
    setting(
        "message.timestamp.after.max.ms",
        "3600000",
        POSITIVE,
        "maximum time by which a record may be ahead of the broker's clock",
    ),
    setting(
        "message.timestamp.before.max.ms",
        "9223372036854775807",
        POSITIVE,
        "maximum time by which a record may be behind the broker's clock",
    ),
    setting(
        "min.cleanable.dirty.ratio",
        "0.5",
        Kind::Double,
        "share of new bytes that triggers compaction",
    ),
    setting("min.compaction.lag.ms", "0", POSITIVE, "minimum time before a record is compacted"),
    setting("min.insync.replicas", "1", Kind::Long(1, INT_MAX), ""),
    setting("preallocate", "false", Kind::Boolean, ""),
    setting("remote.log.copy.disable", "false", Kind::Boolean, ""),
    setting("remote.log.delete.on.disable", "false", Kind::Boolean, ""),
    setting("remote.storage.enable", "false", Kind::Boolean, ""),
    setting(
        "retention.bytes",
        "-1",
        LIMIT,
        "minimum bytes that a partition keeps: the oldest segments, or the first records of a \
         segment longer than new ones, are deleted while the rest holds as much; -1: no limit",
    ),
    setting("retention.ms", "604800000", LIMIT, "time for which records are kept; -1: no limit"),
    setting(
        "segment.bytes",
        "1073741824",
        Kind::Long(1 << 14, 1 << 30),
        "size of the segments in which records are deleted and compacted; or a quarter of \
         retention.bytes if that is less, and at least 1 MiB",
    ),
    setting("segment.index.bytes", "10485760", POSITIVE_INT, ""),
    setting("segment.jitter.ms", "0", POSITIVE, ""),
    setting(
        "segment.ms",
        "604800000",
        Kind::Long(1, i64::MAX),
        "time after which a segment is closed",
    ),
    setting("unclean.leader.election.enable", "false", Kind::Boolean, ""),
];

/// Returns the setting with this name.
pub(crate) fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

impl Setting {
    /// Checks a value. Returns the reason if it is invalid.
    pub(crate) fn check(&self, value: &str) -> Result<(), String> {
        let is_good = match self.kind {
            Kind::Boolean => matches!(value, "true" | "false"),
            Kind::Long(least, most) => {
                value.parse::<i64>().is_ok_and(|it| (least..=most).contains(&it))
            }
            Kind::Double => value.parse::<f64>().is_ok_and(|it| (0.0..=1.0).contains(&it)),
            Kind::Choice(choices) => choices.contains(&value),
            Kind::Text => true,
            Kind::Choices(choices) => {
                value.is_empty() || value.split(',').all(|it| choices.contains(&it.trim()))
            }
            Kind::Replicas => {
                let is_number = |it: &str| it.trim().parse::<u32>().is_ok();
                let is_pair = |it: &str| {
                    it.split_once(':').is_some_and(|(a, b)| is_number(a) && is_number(b))
                };
                matches!(value, "" | "*") || value.split(',').all(is_pair)
            }
        };
        if is_good {
            Ok(())
        } else {
            Err(format!("invalid value {} = {value:?}; use {}", self.name, self.values()))
        }
    }

    /// Normalizes a value for storage, with Kafka's rules: surrounding spaces are removed, and
    /// booleans are in lower case.
    fn plain(&self, value: &str) -> String {
        let value = value.trim();
        match self.kind {
            Kind::Boolean => value.to_ascii_lowercase(),
            _ => value.to_owned(),
        }
    }

    fn values(&self) -> String {
        match self.kind {
            Kind::Boolean => "true or false".to_owned(),
            Kind::Long(least, i64::MAX) => format!("a number, {least} or more"),
            Kind::Long(least, most) => format!("a number from {least} to {most}"),
            Kind::Double => "a number from 0 to 1".to_owned(),
            Kind::Choice(choices) => choices.join(" or "),
            Kind::Text => "any text".to_owned(),
            Kind::Choices(choices) => format!("any of {}", choices.join(",")),
            Kind::Replicas => "* or partitions with brokers, as 0:1,1:1".to_owned(),
        }
    }
}

/// Settings of one topic: those that its owner set, and the effective values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TopicSettings {
    /// Settings that the owner set, by name. The others have their defaults.
    pub(crate) own: BTreeMap<String, String>,
    pub(crate) class: VolumeClass,
    pub(crate) retention_ms: Option<i64>,
    pub(crate) retention_bytes: Option<u64>,
    pub(crate) deletes: bool,
    pub(crate) compacts: bool,
    pub(crate) segment_bytes: u64,
    segment_ms: i64,
    pub(crate) batch_bytes_max: usize,
    /// `None` retains the producer's codec.
    pub(crate) compression: Option<Codec>,
    pub(crate) has_append_time: bool,
    /// Maximum difference of a record's timestamp before and after the broker's clock.
    pub(crate) timestamp_before_max_ms: i64,
    pub(crate) timestamp_after_max_ms: i64,
    pub(crate) delete_retention_ms: i64,
    pub(crate) min_compaction_lag_ms: i64,
    pub(crate) max_compaction_lag_ms: i64,
    pub(crate) min_dirty_ratio: f64,
    pub(crate) keeps_values: bool,
    /// True if complete objects are stored in another topic.
    pub(crate) merges_values: bool,
    pub(crate) values_ttl_ms: Option<i64>,
}

impl TopicSettings {
    /// Validates settings. Returns a message for an unknown name or invalid value. `defaults` are
    /// the broker's defaults of topics.
    pub(crate) fn new(
        mut own: BTreeMap<String, String>,
        defaults: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        for (name, value) in &mut own {
            if let Some(setting) = find(name) {
                *value = setting.plain(value);
            }
        }
        let settings = Self::each_checked(own, defaults)?;
        let (least, most) = (settings.min_compaction_lag_ms, settings.max_compaction_lag_ms);
        match least > most {
            true => Err(format!(
                "min.compaction.lag.ms = {least} is greater than \
                             max.compaction.lag.ms"
            )),
            false => Ok(settings),
        }
    }

    /// Reads settings that were stored with a topic, including those that can no longer be set: the
    /// broker's defaults may have changed since. Earlier releases accepted 0 for
    /// `max.compaction.lag.ms`, without effect, and more values for settings without effect.
    pub(crate) fn stored(
        mut own: BTreeMap<String, String>,
        defaults: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        if own.get("max.compaction.lag.ms").is_some_and(|it| it == "0") {
            own.remove("max.compaction.lag.ms");
        }
        let has_effect = |name: &str| find(name).is_none_or(|it| !it.meaning.is_empty());
        let is_good = |name: &str, value: &str| find(name).is_none_or(|it| it.check(value).is_ok());
        own.retain(|name, value| has_effect(name) || is_good(name, value));
        Self::each_checked(own, defaults)
    }

    fn each_checked(
        own: BTreeMap<String, String>,
        defaults: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        for (name, value) in &own {
            let setting = find(name).ok_or_else(|| format!("unknown topic setting {name:?}"))?;
            setting.check(value)?;
        }
        let values = Values { own: &own, defaults };
        let policies = values.text("cleanup.policy");
        let has_policy = |name| policies.split(',').any(|policy| policy.trim() == name);
        let class = VolumeClass {
            durability: values.one_of("memlane.durability", Durability::ALL, Durability::name),
            reduction: values.one_of("memlane.reduction", Reduction::ALL, Reduction::name),
        };
        Ok(Self {
            class,
            retention_ms: values.limit("retention.ms"),
            retention_bytes: values.limit("retention.bytes").map(unsigned),
            deletes: has_policy("delete"),
            compacts: has_policy("compact"),
            segment_bytes: unsigned(values.number("segment.bytes")),
            segment_ms: values.number("segment.ms"),
            batch_bytes_max: usize::try_from(values.number("max.message.bytes"))
                .expect("it was checked"),
            compression: codec(values.text("compression.type")),
            has_append_time: values.text("message.timestamp.type") == "LogAppendTime",
            timestamp_before_max_ms: values.difference("message.timestamp.before.max.ms"),
            timestamp_after_max_ms: values.difference("message.timestamp.after.max.ms"),
            max_compaction_lag_ms: values.number("max.compaction.lag.ms"),
            delete_retention_ms: values.number("delete.retention.ms"),
            min_compaction_lag_ms: values.number("min.compaction.lag.ms"),
            min_dirty_ratio: values
                .text("min.cleanable.dirty.ratio")
                .parse()
                .expect("it was checked"),
            keeps_values: values.text("memlane.values") == "latest",
            merges_values: values.text("memlane.values") == "merge",
            values_ttl_ms: values.limit("memlane.values.ttl.ms"),
            own,
        })
    }

    /// Returns the settings that were set, but have no effect.
    pub(crate) fn without_effect(&self) -> impl Iterator<Item = &str> {
        let names = self.own.keys().map(String::as_str);
        names.filter(|name| find(name).is_some_and(|setting| setting.meaning.is_empty()))
    }

    /// Returns the maximum time until a record's segment is closed, and then until it is compacted:
    /// half of the maximum lag each.
    pub(crate) fn max_wait_ms(&self) -> i64 {
        self.max_compaction_lag_ms / 2
    }

    /// Returns the maximum age of the active segment, whose records are not compacted.
    pub(crate) fn segment_ms(&self) -> i64 {
        match self.compacts {
            true => self.segment_ms.min(self.max_wait_ms()),
            false => self.segment_ms,
        }
    }

    /// Returns the valid timestamps of records, in Unix milliseconds, by the broker's clock.
    pub(crate) fn timestamps(&self, now_ms: i64) -> RangeInclusive<i64> {
        match self.has_append_time {
            // Timestamps of producers are ignored.
            true => i64::MIN..=i64::MAX,
            false => {
                let oldest = now_ms.saturating_sub(self.timestamp_before_max_ms);
                oldest..=now_ms.saturating_add(self.timestamp_after_max_ms)
            }
        }
    }

    /// Returns the value of a setting that is in effect.
    pub(crate) fn value<'a>(
        &'a self,
        setting: &'static Setting,
        defaults: &'a BTreeMap<String, String>,
    ) -> &'a str {
        Values { own: &self.own, defaults }.text(setting.name)
    }
}

struct Values<'a> {
    own: &'a BTreeMap<String, String>,
    defaults: &'a BTreeMap<String, String>,
}

impl<'a> Values<'a> {
    fn text(&self, name: &str) -> &'a str {
        let set = self.own.get(name).or_else(|| self.defaults.get(name));
        set.map_or_else(|| find(name).expect("it is in the table").default, String::as_str)
    }

    fn number(&self, name: &str) -> i64 {
        self.text(name).parse().expect("values were checked")
    }

    /// Returns a setting for one direction, or that for both directions if only that is set.
    fn difference(&self, name: &str) -> i64 {
        let both = "message.timestamp.difference.max.ms";
        let is_set = |it: &str| self.own.contains_key(it) || self.defaults.contains_key(it);
        self.number(if is_set(both) && !is_set(name) { both } else { name })
    }

    fn one_of<T: Copy, const N: usize>(
        &self,
        setting: &str,
        all: [T; N],
        name: impl Fn(T) -> &'static str,
    ) -> T {
        let text = self.text(setting);
        all.into_iter().find(|it| name(*it) == text).expect("values were checked")
    }

    /// Returns a limit. `None` if the setting is -1.
    fn limit(&self, name: &str) -> Option<i64> {
        Some(self.number(name)).filter(|number| *number >= 0)
    }
}

/// Returns the codec of batches in a topic, or `None` for the producer's.
fn codec(compression_type: &str) -> Option<Codec> {
    match compression_type {
        "uncompressed" => Some(Codec::None),
        name => Codec::ALL.into_iter().filter(|it| *it != Codec::None).find(|it| it.name() == name),
    }
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).expect("it was checked")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(own: &[(&str, &str)]) -> Result<TopicSettings, String> {
        let own = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        TopicSettings::new(own.collect(), &BTreeMap::new())
    }

    #[test]
    fn defaults_are_kafkas() {
        let settings = settings(&[]).expect("nothing is refused");
        assert_eq!(settings.retention_ms, Some(7 * 24 * 3600 * 1000));
        assert_eq!(settings.retention_bytes, None);
        assert!(settings.deletes && !settings.compacts);
        assert_eq!(settings.batch_bytes_max, 1_048_588);
        assert_eq!(settings.compression, None);
        for setting in SETTINGS {
            setting.check(setting.default).expect("a default is a value");
        }
    }

    #[test]
    fn choices_of_the_class_are_those_of_volumes() {
        let choices = |name| find(name).map(|setting| setting.kind);
        let durabilities = Durability::ALL.map(Durability::name);
        let Some(Kind::Choice(known)) = choices("memlane.durability") else { panic!("no choice") };
        assert_eq!(known, durabilities);
        let Some(Kind::Choice(known)) = choices("memlane.reduction") else { panic!("no choice") };
        assert_eq!(known, Reduction::ALL.map(Reduction::name));
    }

    #[test]
    fn what_is_set_counts() {
        let set = [("cleanup.policy", "compact, delete"), ("retention.ms", "-1")];
        let settings = settings(&set).expect("they are good");
        assert!(settings.deletes && settings.compacts);
        assert_eq!(settings.retention_ms, None);
    }

    #[test]
    fn values_are_read_as_kafka_reads_them() {
        let set = [
            ("retention.ms", " 1000 "),
            ("preallocate", "TRUE"),
            ("compression.type", "snappy "),
            ("leader.replication.throttled.replicas", "*"),
            ("cleanup.policy", ""),
        ];
        let settings = settings(&set).expect("they are good");
        assert_eq!(settings.retention_ms, Some(1000));
        assert_eq!(settings.own["preallocate"], "true");
        assert_eq!(settings.compression, Some(Codec::Snappy));
        assert!(!settings.deletes && !settings.compacts, "all is kept");
    }

    #[test]
    fn what_is_stored_is_opened_where_it_could_not_be_set_today() {
        let lag = |least: &str, most: &str| {
            let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            [of("min.compaction.lag.ms", least), of("max.compaction.lag.ms", most)]
        };
        let without_effect = ("follower.replication.throttled.replicas", "some");
        let own = BTreeMap::from([without_effect].map(|(a, b)| (a.to_owned(), b.to_owned())));
        TopicSettings::stored(own, &BTreeMap::new()).expect("it is opened");
        for (least, most) in [("0", "0"), ("10", "5")] {
            let own = BTreeMap::from(lag(least, most));
            TopicSettings::new(own.clone(), &BTreeMap::new()).expect_err("it is refused");
            TopicSettings::stored(own, &BTreeMap::new()).expect("it is opened");
        }
        let of_defaults = BTreeMap::from(lag("10", "20"));
        let own = BTreeMap::from([("max.compaction.lag.ms".to_owned(), "5".to_owned())]);
        TopicSettings::stored(own, &of_defaults).expect("it is opened");
    }

    #[test]
    fn each_type_of_compression_but_the_producers_is_a_codec() {
        let Some(Kind::Choice(types)) = find("compression.type").map(|it| it.kind) else {
            panic!("it is a choice")
        };
        let set = |name| settings(&[("compression.type", name)]).expect("it is good").compression;
        let codecs: Vec<_> = types.iter().map(|name| set(name)).collect();
        let (first, rest) = codecs.split_first().expect("there are some");
        assert_eq!(*first, None);
        assert_eq!(rest, Codec::ALL.map(Some));
    }

    #[test]
    fn settings_that_mean_nothing_here_are_taken_and_named() {
        let set = settings(&[
            ("remote.storage.enable", "true"),
            ("leader.replication.throttled.replicas", "0:1,1:1"),
            ("compression.zstd.level", "19"),
            ("retention.ms", "5"),
        ]);
        let set = set.expect("they are common");
        let names: Vec<&str> = set.without_effect().collect();
        let expected = [
            "compression.zstd.level",
            "leader.replication.throttled.replicas",
            "remote.storage.enable",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn one_setting_for_both_directions_gives_way_to_those_of_each() {
        let both = ("message.timestamp.difference.max.ms", "5");
        let set = settings(&[both, ("message.timestamp.after.max.ms", "7")]).expect("good");
        assert_eq!(set.timestamps(100), 95..=107);
    }

    #[test]
    fn a_bad_value_is_named() {
        for (name, value) in [
            ("retention.ms", "soon"),
            ("retention.ms", "-2"),
            ("segment.bytes", "5"),
            ("memlane.durability", "disk"),
            ("cleanup.policy", "compact,forget"),
            ("cleanup.policy", "delete,"),
            ("leader.replication.throttled.replicas", "0:1,first"),
            ("min.insync.replicas", "3000000000"),
            ("compression.type", "brotli"),
            ("compression.type", "none"),
            ("colour", "red"),
        ] {
            let why = settings(&[(name, value)]).expect_err(value);
            assert!(why.contains(name), "{why}");
        }
    }
}
