//! Authentication and authorization: users, tokens, projects, sessions, passwords, failed logins,
//! and the audit log. This module does not depend on HTTP.

mod accounts;
mod attempts;
mod audit;
mod audit_sink;
mod caller;
mod password;
mod second_factor;
mod secret;
mod sessions;
mod setup;
mod totp;

pub(crate) use accounts::{
    AccountError, Accounts, NewToken, NewUser, Project, ProjectPatch, Rules, ShownUser, Token,
    User, UserPatch, is_name, tag_of,
};
pub(crate) use attempts::{Attempts, network_of};
pub(crate) use audit::{AuditEntry, AuditFilter, AuditLog, By};
pub(crate) use audit_sink::{AuditPlace, AuditSink};
pub(crate) use caller::Caller;
pub(crate) use password::{Asker, NotHashed, PasswordHash, Passwords};
pub(crate) use second_factor::{CodeKind, Enrolments, SecondFactor};
pub(crate) use secret::Secret;
pub(crate) use sessions::{Listed, Login, Sessions};
pub(crate) use setup::Setup;
pub(crate) use totp::TotpSecret;
