//! Test suites of Kafka clients, run against a broker of one node.
//!
//! Their sources come from packages. Stored here are only the lists of tests that cannot pass, each
//! with its reason. Every other test must pass, and a listed test that passes is an error too.

mod franz_go;
mod judgement;
mod kafka_python;
mod librdkafka;

use anyhow::Result;

pub use judgement::Counts;
use judgement::Outcomes;

/// Test suite of a client.
pub struct Suite {
    pub name: &'static str,
    /// Names of tests that cannot pass, each followed by a blank and the reason.
    known: &'static str,
    /// Minimum number of passed tests, because a suite that runs none proves nothing.
    passed_min: usize,
    run: fn() -> Result<Outcomes>,
}

/// All suites.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "kafka-python",
        known: include_str!("../../suites/kafka-python/known.txt"),
        passed_min: 50,
        run: kafka_python::run,
    },
    Suite {
        name: "franz-go",
        known: include_str!("../../suites/franz-go.txt"),
        passed_min: 130,
        run: franz_go::run,
    },
    Suite {
        name: "librdkafka",
        known: include_str!("../../suites/librdkafka/known.txt"),
        passed_min: 70,
        run: librdkafka::run,
    },
];

impl Suite {
    /// Runs every test, and fails if an unlisted one does not pass.
    pub fn check(&self) -> Result<Counts> {
        judgement::judge((self.run)()?, self.known, self.passed_min)
    }
}
