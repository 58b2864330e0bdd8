//! Expiry of the certificates that the daemon presents and trusts: in its status, and as events.
//!
//! Files are read when the daemon reads them to use them: at the start and at each reload. Those
//! for an image store of another host are read at each check, because the client of that store
//! reads them again when it needs to. The daemon never refuses a certificate because of this.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use api::{CertificateState, Warning};
use tls::{CertificateFile, Validity};

use crate::config::{Config, StorePlace};
use crate::events::{EventLog, unix_seconds};
use crate::ticker::Ticker;

/// Interval between checks.
const INTERVAL: Duration = Duration::from_secs(10 * 60);

/// Certificates in use.
#[derive(Default)]
pub(crate) struct Certificates {
    events: Arc<EventLog>,
    known: Mutex<Vec<Known>>,
}

#[derive(Clone, Debug)]
struct Known {
    file: CertificateFile,
    /// Whoever uses the file reads it again without being told.
    is_read_again: bool,
    /// State at the last check, and the time of expiry that the file had.
    told: (Validity, Option<u64>),
}

impl Known {
    fn message(&self, now: u64) -> String {
        let described = self.file.describe_at(now);
        match (self.file.validity_at(now), self.is_read_again) {
            (Validity::Valid, _) => described,
            (_, true) => format!("{described}; replace the file"),
            (_, false) => format!("{described}; replace the file and reload the daemon (SIGHUP)"),
        }
    }
}

impl Certificates {
    /// Reads the certificates that the configuration names.
    pub(crate) fn of(config: &Config, events: &Arc<EventLog>) -> Self {
        let certificates = Self { events: Arc::clone(events), known: Mutex::new(files_of(config)) };
        certificates.observe(unix_seconds());
        certificates
    }

    /// Starts the thread that checks them, if there are any.
    pub(crate) fn watch(this: &Arc<Self>) -> std::io::Result<Option<Ticker>> {
        if this.lock().is_empty() {
            return Ok(None);
        }
        let this = Arc::clone(this);
        let turn = move || {
            this.read_those_read_again();
            this.observe(unix_seconds());
            INTERVAL
        };
        Ticker::start("certificates", INTERVAL, turn).map(Some)
    }

    /// Replaces the certificates by those of a configuration that was reloaded.
    pub(crate) fn reload(&self, config: &Config) {
        let mut fresh = files_of(config);
        {
            let mut known = self.lock();
            for one in &mut fresh {
                let is_same = |it: &&Known| it.file.used_for == one.file.used_for;
                one.told = known.iter().find(is_same).map_or(one.told, |it| it.told);
            }
            *known = fresh;
        }
        self.observe(unix_seconds());
    }

    pub(crate) fn status(&self) -> Vec<api::Certificate> {
        let now = unix_seconds();
        let certificate = |it: &Known| {
            Some(api::Certificate {
                used_for: it.file.used_for.to_owned(),
                file: it.file.path.display().to_string(),
                expires_unix_seconds: it.file.expires_unix_seconds()?,
                state: match it.file.validity_at(now) {
                    Validity::Valid => CertificateState::Valid,
                    Validity::Expiring => CertificateState::Expiring,
                    Validity::Expired => CertificateState::Expired,
                },
            })
        };
        self.lock().iter().filter_map(certificate).collect()
    }

    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let now = unix_seconds();
        let warning = |it: &Known| {
            let kind = match it.file.validity_at(now) {
                Validity::Valid => return None,
                Validity::Expiring => "certificate_expiring",
                Validity::Expired => "certificate_expired",
            };
            Some(Warning { kind: kind.to_owned(), message: it.message(now) })
        };
        self.lock().iter().filter_map(warning).collect()
    }

    fn read_those_read_again(&self) {
        // The files are read without the lock. A reload does not change which ones these are.
        let known = self.lock().clone();
        for Known { mut file, .. } in known.into_iter().filter(|it| it.is_read_again) {
            if let Err(error) = file.read_again() {
                let error = format!("{:#}", anyhow::Error::from(error));
                tracing::debug!(error, "cannot read when a certificate expires");
            }
            let mut known = self.lock();
            let is_it = |it: &&mut Known| it.file.used_for == file.used_for;
            if let Some(before) = known.iter_mut().find(is_it) {
                before.file = file;
            }
        }
    }

    /// Reports changes since the last call.
    fn observe(&self, now: u64) {
        for one in &mut *self.lock() {
            let (validity, expires) = (one.file.validity_at(now), one.file.expires_unix_seconds());
            let (before, expired) = std::mem::replace(&mut one.told, (validity, expires));
            // If the clock was set back, nothing was renewed.
            if before == validity || (validity == Validity::Valid && expired == expires) {
                continue;
            }
            let (events, message) = (&self.events, one.message(now));
            match validity {
                Validity::Valid => events.info("certificate_renewed", None, message),
                Validity::Expiring => events.warning("certificate_expiring", None, message),
                Validity::Expired => events.error("certificate_expired", None, message),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Known>> {
        self.known.lock().expect("no thread panics with this lock")
    }
}

fn files_of(config: &Config) -> Vec<Known> {
    let mut files = Vec::new();
    if let Some(tls) = config.nbd.as_ref().and_then(|nbd| nbd.tls.clone()) {
        files.extend(CertificateFile::of_server(&tls.into(), "NBD", "NBD, for clients"));
    }
    if let Some(server) = &config.store_server {
        let (own, clients) = ("served image store", "served image store, for clients");
        files.extend(CertificateFile::of_server(&server.tls.clone().into(), own, clients));
    }
    let known =
        |is_read_again| move |file| Known { file, is_read_again, told: (Validity::Valid, None) };
    let mut all: Vec<Known> = files.into_iter().map(known(false)).collect();
    if let StorePlace::Served(address) = &config.images.store {
        let (own, servers) = ("image store", "image store, for the server");
        let files = CertificateFile::of_client(&address.tls, own, servers);
        all.extend(files.into_iter().map(known(true)));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const DAY: u64 = 24 * 60 * 60;

    fn certificates(path: &Path, is_read_again: bool) -> Certificates {
        let file = CertificateFile::read_chain(path, "NBD");
        let known = Known { file, is_read_again, told: (Validity::Valid, None) };
        Certificates { events: Arc::default(), known: Mutex::new(vec![known]) }
    }

    fn write_certificate(file: &Path, year: i32) {
        let mut parameters = rcgen::CertificateParams::new(["a".to_owned()]).expect("a name");
        parameters.not_after = rcgen::date_time_ymd(year, 1, 31);
        let key = rcgen::KeyPair::generate().expect("there is randomness");
        let signed = parameters.self_signed(&key).expect("it can be signed");
        std::fs::write(file, signed.pem()).expect("there is room");
    }

    #[test]
    fn an_expiry_is_reported_once_a_month_before_and_once_when_it_is_over() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let file = folder.path().join("tls.crt");
        write_certificate(&file, 2040);
        let certificates = certificates(&file, false);
        let expires = certificates.status()[0].expires_unix_seconds;
        let mut told = 0;
        for (now, count, word) in [
            (expires - 31 * DAY, 0, ""),
            (expires - 30 * DAY, 1, "expires on 2040-01-31"),
            (expires - 1, 1, ""),
            (expires, 2, "has expired on 2040-01-31"),
            (expires + DAY, 2, ""),
            // The clock is set back, and right again.
            (expires - 31 * DAY, 2, ""),
            (expires, 3, "has expired on 2040-01-31"),
        ] {
            certificates.observe(now);
            assert_eq!(certificates.events.count(), count, "at {now}");
            if count > told {
                let message = certificates.lock()[0].message(now);
                assert!(message.contains(word) && message.contains("tls.crt"), "{message}");
            }
            told = count;
        }
    }

    #[test]
    fn a_file_that_is_read_again_counts_without_a_reload_and_others_do_not() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let file = folder.path().join("tls.crt");
        for is_read_again in [false, true] {
            write_certificate(&file, 2040);
            let certificates = certificates(&file, is_read_again);
            let before = certificates.status()[0].expires_unix_seconds;
            write_certificate(&file, 2041);
            certificates.read_those_read_again();
            let after = certificates.status()[0].expires_unix_seconds;
            assert_eq!(after > before, is_read_again);
            std::fs::remove_file(&file).expect("it is there");
            certificates.read_those_read_again();
            assert_eq!(certificates.status()[0].expires_unix_seconds, after, "it is still used");
        }
    }
}
