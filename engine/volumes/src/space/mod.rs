//! Finding memory: what a request that meets a full pool does, in order.

pub(crate) mod find;
