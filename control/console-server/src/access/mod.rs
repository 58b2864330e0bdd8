//! Who asks, and what they may do: users, tokens and projects, sessions, passwords, failed logins,
//! and the audit log. Nothing here speaks HTTP.

mod accounts;
mod attempts;
mod audit;
mod caller;
mod password;
mod secret;
mod sessions;
mod setup;

pub(crate) use accounts::{
    AccountError, Accounts, NewToken, NewUser, Project, ProjectPatch, Token, User, UserPatch,
    is_name,
};
pub(crate) use attempts::Attempts;
pub(crate) use audit::{AuditEntry, AuditLog, By};
pub(crate) use caller::Caller;
pub(crate) use password::{PasswordHash, Passwords};
pub(crate) use secret::Secret;
pub(crate) use sessions::{Login, Sessions};
pub(crate) use setup::Setup;
