//! The pool: pages, locks, leaks and fill levels, without knowledge of volumes.

pub(crate) mod dense_reads;
pub(crate) mod frozen;
pub(crate) mod leak_check;
pub(crate) mod level;
pub(crate) mod locks;
pub(crate) mod shared;
pub(crate) mod totals;
