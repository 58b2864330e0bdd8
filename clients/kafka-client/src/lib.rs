//! A small client of Kafka's protocol, for the command line and the bench.
#![forbid(unsafe_code)]
