//! Access rules: users, access lists and quotas in effect, and the files from which they are
//! loaded.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use access::{
    AccessError, AclFile, AclOptions, Acls, ListenerPolicy, Operation, Principal, Quotas, Resource,
    ResourceKind, UserFile, Users, WithoutFile,
};
use consumer_groups::Sight;
use tls::{CertificateFile, TlsFiles, TlsSettings, Validity};
use tokio_rustls::TlsAcceptor;

use crate::clock::unix_seconds;

const NO_PANIC: &str = "no thread panics with this lock";

/// Files of the access rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessFiles {
    pub(crate) users: Option<PathBuf>,
    pub(crate) acls: Option<PathBuf>,
    pub(crate) super_users: Vec<Principal>,
    pub(crate) tls: Option<TlsFiles>,
}

/// Default memory of requests in flight of all principals, in bytes.
pub(crate) const REQUESTS_BYTES: u64 = 1 << 30;

/// Rules in effect. Connections keep the users and settings from their start.
pub(crate) struct AccessRules {
    pub(crate) policy: ListenerPolicy,
    pub(crate) quotas: Quotas,
    user_file: Option<Mutex<UserFile>>,
    users: RwLock<Arc<Users>>,
    acl_file: Option<Mutex<AclFile>>,
    /// `None` allows everything to accepted clients.
    acls: RwLock<Option<Arc<Acls>>>,
    /// Incremented with each change of the access lists.
    acl_version: AtomicU64,
    tls_files: Option<TlsFiles>,
    tls: RwLock<Option<TlsAcceptor>>,
    /// Files of certificates as they were read last.
    certificates: RwLock<Vec<CertificateFile>>,
}

impl AccessRules {
    /// Creates rules that allow everything to clients of this host.
    #[cfg(test)]
    pub(crate) fn open_to_this_host() -> Arc<Self> {
        Self::of_this_host(AccessFiles::default())
    }

    /// Creates the rules of the files, for clients of this host.
    #[cfg(test)]
    pub(crate) fn of_this_host(files: AccessFiles) -> Arc<Self> {
        let policy = ListenerPolicy {
            protocol: access::SecurityProtocol::Plaintext,
            certificates: access::ClientCertificates::None,
            logins: access::LoginSettings { mechanisms: Vec::new(), session_lifetime: None },
            exposure: access::Exposure::Loopback,
        };
        let opened = Self::open(policy, files, Quotas::new(REQUESTS_BYTES));
        Arc::new(opened.expect("the files can be read"))
    }

    pub(crate) fn open(
        policy: ListenerPolicy,
        files: AccessFiles,
        quotas: Quotas,
    ) -> anyhow::Result<Self> {
        let user_file = files.users.map(UserFile::open).transpose()?;
        let users =
            user_file.as_ref().map_or_else(|| Arc::new(Users::none()), |it| Arc::clone(it.users()));
        // A configured file that does not exist allows nothing.
        let options =
            AclOptions { super_users: files.super_users, without_file: WithoutFile::DenyEveryone };
        let acl_file = files.acls.map(|path| AclFile::open(path, options)).transpose()?;
        let acls = acl_file.as_ref().map(|it| Arc::clone(it.acls()));
        let tls = files.tls.as_ref().map(acceptor).transpose()?;
        let certificates = RwLock::new(certificates_of(files.tls.as_ref()));
        Ok(Self {
            policy,
            quotas,
            user_file: user_file.map(Mutex::new),
            users: RwLock::new(users),
            acl_file: acl_file.map(Mutex::new),
            acls: RwLock::new(acls),
            acl_version: AtomicU64::new(0),
            tls_files: files.tls,
            tls: RwLock::new(tls),
            certificates,
        })
    }

    /// Reloads all files. Files with errors remain at their last version, and are reported.
    pub(crate) fn reload(&self) -> Vec<anyhow::Error> {
        let mut failures = Vec::new();
        if let Some(file) = &self.user_file {
            let mut file = file.lock().expect(NO_PANIC);
            match file.reload() {
                Ok(()) => self.use_users(Arc::clone(file.users())),
                Err(error) => failures.push(error.into()),
            }
        }
        if let Some(file) = &self.acl_file {
            let mut file = file.lock().expect(NO_PANIC);
            match file.reload() {
                Ok(()) => self.use_acls(Arc::clone(file.acls())),
                Err(error) => failures.push(error.into()),
            }
        }
        if let Some(files) = &self.tls_files {
            match acceptor(files) {
                Ok(acceptor) => {
                    *self.tls.write().expect(NO_PANIC) = Some(acceptor);
                    let certificates = certificates_of(Some(files));
                    *self.certificates.write().expect(NO_PANIC) = certificates;
                    self.warn_of_certificates(unix_seconds());
                }
                Err(error) => failures.push(error),
            }
        }
        failures
    }

    /// Returns the certificates in use, as they were when they were read.
    pub(crate) fn certificates(&self) -> Vec<CertificateFile> {
        self.certificates.read().expect(NO_PANIC).clone()
    }

    /// Logs each certificate that has expired or expires within 30 days. Returns their number.
    pub(crate) fn warn_of_certificates(&self, now_unix_seconds: u64) -> usize {
        let mut count = 0;
        for file in self.certificates() {
            let described = file.describe_at(now_unix_seconds);
            match file.validity_at(now_unix_seconds) {
                Validity::Valid => continue,
                Validity::Expiring => {
                    tracing::warn!("{described}; replace the file and reload the broker (SIGHUP)");
                }
                Validity::Expired => {
                    tracing::error!("{described}; replace the file and reload the broker (SIGHUP)");
                }
            }
            count += 1;
        }
        count
    }

    fn use_users(&self, users: Arc<Users>) {
        self.quotas.set_limits(|principal| users.quota_of(principal));
        *self.users.write().expect(NO_PANIC) = users;
    }

    fn use_acls(&self, acls: Arc<Acls>) {
        let mut current = self.acls.write().expect(NO_PANIC);
        let is_new = current.as_ref().is_none_or(|it| !Arc::ptr_eq(it, &acls));
        *current = Some(acls);
        drop(current);
        if is_new {
            self.acl_version.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns a number that changes with the access lists.
    pub(crate) fn acl_version(&self) -> u64 {
        self.acl_version.load(Ordering::Acquire)
    }

    /// Returns a predicate that tells which topics a principal may describe, by the current access
    /// lists. An invalid principal may describe none.
    pub(crate) fn sight(&self, principal: &str, host: Option<IpAddr>) -> Sight<'static> {
        let acls = self.acls.read().expect(NO_PANIC).clone();
        let Some(acls) = acls else { return Box::new(|_| true) };
        let (Ok(principal), Some(host)) = (principal.parse::<Principal>(), host) else {
            return Box::new(|_| false);
        };
        Box::new(move |name| {
            let topic = Resource::topic(name);
            acls.authorize(&principal, host, Operation::Describe, topic).is_allowed()
        })
    }

    pub(crate) fn users(&self) -> Arc<Users> {
        Arc::clone(&self.users.read().expect(NO_PANIC))
    }

    /// Returns the TLS acceptor for new connections; `None` without encryption.
    pub(crate) fn tls(&self) -> Option<TlsAcceptor> {
        self.tls.read().expect(NO_PANIC).clone()
    }

    pub(crate) fn allows(
        &self,
        principal: &Principal,
        host: IpAddr,
        operation: Operation,
        resource: Resource<'_>,
    ) -> bool {
        let acls = self.acls.read().expect(NO_PANIC);
        acls.as_ref()
            .is_none_or(|acls| acls.authorize(principal, host, operation, resource).is_allowed())
    }

    /// Returns whether the principal may perform the operation on at least one topic.
    pub(crate) fn allows_some_topic(
        &self,
        principal: &Principal,
        host: IpAddr,
        operation: Operation,
    ) -> bool {
        let acls = self.acls.read().expect(NO_PANIC);
        acls.as_ref().is_none_or(|acls| {
            acls.authorize_any(principal, host, operation, ResourceKind::Topic).is_allowed()
        })
    }

    /// Changes the user file. The changes are in effect on return. Returns `None` without a file.
    /// May wait for a disk.
    pub(crate) fn with_user_file<T>(&self, work: impl FnOnce(&mut UserFile) -> T) -> Option<T> {
        let mut file = self.user_file.as_ref()?.lock().expect(NO_PANIC);
        let done = work(&mut file);
        self.use_users(Arc::clone(file.users()));
        Some(done)
    }

    /// Returns true if access lists are in effect, possibly without entries.
    pub(crate) fn has_access_lists(&self) -> bool {
        self.acl_file.is_some()
    }

    /// Changes the file of access lists. The changes are in effect on return. Returns `None`
    /// without a file. May wait for a disk.
    pub(crate) fn with_acl_file<T>(&self, work: impl FnOnce(&mut AclFile) -> T) -> Option<T> {
        let mut file = self.acl_file.as_ref()?.lock().expect(NO_PANIC);
        let done = work(&mut file);
        self.use_acls(Arc::clone(file.acls()));
        Some(done)
    }
}

fn certificates_of(files: Option<&TlsFiles>) -> Vec<CertificateFile> {
    files.map_or_else(Vec::new, |files| {
        CertificateFile::of_server(files, "message log", "message log, for clients")
    })
}

fn acceptor(files: &TlsFiles) -> anyhow::Result<TlsAcceptor> {
    Ok(TlsAcceptor::from(TlsSettings::load(files)?.server_config()))
}

/// Derives keys from a user's secret, and stores them in a user file.
pub(crate) fn set_user(path: PathBuf, name: &str, secret: &str) -> Result<(), AccessError> {
    let mut file = UserFile::open(path)?;
    let iterations = sasl::ITERATIONS_DEFAULT;
    let new = access::NewSecret { name, secret, iterations };
    match file.users().can_log_in(name) {
        true => file.set_secret(&new),
        false => file.add(&new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 60 * 60;

    fn write_certificate(files: &TlsFiles, year: i32) {
        let mut parameters = rcgen::CertificateParams::new(["a".to_owned()]).expect("a name");
        parameters.not_after = rcgen::date_time_ymd(year, 1, 2);
        let key = rcgen::KeyPair::generate().expect("there is randomness");
        let signed = parameters.self_signed(&key).expect("it can be signed");
        std::fs::write(&files.certificate, signed.pem()).expect("there is room");
        std::fs::write(&files.key, key.serialize_pem()).expect("there is room");
    }

    #[test]
    fn certificates_that_expire_are_warned_of_until_others_are_loaded() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = |name| folder.path().join(name);
        let tls =
            TlsFiles { certificate: path("a.crt"), key: path("a.key"), client_authorities: None };
        write_certificate(&tls, 2040);
        let files = AccessFiles { tls: Some(tls.clone()), ..AccessFiles::default() };
        let rules = AccessRules::of_this_host(files);
        let expires = rules.certificates()[0].expires_unix_seconds().expect("it is sound");
        assert_eq!(rules.warn_of_certificates(expires - 31 * DAY), 0);
        assert_eq!(rules.warn_of_certificates(expires - 30 * DAY), 1);
        assert_eq!(rules.warn_of_certificates(expires), 1);
        write_certificate(&tls, 2041);
        assert_eq!(rules.warn_of_certificates(expires), 1, "it is not loaded yet");
        assert!(rules.reload().is_empty());
        assert_eq!(rules.warn_of_certificates(expires), 0);
    }
}
