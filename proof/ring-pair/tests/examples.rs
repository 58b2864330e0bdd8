//! The example programs in C and Python, run against a server like users run them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use block_device::SectorSize;
use ring_pair::{Running, VOLUME_NAME, wait_until};
// Linked so that its library is built before this test.
use memlane as _;
use model::ModelVolume;

/// Returns the path of the library, which lies beside the tests that depend on it.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this program has a path");
    test.with_file_name("libmemlane.so")
}

fn clients_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/libmemlane")
}

#[track_caller]
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}: {text}", output.status);
    output
}

fn running() -> Running {
    Running::new(Arc::new(ModelVolume::new(1 << 20, SectorSize::Bytes4096)))
}

#[test]
fn the_example_in_c_is_built_and_runs() {
    let running = running();
    let folder = tempfile::tempdir().expect("there is space for temporary files");
    let program = folder.path().join("copy_block");
    let library = library();
    let libraries = library.parent().expect("it lies in a folder");
    run(Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(clients_folder().join("include"))
        .arg(clients_folder().join("examples/copy_block.c"))
        .arg("-L")
        .arg(libraries)
        .arg("-lmemlane")
        .arg("-o")
        .arg(&program));
    let output = run(Command::new(&program)
        .arg(running.socket())
        .arg(VOLUME_NAME)
        .env("LD_LIBRARY_PATH", libraries));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "db: 1048576 bytes\n");
    wait_until("the program's clients have gone", || running.client_count() == 0);
}

#[test]
fn the_example_in_python_runs() {
    let running = running();
    let output = run(Command::new("python3")
        .arg(clients_folder().join("examples/copy_block.py"))
        .arg(library())
        .arg(running.socket())
        .arg(VOLUME_NAME));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "db: 1048576 bytes\n");
}

#[test]
fn a_forked_child_goes_on_with_what_its_parent_opened() {
    // The C library notifies only children of `fork`.
    for way in ["fork", "_Fork", "clone"] {
        let running = running();
        let output = run(Command::new("python3")
            .arg("-B")
            .arg(clients_folder().join("examples/forked.py"))
            .arg(library())
            .arg(running.socket())
            .args([VOLUME_NAME, way]));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "both went on\n", "{way}");
        let accepted = running.status().accepted;
        assert_eq!(accepted, 5, "{way}: a probe, and two each of the parent and its child");
        wait_until("both have gone", || running.client_count() == 0);
    }
}

#[test]
fn an_error_has_a_number_and_a_text() {
    let running = running();
    let output = Command::new("python3")
        .arg("-B")
        .arg(clients_folder().join("examples/copy_block.py"))
        .arg(library())
        .arg(running.socket())
        .arg("web")
        .output()
        .expect("python3 runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("[Errno 2]") && text.contains("only the volume"), "{text}");
}
