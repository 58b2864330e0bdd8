//! Names of the database and schema, and an internal name.

/// The only database, and its schema of topics.
pub(crate) const DATABASE: &str = "memlane";
pub(crate) const SCHEMA: &str = "public";

/// Internal name of the sum from which an average is computed.
pub(super) const AVERAGED: &str = "averaged_sum";
