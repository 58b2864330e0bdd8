//! Assignment of cores to servers and clients, and their utilisation.
//!
//! All servers use the first core of this process, so that their figures are for one core. Clients
//! use all others.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::targets::Machine;

/// The cores of this process, divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cores {
    server: usize,
    clients: Vec<usize>,
}

impl Cores {
    pub(super) fn of_this_process() -> Result<Self> {
        let allowed =
            sched_getaffinity(None).context("cannot get the CPU affinity (sched_getaffinity)")?;
        Self::divide((0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect())
    }

    fn divide(all: Vec<usize>) -> Result<Self> {
        let server = *all.first().context("no CPU core is available")?;
        let clients = if all.len() == 1 { all } else { all[1..].to_vec() };
        Ok(Self { server, clients })
    }

    /// Returns the command prefix that runs a server on its core.
    pub(super) fn server_starter(&self) -> Vec<String> {
        starter(&[self.server])
    }

    /// Returns the command prefix that runs a client on the clients' cores.
    pub(super) fn client_starter(&self) -> Vec<String> {
        starter(&self.clients)
    }

    /// Returns the number of cores for clients.
    pub(super) fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// Returns a flag for figures, if cores are shared.
    pub(super) fn flag(&self) -> Option<&'static str> {
        let is_shared = self.clients.contains(&self.server);
        is_shared.then_some("servers and clients share the only core")
    }

    /// Pins this thread, and threads that it starts, to the clients' cores.
    pub(super) fn keep_clients(&self) -> Result<Kept> {
        let before =
            sched_getaffinity(None).context("cannot get the CPU affinity (sched_getaffinity)")?;
        let mut cores = CpuSet::new();
        self.clients.iter().for_each(|&core| cores.set(core));
        sched_setaffinity(None, &cores)
            .context("cannot set the CPU affinity of clients (sched_setaffinity)")?;
        Ok(Kept { before })
    }

    pub(super) fn watch(&self) -> Result<Watch<'_>> {
        Ok(Watch {
            cores: self,
            server: self.server_s()?,
            clients: self.clients_s()?,
            begun: Instant::now(),
        })
    }

    fn server_s(&self) -> Result<f64> {
        Ok(Machine::read_core(self.server)?.busy_s())
    }

    fn clients_s(&self) -> Result<f64> {
        let busy = |&core: &usize| Ok(Machine::read_core(core)?.busy_s());
        self.clients.iter().map(busy).sum()
    }
}

fn starter(cores: &[usize]) -> Vec<String> {
    let list: Vec<String> = cores.iter().map(usize::to_string).collect();
    ["taskset".to_owned(), "-c".to_owned(), list.join(",")].into()
}

/// Restores this thread's affinity when dropped.
pub(super) struct Kept {
    before: CpuSet,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Err(error) = sched_setaffinity(None, &self.before) {
            eprintln!("cannot reset the CPU affinity of this thread: {error}");
        }
    }
}

/// Measurement of utilisation since creation.
pub(super) struct Watch<'cores> {
    cores: &'cores Cores,
    server: f64,
    clients: f64,
    begun: Instant,
}

/// Processor seconds used, and the elapsed time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Used {
    pub(super) seconds: f64,
    pub(super) server_s: f64,
    /// Total for all of their cores.
    pub(super) clients_s: f64,
}

impl Watch<'_> {
    pub(super) fn used(&self) -> Result<Used> {
        let seconds = self.begun.elapsed().as_secs_f64();
        ensure!(seconds > 0.0, "the measured duration is zero");
        Ok(Used {
            seconds,
            server_s: (self.cores.server_s()? - self.server).max(0.0),
            clients_s: (self.cores.clients_s()? - self.clients).max(0.0),
        })
    }
}

impl std::ops::AddAssign for Used {
    fn add_assign(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.server_s += other.server_s;
        self.clients_s += other.clients_s;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_one_core_and_clients_the_rest() {
        let cores = Cores::divide(vec![2, 3, 5]).expect("there are three");
        assert_eq!(cores.server_starter(), ["taskset", "-c", "2"]);
        assert_eq!(cores.client_starter(), ["taskset", "-c", "3,5"]);
        assert_eq!(cores.flag(), None);
    }

    #[test]
    fn one_core_is_shared_and_that_is_told() {
        let cores = Cores::divide(vec![4]).expect("there is one");
        assert_eq!(cores.server_starter(), cores.client_starter());
        assert!(cores.flag().is_some());
        Cores::divide(Vec::new()).expect_err("there is none");
    }

    #[test]
    fn a_thread_is_kept_on_its_cores_and_let_go() {
        let before = sched_getaffinity(None).expect("the kernel tells");
        let cores = Cores::of_this_process().expect("there is one");
        let kept = cores.keep_clients().expect("its cores are there");
        let now = sched_getaffinity(None).expect("the kernel tells");
        assert_eq!(usize::try_from(now.count()).ok(), Some(cores.client_count()));
        drop(kept);
        assert_eq!(sched_getaffinity(None).expect("the kernel tells"), before);
    }
}
