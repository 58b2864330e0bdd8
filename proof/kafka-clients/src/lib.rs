//! Kafka's clients as users have them: kcat, librdkafka for Python, Java's with the tools of Apache
//! Kafka, and franz-go. Tests run them against `memlane-broker`.
//!
//! With `MEMLANE_KAFKA_REFERENCE` set they run against Apache Kafka instead. Each test passes there
//! too, so a failure shows a difference of the broker. Nothing here speaks Kafka's protocol itself.
//! Clients come from their registries in pinned versions with hashes, and are cached in
//! `target/kafka-clients`.
#![forbid(unsafe_code)]

mod broker;
mod fetched;
mod go;
mod java;
mod python;
mod suites;
mod tool_box;

pub use broker::{Broker, is_skipped};
pub use fetched::Recipe;
pub use go::{Go, GoClient, run_go, with_go};
pub use java::{JavaClient, jars};
pub use python::{PythonClient, make_environment, modules_in};
pub use suites::{Counts, SUITES, Suite};
pub use tool_box::{Answer, ToolBox};
