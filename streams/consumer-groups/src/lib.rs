//! Groups of consumers: members, assignments and committed offsets, without a network.
#![forbid(unsafe_code)]
