//! Statements: texts become commands, and what a connection keeps between them.
//!
//! [`Command::Extension`] is the one place where statements that are not SQL's own are handed to
//! those who know them; see `extension`.

mod as_of;
mod command;
mod copy;
mod derive;
mod extension;
mod insert;
mod parser;
mod text;
mod transaction;
mod variables;

pub(crate) use command::{Command, CursorSource, Discarded, read_command};
pub(crate) use derive::run_derive;
pub(crate) use extension::{Extension, run_extension};
pub(crate) use insert::InsertPlan;
pub(crate) use text::{Words, split};
pub(crate) use transaction::{Access, Chain, Savepoint};
pub(crate) use variables::{Assignment, Scope, Variables};
