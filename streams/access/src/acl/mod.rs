//! Access control lists: which principal may perform which operation on which resource.

mod entry;
mod file;
mod index;
mod list;
mod requests;

pub use entry::{
    Acl, CLUSTER_NAME, HostRule, Operation, Pattern, PatternKind, Permission, RESOURCE_BYTES_MAX,
    ResourceKind,
};
pub use file::{ACL_COUNT_MAX, AclFile, AclOptions, WithoutFile};
pub use list::{Acls, Decision, Resource};
