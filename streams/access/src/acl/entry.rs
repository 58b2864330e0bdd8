//! An entry of an access control list, with Kafka's names and numbers (`AclBinding`,
//! `ResourceType`, `PatternType`, `AclOperation`, `AclPermissionType` of its clients).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{AccessError, AccessErrorKind};
use crate::principal::Principal;

/// Only valid resource name of kind [`ResourceKind::Cluster`].
pub const CLUSTER_NAME: &str = "kafka-cluster";

/// Maximum length of a resource name.
pub const RESOURCE_BYTES_MAX: usize = 1024;

/// Literal pattern that matches every name.
const EACH_NAME: &str = "*";

/// Kind of protected resource. Kafka's delegation tokens and users are not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(i8)]
pub enum ResourceKind {
    Topic = 2,
    Group = 3,
    Cluster = 4,
    TransactionalId = 5,
}

impl ResourceKind {
    pub const ALL: [Self; 4] = [Self::Topic, Self::Group, Self::Cluster, Self::TransactionalId];

    pub fn code(self) -> i8 {
        self as i8
    }
}

/// Match type of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(i8)]
pub enum PatternKind {
    /// Matches the exact name; `*` matches every name.
    Literal = 3,
    /// Matches names with this prefix.
    Prefixed = 4,
}

impl PatternKind {
    pub const ALL: [Self; 2] = [Self::Literal, Self::Prefixed];

    pub fn code(self) -> i8 {
        self as i8
    }
}

/// Operation on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(i8)]
pub enum Operation {
    All = 2,
    Read = 3,
    Write = 4,
    Create = 5,
    Delete = 6,
    Alter = 7,
    Describe = 8,
    ClusterAction = 9,
    DescribeConfigs = 10,
    AlterConfigs = 11,
    IdempotentWrite = 12,
}

impl Operation {
    pub const ALL: [Self; 11] = [
        Self::All,
        Self::Read,
        Self::Write,
        Self::Create,
        Self::Delete,
        Self::Alter,
        Self::Describe,
        Self::ClusterAction,
        Self::DescribeConfigs,
        Self::AlterConfigs,
        Self::IdempotentWrite,
    ];

    pub fn code(self) -> i8 {
        self as i8
    }

    /// Returns the operations that imply this one: an entry that allows any of them allows this
    /// one.
    pub(crate) fn allowed_by(self) -> OperationSet {
        let implying: &[Self] = match self {
            Self::Describe => &[Self::Read, Self::Write, Self::Delete, Self::Alter],
            Self::DescribeConfigs => &[Self::AlterConfigs],
            _ => &[],
        };
        implying.iter().fold(self.named_by(), |set, operation| set.with(*operation))
    }

    /// Returns the operations whose denial denies this one.
    pub(crate) fn named_by(self) -> OperationSet {
        OperationSet::default().with(self).with(Self::All)
    }
}

/// Bit set of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OperationSet(u16);

impl OperationSet {
    pub(crate) fn with(self, operation: Operation) -> Self {
        Self(self.0 | 1 << operation.code())
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Permission type of an entry. Deny takes precedence over Allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(i8)]
pub enum Permission {
    Deny = 2,
    Allow = 3,
}

impl Permission {
    pub const ALL: [Self; 2] = [Self::Deny, Self::Allow];

    pub fn code(self) -> i8 {
        self as i8
    }
}

/// Client host to which an entry applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HostRule {
    /// `*`: every host.
    Any,
    /// A canonical address: IPv4-mapped IPv6 addresses are stored as IPv4.
    Address(IpAddr),
}

impl fmt::Display for HostRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => formatter.write_str("*"),
            Self::Address(address) => address.fmt(formatter),
        }
    }
}

impl FromStr for HostRule {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let address: IpAddr = text.parse().map_err(|_| {
            let what = format!("the host {text:.100?} is not an IP address or *");
            AccessError::new(AccessErrorKind::NotAllowed, what)
        })?;
        Ok(Self::Address(address.to_canonical()))
    }
}

impl TryFrom<String> for HostRule {
    type Error = AccessError;

    fn try_from(text: String) -> Result<Self, AccessError> {
        text.parse()
    }
}

impl From<HostRule> for String {
    fn from(host: HostRule) -> Self {
        host.to_string()
    }
}

/// Pattern that matches resources of one kind by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern {
    pub resource: ResourceKind,
    pub name: String,
    pub pattern: PatternKind,
}

impl Pattern {
    pub(crate) fn is_each_name(&self) -> bool {
        self.pattern == PatternKind::Literal && self.name == EACH_NAME
    }

    /// Returns whether the pattern matches a name.
    pub(crate) fn covers(&self, name: &str) -> bool {
        match self.pattern {
            PatternKind::Literal => self.name == name || self.is_each_name(),
            PatternKind::Prefixed => name.starts_with(&self.name),
        }
    }
}

/// An access control entry. Entries about the same resource are adjacent when sorted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "AclForm", into = "AclForm")]
pub struct Acl {
    pub pattern: Pattern,
    /// `User:NAME`, or `User:*` for every principal.
    pub principal: Principal,
    pub host: HostRule,
    pub operation: Operation,
    pub permission: Permission,
}

impl Acl {
    /// Validates lengths and formats of names.
    pub(crate) fn check(&self) -> Result<(), AccessError> {
        let name = &self.pattern.name;
        let refused = |why: String| Err(AccessError::new(AccessErrorKind::NotAllowed, why));
        if name.is_empty() || name.len() > RESOURCE_BYTES_MAX {
            return refused(format!(
                "the name of the resource is empty or longer than {RESOURCE_BYTES_MAX} bytes"
            ));
        }
        if name.chars().any(char::is_control) {
            return refused("the name of the resource has control characters".to_owned());
        }
        let is_cluster = self.pattern.resource == ResourceKind::Cluster;
        if is_cluster && (name != CLUSTER_NAME || self.pattern.pattern != PatternKind::Literal) {
            return refused(format!("the only name of the cluster is {CLUSTER_NAME}, literal"));
        }
        Ok(())
    }
}

/// Representation of an entry in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AclForm {
    principal: String,
    #[serde(default = "any_host", skip_serializing_if = "is_any_host")]
    host: HostRule,
    permission: Permission,
    operation: Operation,
    resource: ResourceKind,
    name: String,
    #[serde(default = "literal", skip_serializing_if = "is_literal")]
    pattern: PatternKind,
}

fn any_host() -> HostRule {
    HostRule::Any
}

fn is_any_host(host: &HostRule) -> bool {
    *host == HostRule::Any
}

fn literal() -> PatternKind {
    PatternKind::Literal
}

fn is_literal(pattern: &PatternKind) -> bool {
    *pattern == PatternKind::Literal
}

impl TryFrom<AclForm> for Acl {
    type Error = AccessError;

    fn try_from(form: AclForm) -> Result<Self, AccessError> {
        let AclForm { principal, host, permission, operation, resource, name, pattern } = form;
        let pattern = Pattern { resource, name, pattern };
        let acl = Self { pattern, principal: principal.parse()?, host, operation, permission };
        acl.check()?;
        Ok(acl)
    }
}

impl From<Acl> for AclForm {
    fn from(acl: Acl) -> Self {
        let Pattern { resource, name, pattern } = acl.pattern;
        Self {
            principal: acl.principal.to_string(),
            host: acl.host,
            permission: acl.permission,
            operation: acl.operation,
            resource,
            name,
            pattern,
        }
    }
}
