//! Names that clients see.

/// The one database, and the schema of topics in it.
pub(crate) const DATABASE: &str = "memlane";
pub(crate) const SCHEMA: &str = "public";
