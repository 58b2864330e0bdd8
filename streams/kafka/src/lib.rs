//! Kafka's wire protocol: frames, versions, and produce and fetch without a copy.
#![forbid(unsafe_code)]
