//! Index of access control entries for authorization. A check allocates nothing, and its number of
//! lookups depends on the distinct lengths of prefixes, not on the number of entries.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::acl::entry::{
    Acl, HostRule, Operation, OperationSet, PatternKind, Permission, ResourceKind,
};
use crate::principal::{EVERYONE, Principal};

/// Index of all entries.
#[derive(Debug, Default)]
pub(crate) struct Index {
    everyone: Rules,
    named: HashMap<Principal, Rules>,
}

/// Entries of one principal, by kind of resource.
#[derive(Debug, Default)]
struct Rules {
    by_kind: [Names; ResourceKind::ALL.len()],
}

/// Entries of one principal for one kind of resource.
#[derive(Debug, Default)]
struct Names {
    each: Grants,
    literal: HashMap<Box<str>, Grants>,
    prefixed: HashMap<Box<str>, Grants>,
    /// Distinct lengths of all prefixes, ascending.
    prefix_bytes: Vec<usize>,
}

/// Entries of one principal for one pattern.
#[derive(Debug, Default)]
struct Grants {
    everywhere: Grant,
    at: HashMap<IpAddr, Grant>,
}

/// Combined permissions of a set of entries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Grant {
    allowed: OperationSet,
    denied: OperationSet,
}

impl Grant {
    pub(crate) fn denies(self, operation: Operation) -> bool {
        self.denied.meets(operation.named_by())
    }

    pub(crate) fn allows(self, operation: Operation) -> bool {
        self.allowed.meets(operation.allowed_by()) && !self.denies(operation)
    }

    fn and(self, other: Self) -> Self {
        let allowed = self.allowed.and(other.allowed);
        Self { allowed, denied: self.denied.and(other.denied) }
    }

    fn add(&mut self, operation: Operation, permission: Permission) {
        match permission {
            Permission::Allow => self.allowed = self.allowed.with(operation),
            Permission::Deny => self.denied = self.denied.with(operation),
        }
    }
}

impl Index {
    pub(crate) fn new<'a>(acls: impl Iterator<Item = &'a Acl>) -> Self {
        let mut index = Self::default();
        for acl in acls {
            let rules = if acl.principal.as_str() == EVERYONE {
                &mut index.everyone
            } else {
                index.named.entry(acl.principal.clone()).or_default()
            };
            let names = &mut rules.by_kind[place_of(acl.pattern.resource)];
            let grants = names.grants_of(acl);
            let grant = match acl.host {
                HostRule::Any => &mut grants.everywhere,
                HostRule::Address(address) => grants.at.entry(address).or_default(),
            };
            grant.add(acl.operation, acl.permission);
        }
        index
    }

    /// Combines all entries that match the principal, host and resource.
    pub(crate) fn grant(
        &self,
        principal: &Principal,
        host: IpAddr,
        resource: ResourceKind,
        name: &str,
    ) -> Grant {
        let all = self.rules(principal);
        all.fold(Grant::default(), |sum, rules| sum.and(rules.names(resource).grant(name, host)))
    }

    /// Returns whether a resource may exist on which the operation is allowed: some pattern allows
    /// it and no denying pattern covers that pattern.
    pub(crate) fn allows_some(
        &self,
        principal: &Principal,
        host: IpAddr,
        operation: Operation,
        resource: ResourceKind,
    ) -> bool {
        let names = || self.rules(principal).map(|rules| rules.names(resource));
        if names().any(|names| names.each.at(host).denies(operation)) {
            return false;
        }
        let is_prefix_denied =
            |name: &str| names().any(|names| names.prefixes(name, host).denies(operation));
        names().any(|names| {
            let allows = |grants: &Grants| grants.at(host).allows(operation);
            let literal = |name: &str| self.grant(principal, host, resource, name);
            allows(&names.each)
                || names
                    .prefixed
                    .iter()
                    .any(|(name, grants)| allows(grants) && !is_prefix_denied(name))
                || names
                    .literal
                    .iter()
                    .any(|(name, grants)| allows(grants) && literal(name).allows(operation))
        })
    }

    fn rules<'a>(&'a self, principal: &Principal) -> impl Iterator<Item = &'a Rules> {
        [Some(&self.everyone), self.named.get(principal)].into_iter().flatten()
    }
}

impl Rules {
    fn names(&self, resource: ResourceKind) -> &Names {
        &self.by_kind[place_of(resource)]
    }
}

impl Names {
    fn grants_of(&mut self, acl: &Acl) -> &mut Grants {
        let pattern = &acl.pattern;
        if pattern.is_each_name() {
            return &mut self.each;
        }
        let name = pattern.name.as_str();
        match pattern.pattern {
            PatternKind::Literal => self.literal.entry(name.into()).or_default(),
            PatternKind::Prefixed => {
                if let Err(place) = self.prefix_bytes.binary_search(&name.len()) {
                    self.prefix_bytes.insert(place, name.len());
                }
                self.prefixed.entry(name.into()).or_default()
            }
        }
    }

    fn grant(&self, name: &str, host: IpAddr) -> Grant {
        let literal = self.literal.get(name).map(|grants| grants.at(host)).unwrap_or_default();
        self.each.at(host).and(literal).and(self.prefixes(name, host))
    }

    fn prefixes(&self, name: &str, host: IpAddr) -> Grant {
        let lengths = self.prefix_bytes.iter().take_while(|length| **length <= name.len());
        let prefixes = lengths.filter_map(|length| name.get(..*length));
        let grants = prefixes.filter_map(|prefix| self.prefixed.get(prefix));
        grants.fold(Grant::default(), |sum, grants| sum.and(grants.at(host)))
    }
}

impl Grants {
    fn at(&self, host: IpAddr) -> Grant {
        match self.at.get(&host) {
            Some(grant) => self.everywhere.and(*grant),
            None => self.everywhere,
        }
    }
}

fn place_of(resource: ResourceKind) -> usize {
    match resource {
        ResourceKind::Topic => 0,
        ResourceKind::Group => 1,
        ResourceKind::Cluster => 2,
        ResourceKind::TransactionalId => 3,
    }
}
