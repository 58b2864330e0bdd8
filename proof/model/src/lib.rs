//! The simplest correct volume, to compare real ones with.
#![forbid(unsafe_code)]
