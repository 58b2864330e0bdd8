//! Runs kubectl, like users do.

use std::fmt::Write;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use system::{Tool, ToolOutput, wait_for};

/// Time limit for every wait on the cluster.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(180);

/// Runs kubectl, which must succeed, and returns its output.
pub(crate) fn kubectl(words: &[&str]) -> Result<String> {
    Tool::new("kubectl").args(words).check()
}

/// Runs kubectl and returns its result.
pub(crate) fn try_kubectl(words: &[&str]) -> Result<ToolOutput> {
    Tool::new("kubectl").args(words).run()
}

/// Applies objects.
pub(crate) fn apply(objects: &str) -> Result<()> {
    let mut file = tempfile::NamedTempFile::new().context("cannot make a file for objects")?;
    file.write_all(objects.as_bytes()).context("cannot write objects")?;
    let path = file.path().to_string_lossy().into_owned();
    kubectl(&["apply", "-f", &path]).map(drop).with_context(|| objects.to_owned())
}

/// Returns a field of an object, empty if there is none.
pub(crate) fn field(object: &str, path: &str) -> Result<String> {
    kubectl(&["get", object, "-o", &format!("jsonpath={{{path}}}")])
}

/// Waits until a field of an object has this value. On failure the error describes the object.
pub(crate) fn wait_for_field(object: &str, path: &str, value: &str) -> Result<()> {
    let waited = wait_for(&format!("{path} of {object} to be {value}"), TIME_LIMIT, || {
        Ok(field(object, path)? == value)
    });
    waited.with_context(|| described(object))
}

/// Returns the events of an object.
pub(crate) fn events(name: &str) -> Result<String> {
    let of = format!("involvedObject.name={name}");
    kubectl(&["get", "events", "--field-selector", &of, "-o", "jsonpath={.items[*].message}"])
}

/// Runs a command in a pod and returns its output.
pub(crate) fn in_pod(pod: &str, command: &str) -> Result<String> {
    kubectl(&["exec", pod, "--", "sh", "-ec", command])
}

fn described(object: &str) -> String {
    let mut text = String::new();
    for words in [&["describe", object][..], &["get", "pods,pvc,pv", "-A", "-o", "wide"]] {
        let told = try_kubectl(words).map_or_else(|error| error.to_string(), |it| it.stdout);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{told}");
    }
    text
}

/// Reads a file with objects.
pub(crate) fn objects_of(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
