//! Command line options.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use access::{
    ClientCertificates, Exposure, ListenerPolicy, LoginSettings, Principal, SecurityProtocol,
};
use anyhow::{Context, bail};
use clap::builder::RangedI64ValueParser;
use clap::{Parser, ValueEnum};
use consumer_groups::MigrationPolicy;
use sasl::Mechanism;
use tls::TlsFiles;

use crate::access_rules::{AccessFiles, REQUESTS_BYTES};
use crate::commands::Command;
use crate::coordinator::CoordinatorOptions;
use crate::operation::HttpPlaces;

/// Message broker for Kafka clients, with topics on Memlane volumes.
#[derive(Clone, Debug, Parser)]
#[command(name = "memlane-broker", version)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Configuration file in TOML; its keys are the names of options. Options on the command line
    /// override it.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Write manual pages to man8 in this folder, and do nothing else.
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) man: Option<PathBuf>,

    /// Store topics on volumes of the daemon whose sockets are in this directory.
    #[arg(long, value_name = "DIR", default_value = "/run/memlane", conflicts_with = "embedded")]
    pub(crate) daemon: PathBuf,

    /// Store topics in an embedded pool of this size, for example 512M or 4G.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) embedded: Option<u64>,

    /// File on tmpfs for the embedded pool, which then outlives the broker.
    #[arg(long, value_name = "FILE", requires = "embedded")]
    pub(crate) pool_file: Option<PathBuf>,

    /// Listen for Kafka clients on this address and port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9092")]
    pub(crate) listen: String,

    /// Address that clients connect to, if it differs from --listen (Kafka's advertised.listeners).
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise: Option<String>,

    /// Accept clients that have not logged in: from this host only, from everywhere, or not at all.
    #[arg(long, value_name = "WHERE", default_value = "refused")]
    pub(crate) anonymous: Anonymous,

    /// File of users; clients must log in.
    #[arg(long, value_name = "FILE")]
    pub(crate) user_file: Option<PathBuf>,

    /// Enabled SASL mechanisms.
    #[arg(
        long,
        value_name = "MECHANISM",
        value_delimiter = ',',
        default_value = "SCRAM-SHA-256,SCRAM-SHA-512",
        value_parser = mechanism
    )]
    pub(crate) mechanisms: Vec<Mechanism>,

    /// Seconds after which clients must log in again; 0: never.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) login_lifetime: u64,

    /// File of access lists; only what an entry allows is permitted, and nothing if the file does
    /// not exist. Without this option, clients may do everything.
    #[arg(long, value_name = "FILE")]
    pub(crate) acl_file: Option<PathBuf>,

    /// Principal that may do everything, for example User:admin; may be repeated.
    #[arg(long, value_name = "PRINCIPAL", value_parser = principal)]
    pub(crate) super_user: Vec<Principal>,

    /// TLS certificate chain, in PEM format.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,

    /// Private key of the certificate, in PEM format.
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,

    /// CA certificates, in PEM format; clients must present a certificate that one of them signed.
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_client_authority: Option<PathBuf>,

    /// Serve metrics, health checks and status over HTTP on this address and port.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) http: Option<SocketAddr>,

    /// Allow other hosts to reach the HTTP interface, which requires no password.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set)]
    pub(crate) http_exposed: bool,

    /// Serve the HTTP interface on this Unix socket, for the broker's user and group.
    #[arg(long, value_name = "PATH")]
    pub(crate) http_socket: Option<PathBuf>,

    /// Listen for PostgreSQL clients on this address and port. Users, access lists and certificates
    /// are those of Kafka clients.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) sql: Option<String>,

    /// Maximum number of SQL connections; one user can have half of them.
    #[arg(long, value_name = "COUNT", default_value_t = 400)]
    pub(crate) sql_connections: usize,

    /// Maximum memory of one SQL query; a query that needs more fails.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "256M")]
    pub(crate) sql_query_memory: u64,

    /// Maximum memory of all SQL queries; those of one user get at most as much as they leave free.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1G")]
    pub(crate) sql_memory: u64,

    /// Maximum number of concurrent SQL statements of one user; more wait.
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub(crate) sql_statements: usize,

    /// Maximum number of concurrent live queries of one user.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000)]
    pub(crate) sql_subscriptions: usize,

    /// Seconds after which a SQL statement is cancelled, unless its client sets statement_timeout;
    /// 0: never.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) sql_statement_time: u64,

    /// Create topics that clients request (Kafka's auto.create.topics.enable).
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub(crate) auto_create_topics: bool,

    /// Default number of partitions (Kafka's num.partitions).
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub(crate) partitions: u32,

    /// Default of a topic setting, for example retention.ms=3600000; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    pub(crate) topic_default: Vec<(String, String)>,

    /// Milliseconds that a new group waits for more members before its first rebalance (Kafka's
    /// group.initial.rebalance.delay.ms).
    #[arg(long, value_name = "MS", default_value_t = 3_000)]
    pub(crate) group_initial_rebalance_delay: i32,

    /// Minimum session timeout of group members (Kafka's group.min.session.timeout.ms).
    #[arg(long, value_name = "MS", default_value_t = 6_000, value_parser = positive())]
    pub(crate) group_session_min: i32,

    /// Maximum session timeout of group members (Kafka's group.max.session.timeout.ms).
    #[arg(long, value_name = "MS", default_value_t = 1_800_000, value_parser = positive())]
    pub(crate) group_session_max: i32,

    /// Changes of protocol that consumer groups with members may make: bidirectional, upgrade (from
    /// the classic protocol to that of KIP-848), downgrade (back) or disabled (Kafka's
    /// group.consumer.migration.policy).
    #[arg(long, value_name = "POLICY", default_value = "bidirectional")]
    #[arg(value_parser = migration_policy)]
    pub(crate) group_migration_policy: MigrationPolicy,

    /// Maximum transaction timeout of producers (Kafka's transaction.max.timeout.ms, 15 minutes by
    /// default there). If a producer is gone, read_committed consumers wait that long.
    #[arg(long, value_name = "MS", default_value_t = 3_600_000, value_parser = positive())]
    pub(crate) transaction_time_max: i32,

    /// Maximum number of connections; one user can have half of them.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    pub(crate) connections: usize,

    /// Maximum size of a request.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "32M")]
    pub(crate) request_size: u64,

    /// Maximum memory of the requests in flight of all clients; one user can have half of it. At
    /// least twice --request-size, which is the default if that exceeds 1G.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) request_memory: Option<u64>,

    /// Log level or filter, for example info or memlane_broker=debug.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub(crate) log: String,
}

/// Origins from which clients may be anonymous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Anonymous {
    Refused,
    Loopback,
    Everywhere,
}

impl Options {
    /// Returns the requirements on clients.
    pub(crate) fn policy(&self) -> ListenerPolicy {
        let protocol = match (self.tls_certificate.is_some(), self.user_file.is_some()) {
            (false, false) => SecurityProtocol::Plaintext,
            (true, false) => SecurityProtocol::Ssl,
            (false, true) => SecurityProtocol::SaslPlaintext,
            (true, true) => SecurityProtocol::SaslSsl,
        };
        let session_lifetime =
            (self.login_lifetime > 0).then(|| Duration::from_secs(self.login_lifetime));
        ListenerPolicy {
            protocol,
            certificates: match self.tls_client_authority {
                Some(_) => ClientCertificates::Required,
                None => ClientCertificates::None,
            },
            logins: LoginSettings { mechanisms: self.mechanisms.clone(), session_lifetime },
            exposure: match self.anonymous {
                Anonymous::Refused => Exposure::Refused,
                Anonymous::Loopback => Exposure::Loopback,
                Anonymous::Everywhere => Exposure::Everywhere,
            },
        }
    }

    pub(crate) fn http_places(&self) -> HttpPlaces {
        HttpPlaces {
            address: self.http,
            may_be_exposed: self.http_exposed,
            socket: self.http_socket.clone(),
        }
    }

    pub(crate) fn coordinator(&self) -> anyhow::Result<CoordinatorOptions> {
        let (shortest, longest) = (self.group_session_min, self.group_session_max);
        if shortest > longest {
            bail!("--group-session-min {shortest} is greater than --group-session-max {longest}");
        }
        let CoordinatorOptions { groups, transactions } = CoordinatorOptions::default();
        Ok(CoordinatorOptions {
            groups: consumer_groups::Options {
                initial_rebalance_delay_ms: self.group_initial_rebalance_delay,
                session_timeout_ms_min: self.group_session_min,
                session_timeout_ms_max: self.group_session_max,
                migration_policy: self.group_migration_policy,
                ..groups
            },
            transactions: transactions::Settings {
                transaction_timeout_ms_max: self.transaction_time_max,
                ..transactions
            },
        })
    }

    /// Returns the maximum memory of requests in flight of all clients. It has room for the longest
    /// request and others.
    pub(crate) fn request_memory(&self) -> anyhow::Result<u64> {
        let least = self.request_size.saturating_mul(2);
        let bytes = self.request_memory.unwrap_or(REQUESTS_BYTES.max(least));
        if bytes < least {
            bail!("--request-memory {bytes} is below {least}, which is twice --request-size");
        }
        Ok(bytes)
    }

    pub(crate) fn sql_limits(&self) -> sql::Limits {
        let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        let time = Duration::from_secs(self.sql_statement_time);
        sql::Limits {
            connection_count: self.sql_connections,
            query_bytes: bytes(self.sql_query_memory),
            total_bytes: bytes(self.sql_memory),
            queries_per_principal: self.sql_statements,
            statement_time: (!time.is_zero()).then_some(time),
            ..sql::Limits::default()
        }
    }

    pub(crate) fn access_files(&self) -> AccessFiles {
        let tls = self.tls_certificate.clone().zip(self.tls_key.clone());
        AccessFiles {
            users: self.user_file.clone(),
            acls: self.acl_file.clone(),
            super_users: self.super_user.clone(),
            tls: tls.map(|(certificate, key)| TlsFiles {
                certificate,
                key,
                client_authorities: self.tls_client_authority.clone(),
            }),
        }
    }
}

fn positive() -> RangedI64ValueParser<i32> {
    clap::value_parser!(i32).range(1..)
}

fn mechanism(name: &str) -> Result<Mechanism, String> {
    let names: Vec<_> = Mechanism::ALL.iter().map(|it| it.name()).collect();
    Mechanism::from_name(name).ok_or_else(|| format!("use one of {}", names.join(", ")))
}

fn migration_policy(name: &str) -> Result<MigrationPolicy, String> {
    let names = MigrationPolicy::ALL.map(MigrationPolicy::name);
    MigrationPolicy::from_name(name).ok_or_else(|| format!("use one of {}", names.join(", ")))
}

fn principal(text: &str) -> Result<Principal, String> {
    let name = text.strip_prefix("User:").ok_or("use User:NAME")?;
    Principal::user(name).map_err(|error| error.to_string())
}

/// Parses host and port. An IPv6 address is written in brackets.
pub(crate) fn host_and_port(text: &str) -> anyhow::Result<(String, u16)> {
    let (host, port) =
        text.rsplit_once(':').with_context(|| format!("{text:?} is not HOST:PORT"))?;
    let port =
        port.parse().with_context(|| format!("{text:?} has no valid port; use HOST:PORT"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        bail!("{text:?} has no host; use HOST:PORT");
    }
    Ok((host.to_owned(), port))
}

fn size(text: &str) -> Result<u64, String> {
    let size: api::ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    Ok(size.0)
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("use NAME=VALUE")?;
    let setting = crate::topics::find_setting(name)
        .ok_or_else(|| format!("unknown topic setting {name:?}"))?;
    setting.check(value)?;
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[cfg(feature = "sql")]
    #[test]
    fn the_reference_has_every_option() {
        program::check_reference::<Options>(concat!(env!("CARGO_MANIFEST_DIR"), "/../..").as_ref());
    }

    #[test]
    fn every_key_is_in_the_sample_file_and_every_line_of_it_can_be_used() {
        Options::command().debug_assert();
        let sample = include_str!("../memlane-broker.toml");
        let lines = option_file::sample_lines(Options::command(), sample).expect("all keys");
        let file = tempfile::NamedTempFile::new().expect("a file");
        // Options `daemon` and `embedded` are mutually exclusive.
        let usable = lines.into_iter().filter(|it| !it.starts_with("daemon ="));
        std::fs::write(&file, usable.collect::<Vec<_>>().join("\n")).expect("it is written");
        let words = ["memlane-broker".into(), "--config".into(), file.path().into()];
        let words = option_file::with_file(Options::command(), words.into());
        let options = Options::try_parse_from(words.expect("all keys are known"));
        assert_eq!(options.expect("the sample, uncommented").embedded, Some(4 << 30));
    }

    #[test]
    fn requests_in_flight_have_room_for_the_longest_one_twice() {
        let memory = |words: &[&str]| {
            let words = ["memlane-broker"].iter().chain(words);
            Options::try_parse_from(words).expect("each is good").request_memory()
        };
        assert_eq!(memory(&[]).expect("the default"), 1 << 30);
        assert_eq!(memory(&["--request-size", "1G"]).expect("it follows"), 2 << 30);
        assert_eq!(memory(&["--request-memory", "64M"]).expect("just enough"), 64 << 20);
        let error = memory(&["--request-memory", "63M"]).expect_err("two do not fit").to_string();
        assert!(error.ends_with("is below 67108864, which is twice --request-size"), "{error}");
    }

    #[test]
    fn policies_of_groups_have_kafkas_names() {
        let policy = |name: &str| {
            let words = ["memlane-broker", "--group-migration-policy", name];
            let options = Options::try_parse_from(words)?;
            anyhow::Ok(options.coordinator()?.groups.migration_policy)
        };
        for known in MigrationPolicy::ALL {
            assert_eq!(policy(known.name()).expect("it is one"), known);
        }
        assert_eq!(policy("UPGRADE").expect("as in Kafka"), MigrationPolicy::Upgrade);
        let error = policy("both").expect_err("it is none").to_string();
        let names = "use one of bidirectional, upgrade, downgrade, disabled";
        assert!(error.contains(names), "{error}");
    }

    #[test]
    fn the_shortest_session_is_not_above_the_longest() {
        let words = ["memlane-broker", "--daemon", "/run", "--group-session-min", "7000"];
        let coordinator = |longest: &str| {
            let words = words.into_iter().chain(["--group-session-max", longest]);
            Options::try_parse_from(words).expect("each is good").coordinator()
        };
        coordinator("7000").expect("one length");
        let error = coordinator("6999").expect_err("none is as long and as short");
        assert_eq!(
            error.to_string(),
            "--group-session-min 7000 is greater than --group-session-max 6999"
        );
    }
}
