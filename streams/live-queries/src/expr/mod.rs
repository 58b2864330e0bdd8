//! Expressions, compiled from SQL with static types, and their evaluation on rows.

mod access;
mod aggregates;
mod bind;
mod call;
mod evaluate;
mod functions;
mod like;
mod literal;
mod names;
mod operate;
mod operators;
mod sources;
mod syntax;
mod typing;

pub(crate) use aggregates::{Aggregate, AggregateKind, Groups};
pub(crate) use bind::Binder;
pub use like::is_like;
pub(crate) use literal::whole_number;
pub(crate) use names::folded;
pub(crate) use sources::{Source, Sources};
pub(crate) use syntax::{Comparison, Expr};
pub(crate) use typing::{Bound, no_operator};
