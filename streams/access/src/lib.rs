//! Authentication and authorization of a broker: users and logins, access lists, quotas, listeners.
//!
//! ```text
//! connection ─▶ ListenerPolicy ── anonymous, certificate ──▶ Principal ─▶ Quotas: places, bytes
//!                    │ SASL                                     ▲     └─▶ Acls: each request
//!                    └──▶ Logins ── PLAIN, SCRAM ── Users ──────┘
//! ```
//!
//! - [`UserFile`] and [`AclFile`] provide their current contents as immutable [`Users`] and
//!   [`Acls`]. A connection may keep them during a reload. An invalid file changes nothing.
//! - [`Logins`] is the server side of SASL on one connection, as a state machine over bytes.
//! - [`Acls::authorize`] authorizes each request without an allocation.
//! - [`Quotas`] accounts for the usage of each principal. The caller passes the time.
//!
//! The crate opens no socket, reads no clock and starts no thread. Only methods that document it
//! read or replace files. Secrets are never stored, logged or contained in an error.
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
