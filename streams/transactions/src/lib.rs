//! Producer ids and transactions: the coordinator's state, without a network.
#![forbid(unsafe_code)]
