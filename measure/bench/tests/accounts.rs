//! Tests that processor time is counted correctly by each method, including on a busy machine.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bench::targets::{Accounts, CpuBackend, CpuGroup};
use system::Tool;

/// Three processes, a parent with two children, that use two seconds of processor time in total.
/// The parent adds the missing time and exits.
const SPIN: &str = "
import os, resource, subprocess, sys, time
child = 'import os, time\\nwhile time.process_time() < 0.6: pass\\nos._exit(0)'
both = [subprocess.Popen([sys.executable, '-c', child]) for _ in range(2)]
for it in both: it.wait()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
below = used.ru_utime + used.ru_stime
while time.process_time() + below < 2.0: pass
os._exit(0)
";
const SPUN_S: f64 = 2.0;
const TOLERANCE: f64 = 0.02;

/// Ended children of a process are counted together, so only one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spin(group: &CpuGroup) -> Result<()> {
    let starter = group.starter();
    let tool = match starter.split_first() {
        Some((program, words)) => Tool::new(program).args(words).arg("python3"),
        None => Tool::new("python3"),
    };
    tool.arg("-c").arg(SPIN).time_limit(Duration::from_secs(120)).check()?;
    Ok(())
}

fn check_spun(backend: CpuBackend) -> Result<()> {
    let _alone = alone();
    let group = match CpuGroup::by(backend, "spin") {
        Ok(group) => group,
        Err(error) => {
            eprintln!("skipped: {backend}: {error:#}");
            return Ok(());
        }
    };
    let before = group.seconds()?;
    spin(&group)?;
    let spun = group.seconds()? - before;
    assert!((spun / SPUN_S - 1.0).abs() <= TOLERANCE, "{backend}: {spun} seconds");
    Ok(())
}

#[test]
fn a_tree_of_processes_is_counted_by_cgroup_v1() -> Result<()> {
    check_spun(CpuBackend::CgroupV1)
}

#[test]
fn a_tree_of_processes_is_counted_by_cgroup_v2() -> Result<()> {
    check_spun(CpuBackend::CgroupV2)
}

#[test]
fn a_tree_of_processes_is_counted_by_waiting() -> Result<()> {
    check_spun(CpuBackend::Wait)
}

#[test]
fn groups_add_up_to_what_the_machine_used() -> Result<()> {
    let _alone = alone();
    let accounts = Accounts::new(vec![std::process::id()], vec![0])?;
    let before = accounts.open()?;
    spin(accounts.application())?;
    spin(accounts.driver())?;
    let spent = accounts.since(&before)?;
    assert!((spent.application_s / SPUN_S - 1.0).abs() <= TOLERANCE, "{spent:?}");
    let Some(disagreement) = spent.disagreement() else {
        eprintln!("skipped: {} does not tell the sum of all groups", accounts.backend());
        return Ok(());
    };
    assert!((spent.driver_s / SPUN_S - 1.0).abs() <= TOLERANCE, "{spent:?}");
    assert!(disagreement <= TOLERANCE, "{spent:?}");
    assert!(spent.rest_s() >= -TOLERANCE * spent.total_s(), "{spent:?}");
    Ok(())
}

#[test]
fn what_a_server_spins_is_the_stores_and_idling_is_nobodys() -> Result<()> {
    let _alone = alone();
    let accounts = Accounts::new(vec![std::process::id()], vec![0])?;
    let before = accounts.open()?;
    let spun = || accounts.since(&before).map(|spent| spent.store_s);
    while spun()? < 0.3 {
        std::hint::black_box((0..100_000_u64).fold(0, |sum, it| sum ^ it));
    }
    let spent = accounts.since(&before)?;
    assert_eq!((spent.application_s, spent.driver_s), (0.0, 0.0), "{spent:?}");
    assert!(spent.store_s <= spent.total_s() * (1.0 + TOLERANCE) + 0.02, "{spent:?}");
    Ok(())
}

#[test]
fn a_group_is_gone_when_it_was_dropped() -> Result<()> {
    let _alone = alone();
    let group = CpuGroup::new("gone")?;
    let Some(procs) = group.starter().pop() else {
        eprintln!("skipped: no control group can be made here");
        return Ok(());
    };
    spin(&group)?;
    assert!(std::path::Path::new(&procs).exists());
    drop(group);
    assert!(!std::path::Path::new(&procs).exists(), "{procs} is left");
    Ok(())
}
