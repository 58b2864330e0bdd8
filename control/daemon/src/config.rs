//! What the daemon is told: flags, and a TOML file with a key for each flag.
//!
//! [`Settings`] is the one definition of both. A flag wins over the file, the file over the
//! default. A key that is not known is an error that names the key and the file.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use api::ByteSize;
use clap::{Parser, ValueEnum};
use serde::Deserialize;

const CONFIG_PATH_DEFAULT: &str = "/etc/memlane/memlaned.toml";
const RUN_DIR_DEFAULT: &str = "/run/memlane";
const STATE_DIR_DEFAULT: &str = "/var/lib/memlane";

/// Serve volumes in RAM: deduplicated, compressed, and still there when this process is killed.
#[derive(Debug, Parser)]
#[command(name = "memlaned", version)]
pub(crate) struct Flags {
    /// The configuration file [default: /etc/memlane/memlaned.toml, when it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,
}

/// Every setting, as a flag (`--pool-size`) and as a key of the file (`pool-size`).
#[derive(Clone, Debug, Default, PartialEq, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Settings {
    /// Where the list of attachments is kept [default: /var/lib/memlane]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Where sockets, mounts and the pool live [default: /run/memlane]
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,

    /// The memory of a new pool, as 4GiB [default: half of what is free]
    #[arg(long, value_name = "SIZE")]
    pool_size: Option<ByteSize>,

    /// The pool's file, on tmpfs or hugetlbfs [default: pool/region in the run directory]
    #[arg(long, value_name = "FILE")]
    pool_path: Option<PathBuf>,

    /// Take the pool's memory from the huge pages that are set aside for hugetlbfs
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pool_hugetlb: Option<bool>,

    /// Serve NBD on this TCP address too, as 127.0.0.1:10809
    #[arg(long, value_name = "ADDRESS")]
    nbd_tcp: Option<SocketAddr>,

    /// The certificate chain for NBD over TLS, as PEM
    #[arg(long, value_name = "FILE", requires = "nbd_tls_key")]
    nbd_tls_cert: Option<PathBuf>,

    /// The private key for NBD over TLS, as PEM
    #[arg(long, value_name = "FILE", requires = "nbd_tls_cert")]
    nbd_tls_key: Option<PathBuf>,

    /// Certificates that NBD clients must prove themselves with, as PEM
    #[arg(long, value_name = "FILE", requires = "nbd_tls_cert")]
    nbd_tls_client_ca: Option<PathBuf>,

    /// Serve no NBD
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    no_nbd: Option<bool>,

    /// Offer no kernel block devices
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    no_fuse: Option<bool>,

    /// How many threads may spin for requests at once [default: all cores but one]
    #[arg(long, value_name = "COUNT")]
    spin_threads: Option<usize>,

    /// Whether cores stay quick to wake while traffic is recent [default: low-while-busy]
    #[arg(long, value_name = "POLICY")]
    cpu_latency: Option<CpuLatencyPolicy>,

    /// How many writers work without waiting for each other [default: one a core]
    #[arg(long, value_name = "COUNT")]
    lanes: Option<usize>,

    /// What to log: error, warn, info, debug, or a filter such as info,nbd=debug [default: info]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,

    /// How to write the log [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

impl Settings {
    /// These settings, and those of `fallback` where these say nothing.
    fn or(self, fallback: Self) -> Self {
        Self {
            state_dir: self.state_dir.or(fallback.state_dir),
            run_dir: self.run_dir.or(fallback.run_dir),
            pool_size: self.pool_size.or(fallback.pool_size),
            pool_path: self.pool_path.or(fallback.pool_path),
            pool_hugetlb: self.pool_hugetlb.or(fallback.pool_hugetlb),
            nbd_tcp: self.nbd_tcp.or(fallback.nbd_tcp),
            nbd_tls_cert: self.nbd_tls_cert.or(fallback.nbd_tls_cert),
            nbd_tls_key: self.nbd_tls_key.or(fallback.nbd_tls_key),
            nbd_tls_client_ca: self.nbd_tls_client_ca.or(fallback.nbd_tls_client_ca),
            no_nbd: self.no_nbd.or(fallback.no_nbd),
            no_fuse: self.no_fuse.or(fallback.no_fuse),
            spin_threads: self.spin_threads.or(fallback.spin_threads),
            cpu_latency: self.cpu_latency.or(fallback.cpu_latency),
            lanes: self.lanes.or(fallback.lanes),
            log: self.log.or(fallback.log),
            log_format: self.log_format.or(fallback.log_format),
        }
    }
}

/// Who decides how deeply cores idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CpuLatencyPolicy {
    /// The daemon asks for quick cores while traffic is recent, at the price of power.
    #[default]
    LowWhileBusy,
    /// The host alone.
    Unmanaged,
}

/// How lines of the log look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogConfig {
    pub(crate) filter: String,
    pub(crate) format: LogFormat,
}

/// Who looks after the file system that the pool lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolPlace {
    /// Somebody else: the path was given.
    AsGiven,
    /// The daemon mounts a tmpfs when nothing is mounted there.
    OwnTmpfs,
    /// The daemon mounts a hugetlbfs when nothing is mounted there.
    OwnHugetlbfs,
    /// The system's `/dev/shm`, as the daemon may not mount.
    SharedTmpfs,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PoolConfig {
    pub(crate) path: PathBuf,
    pub(crate) place: PoolPlace,
    /// The size to make the pool with; an existing pool must have it. `None` is for the daemon to
    /// choose.
    pub(crate) size: Option<ByteSize>,
}

/// The files that make NBD over TLS possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) certificate_chain: PathBuf,
    pub(crate) private_key: PathBuf,
    pub(crate) client_ca: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NbdConfig {
    pub(crate) socket: PathBuf,
    pub(crate) tcp: Option<SocketAddr>,
    pub(crate) tls: Option<TlsFiles>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FuseConfig {
    pub(crate) mount_point: PathBuf,
    pub(crate) holder_socket: PathBuf,
}

/// What the daemon does, with every default filled in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) state_dir: PathBuf,
    pub(crate) run_dir: PathBuf,
    pub(crate) pool: PoolConfig,
    /// `None`: no NBD.
    pub(crate) nbd: Option<NbdConfig>,
    /// `None`: no kernel block devices.
    pub(crate) fuse: Option<FuseConfig>,
    pub(crate) spin_thread_count: Option<usize>,
    pub(crate) cpu_latency: CpuLatencyPolicy,
    pub(crate) lane_count: usize,
    pub(crate) log: LogConfig,
}

/// Whether the daemon may mount file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Privilege {
    Root,
    Plain,
}

impl Config {
    /// The flags, completed by the file and the defaults.
    pub(crate) fn read(flags: Flags) -> anyhow::Result<Self> {
        let from_file = match &flags.config {
            Some(path) => read_file(path)?,
            None if Path::new(CONFIG_PATH_DEFAULT).exists() => {
                read_file(Path::new(CONFIG_PATH_DEFAULT))?
            }
            None => Settings::default(),
        };
        let privilege = match rustix::process::geteuid().is_root() {
            true => Privilege::Root,
            false => Privilege::Plain,
        };
        Self::complete(flags.settings.or(from_file), privilege)
    }

    fn complete(settings: Settings, privilege: Privilege) -> anyhow::Result<Self> {
        let run_dir = settings.run_dir.clone().unwrap_or_else(|| RUN_DIR_DEFAULT.into());
        let state_dir = settings.state_dir.clone().unwrap_or_else(|| STATE_DIR_DEFAULT.into());
        for (key, path) in [("run-dir", &run_dir), ("state-dir", &state_dir)] {
            if !path.is_absolute() {
                bail!("{key} = {path:?} is relative; give a path that begins with /");
            }
        }
        if settings.lanes == Some(0) {
            bail!("lanes = 0: somebody has to write; give 1 at least");
        }
        Ok(Self {
            pool: pool_config(&settings, &run_dir, privilege)?,
            nbd: nbd_config(&settings, &run_dir)?,
            fuse: wants_fuse(&settings, privilege).then(|| FuseConfig {
                mount_point: run_dir.join("volumes"),
                holder_socket: run_dir.join("holder.sock"),
            }),
            state_dir,
            run_dir,
            spin_thread_count: settings.spin_threads,
            cpu_latency: settings.cpu_latency.unwrap_or_default(),
            lane_count: settings.lanes.unwrap_or_else(core_count),
            log: LogConfig {
                filter: settings.log.unwrap_or_else(|| "info".to_owned()),
                format: settings.log_format.unwrap_or_default(),
            },
        })
    }

    pub(crate) fn api_socket(&self) -> PathBuf {
        self.run_dir.join("api.sock")
    }
}

/// Loop devices take root; who asks for them without it is told so by the attempt.
fn wants_fuse(settings: &Settings, privilege: Privilege) -> bool {
    !settings.no_fuse.unwrap_or(privilege == Privilege::Plain)
}

fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn read_file(path: &Path) -> anyhow::Result<Settings> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration file {}", path.display()))?;
    toml::from_str(&text)
        .with_context(|| format!("the configuration file {} is wrong", path.display()))
}

fn pool_config(
    settings: &Settings,
    run_dir: &Path,
    privilege: Privilege,
) -> anyhow::Result<PoolConfig> {
    let own_path = || run_dir.join("pool").join("region");
    let wants_hugetlb = settings.pool_hugetlb == Some(true);
    let (path, place) = match (&settings.pool_path, privilege) {
        (Some(path), _) if wants_hugetlb => bail!(
            "pool-hugetlb mounts hugetlbfs in the run directory, but pool-path = {path:?} names \
             another place; to use a hugetlbfs that is mounted there, leave pool-hugetlb out"
        ),
        (Some(path), _) if !path.is_absolute() => {
            bail!("pool-path = {path:?} is relative; give a path that begins with /")
        }
        (Some(path), _) => (path.clone(), PoolPlace::AsGiven),
        (None, Privilege::Root) if wants_hugetlb => (own_path(), PoolPlace::OwnHugetlbfs),
        (None, Privilege::Plain) if wants_hugetlb => {
            bail!("pool-hugetlb takes root to mount hugetlbfs; name a file on one with pool-path")
        }
        (None, Privilege::Root) => (own_path(), PoolPlace::OwnTmpfs),
        (None, Privilege::Plain) => (shared_tmpfs_path(run_dir), PoolPlace::SharedTmpfs),
    };
    Ok(PoolConfig { path, place, size: settings.pool_size })
}

/// A place of its own for each run directory, the same at every start.
pub(crate) fn shared_tmpfs_path(run_dir: &Path) -> PathBuf {
    // FNV-1a: the same in every build, as a pool must be found again by the next one.
    let hash = run_dir.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    PathBuf::from(format!("/dev/shm/memlane-{hash:016x}/region"))
}

fn nbd_config(settings: &Settings, run_dir: &Path) -> anyhow::Result<Option<NbdConfig>> {
    let tls = match (&settings.nbd_tls_cert, &settings.nbd_tls_key) {
        (Some(certificate_chain), Some(private_key)) => Some(TlsFiles {
            certificate_chain: certificate_chain.clone(),
            private_key: private_key.clone(),
            client_ca: settings.nbd_tls_client_ca.clone(),
        }),
        (None, None) if settings.nbd_tls_client_ca.is_none() => None,
        _ => bail!("NBD over TLS takes both nbd-tls-cert and nbd-tls-key"),
    };
    let reachable_address = settings.nbd_tcp.filter(|address| !address.ip().is_loopback());
    if let (Some(address), None) = (reachable_address, &tls) {
        bail!(
            "nbd-tcp = {address} can be reached from other hosts and needs nbd-tls-cert and \
             nbd-tls-key; without them only loopback addresses are served"
        );
    }
    if settings.no_nbd == Some(true) {
        return Ok(None);
    }
    Ok(Some(NbdConfig { socket: run_dir.join("nbd.sock"), tcp: settings.nbd_tcp, tls }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_flags(arguments: &[&str]) -> Flags {
        Flags::try_parse_from([&["memlaned"], arguments].concat()).expect("good flags")
    }

    fn from_toml(text: &str) -> anyhow::Result<Settings> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("a written file");
        read_file(file.path())
    }

    #[track_caller]
    fn check_refused(settings: &str, privilege: Privilege, expected: &str) {
        let settings = from_toml(settings).expect("good TOML");
        let error = Config::complete(settings, privilege).expect_err("it is refused");
        assert!(error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn the_flags_are_well_formed() {
        <Flags as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn every_flag_is_a_key_and_every_key_a_flag() {
        let keys = from_toml("no-such-key = 1").expect_err("an unknown key");
        let command = <Flags as clap::CommandFactory>::command();
        for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
            let is_setting = flag != "config";
            assert!(!is_setting || format!("{keys:#}").contains(&format!("`{flag}`")), "{flag}");
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_key_and_the_file() {
        let error = format!("{:#}", from_toml("pool-sise = \"1G\"").expect_err("a misspelt key"));
        assert!(error.contains("unknown field `pool-sise`"), "{error}");
        assert!(error.contains("/tmp") && error.contains("the configuration file"), "{error}");
    }

    #[test]
    fn every_key_is_in_the_sample_file_and_every_line_of_it_can_be_used() {
        let sample = include_str!("../memlaned.toml");
        let is_key = |line: &&str| line.starts_with("# ") && line.contains(" = ");
        let lines: Vec<&str> = sample.lines().filter(is_key).map(|line| &line[2..]).collect();
        from_toml(&lines.join("\n")).expect("the sample, uncommented");
        let command = <Flags as clap::CommandFactory>::command();
        for key in command.get_arguments().filter_map(clap::Arg::get_long) {
            let is_there = lines.iter().any(|line| line.starts_with(&format!("{key} =")));
            assert!(is_there || key == "config", "{key}");
        }
    }

    #[test]
    fn a_file_that_was_asked_for_must_exist() {
        let error = Config::read(from_flags(&["--config", "/nonexistent/memlaned.toml"]))
            .expect_err("there is no such file");
        assert!(error.to_string().contains("/nonexistent/memlaned.toml"), "{error}");
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let file = from_toml("pool-size = \"1GiB\"\nlog = \"debug\"\nno-nbd = true");
        let settings = from_flags(&["--pool-size", "2G", "--no-nbd=false"]).settings;
        let settings = settings.or(file.expect("good TOML"));
        assert_eq!(settings.pool_size, Some(ByteSize(2 << 30)));
        assert_eq!(settings.no_nbd, Some(false));
        assert_eq!(settings.log.as_deref(), Some("debug"));
    }

    #[test]
    fn the_run_directory_decides_where_things_are() {
        let settings = from_flags(&["--run-dir", "/run/x"]).settings;
        let config = Config::complete(settings, Privilege::Root).expect("a good configuration");
        assert_eq!(config.api_socket(), Path::new("/run/x/api.sock"));
        assert_eq!(config.pool.path, Path::new("/run/x/pool/region"));
        assert_eq!(config.pool.place, PoolPlace::OwnTmpfs);
        assert_eq!(config.nbd.expect("NBD is on").socket, Path::new("/run/x/nbd.sock"));
        assert_eq!(config.fuse.expect("FUSE is on").mount_point, Path::new("/run/x/volumes"));
    }

    #[test]
    fn without_root_the_pool_is_on_the_shared_tmpfs() {
        let plain = |run_dir| {
            let settings = from_flags(&["--run-dir", run_dir]).settings;
            Config::complete(settings, Privilege::Plain).expect("a good configuration").pool.path
        };
        assert!(plain("/run/x").starts_with("/dev/shm"));
        assert_eq!(plain("/run/x"), plain("/run/x"));
        assert_ne!(plain("/run/x"), plain("/run/y"));
    }

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        let refused = check_refused;
        refused("nbd-tcp = \"192.0.2.1:10809\"", Privilege::Root, "nbd-tls-cert");
        refused("nbd-tls-cert = \"/c\"", Privilege::Root, "nbd-tls-key");
        refused("nbd-tls-client-ca = \"/c\"", Privilege::Root, "nbd-tls-key");
        refused("lanes = 0", Privilege::Root, "lanes");
        refused("run-dir = \"run\"", Privilege::Root, "run-dir");
        refused("state-dir = \"state\"", Privilege::Root, "state-dir");
        refused("pool-path = \"region\"", Privilege::Root, "pool-path");
        refused("pool-hugetlb = true\npool-path = \"/x\"", Privilege::Root, "pool-hugetlb");
        refused("pool-hugetlb = true", Privilege::Plain, "pool-hugetlb");
    }
}
