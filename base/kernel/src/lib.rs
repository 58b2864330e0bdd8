//! System calls that libraries do not offer safely.
#![forbid(unsafe_code)]
