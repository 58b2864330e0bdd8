//! Who may do what on a broker: users, SASL, access lists, quotas.
#![forbid(unsafe_code)]
