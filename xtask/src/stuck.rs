//! Handling of a suite that hangs: shows its stacks, then kills all its processes.

use std::fs;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

/// Shows the stacks of the threads of `process` and its descendants, and kills them.
pub(crate) fn show_stacks_and_end(process: u32) {
    let family = with_descendants(process);
    for member in &family {
        show_stacks(*member);
    }
    for member in family {
        let id = i32::try_from(member).ok().and_then(Pid::from_raw);
        if let Some(id) = id {
            // It may have ended meanwhile.
            let _ = kill_process(id, Signal::KILL);
        }
    }
}

/// Returns `process` and its running descendants.
fn with_descendants(process: u32) -> Vec<u32> {
    let parents = parents_of_all();
    let mut family = vec![process];
    let mut index = 0;
    while index < family.len() {
        let parent = family[index];
        let children = parents.iter().filter(|(_, its_parent)| *its_parent == parent);
        family.extend(children.map(|(child, _)| *child));
        index += 1;
    }
    family
}

/// Returns each process with its parent.
fn parents_of_all() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let process = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((process, parent_in(&stat)?))
        })
        .collect()
}

/// Returns the fourth field of `/proc/N/stat`. The second is a name in parentheses that may contain
/// anything.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_whitespace().nth(1)?.parse().ok()
}

fn show_stacks(process: u32) {
    eprintln!("--- stacks of process {process} ({})", command_line(process));
    let by_debugger = Command::new("gdb")
        .args(["-batch", "-nx", "-ex", "thread apply all backtrace", "-p", &process.to_string()])
        .output();
    match by_debugger {
        Ok(output) if output.status.success() => {
            eprintln!("{}", String::from_utf8_lossy(&output.stdout));
        }
        _ => show_kernel_stacks(process),
    }
}

/// Without a debugger, shows the name, the system call and the kernel stack of each thread.
fn show_kernel_stacks(process: u32) {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return };
    for thread in threads.flatten() {
        for file in ["comm", "syscall", "stack"] {
            let text = fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            eprintln!("{file}: {}", text.trim_end());
        }
    }
}

fn command_line(process: u32) -> String {
    let bytes = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent_in("7 (a) b (c) S 42 7 7 0"), Some(42));
        assert_eq!(parent_in("7 (a"), None);
    }

    #[test]
    fn a_child_belongs_to_the_family() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep exists everywhere");
        let family = with_descendants(std::process::id());
        child.kill().expect("the child runs");
        child.wait().expect("the child was killed");
        assert!(family.contains(&child.id()));
    }
}
