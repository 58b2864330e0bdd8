//! Suites of tests that clients of Kafka bring along, run against a broker of one node.
//!
//! Nothing of them is kept here: they come from packages, and what is kept is the list of tests
//! that cannot pass, each with its reason. Every other test must pass, and those lists are true: a
//! test on one of them that passes is a fault of the list.

mod franz_go;
mod judgement;
mod kafka_python;
mod librdkafka;

use anyhow::Result;

pub use judgement::Counts;
use judgement::Outcomes;

/// A suite that a client brings along.
pub struct Suite {
    pub name: &'static str,
    /// Names of tests that cannot pass, and after each a blank and the reason.
    known: &'static str,
    /// So many tests pass at least: a suite that runs none proves nothing.
    passed_min: usize,
    run: fn() -> Result<Outcomes>,
}

/// All of them.
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
    /// Runs every test to its end, and fails where one does not pass that should.
    pub fn check(&self) -> Result<Counts> {
        judgement::judge((self.run)()?, self.known, self.passed_min)
    }
}
