//! Configuration of the daemon: flags, and a TOML file with a key for each flag.
//!
//! [`Settings`] is the one definition of both. A flag overrides the file, the file overrides the
//! default. An unknown key is an error that names the key and the file.

mod nbd_allow;
mod settings;
mod stores;

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use api::ByteSize;
use clap::Parser;
use durable_set::{MirrorOptions, MirrorPolicy};
use maintenance::IdleCompression;
use volumes::PoolLevel;

pub(crate) use crate::config::nbd_allow::{AllowList, NbdAccess};
pub(crate) use crate::config::settings::{
    CpuLatencyPolicy, LogFormat, OnJournalFailure, ReloadedKeys,
};
use crate::config::settings::{MirrorFlushes, Reloadable, Reloading, Settings};
pub(crate) use crate::config::stores::{StorePlace, StoreServerConfig};

const CONFIG_PATH_DEFAULT: &str = "/etc/memlane/memlaned.toml";
const RUN_DIR_DEFAULT: &str = "/run/memlane";
const STATE_DIR_DEFAULT: &str = "/var/lib/memlane";

const JOURNAL_BYTES_MAX_DEFAULT: u64 = 4 << 30;

/// Minimum of the journal's size limit. The journal must have room for several files of useful
/// size.
const JOURNAL_BYTES_MAX_MIN: u64 = 4 << 20;

/// Minimum interval between images. Saving more often would never pause.
const IMAGES_EVERY_MIN: Duration = Duration::from_secs(1);

/// Time that flushes wait for the image store, unless configured.
const MIRROR_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// Minimum interval at which the journal is shipped.
const SHIP_EVERY_MIN: Duration = Duration::from_millis(100);

/// Default interval at which a standby polls for a new image.
const STANDBY_INTERVAL_DEFAULT: Duration = Duration::from_secs(1);
const STANDBY_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Environment variable in which systemd passes the directory of a service's credentials.
const CREDENTIALS_VARIABLE: &str = "CREDENTIALS_DIRECTORY";

const IMAGES_KEPT_DEFAULT: usize = 3;

/// Default rate of the scrub. A tebibyte takes most of a day, at negligible CPU cost.
const SCRUB_BYTES_DEFAULT: u64 = 16 << 20;

/// Time without use after which data is compressed once more.
const IDLE_AFTER_DEFAULT: Duration = Duration::from_secs(180);
const IDLE_AFTER_MIN: Duration = Duration::from_secs(1);

const IDLE_CPU_PERCENT_DEFAULT: u32 = 25;

/// Serve volumes in RAM that are deduplicated and compressed, and survive a kill of this process.
#[derive(Clone, Debug, Parser)]
#[command(name = "memlaned", version)]
pub(crate) struct Flags {
    /// The configuration file [default: /etc/memlane/memlaned.toml, when it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Restore a pool whose memory was lost from this image, and accept the loss of data that only
    /// newer images or the journal have. The error message of the refused start names the number; 0
    /// means no image
    #[arg(long, value_name = "IMAGE")]
    accept_loss: Option<u32>,

    /// Write the manual page to man8 in this folder, and do nothing else
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) man: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogConfig {
    pub(crate) filter: String,
    pub(crate) format: LogFormat,
}

/// Location of the pool, and the file system that the daemon mounts there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolPlace {
    /// The configured path.
    AsGiven,
    /// A tmpfs, which the daemon mounts if nothing is mounted there.
    OwnTmpfs,
    /// A hugetlbfs, which the daemon mounts if nothing is mounted there.
    OwnHugetlbfs,
    /// The system's `/dev/shm`, because the daemon has no permission to mount.
    SharedTmpfs,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PoolConfig {
    pub(crate) path: PathBuf,
    pub(crate) place: PoolPlace,
    /// Size of a new pool; an existing pool keeps its size. `None`: the daemon chooses.
    pub(crate) size: Option<ByteSize>,
    /// Maximum size to which a new pool can grow.
    pub(crate) size_max: Option<ByteSize>,
    /// True if the file may be on a disk, although old data may reappear after a power loss.
    pub(crate) may_lie_on_disk: bool,
}

/// Certificate files for NBD over TLS.
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
    /// Volumes that each client over TCP may use.
    pub(crate) allowed: AllowList,
    /// Clients over TCP need not authenticate.
    pub(crate) is_insecure: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FuseConfig {
    pub(crate) mount_point: PathBuf,
    pub(crate) holder_socket: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalConfig {
    pub(crate) dir: PathBuf,
    pub(crate) bytes_max: u64,
    pub(crate) on_failure: OnJournalFailure,
}

/// Files with the keys that wrap the data key of journal and images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EncryptionConfig {
    pub(crate) key_file: PathBuf,
    /// Previous wrapping key, which still unwraps data keys during a key change.
    pub(crate) previous: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImagesConfig {
    pub(crate) store: StorePlace,
    /// File with the access keys of an object store.
    pub(crate) credentials: Option<PathBuf>,
    /// Interval between images. `None`: only on request.
    pub(crate) every: Option<Duration>,
    pub(crate) keep_count: usize,
    /// Interval at which the journal is shipped. `None`: it is not shipped.
    pub(crate) ship_every: Option<Duration>,
    /// Policy of flushes that wait for the store, and its time limit.
    pub(crate) mirror: MirrorOptions,
    pub(crate) saves_at_stop: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScrubConfig {
    /// Rate of the background scrub. Zero: pages are verified only on reads, if at all.
    pub(crate) bytes_per_second: u64,
    pub(crate) verifies_reads: bool,
}

/// Configuration of the daemon, with every default filled in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) state_dir: PathBuf,
    pub(crate) run_dir: PathBuf,
    pub(crate) pool: PoolConfig,
    pub(crate) journal: JournalConfig,
    pub(crate) images: ImagesConfig,
    /// `None`: journal and images are not encrypted.
    pub(crate) encryption: Option<EncryptionConfig>,
    /// Interval at which a standby polls the image store. `None`: this daemon is a writer.
    pub(crate) standby_interval: Option<Duration>,
    /// A standby may use the pool of a former writer.
    pub(crate) standby_may_rejoin: bool,
    /// `None`: no image store is served.
    pub(crate) store_server: Option<StoreServerConfig>,
    /// Fill levels of the pool that cause warnings and events.
    pub(crate) thresholds_percent: Vec<u64>,
    pub(crate) scrub: ScrubConfig,
    /// `None`: idle pages are not compressed once more.
    pub(crate) idle: Option<IdleCompression>,
    /// `None`: NBD is disabled.
    pub(crate) nbd: Option<NbdConfig>,
    /// `None`: kernel block devices are disabled.
    pub(crate) fuse: Option<FuseConfig>,
    pub(crate) spin_thread_count: Option<usize>,
    pub(crate) cpu_latency: CpuLatencyPolicy,
    pub(crate) lane_count: usize,
    pub(crate) log: LogConfig,
    /// Image to restore from, accepting the loss of data that only newer images or the journal
    /// contain. It applies to one start and cannot be set in the file.
    pub(crate) accept_loss: Option<u32>,
    /// The settings from which the others follow.
    settings: Settings,
}

/// Permission of the daemon to mount file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Privilege {
    Root,
    Plain,
}

impl Config {
    /// Combines the flags, the configuration file and the defaults.
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
        let config = Self::complete(flags.settings.or(from_file), privilege)?;
        Ok(Self { accept_loss: flags.accept_loss, ..config })
    }

    fn complete(settings: Settings, privilege: Privilege) -> anyhow::Result<Self> {
        let run_dir = settings.run_dir.clone().unwrap_or_else(|| RUN_DIR_DEFAULT.into());
        let state_dir = settings.state_dir.clone().unwrap_or_else(|| STATE_DIR_DEFAULT.into());
        for (key, path) in [("run-dir", &run_dir), ("state-dir", &state_dir)] {
            if !path.is_absolute() {
                bail!("{key} = {path:?} is relative; use an absolute path");
            }
        }
        if settings.lanes == Some(0) {
            bail!("lanes = 0 is invalid: writes need at least 1 lane");
        }
        Ok(Self {
            settings: settings.clone(),
            pool: pool_config(&settings, &run_dir, privilege)?,
            journal: journal_config(&settings, &state_dir)?,
            images: images_config(&settings, &state_dir)?,
            encryption: encryption_config(&settings)?,
            standby_interval: standby_interval(&settings)?,
            standby_may_rejoin: settings.standby.rejoin.unwrap_or(false),
            store_server: stores::server(&settings.store_server)?,
            thresholds_percent: thresholds(&settings)?,
            scrub: ScrubConfig {
                bytes_per_second: settings.scrub.rate.map_or(SCRUB_BYTES_DEFAULT, |rate| rate.0),
                verifies_reads: settings.scrub.verify_on_read.unwrap_or(false),
            },
            idle: idle_compression(&settings)?,
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
            accept_loss: None,
        })
    }

    /// Notes which keys have other values in `fresh`, and adopts those that take effect, for the
    /// next comparison.
    pub(crate) fn compare(
        &mut self,
        fresh: &Self,
        takes_effect: &dyn Fn(&str) -> bool,
    ) -> ReloadedKeys {
        let mut reload = Reloading { takes_effect, changes: ReloadedKeys::default() };
        self.settings.reload(&fresh.settings, ("", ""), &mut reload);
        reload.changes
    }

    pub(crate) fn api_socket(&self) -> PathBuf {
        self.run_dir.join("api.sock")
    }
}

/// Loop devices require root. If they are requested without root, attaching reports the error.
fn wants_fuse(settings: &Settings, privilege: Privilege) -> bool {
    !settings.no_fuse.unwrap_or(privilege == Privilege::Plain)
}

fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn read_file(path: &Path) -> anyhow::Result<Settings> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration file {}", path.display()))?;
    // One message, because a start error puts the cause before its context.
    toml::from_str(&text)
        .map_err(|error| anyhow!("invalid configuration file {}: {error}", path.display()))
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
            "pool-hugetlb mounts hugetlbfs in the run directory and conflicts with pool-path = \
             {path:?}; to use a hugetlbfs mounted there, leave out pool-hugetlb"
        ),
        (Some(path), _) if !path.is_absolute() => {
            bail!("pool-path = {path:?} is relative; use an absolute path")
        }
        (Some(path), _) => (path.clone(), PoolPlace::AsGiven),
        (None, Privilege::Root) if wants_hugetlb => (own_path(), PoolPlace::OwnHugetlbfs),
        (None, Privilege::Plain) if wants_hugetlb => {
            bail!(
                "pool-hugetlb needs root to mount hugetlbfs; without root set pool-path to a \
                 file on a mounted hugetlbfs"
            )
        }
        (None, Privilege::Root) => (own_path(), PoolPlace::OwnTmpfs),
        (None, Privilege::Plain) => (shared_tmpfs_path(run_dir), PoolPlace::SharedTmpfs),
    };
    let (size, size_max) = (settings.pool_size, settings.pool_size_max);
    if let (Some(size), Some(size_max)) = (size, size_max)
        && size_max < size
    {
        bail!("pool-size-max = {size_max} is less than pool-size = {size}");
    }
    let may_lie_on_disk = settings.pool_on_disk == Some(true);
    Ok(PoolConfig { path, place, size, size_max, may_lie_on_disk })
}

fn journal_config(settings: &Settings, state_dir: &Path) -> anyhow::Result<JournalConfig> {
    let journal = &settings.journal;
    let dir = journal.dir.clone().unwrap_or_else(|| state_dir.join("journal"));
    if !dir.is_absolute() {
        bail!("dir = {dir:?} in [journal] is relative; use an absolute path");
    }
    let bytes_max = journal.max_bytes.map_or(JOURNAL_BYTES_MAX_DEFAULT, |size| size.0);
    if bytes_max < JOURNAL_BYTES_MAX_MIN {
        let least = ByteSize(JOURNAL_BYTES_MAX_MIN);
        bail!(
            "max-bytes = {} in [journal] is too small; the minimum is {least}",
            ByteSize(bytes_max)
        );
    }
    Ok(JournalConfig { dir, bytes_max, on_failure: journal.on_failure.unwrap_or_default() })
}

fn images_config(settings: &Settings, state_dir: &Path) -> anyhow::Result<ImagesConfig> {
    let images = &settings.images;
    let store = stores::place(images, state_dir)?;
    let every = images.every.map(|interval| interval.0);
    if every.is_some_and(|every| every < IMAGES_EVERY_MIN) {
        bail!("every in [images] is too short; the minimum is {} s", IMAGES_EVERY_MIN.as_secs());
    }
    let ship_every = images.ship_every.map(|interval| interval.0);
    if ship_every.is_some_and(|every| every < SHIP_EVERY_MIN) {
        let least = SHIP_EVERY_MIN.as_millis();
        bail!("ship-every in [images] is too short; the minimum is {least} ms");
    }
    if images.keep == Some(0) {
        bail!("keep = 0 in [images] is invalid; keep at least 1 image");
    }
    let credentials = images.credentials.as_deref();
    let attempt = |name| credentials_path("credentials in [images]", name, credentials_folder());
    Ok(ImagesConfig {
        store,
        credentials: credentials.map(attempt).transpose()?,
        every,
        keep_count: images.keep.unwrap_or(IMAGES_KEPT_DEFAULT),
        ship_every,
        mirror: MirrorOptions {
            policy: match images.mirror_flushes {
                None => MirrorPolicy::Off,
                Some(MirrorFlushes::Wait) => MirrorPolicy::Wait,
                Some(MirrorFlushes::Fail) => MirrorPolicy::Fail,
                Some(MirrorFlushes::Alone) => MirrorPolicy::Alone,
            },
            patience: images.mirror_timeout.map_or(MIRROR_TIMEOUT_DEFAULT, |timeout| timeout.0),
        },
        saves_at_stop: images.save_at_stop.unwrap_or(true),
    })
}

fn standby_interval(settings: &Settings) -> anyhow::Result<Option<Duration>> {
    let standby = &settings.standby;
    let every = standby.every.map_or(STANDBY_INTERVAL_DEFAULT, |interval| interval.0);
    if every < STANDBY_INTERVAL_MIN {
        let least = STANDBY_INTERVAL_MIN.as_millis();
        bail!("every in [standby] is too short; the minimum is {least} ms");
    }
    Ok(standby.follow.unwrap_or(false).then_some(every))
}

fn idle_compression(settings: &Settings) -> anyhow::Result<Option<IdleCompression>> {
    let idle = &settings.idle;
    let after = idle.compress_after.map_or(IDLE_AFTER_DEFAULT, |interval| interval.0);
    if !after.is_zero() && after < IDLE_AFTER_MIN {
        let least = IDLE_AFTER_MIN.as_secs();
        bail!(
            "compress-after in [idle] is too short; the minimum is {least} s, and 0s disables it"
        );
    }
    let core_percent = idle.cpu_percent.unwrap_or(IDLE_CPU_PERCENT_DEFAULT);
    if !(1..=100).contains(&core_percent) {
        bail!("cpu-percent = {core_percent} in [idle] is invalid; use 1 to 100");
    }
    Ok((!after.is_zero()).then_some(IdleCompression { after, core_percent }))
}

fn encryption_config(settings: &Settings) -> anyhow::Result<Option<EncryptionConfig>> {
    let path = |setting, name: &Option<PathBuf>| {
        let name = name.as_deref();
        name.map(|name| credentials_path(setting, name, credentials_folder())).transpose()
    };
    let key_file = path("encryption-key-file", &settings.encryption_key_file)?;
    let previous = path("encryption-key-file-previous", &settings.encryption_key_file_previous)?;
    match (key_file, previous) {
        (None, Some(_)) => bail!(
            "encryption-key-file-previous needs encryption-key-file, the key that replaces it"
        ),
        (key_file, previous) => {
            Ok(key_file.map(|key_file| EncryptionConfig { key_file, previous }))
        }
    }
}

/// Directory of the credentials that systemd passes.
fn credentials_folder() -> Option<PathBuf> {
    std::env::var_os(CREDENTIALS_VARIABLE).map(PathBuf::from)
}

/// Resolves a file path, or the name of a systemd credential.
fn credentials_path(
    setting: &str,
    name: &Path,
    folder: Option<PathBuf>,
) -> anyhow::Result<PathBuf> {
    match folder {
        _ if name.is_absolute() => Ok(name.to_owned()),
        Some(folder) => Ok(folder.join(name)),
        None => bail!(
            "{setting} is {name:?}, which names a systemd credential, but the service \
             received none; add LoadCredential= to the unit, or use an absolute path"
        ),
    }
}

fn thresholds(settings: &Settings) -> anyhow::Result<Vec<u64>> {
    let Some(thresholds) = &settings.capacity.thresholds else {
        return Ok(PoolLevel::ALL.map(|level| level.begins_at_permille() / 10)[1..].to_vec());
    };
    if let Some(wrong) = thresholds.iter().find(|percent| !(1..=100).contains(*percent)) {
        bail!("thresholds in [capacity] has {wrong}; percents are from 1 to 100");
    }
    Ok(thresholds.clone())
}

/// Returns a path in `/dev/shm` that is unique to the run directory and the same at every start.
pub(crate) fn shared_tmpfs_path(run_dir: &Path) -> PathBuf {
    // FNV-1a is the same in every build, so the next daemon finds the pool.
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
        _ => bail!("NBD over TLS needs both nbd-tls-cert and nbd-tls-key"),
    };
    let reachable_address = settings.nbd_tcp.filter(|address| !address.ip().is_loopback());
    if let (Some(address), None) = (reachable_address, &tls) {
        bail!(
            "nbd-tcp = {address} is reachable from other hosts and needs nbd-tls-cert and \
             nbd-tls-key; without TLS only loopback addresses are allowed"
        );
    }
    let socket = run_dir.join("nbd.sock");
    let is_insecure = settings.nbd_insecure == Some(true);
    let asks_for_certificates = tls.as_ref().is_some_and(|files| files.client_ca.is_some());
    if let Some(address) = settings.nbd_tcp
        && !asks_for_certificates
        && !is_insecure
    {
        bail!(
            "nbd-tcp = {address}: any client that reaches this address could read and write \
             every volume. Require client certificates (nbd-tls-client-ca, with nbd-tls-cert \
             and nbd-tls-key); or leave out nbd-tcp and use the Unix socket {}, where the \
             kernel identifies clients; or accept the risk with nbd-insecure = true",
            socket.display()
        );
    }
    if settings.no_nbd == Some(true) {
        return Ok(None);
    }
    let allowed = AllowList(settings.nbd_allow.clone().unwrap_or_default());
    Ok(Some(NbdConfig { socket, tcp: settings.nbd_tcp, tls, allowed, is_insecure }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_has_every_option() {
        program::check_reference::<Flags>(concat!(env!("CARGO_MANIFEST_DIR"), "/../..").as_ref());
    }

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

    /// Flags without a key in the configuration file.
    const FOR_ONE_START: [&str; 3] = ["config", "accept-loss", "man"];

    const SECTIONS: [&str; 7] =
        ["journal", "images", "standby", "store-server", "capacity", "scrub", "idle"];

    /// Section and key of a flag in the configuration file.
    fn key_of(flag: &str) -> (Option<&'static str>, &str) {
        let in_section = |section: &&'static str| {
            let key = flag.strip_prefix(*section)?.strip_prefix('-')?;
            Some((Some(*section), key))
        };
        SECTIONS.iter().find_map(in_section).unwrap_or((None, flag))
    }

    #[test]
    fn every_flag_is_a_key_and_every_key_a_flag() {
        let command = <Flags as clap::CommandFactory>::command();
        for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
            let (section, key) = key_of(flag);
            let head = section.map(|section| format!("[{section}]\n")).unwrap_or_default();
            let keys = from_toml(&format!("{head}no-such-key = 1")).expect_err("an unknown key");
            let is_setting = !FOR_ONE_START.contains(&flag);
            assert!(!is_setting || format!("{keys:#}").contains(&format!("`{key}`")), "{flag}");
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_key_and_the_file() {
        let error = format!("{:#}", from_toml("pool-sise = \"1G\"").expect_err("a misspelt key"));
        assert!(error.contains("unknown field `pool-sise`"), "{error}");
        assert!(error.contains("/tmp") && error.contains("configuration file"), "{error}");
    }

    #[test]
    fn every_key_is_in_the_sample_file_and_every_line_of_it_can_be_used() {
        let sample = include_str!("../../memlaned.toml");
        let is_key = |line: &&str| line.starts_with("# ") && line.contains(" = ");
        let is_used = |line: &&str| is_key(line) || line.starts_with("# [");
        let lines: Vec<&str> = sample.lines().filter(is_used).map(|line| &line[2..]).collect();
        from_toml(&lines.join("\n")).expect("the sample, uncommented");
        let command = <Flags as clap::CommandFactory>::command();
        for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
            let (section, key) = key_of(flag);
            let head = section.map(|section| format!("[{section}]"));
            let mut now = None;
            let is_there = lines.iter().any(|line| {
                if line.starts_with('[') {
                    now = line.split(' ').next().map(str::to_owned);
                }
                now == head && line.starts_with(&format!("{key} ="))
            });
            assert!(is_there || FOR_ONE_START.contains(&flag), "{flag}");
        }
    }

    #[test]
    fn a_file_that_was_asked_for_must_exist() {
        let error = Config::read(from_flags(&["--config", "/nonexistent/memlaned.toml"]))
            .expect_err("there is no such file");
        assert!(error.to_string().contains("/nonexistent/memlaned.toml"), "{error}");
    }

    #[test]
    fn sections_of_the_file_are_flags_with_their_name_in_front() {
        let file = "[journal]\nmax-bytes = \"1GiB\"\non-failure = \"read-only\"\n\
                    [images]\nevery = \"15m\"\nkeep = 7\n[capacity]\nthresholds = [50]";
        let settings = from_flags(&["--journal-max-bytes", "2GiB", "--images-keep", "9"]).settings;
        let settings = settings.or(from_toml(file).expect("good TOML"));
        let config = Config::complete(settings, Privilege::Root).expect("a good configuration");
        assert_eq!(config.journal.bytes_max, 2 << 30);
        assert_eq!(config.journal.on_failure, OnJournalFailure::ReadOnly);
        assert_eq!(config.journal.dir, Path::new("/var/lib/memlane/journal"));
        assert_eq!(config.images.every, Some(Duration::from_secs(900)));
        assert_eq!(config.images.keep_count, 9);
        assert_eq!(config.images.store, StorePlace::Directory("/var/lib/memlane/images".into()));
        assert_eq!(config.thresholds_percent, [50]);
    }

    #[test]
    fn idle_data_is_compressed_after_the_time_that_is_set() {
        let idle = |file: &str| {
            let settings = from_toml(file).expect("good TOML");
            Config::complete(settings, Privilege::Root).expect("a good configuration").idle
        };
        let after = |seconds, core_percent| {
            Some(IdleCompression { after: Duration::from_secs(seconds), core_percent })
        };
        assert_eq!(idle("[idle]\ncompress-after = \"10m\""), after(600, 25));
        assert_eq!(idle("[idle]\ncompress-after = \"1m\"\ncpu-percent = 5"), after(60, 5));
        assert_eq!(idle("[idle]\ncompress-after = \"0s\""), None);
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
    fn nbd_over_tcp_takes_proof_of_clients_or_the_word_that_it_needs_none() {
        let nbd = |flags: &[&str]| {
            let settings =
                from_flags(&[&["--nbd-tcp", "127.0.0.1:10809"], flags].concat()).settings;
            Config::complete(settings, Privilege::Root).map(|config| config.nbd.expect("NBD"))
        };
        assert!(nbd(&["--nbd-tls-cert", "/c", "--nbd-tls-key", "/k"]).is_err());
        assert!(nbd(&["--nbd-insecure"]).expect("it is said").is_insecure);
        let files = ["--nbd-tls-cert", "/c", "--nbd-tls-key", "/k", "--nbd-tls-client-ca", "/a"];
        let proved = nbd(&[&files[..], &["--nbd-allow", "web = www:ro"]].concat());
        let proved = proved.expect("clients show certificates");
        assert!(!proved.is_insecure);
        assert_eq!(proved.allowed.access("www", |name| name == "web"), Some(NbdAccess::ReadOnly));
    }

    #[test]
    fn credentials_are_a_file_or_handed_over_by_systemd() {
        let path = |name: &str, folder: Option<&str>| {
            credentials_path("a key", Path::new(name), folder.map(PathBuf::from)).ok()
        };
        assert_eq!(path("/etc/s3", None), Some("/etc/s3".into()));
        assert_eq!(path("/etc/s3", Some("/run/credentials/m")), Some("/etc/s3".into()));
        assert_eq!(path("s3", Some("/run/credentials/m")), Some("/run/credentials/m/s3".into()));
        assert_eq!(path("s3", None), None);
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
        refused("nbd-tcp = \"127.0.0.1:10809\"", Privilege::Root, "nbd-tls-client-ca");
        refused("nbd-tcp = \"127.0.0.1:10809\"", Privilege::Root, "nbd-insecure = true");
        refused("nbd-tls-cert = \"/c\"", Privilege::Root, "nbd-tls-key");
        refused("nbd-tls-client-ca = \"/c\"", Privilege::Root, "nbd-tls-key");
        refused("lanes = 0", Privilege::Root, "lanes");
        refused("pool-size = \"2G\"\npool-size-max = \"1G\"", Privilege::Root, "pool-size-max");
        refused("run-dir = \"run\"", Privilege::Root, "run-dir");
        refused("state-dir = \"state\"", Privilege::Root, "state-dir");
        refused("pool-path = \"region\"", Privilege::Root, "pool-path");
        refused("pool-hugetlb = true\npool-path = \"/x\"", Privilege::Root, "pool-hugetlb");
        refused("pool-hugetlb = true", Privilege::Plain, "pool-hugetlb");
        refused("[journal]\ndir = \"j\"", Privilege::Root, "[journal]");
        refused("[journal]\nmax-bytes = \"1MiB\"", Privilege::Root, "max-bytes");
        refused("[images]\nstore = \"images\"", Privilege::Root, "[images]");
        refused("[images]\nstore = \"memlane://b:1\"", Privilege::Root, "store-certificate");
        let files = "store-certificate = \"/c\"\nstore-key = \"/k\"\nstore-ca = \"/a\"";
        let served = |place| format!("[images]\nstore = \"{place}\"\n{files}");
        refused(&served("memlane://b"), Privilege::Root, "store in [images]");
        for place in ["ftp://b/c", "s3:b", "images", "file://images"] {
            let file = format!("[images]\nstore = \"{place}\"");
            refused(&file, Privilege::Root, "s3://BUCKET/PREFIX");
        }
        refused(&served("/images"), Privilege::Root, "memlane://");
        refused("[store-server]\nlisten = \"[::]:1\"", Privilege::Root, "client-ca");
        let served = "listen = \"[::]:1\"\ndirectory = \"/d\"\ncertificate = \"/c\"\nkey = \"/k\"\n\
                      client-ca = \"/a\"\nclients = []";
        refused(&format!("[store-server]\n{served}"), Privilege::Root, "clients");
        refused("[store-server]\ndirectory = \"/d\"", Privilege::Root, "listen");
        refused("[images]\nkeep = 0", Privilege::Root, "keep");
        refused("[images]\nevery = \"1ms\"", Privilege::Root, "every");
        refused("[capacity]\nthresholds = [101]", Privilege::Root, "thresholds");
        refused("[idle]\ncompress-after = \"1ms\"", Privilege::Root, "compress-after");
        refused("[idle]\ncpu-percent = 0", Privilege::Root, "cpu-percent");
    }
}
