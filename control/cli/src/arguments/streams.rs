//! Commands that use a broker: topics, groups, records, users and access rules.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use kafka_client::{Acks, AclOperation, Compression, Mechanism, ScramHash};

use super::{CAPACITIES, DURABILITIES, REDUCTIONS, Word, words};
use crate::table::View;

#[derive(Debug, Subcommand)]
pub(crate) enum StreamsCommand {
    /// Create, show, change and delete topics of a broker
    Topic {
        #[command(flatten)]
        broker: BrokerOptions,

        #[command(subcommand)]
        command: TopicCommand,
    },

    /// Show consumer groups, and reset their offsets
    Group {
        #[command(flatten)]
        broker: BrokerOptions,

        #[command(subcommand)]
        command: GroupCommand,
    },

    /// Produce records to a topic, one for each line of standard input
    Produce(Produce),

    /// Print the records of a topic
    Consume(Consume),

    /// List, create and delete SCRAM users of a broker
    User {
        #[command(flatten)]
        broker: BrokerOptions,

        #[command(subcommand)]
        command: UserCommand,
    },

    /// List, add and remove access rules (ACLs) of a broker
    Acl {
        #[command(flatten)]
        broker: BrokerOptions,

        #[command(subcommand)]
        command: AclCommand,
    },
}

/// Heading of the options that connect to a broker in help texts.
pub(super) const BROKER: &str = "Connection to the broker";

/// Address of the broker, and the login.
#[derive(Clone, Debug, Args)]
pub(crate) struct BrokerOptions {
    /// The broker [default: $MEMLANE_BROKER, or 127.0.0.1:9092]
    #[arg(long, global = true, help_heading = BROKER, value_name = "HOST:PORT")]
    pub(crate) broker: Option<String>,

    #[command(flatten)]
    pub(crate) login: Login,

    /// SASL mechanism [default: scram-sha-256]
    #[arg(long, global = true, help_heading = BROKER, value_parser = mechanisms())]
    pub(crate) sasl_mechanism: Option<Mechanism>,
}

/// User that logs in at a broker, and the certificates to trust.
#[derive(Clone, Debug, Args)]
pub(crate) struct Login {
    /// The user [default: $MEMLANE_BROKER_USER, or none]
    #[arg(long, global = true, help_heading = BROKER, value_name = "NAME")]
    pub(crate) sasl_user: Option<String>,

    /// File that contains the user's password [default: the password in $MEMLANE_BROKER_PASSWORD]
    #[arg(long, global = true, help_heading = BROKER, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,

    /// Use TLS, and trust brokers whose certificate is signed by a CA in this file (PEM)
    #[arg(long, global = true, help_heading = BROKER, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// Create an empty topic
    Create(TopicCreate),

    /// List all topics
    #[command(visible_alias = "ls")]
    List {
        /// Include internal topics
        #[arg(long)]
        internal: bool,

        #[command(flatten)]
        view: View,
    },

    /// Show one topic, its partitions and its settings
    Show {
        /// The topic
        name: String,
    },

    /// Change settings of a topic, also while it is in use
    Set {
        /// The topic
        name: String,

        /// Settings of Kafka, for example retention.ms=3600000, and memlane.durability,
        /// memlane.capacity, memlane.reduction, memlane.values, memlane.values.ttl.ms; an empty
        /// value restores the default
        #[arg(value_name = "KEY=VALUE", value_parser = config)]
        #[arg(required_unless_present = "partitions")]
        settings: Vec<Config>,

        /// Increase the number of partitions to this; new records of a key may go to another
        /// partition
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(1..))]
        partitions: Option<i32>,
    },

    /// Delete a topic and all its records
    #[command(visible_alias = "rm")]
    Delete {
        /// The topic
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TopicCreate {
    /// 1 to 249 of a-z A-Z 0-9 . _ -
    pub(crate) name: String,

    /// Number of partitions [default: the broker's --partitions]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) partitions: Option<i32>,

    /// Setting, for example retention.ms=3600000; may be repeated
    #[arg(long = "config", value_name = "KEY=VALUE", value_parser = config)]
    pub(crate) configs: Vec<Config>,

    /// Durability of acknowledged records [default: the broker's setting]
    #[arg(long, value_parser = words(&DURABILITIES))]
    pub(crate) durability: Option<String>,

    /// Behaviour when the pool is full [default: the broker's setting]
    #[arg(long, value_parser = words(&CAPACITIES))]
    pub(crate) capacity: Option<String>,

    /// Reduction of records in memory [default: the broker's setting]
    #[arg(long, value_parser = words(&REDUCTIONS))]
    pub(crate) reduction: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// List all groups
    #[command(visible_alias = "ls")]
    List(View),

    /// Show the members of a group, its committed offsets and lag
    Show {
        /// The group
        name: String,
    },

    /// Reset the committed offsets of a group without members
    Reset {
        /// The group
        name: String,

        /// earliest, latest, an offset, a time such as 2026-11-22T18:00:00Z, or an age such as
        /// 15min
        #[arg(long, value_parser = offset_spec)]
        to: OffsetSpec,

        /// Topic; may be repeated [default: all topics for which the group has offsets]
        #[arg(long = "topic", value_name = "TOPIC")]
        topics: Vec<String>,

        /// Show the new offsets without setting them
        #[arg(long)]
        dry_run: bool,
    },

    /// Delete a group without members, with its offsets
    #[command(visible_alias = "rm")]
    Delete {
        /// The group
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Produce {
    /// The topic
    pub(crate) topic: String,

    #[command(flatten)]
    pub(crate) broker: BrokerOptions,

    /// Format of a line of standard input [default: text, or json with --json]
    #[arg(long, value_enum)]
    pub(crate) input: Option<Input>,

    /// Separator between the key of a record and its value
    #[arg(long, value_name = "TEXT", value_parser = separator)]
    pub(crate) key_separator: Option<String>,

    /// Partition for all records [default: chosen by the key; records without a key go to all
    /// partitions in turn]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) partition: Option<i32>,

    /// Acknowledgement that the producer waits for
    #[arg(long, default_value = "all", value_parser = words(&ACKS).map(acks))]
    pub(crate) acks: Acks,

    /// Compression of batches
    #[arg(long, default_value = "none", value_parser = compressions())]
    pub(crate) compression: Compression,
}

/// Format of a line of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Input {
    /// A value, or a key and a value
    Text,
    /// A record as `memlane consume --json` prints it
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Consume {
    /// The topic
    pub(crate) topic: String,

    #[command(flatten)]
    pub(crate) broker: BrokerOptions,

    /// earliest, latest, an offset, a time such as 2026-11-22T18:00:00Z, or an age such as 15min
    /// [default: earliest; with --group the group's committed offsets]
    #[arg(long, value_parser = offset_spec)]
    pub(crate) from: Option<OffsetSpec>,

    /// Consume only this partition; may be repeated [default: all]
    #[arg(long = "partition", value_name = "NUMBER", conflicts_with = "group")]
    pub(crate) partitions: Vec<i32>,

    /// Stop after this number of records
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// Consume as a member of this group, and commit offsets
    #[arg(long)]
    pub(crate) group: Option<String>,

    /// Wait for new records until Ctrl-C [default: stop at the last existing record]
    #[arg(long, short = 'f')]
    pub(crate) follow: bool,

    /// Omit records of open and aborted transactions (isolation.level=read_committed)
    #[arg(long)]
    pub(crate) committed: bool,

    /// Print keys too, separated from values by this text
    #[arg(long, value_name = "TEXT", value_parser = separator)]
    pub(crate) key_separator: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// List all users
    #[command(visible_alias = "ls")]
    List(View),

    /// Create a user, or change the password of one
    Set {
        /// The user
        name: String,

        /// File that contains the new password [default: the password in $MEMLANE_NEW_PASSWORD]
        #[arg(long, value_name = "FILE")]
        new_password_file: Option<PathBuf>,

        /// SCRAM mechanism of the password
        #[arg(long, default_value = "scram-sha-256", value_parser = hashes())]
        mechanism: ScramHash,
    },

    /// Delete a user
    #[command(visible_alias = "rm")]
    Delete {
        /// The user
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AclCommand {
    /// List rules
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        resource: AclResource,

        /// List only rules of this user
        #[arg(long, value_name = "NAME")]
        user: Option<String>,

        #[command(flatten)]
        view: View,
    },

    /// Add a rule that allows or denies operations to a user
    Add {
        /// The user, or * for all
        user: String,

        /// Operations to allow or deny
        #[arg(required = true, value_parser = operations())]
        operations: Vec<AclOperation>,

        #[command(flatten)]
        resource: AclResource,

        /// Deny the operations, overriding rules that allow them
        #[arg(long)]
        deny: bool,

        /// Client address to which the rule applies
        #[arg(long, value_name = "ADDRESS", default_value = "*")]
        host: String,
    },

    /// Remove all rules of a user, or those that match
    #[command(visible_alias = "rm")]
    Remove {
        /// User, or * for the rules that apply to all users
        user: String,

        /// Remove only rules about these operations
        #[arg(value_parser = operations())]
        operations: Vec<AclOperation>,

        #[command(flatten)]
        resource: AclResource,
    },
}

/// Resource of a rule.
#[derive(Clone, Debug, Args)]
#[group(multiple = true)]
pub(crate) struct AclResource {
    /// A topic, or * for all
    #[arg(long, value_name = "NAME", conflicts_with_all = ["group", "transactional_id", "cluster"])]
    pub(crate) topic: Option<String>,

    /// A consumer group, or * for all
    #[arg(long, value_name = "NAME", conflicts_with_all = ["transactional_id", "cluster"])]
    pub(crate) group: Option<String>,

    /// A transactional id, or * for all
    #[arg(long, value_name = "ID", conflicts_with = "cluster")]
    pub(crate) transactional_id: Option<String>,

    /// The broker itself
    #[arg(long)]
    pub(crate) cluster: bool,

    /// Apply to all names with this prefix
    #[arg(long, conflicts_with = "cluster")]
    pub(crate) prefix: bool,
}

const ACKS: [Word; 3] = [
    ("0", "None: records may be lost without an error"),
    ("1", "That of the leader"),
    ("all", "That of the leader and its in-sync replicas"),
];

fn acks(word: String) -> Acks {
    match word.as_str() {
        "0" => Acks::None,
        "1" => Acks::Leader,
        _ => Acks::All,
    }
}

/// Parser of named values.
fn named<T: Clone + Send + Sync + 'static>(
    values: &'static [T],
    name: fn(&T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(values.iter().map(name)).map(move |word| {
        let found = values.iter().find(|value| name(value) == word);
        found.expect("only these words are let through").clone()
    })
}

fn mechanisms() -> impl TypedValueParser<Value = Mechanism> {
    named(&Mechanism::ALL, |it| match it {
        Mechanism::Plain => "plain",
        Mechanism::Scram(hash) => hash_word(*hash),
    })
}

fn hash_word(hash: ScramHash) -> &'static str {
    match hash {
        ScramHash::Sha256 => "scram-sha-256",
        ScramHash::Sha512 => "scram-sha-512",
    }
}

fn hashes() -> impl TypedValueParser<Value = ScramHash> {
    named(&ScramHash::ALL, |it| hash_word(*it))
}

fn compressions() -> impl TypedValueParser<Value = Compression> {
    named(&Compression::ALL, |it| it.name())
}

fn operations() -> impl TypedValueParser<Value = AclOperation> {
    named(AclOperation::ALL, |it| it.name())
}

/// A `key=value` argument of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) key: String,
    pub(crate) value: String,
}

fn config(text: &str) -> Result<Config, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            Ok(Config { key: key.to_owned(), value: value.to_owned() })
        }
        _ => Err("write key=value".to_owned()),
    }
}

fn separator(text: &str) -> Result<String, String> {
    match text {
        "" => Err("must not be empty".to_owned()),
        "\\t" => Ok("\t".to_owned()),
        text => Ok(text.to_owned()),
    }
}

/// Offset in a partition, as given on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OffsetSpec {
    Earliest,
    Latest,
    Offset(i64),
    /// Time in milliseconds since 1970.
    Time(i64),
    /// Age, subtracted from now.
    Ago(Duration),
}

fn offset_spec(text: &str) -> Result<OffsetSpec, String> {
    match text {
        "earliest" => return Ok(OffsetSpec::Earliest),
        "latest" => return Ok(OffsetSpec::Latest),
        _ => {}
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let offset = text.parse().map_err(|_| format!("invalid offset {text:?}"))?;
        return Ok(OffsetSpec::Offset(offset));
    }
    if let Ok(duration) = humantime::parse_duration(text) {
        return Ok(OffsetSpec::Ago(duration));
    }
    let time = humantime::parse_rfc3339_weak(text).map_err(|_| {
        format!(
            "invalid position {text:?}; use earliest, latest, an offset, a time such as \
             2026-11-22T18:00:00Z, or an age such as 10min"
        )
    })?;
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(OffsetSpec::Time(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Arguments, Command};
    use super::*;

    fn parse(line: &str) -> Result<StreamsCommand, clap::Error> {
        let arguments = Arguments::try_parse_from(line.split_whitespace())?;
        match arguments.command {
            Command::Streams(command) => Ok(command),
            other => panic!("another command: {other:?}"),
        }
    }

    #[test]
    fn offsets_are_words_offsets_times_and_durations() {
        for (text, expected) in [
            ("earliest", OffsetSpec::Earliest),
            ("latest", OffsetSpec::Latest),
            ("17", OffsetSpec::Offset(17)),
            ("15min", OffsetSpec::Ago(Duration::from_secs(900))),
            ("1970-01-01T00:00:01Z", OffsetSpec::Time(1000)),
        ] {
            assert_eq!(offset_spec(text), Ok(expected), "{text}");
        }
        for text in ["", "newest", "-1", "1970-01-02", "99999999999999999999"] {
            assert!(offset_spec(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn options_of_the_broker_stand_before_and_after_the_command() {
        for line in [
            "memlane topic --broker a:1 list",
            "memlane topic list --broker a:1",
            "memlane topic ls --broker a:1 --sort name",
        ] {
            let StreamsCommand::Topic { broker, .. } = parse(line).expect(line) else {
                panic!("another command");
            };
            assert_eq!(broker.broker.as_deref(), Some("a:1"), "{line}");
        }
    }

    #[test]
    fn words_of_the_protocol_are_known() {
        for line in [
            "memlane produce t --acks 0 --compression zstd --key-separator :",
            "memlane consume t --from 5 --count 3 -f --group g",
            "memlane consume t --partition 0 --partition 2 --from 1h",
            "memlane topic create t --partitions 3 --config a=b --durability journal",
            "memlane topic set t retention.ms= memlane.capacity=thin",
            "memlane topic set t --partitions 4",
            "memlane group reset g --to latest --topic t --dry-run",
            "memlane user set u --mechanism scram-sha-512",
            "memlane topic list --sasl-mechanism plain --sasl-user u --password-file p",
            "memlane acl add u read write --topic t --prefix --deny",
            "memlane acl add u all --cluster",
            "memlane acl remove u --group g",
        ] {
            parse(line).expect(line);
        }
    }

    #[test]
    fn what_is_wrong_about_streams_is_refused() {
        for line in [
            "memlane topic set t",
            "memlane topic set t a",
            "memlane topic create t --partitions 0",
            "memlane topic create t --durability paper",
            "memlane group reset g",
            "memlane produce t --acks 2",
            "memlane produce t --compression rar",
            "memlane consume t --count 0",
            "memlane consume t --partition 1 --group g",
            "memlane acl add u fly --topic t",
            "memlane acl add u read --topic t --group g",
            "memlane topic list --password secret",
        ] {
            assert!(parse(line).is_err_and(|error| error.use_stderr()), "{line}");
        }
    }
}
