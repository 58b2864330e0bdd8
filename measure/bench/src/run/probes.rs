//! Probes for measurements that the machine supports.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use results::Probe;
use system::Tool;

/// Probes hardware counters, energy counters and control groups, and the versions of programs.
pub(crate) fn probe() -> BTreeMap<String, Probe> {
    let probes = [("pmu", pmu()), ("rapl", rapl()), ("cgroup", cgroup())];
    let versions = crate::targets::versions();
    let versions = versions.iter().map(|(name, version)| (*name, yes(version)));
    probes.into_iter().chain(versions).map(|(name, probe)| (name.to_owned(), probe)).collect()
}

fn pmu() -> Probe {
    let counted = Tool::new("perf stat -x, -e cycles,instructions -- true").run();
    match counted {
        Ok(output) if output.exit_code == Some(0) => judge_pmu(&output.stderr),
        Ok(output) => no(format!("perf stat failed: {}", first_line(&output.stderr))),
        Err(error) => no(format!("{error:#}; install perf to count cycles")),
    }
}

/// Interprets the output of `perf stat -x,`: `12345,,cycles,…` or `<not supported>,,cycles,…`.
fn judge_pmu(text: &str) -> Probe {
    let counts = |line: &str| line.split(',').next().is_some_and(|it| it.parse::<u64>().is_ok());
    if text.lines().any(counts) {
        return yes("perf counts cycles");
    }
    if text.contains("not supported") {
        return no("no hardware counters: perf reports cycles as not supported".to_owned());
    }
    no(format!("no hardware counters: {}", first_line(text)))
}

fn rapl() -> Probe {
    let counter = Path::new("/sys/class/powercap/intel-rapl:0/energy_uj");
    match fs::read_to_string(counter) {
        Ok(text) if text.trim().parse::<u64>().is_ok_and(|joules| joules > 0) => {
            yes("RAPL counts the energy of the CPU package")
        }
        Ok(_) => no("the energy counter does not advance".to_owned()),
        Err(error) => no(format!("no energy counter {}: {error}", counter.display())),
    }
}

fn cgroup() -> Probe {
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        return yes("version 2");
    }
    if Path::new("/sys/fs/cgroup/cpuacct").exists() {
        return yes("version 1");
    }
    no("no control groups in /sys/fs/cgroup".to_owned())
}

fn yes(detail: &str) -> Probe {
    Probe { is_available: true, detail: detail.to_owned() }
}

fn no(detail: String) -> Probe {
    Probe { is_available: false, detail }
}

fn first_line(text: &str) -> &str {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_are_not_supported_are_not_available() {
        assert!(judge_pmu("123456,,cycles,1000,100.00,,\n").is_available);
        let missing = judge_pmu("<not supported>,,cycles,0,100.00,,\n");
        assert!(!missing.is_available);
        assert!(missing.detail.contains("not supported"), "{}", missing.detail);
    }
}
