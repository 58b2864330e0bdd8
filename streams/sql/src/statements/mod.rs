//! Statements: parsing of texts into commands, and the variables of a session.
//!
//! [`Command::Extension`] is the single place where statements beyond SQL are passed to their
//! implementation; see `extension`.

mod as_of;
mod cast_types;
mod command;
mod copy;
mod derive;
mod extension;
mod insert;
mod operators;
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
