//! Who may do what on a broker: users and their logins, access lists, quotas, listeners.
//!
//! ```text
//! connection ─▶ ListenerPolicy ── anonymous, certificate ──▶ Principal ─▶ Quotas: places, bytes
//!                    │ SASL                                     ▲     └─▶ Acls: each request
//!                    └──▶ Logins ── PLAIN, SCRAM ── Users ──────┘
//! ```
//!
//! - [`UserFile`] and [`AclFile`] hold what is in force as [`Users`] and [`Acls`], which never
//!   change: a connection may keep them beside a reload. A file that cannot be used changes
//!   nothing.
//! - [`Logins`] is the server's side of SASL on one connection, over bytes.
//! - [`Acls::authorize`] answers for each request without an allocation.
//! - [`Quotas`] counts what each principal uses, with the time handed in.
//!
//! It opens no socket, reads no clock and starts no thread. Files are read and replaced where a
//! method says so. No secret is kept, logged or part of an error.
#![forbid(unsafe_code)]

mod acl;
mod distinguished_name;
mod error;
mod limits;
mod listener;
mod login;
mod owner;
mod policy_file;
mod principal;
mod quota_requests;
mod quotas;
mod scram_requests;
mod user_file;
mod users;

pub use acl::{
    ACL_COUNT_MAX, Acl, AclFile, AclOptions, Acls, CLUSTER_NAME, Decision, HostRule, Operation,
    Pattern, PatternKind, Permission, RESOURCE_BYTES_MAX, Resource, ResourceKind, WithoutFile,
};
pub use error::{AccessError, AccessErrorKind};
pub use limits::{QuotaLimits, QuotaSettings};
pub use listener::{ClientCertificates, Exposure, ListenerPolicy, SecurityProtocol};
pub use login::{LoginRefusal, LoginSettings, LoginStep, Logins, Session};
pub use owner::{owner_at, owner_of};
pub use principal::{PRINCIPAL_BYTES_MAX, Principal};
pub use quota_requests::refuse_quotas;
pub use quotas::{
    BytesInFlight, ConnectionPlace, PRINCIPAL_COUNT_MAX, QuotaError, Quotas, THROTTLE_MAX,
};
pub use user_file::{NewSecret, UserFile};
pub use users::{USER_COUNT_MAX, UserInfo, Users};
