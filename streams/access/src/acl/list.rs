//! Access control lists and authorization of requests.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use crate::acl::entry::{Acl, Operation, ResourceKind};
use crate::acl::index::Index;
use crate::principal::Principal;

/// Immutable snapshot of the access control entries and of the super users exempt from them.
#[derive(Debug)]
pub struct Acls {
    /// `None` if there is no file.
    entries: Option<BTreeSet<Acl>>,
    index: Index,
    super_users: HashSet<Principal>,
    without_file: Decision,
}

/// Result of an authorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allowed,
    Denied,
}

impl Decision {
    pub fn is_allowed(self) -> bool {
        self == Self::Allowed
    }

    fn of(is_allowed: bool) -> Self {
        if is_allowed { Self::Allowed } else { Self::Denied }
    }
}

/// A resource to access, by kind and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource<'a> {
    pub kind: ResourceKind,
    pub name: &'a str,
}

impl<'a> Resource<'a> {
    pub fn topic(name: &'a str) -> Self {
        Self { kind: ResourceKind::Topic, name }
    }

    pub fn group(name: &'a str) -> Self {
        Self { kind: ResourceKind::Group, name }
    }

    pub fn transactional_id(name: &'a str) -> Self {
        Self { kind: ResourceKind::TransactionalId, name }
    }

    pub fn cluster() -> Self {
        Self { kind: ResourceKind::Cluster, name: super::CLUSTER_NAME }
    }
}

impl Acls {
    pub(crate) fn new(
        entries: Option<BTreeSet<Acl>>,
        super_users: &[Principal],
        without_file: Decision,
    ) -> Self {
        let index = Index::new(entries.iter().flatten());
        Self { entries, index, super_users: super_users.iter().cloned().collect(), without_file }
    }

    /// Iterates over all entries in order.
    pub fn entries(&self) -> impl Iterator<Item = &Acl> {
        self.entries.iter().flatten()
    }

    /// Returns whether `principal` at `host` may perform the operation. Deny takes precedence.
    /// Without a matching Allow entry, the request is denied. Allocates nothing.
    pub fn authorize(
        &self,
        principal: &Principal,
        host: IpAddr,
        operation: Operation,
        resource: Resource<'_>,
    ) -> Decision {
        if let Some(decision) = self.decision_without_lines(principal) {
            return decision;
        }
        let host = host.to_canonical();
        let grant = self.index.grant(principal, host, resource.kind, resource.name);
        Decision::of(grant.allows(operation))
    }

    /// Returns whether `principal` may perform the operation on any resource of the kind, existing
    /// or not (`authorizeByResourceType` of Kafka). Examines all of the principal's entries.
    pub fn authorize_any(
        &self,
        principal: &Principal,
        host: IpAddr,
        operation: Operation,
        kind: ResourceKind,
    ) -> Decision {
        if let Some(decision) = self.decision_without_lines(principal) {
            return decision;
        }
        Decision::of(self.index.allows_some(principal, host.to_canonical(), operation, kind))
    }

    pub(crate) fn table(&self) -> Option<&BTreeSet<Acl>> {
        self.entries.as_ref()
    }

    fn decision_without_lines(&self, principal: &Principal) -> Option<Decision> {
        if self.super_users.contains(principal) {
            return Some(Decision::Allowed);
        }
        self.entries.is_none().then_some(self.without_file)
    }
}
