//! Reload of the configuration while the daemon runs: log filter, thresholds, certificates, and the
//! users of each volume.
//!
//! The whole configuration is read and checked before any change. On an error nothing changes.

use std::sync::Arc;

use anyhow::Context;
use nbd::TlsSettings;

use crate::config::{Config, Flags, ReloadedKeys};
use crate::log::{Filter, Log};
use crate::service::Service;
use crate::volume_users::UserList;

/// State of configuration reloads.
pub(crate) struct Reload {
    pub(crate) flags: Flags,
    /// Settings in force. Settings that require a restart keep their values of the start.
    pub(crate) config: Config,
    pub(crate) log: Log,
    pub(crate) service: Arc<Service>,
}

/// New settings that were read and checked.
struct Fresh<'service> {
    config: Config,
    filter: Filter,
    tls: Option<TlsSettings>,
    store_tls: Option<TlsSettings>,
    users: UserList<'service>,
}

impl Reload {
    /// Reloads the configuration, and applies it if it is valid. Reports the result as an event.
    pub(crate) fn run(&mut self) {
        service_manager::reloading();
        let service = Arc::clone(&self.service);
        match self.read(&service).and_then(|fresh| self.apply(fresh)) {
            Ok(keys) if keys.at_restart.is_empty() => {
                self.service.events.info("configuration_read", None, in_words(&keys));
            }
            Ok(keys) => {
                self.service.events.warning("configuration_read", None, in_words(&keys));
            }
            Err(error) => {
                let message = format!(
                    "cannot reload the configuration; the old one stays in effect: {error:#}"
                );
                self.service.events.error("configuration_refused", None, message);
            }
        }
        service_manager::ready();
    }

    fn read<'service>(&self, service: &'service Service) -> anyhow::Result<Fresh<'service>> {
        let config = Config::read(self.flags.clone())?;
        Ok(Fresh {
            filter: Filter::of(&config.log)?,
            tls: self.read_tls(&config)?,
            store_tls: read_store_tls(&config)?,
            // Last, because changes of the list wait from now on.
            users: service.users.read_again()?,
            config,
        })
    }

    /// Reads new certificates for a server that uses TLS.
    fn read_tls(&self, config: &Config) -> anyhow::Result<Option<TlsSettings>> {
        if !has_like_tls(&self.config, config) {
            return Ok(None);
        }
        let files = config.nbd.as_ref().and_then(|nbd| nbd.tls.clone());
        let Some(fresh) = files else { return Ok(None) };
        let loaded = TlsSettings::load(&fresh.into()).context("cannot use TLS for NBD")?;
        Ok(Some(loaded))
    }

    fn apply(&mut self, fresh: Fresh<'_>) -> anyhow::Result<ReloadedKeys> {
        // The only step that can fail comes first.
        self.log.set_filter(fresh.filter)?;
        fresh.users.use_it();
        self.service.watch.set_thresholds(fresh.config.thresholds_percent.clone());
        if let (Some(nbd), Some(tls)) = (&self.service.nbd, fresh.tls) {
            nbd.set_tls(tls);
        }
        if let (Some(serving), Some(tls)) = (&self.service.store_serving, &fresh.store_tls) {
            serving.set_tls(tls);
        }
        let keys = adopt(&mut self.config, &fresh.config);
        self.service.certificates.reload(&self.config);
        Ok(keys)
    }
}

/// Names the keys that changed.
fn in_words(keys: &ReloadedKeys) -> String {
    let ReloadedKeys { effective, at_restart } = keys;
    let changed = match effective.is_empty() {
        true => "no other value takes effect".to_owned(),
        false => format!("in effect now: {}", effective.join(", ")),
    };
    match at_restart.is_empty() {
        true => format!("configuration reloaded; {changed}"),
        false => format!(
            "configuration reloaded; {changed}; restart the daemon to apply: {}",
            at_restart.join(", ")
        ),
    }
}

/// Adopts the settings that a reload can change. All others keep their values of the start.
fn adopt(counting: &mut Config, fresh: &Config) -> ReloadedKeys {
    let has_like_tls = has_like_tls(counting, fresh);
    let serves_store = counting.store_server.is_some() && fresh.store_server.is_some();
    let keys = counting.compare(fresh, &|key| match key {
        "log" | "thresholds in [capacity]" => true,
        "nbd-tls-cert" | "nbd-tls-key" | "nbd-tls-client-ca" => has_like_tls,
        "certificate in [store-server]"
        | "key in [store-server]"
        | "client-ca in [store-server]" => serves_store,
        _ => false,
    });
    counting.log.filter.clone_from(&fresh.log.filter);
    counting.thresholds_percent.clone_from(&fresh.thresholds_percent);
    if has_like_tls && let (Some(counting), Some(fresh)) = (&mut counting.nbd, &fresh.nbd) {
        counting.tls.clone_from(&fresh.tls);
    }
    if let (Some(counting), Some(fresh)) = (&mut counting.store_server, &fresh.store_server) {
        counting.tls.clone_from(&fresh.tls);
    }
    keys
}

/// Reads new certificates of the served image store.
fn read_store_tls(config: &Config) -> anyhow::Result<Option<TlsSettings>> {
    let Some(server) = &config.store_server else { return Ok(None) };
    let loaded = TlsSettings::load(&server.tls.clone().into());
    loaded.map(Some).context("cannot use TLS for the served image store")
}

/// Returns whether TLS and client certificates are required as before. This can only change at a
/// start.
fn has_like_tls(before: &Config, after: &Config) -> bool {
    let asks = |config: &Config| {
        let tls = config.nbd.as_ref().and_then(|nbd| nbd.tls.as_ref());
        tls.map(|files| files.client_ca.is_some())
    };
    asks(before) == asks(after)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config::{NbdConfig, TlsFiles};

    fn config(tls: Option<TlsFiles>, thresholds: &[u64]) -> Config {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let arguments = ["memlaned".as_ref(), "--config".as_ref(), file.path().as_os_str()];
        let flags = Flags::try_parse_from(arguments).expect("good flags");
        let mut config = Config::read(flags).expect("nothing is said but defaults");
        let nbd = config.nbd.take().expect("it is on");
        config.nbd = Some(NbdConfig { tls, ..nbd });
        config.thresholds_percent = thresholds.to_vec();
        config
    }

    fn files(folder: &str, client_ca: Option<&str>) -> Option<TlsFiles> {
        Some(TlsFiles {
            certificate_chain: format!("{folder}/cert").into(),
            private_key: format!("{folder}/key").into(),
            client_ca: client_ca.map(Into::into),
        })
    }

    #[test]
    fn what_takes_a_restart_does_not_count_however_often_it_is_read() {
        let mut counting = config(files("/a", Some("/a/ca")), &[80]);
        let renewed = config(files("/b", Some("/b/ca")), &[50]);
        adopt(&mut counting, &renewed);
        assert_eq!(counting, renewed);
        for not_asking in [files("/c", None), None] {
            let mut fresh = config(not_asking, &[60]);
            fresh.images.keep_count += 1;
            for _ in 0..3 {
                adopt(&mut counting, &fresh);
                assert!(!has_like_tls(&counting, &fresh), "clients are still asked");
                assert_ne!(counting, fresh, "it is said again that this takes a restart");
            }
            assert_eq!(counting, config(files("/b", Some("/b/ca")), &[60]));
        }
    }
}
