//! A scenario: its initial state, its operations, and the points at which its runs end.

use std::cell::Cell;
use std::io::Write;

use model::{ModelPool, Operation, Random};
use region::CrashPoints;

use super::file::{Ended, PoolFile};
use super::judge::{Before, settle};
use super::operate::{follow, operate};

/// Numbers of stores after which runs end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Points {
    /// After every number of stores. Of each `double_one_in`-th of these runs, also after some
    /// numbers of stores of the recovery.
    Every { double_one_in: u64 },
    /// After `count` numbers, evenly spaced from `first` on, with the same rule for the recovery.
    Sampled { first: u64, count: u64, double_one_in: u64 },
}

/// Number of second ends tried for one first end.
const SECOND_ENDS: u64 = 5;

/// Numbers of cases that were tried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Explored {
    pub(crate) ends: u64,
    pub(crate) second_ends: u64,
    /// Number of stores of a complete run.
    pub(crate) stores: u64,
}

pub(crate) struct Scenario<'test> {
    pub(crate) name: &'test str,
    pub(crate) pool_bytes: u64,
    /// Operations that create the initial pool. Without operations there is no pool yet.
    pub(crate) prepare: &'test [Operation],
    pub(crate) act: &'test [Operation],
}

impl Scenario<'_> {
    /// Runs the scenario up to each point, and checks the remaining state.
    pub(crate) fn explore(&self, points: Points) -> Explored {
        self.explore_in(PoolFile::new(self.pool_bytes), points)
    }

    /// The same with all volumes in slabs of the volume table.
    pub(crate) fn explore_in_table_slabs(&self, points: Points) -> Explored {
        let file = PoolFile::new(self.pool_bytes);
        drop(file.open());
        file.take_front_places();
        self.explore_in(file, points)
    }

    fn explore_in(&self, file: PoolFile, points: Points) -> Explored {
        let mut model = ModelPool::default();
        if !self.prepare.is_empty() {
            self.rehearse(&file, &mut model, self.prepare);
        }
        let base = file.save();
        let models = self.rehearse(&file, &mut model, self.act);
        let runs = Runs { scenario: self, file, base, models };
        let mut explored = Explored { stores: runs.count_stores(), ..Explored::default() };
        let stores = explored.stores;
        let (first, count, double_one_in) = match points {
            Points::Every { double_one_in } => (0, stores, double_one_in),
            Points::Sampled { first, count, double_one_in } => {
                (first, count.min(stores.saturating_sub(first)), double_one_in)
            }
        };
        for nth in 0..count {
            let end = first + nth * (stores - first) / count;
            runs.check_end(end);
            explored.ends += 1;
            if nth % double_one_in == 0 {
                explored.second_ends += runs.check_second_ends(end);
            }
        }
        let Explored { ends, second_ends, stores } = explored;
        let report = format!(
            "{}: {ends} ends and {second_ends} second ends of {stores} stores\n",
            self.name
        );
        std::io::stderr().write_all(report.as_bytes()).expect("standard error takes a line");
        explored
    }

    /// Performs all operations. Returns the model before each, and after the last.
    fn rehearse(
        &self,
        file: &PoolFile,
        model: &mut ModelPool,
        operations: &[Operation],
    ) -> Vec<ModelPool> {
        let mut engine = file.open();
        let mut models = vec![model.snapshot()];
        for operation in operations {
            let memory;
            (engine, memory) = operate(engine, operation, &|| file.open());
            follow(model, operation, &engine, memory);
            models.push(model.snapshot());
        }
        models
    }
}

/// The runs of one scenario.
struct Runs<'scenario> {
    scenario: &'scenario Scenario<'scenario>,
    file: PoolFile,
    base: Vec<u8>,
    /// Models before each operation, and after the last.
    models: Vec<ModelPool>,
}

impl Runs<'_> {
    fn count_stores(&self) -> u64 {
        let points = CrashPoints::after(u64::MAX);
        let (ended, _) = self.run(&points);
        assert_eq!(ended, Ended::Completed);
        points.passed()
    }

    /// Runs from the beginning until a crash point. Returns the number of completed operations.
    fn run(&self, points: &CrashPoints) -> (Ended, usize) {
        self.file.restore(&self.base);
        let done = Cell::new(0);
        let ended = self.file.run(|| {
            let open = || self.file.open_until(points);
            let mut engine = open();
            for operation in self.scenario.act {
                (engine, _) = operate(engine, operation, &open);
                done.set(done.get() + 1);
            }
            let passed = points.passed();
            drop(engine);
            assert_eq!(points.passed(), passed, "what is dropped stores nothing");
        });
        (ended, done.get())
    }

    fn check_end(&self, end: u64) {
        let _place = Place { scenario: self.scenario.name, end, second: None };
        let before = self.end_at(end);
        before.judge(&self.file.open());
    }

    /// Runs until the `end`-th store, which is not made.
    fn end_at(&self, end: u64) -> Before<'_> {
        let points = CrashPoints::after(end);
        let (ended, done) = self.run(&points);
        assert_eq!(ended, Ended::Killed, "the same stores in every run");
        assert_eq!(points.passed(), end + 1, "nothing is stored after the end");
        let new = self.models.get(done + 1).unwrap_or(&self.models[done]);
        Before { old: &self.models[done], new, under_way: self.scenario.act.get(done) }
    }

    /// Ends the recovery after an end as well, at some of its stores.
    fn check_second_ends(&self, end: u64) -> u64 {
        let before = self.end_at(end);
        let left = self.file.save();
        let recover = |points: &CrashPoints| {
            self.file.restore(&left);
            self.file.run(|| settle(&self.file.open_until(points)))
        };
        let all = CrashPoints::after(u64::MAX);
        assert_eq!(recover(&all), Ended::Completed);
        let mut random = Random::new(end);
        for _ in 0..SECOND_ENDS {
            let second = random.below(all.passed());
            let _place = Place { scenario: self.scenario.name, end, second: Some(second) };
            assert_eq!(recover(&CrashPoints::after(second)), Ended::Killed);
            before.judge(&self.file.open());
        }
        SECOND_ENDS
    }
}

/// Reports the point at which a run ended if its check fails.
struct Place<'run> {
    scenario: &'run str,
    end: u64,
    second: Option<u64>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { scenario, end, second } = self;
            eprintln!("{scenario}: ended before store {end}, second end {second:?}");
        }
    }
}
