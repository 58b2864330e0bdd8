//! Schedule of suites: their order, and which of them run concurrently.
//!
//! A suite holds a resource of the host while it runs. Two suites with the same resource run one
//! after the other. A suite that holds the whole machine runs alone, at the end.

use std::cmp::Reverse;
use std::time::Duration;

use crate::cargo::Executable;
use crate::times::Times;

/// Resource of the host that a suite holds while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// A core, with separate memory and files.
    Core,
    /// Block devices of the kernel, which the suites enumerate and count.
    Devices,
    /// Virtual machines, which take memory and every idle core.
    Guests,
    /// Third-party programs with timeouts of their own, such as browsers and Kafka clients. Suites
    /// that hold a core may run beside them.
    Clients,
    /// The whole machine: the suite measures.
    Machine,
}

/// Suites that hold more than a core, by prefixes of their names.
const HELD: &[(&str, Held)] = &[
    ("bench/", Held::Machine),
    ("console-clients/", Held::Clients),
    ("fuse/", Held::Devices),
    ("guest/", Held::Guests),
    ("kafka-clients/", Held::Clients),
    ("machines/machines", Held::Guests),
    ("preload/", Held::Devices),
    ("system/block_device", Held::Devices),
    ("system/durability", Held::Devices),
    ("system/full_pool", Held::Devices),
    ("system/guides", Held::Devices),
    ("system/lost_pools", Held::Devices),
    ("system/missing_objects", Held::Devices),
    ("system/volumes", Held::Devices),
];

impl Held {
    fn of(suite: &Executable) -> Self {
        let found = HELD.iter().find(|(beginning, _)| suite.name.starts_with(beginning));
        found.map_or(Self::Core, |(_, held)| *held)
    }

    /// Returns whether a suite that holds this may run beside one that holds `other`.
    fn goes_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Machine, _) | (_, Self::Machine) => false,
            (Self::Core, _) | (_, Self::Core) => true,
            (Self::Clients, _) | (_, Self::Clients) => false,
            (one, other) => one != other,
        }
    }
}

/// Waiting and running suites.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    /// In starting order.
    waiting: Vec<&'a Executable>,
    running: Vec<&'a Executable>,
    at_once_max: usize,
}

/// Next step.
#[derive(Debug)]
pub(crate) enum Next<'a> {
    Run(&'a Executable),
    /// No waiting suite may run beside the running ones.
    Wait,
    End,
}

impl<'a> Plan<'a> {
    /// Creates a plan. Suites that hold more than a core begin first, then those that took long.
    /// Suites that hold the machine are last. At most `at_once_max` run at any time.
    pub(crate) fn new(suites: &'a [Executable], times: &Times, at_once_max: usize) -> Self {
        let mut waiting: Vec<_> = suites.iter().collect();
        waiting.sort_by_key(|suite| {
            let rank = match Held::of(suite) {
                Held::Guests | Held::Devices | Held::Clients => 0,
                Held::Core => 1,
                Held::Machine => 2,
            };
            (rank, Reverse(times.of(&suite.name).unwrap_or(Duration::ZERO)))
        });
        Self { waiting, running: Vec::new(), at_once_max }
    }

    /// Returns the suite to run next, which counts as running.
    pub(crate) fn next(&mut self) -> Next<'a> {
        if self.waiting.is_empty() {
            return Next::End;
        }
        if self.running.len() >= self.at_once_max {
            return Next::Wait;
        }
        let may_run = |suite: &&Executable| {
            let held = Held::of(suite);
            self.running.iter().all(|running| held.goes_with(Held::of(running)))
        };
        let Some(index) = self.waiting.iter().position(may_run) else { return Next::Wait };
        let suite = self.waiting.remove(index);
        self.running.push(suite);
        Next::Run(suite)
    }

    pub(crate) fn ended(&mut self, suite: &Executable) {
        self.running.retain(|running| running.name != suite.name);
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::cargo::ExecutableKind;

    fn suite(name: &str) -> Executable {
        let kind = ExecutableKind::IntegrationTests;
        Executable { kind, name: name.to_owned(), path: PathBuf::new(), folder: PathBuf::new() }
    }

    /// Starts all suites that may start, and returns their names in order.
    fn started<'a>(plan: &mut Plan<'a>) -> Vec<&'a str> {
        let mut names = Vec::new();
        while let Next::Run(suite) = plan.next() {
            names.push(suite.name.as_str());
        }
        names
    }

    #[test]
    fn what_holds_the_same_runs_one_after_the_other_and_what_measures_alone() {
        let names = ["bench/cpio", "codec/lib", "fuse/kernel", "guest/boot", "guest/ublk"];
        let suites = names.map(suite);
        let mut times = Times::read(Path::new("/nonexistent"));
        times.note("guest/ublk", Duration::from_secs(9));
        let mut plan = Plan::new(&suites, &times, 4);
        assert_eq!(started(&mut plan), ["guest/ublk", "fuse/kernel", "codec/lib"]);
        plan.ended(&suites[4]);
        assert_eq!(started(&mut plan), ["guest/boot"]);
        plan.ended(&suites[1]);
        plan.ended(&suites[2]);
        assert_eq!(started(&mut plan), [""; 0]);
        plan.ended(&suites[3]);
        assert_eq!(started(&mut plan), ["bench/cpio"]);
        assert!(matches!(plan.next(), Next::End));
    }

    #[test]
    fn clients_run_beside_what_holds_a_core_only() {
        let names = ["kafka-clients/java", "codec/lib", "guest/boot", "console-clients/pages"];
        let suites = names.map(suite);
        let mut plan = Plan::new(&suites, &Times::default(), 4);
        assert_eq!(started(&mut plan), ["kafka-clients/java", "codec/lib"]);
        plan.ended(&suites[0]);
        assert_eq!(started(&mut plan), ["guest/boot"]);
        plan.ended(&suites[2]);
        assert_eq!(started(&mut plan), ["console-clients/pages"]);
    }

    #[test]
    fn no_more_than_the_limit_run_at_once() {
        let suites = ["codec/lib", "sync/lib", "api/lib"].map(suite);
        let mut plan = Plan::new(&suites, &Times::default(), 2);
        assert_eq!(started(&mut plan).len(), 2);
    }
}
