//! Runs cargo, and lists the executables of builds.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Purpose of an executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecutableKind {
    /// A program of the product.
    Program,
    /// Unit tests inside a library or program.
    UnitTests,
    /// Integration tests in a crate's `tests/`.
    IntegrationTests,
}

/// One executable of a build.
#[derive(Clone, Debug)]
pub(crate) struct Executable {
    pub kind: ExecutableKind,
    /// Name of the suite: `crate/lib`, `crate/bin-program`, `crate/file-of-tests`.
    pub name: String,
    pub path: PathBuf,
    /// Folder of its crate.
    pub folder: PathBuf,
}

/// Environment with which `cargo clippy` compiles crates of the workspace, with warnings as errors.
const LINTED: &[(&str, &str)] =
    &[("RUSTC_WORKSPACE_WRAPPER", "clippy-driver"), ("CLIPPY_ARGS", "-Dwarnings")];

#[derive(Deserialize)]
struct Message {
    reason: String,
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Runs cargo at the root with `arguments` and shows its messages.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<()> {
    let status = command(root, arguments).status().context("cannot run cargo")?;
    ensure!(status.success(), "cargo {} failed", arguments.join(" "));
    Ok(())
}

/// Builds with `arguments` and returns the resulting executables, by name.
pub(crate) fn build(
    root: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<Vec<Executable>> {
    let output = command(root, arguments)
        .args(["--message-format", "json-render-diagnostics"])
        .envs(variables.iter().copied())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo {} failed", arguments.join(" "));
    let text = String::from_utf8(output.stdout).context("cargo printed no UTF-8")?;
    let mut executables: Vec<_> = text.lines().filter_map(executable_of).collect();
    executables.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(executables)
}

/// Builds like [`build`], with clippy's lints in the compilation itself, so that nothing is
/// compiled only for them. A failing lint fails the build.
pub(crate) fn build_linted(root: &Path, arguments: &[&str]) -> Result<Vec<Executable>> {
    build(root, arguments, LINTED)
}

/// Returns whether the toolchain has the subcommand, such as `clippy`.
pub(crate) fn has(subcommand: &str) -> bool {
    Command::new("cargo")
        .args([subcommand, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Returns a cargo command without the variables with which `cargo run` describes this program:
/// build scripts that watch them (`ring`'s) would cause recompilations whenever cargo is called
/// directly in between.
fn command(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root);
    for (name, _) in std::env::vars_os() {
        let is_ours =
            |name: &str| name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_");
        if name.to_str().is_some_and(is_ours) {
            command.env_remove(name);
        }
    }
    command
}

fn executable_of(line: &str) -> Option<Executable> {
    let message: Message = serde_json::from_str(line).ok()?;
    if message.reason != "compiler-artifact" {
        return None;
    }
    let target = message.target?;
    let folder = message.manifest_path?.parent()?.to_owned();
    let crate_name = folder.file_name()?.to_string_lossy().into_owned();
    let is_test = message.profile.is_some_and(|profile| profile.test);
    let kind = match (is_test, target.kind.iter().any(|kind| kind == "test")) {
        (true, true) => ExecutableKind::IntegrationTests,
        (true, false) => ExecutableKind::UnitTests,
        (false, _) => ExecutableKind::Program,
    };
    let is_library = target.kind.iter().any(|kind| kind == "lib");
    let name = match kind {
        ExecutableKind::UnitTests if is_library => format!("{crate_name}/lib"),
        ExecutableKind::UnitTests => format!("{crate_name}/bin-{}", target.name),
        _ => format!("{crate_name}/{}", target.name),
    };
    Some(Executable { kind, name, path: message.executable?, folder })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: &str, is_test: bool, expected: (ExecutableKind, &str)) {
        let line = format!(
            r#"{{"reason":"compiler-artifact","executable":"/t/x",
                "manifest_path":"/p/nbd/Cargo.toml","target":
                {{"kind":["{kind}"],"name":"clients"}},"profile":{{"test":{is_test}}}}}"#
        );
        let executable = executable_of(&line).expect("the line describes an executable");
        assert_eq!((executable.kind, executable.name.as_str()), expected);
        assert_eq!(executable.folder, Path::new("/p/nbd"));
    }

    #[test]
    fn executables_are_sorted_by_what_they_are_for() {
        check("test", true, (ExecutableKind::IntegrationTests, "nbd/clients"));
        check("lib", true, (ExecutableKind::UnitTests, "nbd/lib"));
        check("bin", true, (ExecutableKind::UnitTests, "nbd/bin-clients"));
        check("bin", false, (ExecutableKind::Program, "nbd/clients"));
    }

    #[test]
    fn other_messages_of_cargo_are_no_executables() {
        assert!(executable_of(r#"{"reason":"build-finished","success":true}"#).is_none());
        assert!(executable_of("not json").is_none());
    }
}
