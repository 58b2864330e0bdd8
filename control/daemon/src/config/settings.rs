//! Settings as flags and as keys of the configuration file, before defaults are applied.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use api::ByteSize;
use clap::ValueEnum;
use serde::Deserialize;

use crate::config::nbd_allow::AllowRule;

/// Policy for the idle states of CPU cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CpuLatencyPolicy {
    /// Keep cores out of deep idle states while there is traffic, which takes more power (PM QoS).
    #[default]
    LowWhileBusy,
    /// Leave idle states to the host.
    Unmanaged,
}

/// Policy for flushes while the journal's disk accepts no writes. With either policy, only durable
/// data is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnJournalFailure {
    /// Flushes wait until the disk accepts writes again.
    #[default]
    Wait,
    /// Flushes fail, and volumes of class `journal` are read-only, until the disk accepts writes
    /// again.
    ReadOnly,
}

/// Policy for flushes of class `journal` that wait for the image store, while it does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MirrorFlushes {
    /// Flushes wait until the store answers.
    Wait,
    /// Flushes fail after `mirror-timeout`.
    Fail,
    /// After `mirror-timeout`, flushes are acknowledged without the store until it answers.
    Alone,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Defines a group of optional settings.
macro_rules! settings {
    (
        $(#[$about:meta])*
        pub(super) struct $name:ident {
            $($(#[$meta:meta])* pub(super) $key:ident: $kind:ty,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, clap::Args, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub(super) struct $name {
            $($(#[$meta])* pub(super) $key: $kind,)*
        }

        impl $name {
            /// Returns these settings, with missing ones taken from `fallback`.
            pub(super) fn or(self, fallback: Self) -> Self {
                Self { $($key: self.$key.or(fallback.$key),)* }
            }
        }

        impl Reloadable for $name {
            fn reload(&mut self, fresh: &Self, place: (&str, &str), reload: &mut Reloading<'_>) {
                let (_, section) = place;
                $({
                    let key = stringify!($key).replace('_', "-");
                    self.$key.reload(&fresh.$key, (section, &key), reload);
                })*
            }
        }
    };
}

/// Comparison of settings that were read again with those in effect.
pub(super) struct Reloading<'it> {
    /// Returns whether a key, such as `log` or `every in [images]`, takes effect without a restart.
    pub(super) takes_effect: &'it dyn Fn(&str) -> bool,
    pub(super) changes: ReloadedKeys,
}

/// Keys whose values differ when the configuration is read again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReloadedKeys {
    pub(crate) effective: Vec<String>,
    /// Keys that keep their values until a restart.
    pub(crate) at_restart: Vec<String>,
}

/// A setting, or a group of them.
pub(super) trait Reloadable {
    /// Adopts what takes effect, and notes all that differs. The place is the section and the key.
    fn reload(&mut self, fresh: &Self, place: (&str, &str), reload: &mut Reloading<'_>);
}

impl<T: Clone + PartialEq> Reloadable for Option<T> {
    fn reload(&mut self, fresh: &Self, place: (&str, &str), reload: &mut Reloading<'_>) {
        if self == fresh {
            return;
        }
        let key = match place {
            ("", key) => key.to_owned(),
            (section, key) => format!("{key} in [{section}]"),
        };
        let Reloading { takes_effect, changes } = reload;
        match takes_effect(&key) {
            true => {
                self.clone_from(fresh);
                changes.effective.push(key);
            }
            false => changes.at_restart.push(key),
        }
    }
}

settings! {
    /// Every setting, as a flag (`--pool-size`, `--journal-dir`) and as a key of the file:
    /// `pool-size`, and `dir` in the section `[journal]`.
    pub(super) struct Settings {
        /// Directory for the list of attachments, and by default for journal and images [default:
        /// /var/lib/memlane]
        #[arg(long, value_name = "DIR")]
        pub(super) state_dir: Option<PathBuf>,

        /// Directory for sockets, mounts and the pool [default: /run/memlane]
        #[arg(long, value_name = "DIR")]
        pub(super) run_dir: Option<PathBuf>,

        /// Memory of a new pool, for example 4GiB [default: half of the free memory]
        #[arg(long, value_name = "SIZE")]
        pub(super) pool_size: Option<ByteSize>,

        /// Size up to which a new pool can grow while in use [default: all memory of the host]
        #[arg(long, value_name = "SIZE")]
        pub(super) pool_size_max: Option<ByteSize>,

        /// The pool's file, on tmpfs, hugetlbfs or DAX [default: pool/region in the run directory]
        #[arg(long, value_name = "FILE")]
        pub(super) pool_path: Option<PathBuf>,

        /// Use huge pages reserved for hugetlbfs for the pool
        #[arg(long, value_name = "BOOL", num_args = 0..=1)]
        #[arg(default_missing_value = "true", require_equals = true)]
        pub(super) pool_hugetlb: Option<bool>,

        /// Allow the pool's file on a disk: after a power loss, volumes may contain old data, also
        /// those of class `journal`
        #[arg(long, value_name = "BOOL", num_args = 0..=1)]
        #[arg(default_missing_value = "true", require_equals = true)]
        pub(super) pool_on_disk: Option<bool>,

        /// File with the key that encrypts journal and images: a path, or the name of a systemd
        /// credential [default: no encryption]
        #[arg(long, value_name = "FILE")]
        pub(super) encryption_key_file: Option<PathBuf>,

        /// Previous key, while the key is being changed
        #[arg(long, value_name = "FILE", requires = "encryption_key_file")]
        pub(super) encryption_key_file_previous: Option<PathBuf>,

        /// Also serve NBD on this TCP address, for example 127.0.0.1:10809
        #[arg(long, value_name = "ADDRESS")]
        pub(super) nbd_tcp: Option<SocketAddr>,

        /// The certificate chain for NBD over TLS, as PEM
        #[arg(long, value_name = "FILE", requires = "nbd_tls_key")]
        pub(super) nbd_tls_cert: Option<PathBuf>,

        /// The private key for NBD over TLS, as PEM
        #[arg(long, value_name = "FILE", requires = "nbd_tls_cert")]
        pub(super) nbd_tls_key: Option<PathBuf>,

        /// Certificates of the CAs that sign client certificates, as PEM; NBD clients must present
        /// one
        #[arg(long, value_name = "FILE", requires = "nbd_tls_cert")]
        pub(super) nbd_tls_client_ca: Option<PathBuf>,

        /// Volumes that an NBD client over TCP may use, for example 'web.example = www, logs:ro';
        /// the name is one in the client's certificate, * means all [default: every volume]
        #[arg(long, value_name = "RULE")]
        pub(super) nbd_allow: Option<Vec<AllowRule>>,

        /// Accept NBD clients over TCP without a certificate
        #[arg(long, value_name = "BOOL", num_args = 0..=1)]
        #[arg(default_missing_value = "true", require_equals = true)]
        pub(super) nbd_insecure: Option<bool>,

        /// Disable NBD
        #[arg(long, value_name = "BOOL", num_args = 0..=1)]
        #[arg(default_missing_value = "true", require_equals = true)]
        pub(super) no_nbd: Option<bool>,

        /// Disable kernel block devices
        #[arg(long, value_name = "BOOL", num_args = 0..=1)]
        #[arg(default_missing_value = "true", require_equals = true)]
        pub(super) no_fuse: Option<bool>,

        /// Number of threads that may busy-poll for requests at once [default: all cores but one]
        #[arg(long, value_name = "COUNT")]
        pub(super) spin_threads: Option<usize>,

        /// Idle states of cores while traffic is recent [default: low-while-busy]
        #[arg(long, value_name = "POLICY")]
        pub(super) cpu_latency: Option<CpuLatencyPolicy>,

        /// Number of writers that work in parallel without contention [default: one per core]
        #[arg(long, value_name = "COUNT")]
        pub(super) lanes: Option<usize>,

        /// Log level or filter: error, warn, info, debug, or a filter such as info,nbd=debug
        /// [default: info]
        #[arg(long, value_name = "FILTER")]
        pub(super) log: Option<String>,

        /// Log format [default: text]
        #[arg(long, value_name = "FORMAT")]
        pub(super) log_format: Option<LogFormat>,

        #[command(flatten)]
        pub(super) journal: JournalSettings,

        #[command(flatten)]
        pub(super) images: ImagesSettings,

        #[command(flatten)]
        pub(super) standby: StandbySettings,

        #[command(flatten)]
        pub(super) store_server: StoreServerSettings,

        #[command(flatten)]
        pub(super) capacity: CapacitySettings,

        #[command(flatten)]
        pub(super) scrub: ScrubSettings,

        #[command(flatten)]
        pub(super) idle: IdleSettings,
    }
}

settings! {
    /// The section `[journal]`: the log that makes flushes of class `journal` durable.
    pub(super) struct JournalSettings {
        /// Directory of the journal [default: journal in the state directory]
        #[arg(long = "journal-dir", id = "journal-dir", value_name = "DIR")]
        pub(super) dir: Option<PathBuf>,

        /// Maximum size of the journal on disk [default: 4GiB]
        #[arg(long = "journal-max-bytes", id = "journal-max-bytes", value_name = "SIZE")]
        pub(super) max_bytes: Option<ByteSize>,

        /// Behaviour of flushes while the journal's disk is full or fails [default: wait]
        #[arg(long = "journal-on-failure", id = "journal-on-failure", value_name = "POLICY")]
        pub(super) on_failure: Option<OnJournalFailure>,
    }
}

settings! {
    /// The section `[images]`: copies of volumes on disk or in an object store.
    pub(super) struct ImagesSettings {
        /// A directory, the URL of an object store, or memlane://HOST:PORT of a daemon that serves
        /// its store [default: images in the state directory]
        #[arg(long = "images-store", id = "images-store", value_name = "PLACE")]
        pub(super) store: Option<String>,

        /// File with the access keys of the object store: a path, or the name of a systemd
        /// credential
        #[arg(long = "images-credentials", id = "images-credentials", value_name = "FILE")]
        pub(super) credentials: Option<PathBuf>,

        /// The certificate chain that this daemon presents to the daemon that serves the store, as
        /// PEM
        #[arg(long = "images-store-certificate", id = "images-store-certificate")]
        #[arg(value_name = "FILE")]
        pub(super) store_certificate: Option<PathBuf>,

        /// The private key of this certificate, as PEM
        #[arg(long = "images-store-key", id = "images-store-key", value_name = "FILE")]
        pub(super) store_key: Option<PathBuf>,

        /// Certificates of the CAs that sign the certificate of the daemon that serves the store,
        /// as PEM
        #[arg(long = "images-store-ca", id = "images-store-ca", value_name = "FILE")]
        pub(super) store_ca: Option<PathBuf>,

        /// Interval between saved images, for example 15m or 1h [default: not periodically]
        #[arg(long = "images-every", id = "images-every", value_name = "TIME")]
        pub(super) every: Option<Interval>,

        /// Number of images that are kept [default: 3]
        #[arg(long = "images-keep", id = "images-keep", value_name = "COUNT")]
        pub(super) keep: Option<usize>,

        /// Interval at which the journal is shipped to the store for a standby [default: never]
        #[arg(long = "images-ship-every", id = "images-ship-every", value_name = "TIME")]
        pub(super) ship_every: Option<Interval>,

        /// Make flushes of class journal wait for the store, with this policy while it does not
        /// answer [default: flushes do not wait]
        #[arg(long = "images-mirror-flushes", id = "images-mirror-flushes", value_name = "POLICY")]
        pub(super) mirror_flushes: Option<MirrorFlushes>,

        /// Time after which the policies fail and alone apply [default: 10s]
        #[arg(long = "images-mirror-timeout", id = "images-mirror-timeout", value_name = "TIME")]
        pub(super) mirror_timeout: Option<Interval>,

        /// Save an image before the daemon ends [default: true]
        #[arg(long = "images-save-at-stop", id = "images-save-at-stop", value_name = "BOOL")]
        pub(super) save_at_stop: Option<bool>,
    }
}

settings! {
    /// The section `[standby]`: whether the daemon follows the image store that another writes to.
    pub(super) struct StandbySettings {
        /// Follow the image store, which another daemon writes to, until promoted [default: false]
        #[arg(long = "standby-follow", id = "standby-follow", value_name = "BOOL")]
        #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
        pub(super) follow: Option<bool>,

        /// Make the pool of a former writer that of a standby, after another daemon has taken over
        /// the image store. Data written after its last image, and volumes of class ram, are
        /// discarded [default: false, such a pool is not opened]
        #[arg(long = "standby-rejoin", id = "standby-rejoin", value_name = "BOOL")]
        #[arg(num_args = 0..=1, default_missing_value = "true", require_equals = true)]
        pub(super) rejoin: Option<bool>,

        /// Interval at which a standby looks for a new image [default: 1s]
        #[arg(long = "standby-every", id = "standby-every", value_name = "TIME")]
        pub(super) every: Option<Interval>,
    }
}

settings! {
    /// The section `[store-server]`: an image store that this daemon serves to other hosts.
    pub(super) struct StoreServerSettings {
        /// Serve an image store on this TCP address, for example 0.0.0.0:10810 [default: no store
        /// is served]
        #[arg(long = "store-server-listen", id = "store-server-listen", value_name = "ADDRESS")]
        pub(super) listen: Option<SocketAddr>,

        /// Directory of the served store; may be that of `store` in `[images]`
        #[arg(long = "store-server-directory", id = "store-server-directory", value_name = "DIR")]
        pub(super) directory: Option<PathBuf>,

        /// The certificate chain of the server, as PEM
        #[arg(long = "store-server-certificate", id = "store-server-certificate")]
        #[arg(value_name = "FILE")]
        pub(super) certificate: Option<PathBuf>,

        /// The private key of this certificate, as PEM
        #[arg(long = "store-server-key", id = "store-server-key", value_name = "FILE")]
        pub(super) key: Option<PathBuf>,

        /// Certificates of the CAs that sign the certificates of clients, as PEM
        #[arg(long = "store-server-client-ca", id = "store-server-client-ca", value_name = "FILE")]
        pub(super) client_ca: Option<PathBuf>,

        /// Names of permitted clients; the certificate of a client must have one of them [default:
        /// all certificates that the CA signed]
        #[arg(long = "store-server-clients", id = "store-server-clients", value_name = "NAMES")]
        #[arg(value_delimiter = ',')]
        pub(super) clients: Option<Vec<String>>,

        /// Maximum size of the served store [default: that of its file system]
        #[arg(long = "store-server-max-bytes", id = "store-server-max-bytes", value_name = "SIZE")]
        pub(super) max_bytes: Option<ByteSize>,
    }
}

settings! {
    /// The section `[capacity]`: when warnings say that the pool fills.
    pub(super) struct CapacitySettings {
        /// Fill levels of the pool at which to warn, in percent [default: 80,90,95]
        #[arg(long = "capacity-thresholds", id = "capacity-thresholds", value_name = "PERCENTS")]
        #[arg(value_delimiter = ',')]
        pub(super) thresholds: Option<Vec<u64>>,
    }
}

settings! {
    /// The section `[scrub]`: whether memory still holds what was stored there.
    pub(super) struct ScrubSettings {
        /// Memory that the background scrub verifies per second; 0 disables it [default: 16MiB]
        #[arg(long = "scrub-rate", id = "scrub-rate", value_name = "SIZE")]
        pub(super) rate: Option<ByteSize>,

        /// Also verify pages when they are read [default: false]
        #[arg(long = "scrub-verify-on-read", id = "scrub-verify-on-read", value_name = "BOOL")]
        pub(super) verify_on_read: Option<bool>,
    }
}

settings! {
    /// The section `[idle]`: compression of data that nobody reads.
    pub(super) struct IdleSettings {
        /// Time without a read or write after which data of reduction `full` is compressed once
        /// more, with zstd; 0s disables it [default: 3m]
        #[arg(long = "idle-compress-after", id = "idle-compress-after", value_name = "TIME")]
        pub(super) compress_after: Option<Interval>,

        /// Maximum share of one processor that this compression uses, in percent [default: 25]
        #[arg(long = "idle-cpu-percent", id = "idle-cpu-percent", value_name = "PERCENT")]
        pub(super) cpu_percent: Option<u32>,
    }
}

/// A duration such as `15m`, in files and on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Interval(pub(super) Duration);

impl FromStr for Interval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse =
            |error| format!("invalid duration {text:?}; use for example 90s, 15m or 1h: {error}");
        humantime::parse_duration(text).map(Self).map_err(refuse)
    }
}

impl TryFrom<String> for Interval {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}
