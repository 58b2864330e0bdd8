//! Reading the configuration again while the daemon runs: log filter, thresholds, certificates,
//! and which users may use which volume.
//!
//! What is read is looked at as a whole before anything changes. What is wrong changes nothing.

use std::sync::Arc;

use anyhow::Context;
use nbd::TlsSettings;

use crate::config::{Config, Flags};
use crate::log::{Filter, Log};
use crate::service::Service;
use crate::volume_users::UserList;

/// What can be changed, and what it was last read from.
pub(crate) struct Reload {
    pub(crate) flags: Flags,
    pub(crate) config: Config,
    pub(crate) log: Log,
    pub(crate) service: Arc<Service>,
}

/// What was read, and can be used.
struct Fresh {
    config: Config,
    filter: Filter,
    users: UserList,
    tls: Option<TlsSettings>,
}

impl Reload {
    /// Reads everything again, and uses it if nothing is wrong with it. Events tell of both.
    pub(crate) fn run(&mut self) {
        service_manager::reloading();
        match self.read().and_then(|fresh| self.apply(fresh)) {
            Ok(()) => {
                let message = "the configuration was read again".to_owned();
                self.service.events.info("configuration_read", None, message);
            }
            Err(error) => {
                let message = format!("the configuration stays as it was: {error:#}");
                self.service.events.error("configuration_refused", None, message);
            }
        }
        service_manager::ready();
    }

    fn read(&self) -> anyhow::Result<Fresh> {
        let config = Config::read(self.flags.clone())?;
        Ok(Fresh {
            filter: Filter::of(&config.log)?,
            users: self.service.users.read_again()?,
            tls: self.read_tls(&config)?,
            config,
        })
    }

    /// New certificates for a server that has some.
    fn read_tls(&self, config: &Config) -> anyhow::Result<Option<TlsSettings>> {
        if !has_like_tls(&self.config, config) {
            return Ok(None);
        }
        let files = config.nbd.as_ref().and_then(|nbd| nbd.tls.clone());
        let Some(fresh) = files else { return Ok(None) };
        let loaded = TlsSettings::load(&fresh.into()).context("cannot use TLS for NBD")?;
        Ok(Some(loaded))
    }

    fn apply(&mut self, fresh: Fresh) -> anyhow::Result<()> {
        // The only step that may fail comes first.
        self.log.set_filter(fresh.filter)?;
        self.service.watch.set_thresholds(fresh.config.thresholds_percent.clone());
        self.service.users.replace(fresh.users);
        if let (Some(nbd), Some(tls)) = (&self.service.nbd, fresh.tls) {
            nbd.set_tls(tls);
        }
        if needs_restart(&self.config, &fresh.config) {
            tracing::warn!("other settings have changed, too; they count from the next start on");
        }
        self.config = fresh.config;
        Ok(())
    }
}

/// Whether something differs that is not read again.
fn needs_restart(before: &Config, after: &Config) -> bool {
    let mut same = after.clone();
    same.log.filter.clone_from(&before.log.filter);
    same.thresholds_percent.clone_from(&before.thresholds_percent);
    if has_like_tls(before, after)
        && let (Some(same), Some(before)) = (&mut same.nbd, &before.nbd)
    {
        same.tls.clone_from(&before.tls);
    }
    same != *before
}

/// Whether clients have to show certificates after as they had before: that is decided at the
/// start.
fn has_like_tls(before: &Config, after: &Config) -> bool {
    let asks = |config: &Config| {
        let tls = config.nbd.as_ref().and_then(|nbd| nbd.tls.as_ref());
        tls.map(|files| files.client_ca.is_some())
    };
    asks(before) == asks(after)
}
