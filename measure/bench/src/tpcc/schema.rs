//! Tables and keys, by clause 1.3 of the TPC-C specification, in PostgreSQL's dialect.

pub(super) const SCHEMA: &str = include_str!("schema.sql");
pub(super) const KEYS: &str = include_str!("keys.sql");
