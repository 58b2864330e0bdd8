//! Names that clients see, and one that they do not.

/// The one database, and the schema of topics in it.
pub(crate) const DATABASE: &str = "memlane";
pub(crate) const SCHEMA: &str = "public";

/// The sum that an average is made of.
pub(super) const AVERAGED: &str = "averaged_sum";
