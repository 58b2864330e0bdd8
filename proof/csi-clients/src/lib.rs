//! `csi-sanity`, Kubernetes' conformance test of drivers of the Container Storage Interface: a Go
//! module with the version and checksums in `go/`, built by the Go toolchain that tests of Kafka's
//! clients fetch.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use anyhow::Result;
use kafka_clients::{Recipe, run_go};
use system::Tool;

const SOURCES: &str = env!("CARGO_MANIFEST_DIR");
const PACKAGE: &str = "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity";

/// Returns the program, fetched and built if it is missing.
///
/// # Errors
/// Go is not installed, or its module proxy does not answer.
pub fn sanity() -> Result<Tool> {
    Ok(Tool::new(&path()?.to_string_lossy()))
}

fn path() -> Result<PathBuf> {
    let made_of = &["go/go.mod", "go/go.sum"];
    let recipe = Recipe { sources: SOURCES, name: "sanity", origin: "Go's module proxy", made_of };
    let words = ["build", "-trimpath", "-ldflags=-s -w", "-o", "client", PACKAGE];
    let folder =
        recipe.folder(|folder| run_go(&PathBuf::from(SOURCES).join("go"), folder, &words))?;
    Ok(folder.join("client"))
}
