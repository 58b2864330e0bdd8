//! Atomics facade and grace periods.
#![forbid(unsafe_code)]
