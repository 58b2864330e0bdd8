//! Shared libraries that a program needs, according to the host's loader.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use system::Tool;

/// Returns all libraries of `program`, and the loader itself, or none for a static program.
pub(crate) fn libraries_of(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Tool::new("ldd").arg(program).run().context("the loader's tool is missing")?;
    let is_static = output.stderr.contains("not a dynamic executable")
        || output.stdout.contains("statically linked");
    if is_static {
        return Ok(Vec::new());
    }
    let name = program.display();
    ensure!(output.exit_code == Some(0), "ldd {name} failed: {}", output.stderr);
    let missing = output.stdout.lines().find(|line| line.contains("not found"));
    ensure!(missing.is_none(), "{name} lacks a library: {}", missing.unwrap_or_default().trim());
    Ok(paths_in(&output.stdout))
}

/// Returns the paths in lines such as `libc.so.6 => /lib/libc.so.6 (0x7f)` and `/lib64/ld.so.2
/// (0x7f)`.
fn paths_in(text: &str) -> Vec<PathBuf> {
    let path_of = |line: &str| {
        let path = line.split_whitespace().find(|word| word.starts_with('/'))?;
        Some(PathBuf::from(path))
    };
    text.lines().filter_map(path_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_found() {
        let text = "\tlinux-vdso.so.1 (0x7)\n\tlibm.so.6 => /lib/libm.so.6 (0x7)\n\
                    \t/lib64/ld.so.2 (0x7)\n";
        assert_eq!(paths_in(text), ["/lib/libm.so.6", "/lib64/ld.so.2"].map(PathBuf::from));
    }

    #[test]
    fn this_program_needs_the_c_library() {
        let own = std::env::current_exe().expect("the test is a program");
        let found = libraries_of(&own).expect("the test runs, so its libraries are here");
        let is_there = found.iter().any(|path| path.to_string_lossy().contains("libc.so"));
        assert!(is_there || found.is_empty(), "{found:?}");
    }
}
