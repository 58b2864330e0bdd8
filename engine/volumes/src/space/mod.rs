//! Space: steps that a request takes when the pool is full.

pub(crate) mod find;
