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
use tls::{TlsFiles, TlsSettings};
use tokio_rustls::TlsAcceptor;

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
                Ok(acceptor) => *self.tls.write().expect(NO_PANIC) = Some(acceptor),
                Err(error) => failures.push(error),
            }
        }
        failures
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

    /// Changes the file of access lists. The changes are in effect on return. Returns `None`
    /// without a file. May wait for a disk.
    pub(crate) fn with_acl_file<T>(&self, work: impl FnOnce(&mut AclFile) -> T) -> Option<T> {
        let mut file = self.acl_file.as_ref()?.lock().expect(NO_PANIC);
        let done = work(&mut file);
        self.use_acls(Arc::clone(file.acls()));
        Some(done)
    }
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
