//! Processor time accounting: application, driver, store, and the rest of the machine.
//!
//! The total is that of the whole machine minus its idle consumption. Application and driver are
//! groups of processes. The store is the processes that serve the target with all of their threads.
//! The rest is the remainder: kernel threads, interrupts, other programs.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::targets::cpu::{Machine, seconds_of, stay_idle};
use crate::targets::cpu_group::{CpuBackend, CpuGroup};

/// Process groups of a measurement.
#[derive(Debug)]
pub struct Accounts {
    application: CpuGroup,
    driver: CpuGroup,
    server_ids: Vec<u32>,
    /// Cores whose utilisation is measured.
    cores: Vec<usize>,
}

/// Snapshot of all counters.
#[derive(Clone, Debug)]
pub struct Opening {
    at: Instant,
    machine: Machine,
    cores: Vec<Machine>,
    application_s: f64,
    driver_s: f64,
    store_s: f64,
    by_groups_s: Option<f64>,
}

/// Processor seconds over all cores since a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    pub elapsed_s: f64,
    pub user_s: f64,
    /// Including interrupts.
    pub system_s: f64,
    pub idle_s: f64,
    pub io_wait_s: f64,
    pub steal_s: f64,
    pub application_s: f64,
    pub driver_s: f64,
    /// Time of the processes that serve the target.
    pub store_s: f64,
    /// Utilisation of the chosen cores, 0 to 1.
    pub utilisation: f64,
    /// Sum over control groups of all processes, if available, independent of the tick-based total.
    pub by_groups_s: Option<f64>,
}

impl Spent {
    /// Returns user and system time.
    pub fn total_s(&self) -> f64 {
        self.user_s + self.system_s
    }

    /// Returns the time of neither application, driver nor store. Negative at most by tick
    /// rounding.
    pub fn rest_s(&self) -> f64 {
        self.total_s() - self.application_s - self.driver_s - self.store_s
    }

    /// Returns the relative difference of the groups from the total.
    pub fn disagreement(&self) -> Option<f64> {
        let total_s = self.total_s();
        (total_s > 0.0).then_some((self.by_groups_s? - total_s).abs() / total_s)
    }
}

impl Accounts {
    /// Creates the groups. `cores` are those whose utilisation is measured. Without control groups,
    /// application and driver are indistinguishable, and both count as the application.
    pub fn new(server_ids: Vec<u32>, cores: Vec<usize>) -> Result<Self> {
        ensure!(!cores.is_empty(), "utilisation is that of one core at least");
        let application = CpuGroup::new("application")?;
        let driver = CpuGroup::by(application.backend(), "driver")?;
        Ok(Self { application, driver, server_ids, cores })
    }

    pub fn application(&self) -> &CpuGroup {
        &self.application
    }

    pub fn driver(&self) -> &CpuGroup {
        &self.driver
    }

    pub fn backend(&self) -> CpuBackend {
        self.application.backend()
    }

    pub fn open(&self) -> Result<Opening> {
        let is_one_count = self.backend() == CpuBackend::Wait;
        Ok(Opening {
            machine: Machine::read()?,
            cores: self
                .cores
                .iter()
                .map(|core| Machine::read_core(*core))
                .collect::<Result<_>>()?,
            application_s: self.application.seconds()?,
            driver_s: if is_one_count { 0.0 } else { self.driver.seconds()? },
            store_s: seconds_of(&self.server_ids)?,
            by_groups_s: self.backend().machine_seconds(),
            at: Instant::now(),
        })
    }

    pub fn since(&self, before: &Opening) -> Result<Spent> {
        let now = self.open()?;
        let machine = now.machine.since(&before.machine);
        let (mut busy_s, mut all_s) = (0.0, 0.0);
        for (now, before) in now.cores.iter().zip(&before.cores) {
            let core = now.since(before);
            busy_s += core.busy_s();
            all_s += core.busy_s() + core.idle_s + core.io_wait_s;
        }
        Ok(Spent {
            elapsed_s: (now.at - before.at).as_secs_f64(),
            user_s: machine.user_s,
            system_s: machine.system_s + machine.interrupts_s,
            idle_s: machine.idle_s,
            io_wait_s: machine.io_wait_s,
            steal_s: machine.steal_s,
            application_s: now.application_s - before.application_s,
            driver_s: now.driver_s - before.driver_s,
            store_s: now.store_s - before.store_s,
            utilisation: if all_s > 0.0 { busy_s / all_s } else { 0.0 },
            by_groups_s: now.by_groups_s.zip(before.by_groups_s).map(|(now, then)| now - then),
        })
    }

    /// Measures the idle consumption over `window`.
    pub fn idle(&self, window: Duration) -> Result<Spent> {
        let before = self.open()?;
        stay_idle(window)?;
        self.since(&before)
    }
}
