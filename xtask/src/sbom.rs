//! Bill of materials of a release, as a CycloneDX document: the third-party packages in the shipped
//! programs.
//!
//! Names, versions and licences are from cargo (`cargo metadata`), checksums from `Cargo.lock`. The
//! document contains neither a date nor a random number: equal sources give equal bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::deb::printed;

const SPECIFICATION: &str = "1.6";

/// Architecture of the packages.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// npm libraries inside the console's page. All others only build and check it.
const IN_PAGE: [&str; 4] = ["@novnc/novnc", "@xterm/addon-fit", "@xterm/xterm", "svelte"];
const PAGE_LOCK: &str = "control/web/package-lock.json";

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    /// `None` for packages of this workspace.
    source: Option<String>,
    license: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<NodeDependency>,
}

#[derive(Deserialize)]
struct NodeDependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

#[derive(Deserialize)]
struct PageLock {
    packages: BTreeMap<String, PagePackage>,
}

#[derive(Deserialize)]
struct PagePackage {
    version: Option<String>,
    license: Option<String>,
}

/// Returns the document of the programs of these crates, as text.
pub(crate) fn document(root: &Path, crates: &[&str], version: &str) -> Result<String> {
    let asked = ["metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET];
    let text = printed(Command::new("cargo").args(asked).current_dir(root))?;
    let metadata: Metadata = serde_json::from_str(&text).context("cannot read cargo metadata")?;
    let lock =
        std::fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let page = std::fs::read_to_string(root.join(PAGE_LOCK)).context("cannot read package-lock")?;
    let page: PageLock = serde_json::from_str(&page).context("cannot read package-lock")?;
    let mut components = components(&metadata, crates, &checksums(&lock))?;
    components.extend(page_components(&page)?);
    let own = json!({"type": "application", "bom-ref": "memlane", "name": "memlane",
        "version": version, "licenses": [{"expression": "Apache-2.0"}]});
    let document = json!({"bomFormat": "CycloneDX", "specVersion": SPECIFICATION, "version": 1,
        "metadata": {"component": own}, "components": components});
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// Returns the third-party packages that the crates depend on, without those only for tests or
/// builds.
fn components(
    metadata: &Metadata,
    crates: &[&str],
    checksums: &BTreeMap<(String, String), String>,
) -> Result<Vec<Value>> {
    let edges: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let is_own = |package: &&Package| package.source.is_none();
    let mut open: Vec<&str> = Vec::new();
    for name in crates {
        let found = metadata.packages.iter().filter(is_own).find(|it| it.name == *name);
        open.push(&found.with_context(|| format!("no crate {name} in the workspace"))?.id);
    }
    let mut reached = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !reached.insert(id) {
            continue;
        }
        let node = edges.get(id).with_context(|| format!("cargo metadata has no node {id}"))?;
        let is_linked = |it: &&NodeDependency| it.dep_kinds.iter().any(|it| it.kind.is_none());
        open.extend(node.deps.iter().filter(is_linked).map(|it| it.pkg.as_str()));
    }
    let mut others: Vec<&Package> = metadata
        .packages
        .iter()
        .filter(|it| it.source.is_some() && reached.contains(it.id.as_str()))
        .collect();
    ensure!(!others.is_empty(), "the programs depend on no package");
    others.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
    Ok(others.into_iter().map(|package| component(package, checksums)).collect())
}

fn component(package: &Package, checksums: &BTreeMap<(String, String), String>) -> Value {
    let Package { name, version, license, .. } = package;
    let mut component = library("cargo", name, version, license.as_deref());
    if let Some(sum) = checksums.get(&(name.clone(), version.clone())) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}

fn page_components(page: &PageLock) -> Result<Vec<Value>> {
    let component = |name: &str| {
        let entry = page.packages.get(&format!("node_modules/{name}"));
        let entry = entry.with_context(|| format!("{PAGE_LOCK} has no package {name}"))?;
        let version = entry.version.as_deref().context("a package of the page has no version")?;
        Ok(library("npm", name, version, entry.license.as_deref()))
    };
    IN_PAGE.into_iter().map(component).collect()
}

fn library(kind: &str, name: &str, version: &str, license: Option<&str>) -> Value {
    let reference =
        format!("pkg:{kind}/{}@{}", name.replace('@', "%40"), version.replace('+', "%2B"));
    let mut component = json!({"type": "library", "bom-ref": reference, "purl": reference,
        "name": name, "version": version});
    if let Some(license) = license {
        // Some older packages use the form before SPDX expressions.
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    component
}

/// Returns the SHA-256 of packages by name and version, from `Cargo.lock`.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let entries = lock.split("[[package]]").filter_map(|entry| {
        let value = |key: &str| {
            let start = format!("{key} = \"");
            let line = entry.lines().find_map(|line| line.strip_prefix(&start))?;
            line.strip_suffix('"').map(str::to_owned)
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\
        checksum = \"0a\"\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n";

    #[test]
    fn what_is_linked_is_listed_and_what_tests_or_builds_is_not() {
        let package = |name: &str, source: Value| {
            json!({"id": name, "name": name, "version": "1.0.0", "source": source,
                "license": "MIT/Apache-2.0"})
        };
        let others = ["a", "through-own", "for-tests", "for-build", "unused"];
        let mut packages: Vec<_> = others.iter().map(|it| package(it, json!("registry"))).collect();
        packages.extend([package("daemon", json!(null)), package("own", json!(null))]);
        let to = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let linked = |name: &str| to(name, json!(null));
        let node = |id: &str, deps: Value| json!({"id": id, "deps": deps});
        let mut nodes: Vec<_> = others.iter().map(|it| node(it, json!([]))).collect();
        let build = to("for-build", json!("build"));
        nodes.push(node("daemon", json!([linked("a"), linked("own"), build])));
        nodes.push(node("own", json!([linked("through-own"), to("for-tests", json!("dev"))])));
        let metadata = json!({"packages": packages, "resolve": {"nodes": nodes}});
        let metadata: Metadata = serde_json::from_value(metadata).expect("as cargo has it");
        let found = components(&metadata, &["daemon"], &checksums(LOCK)).expect("they are there");
        let names: Vec<_> = found.iter().map(|it| it["name"].as_str()).collect();
        assert_eq!(names, [Some("a"), Some("through-own")]);
        assert_eq!(found[0]["purl"], "pkg:cargo/a@1.0.0");
        assert_eq!(found[0]["hashes"][0]["content"], "0a");
        assert_eq!(found[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert!(components(&metadata, &["gone"], &BTreeMap::new()).is_err());
    }

    #[test]
    fn the_document_of_the_daemon_names_what_it_links_and_is_the_same_again() {
        let root = repository::root();
        let text = document(&root, &["daemon"], "1.2.3").expect("a document");
        assert_eq!(document(&root, &["daemon"], "1.2.3").expect("a document"), text);
        let document: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(document["metadata"]["component"]["version"], "1.2.3");
        let components = document["components"].as_array().expect("a list");
        let has = |name: &str| components.iter().any(|it| it["name"] == name);
        assert!(has("tokio") && has("svelte"), "{text}");
        assert!(!has("tempfile") && !has("datafusion"), "{text}");
        let summed = components.iter().filter(|it| it["purl"].to_string().contains("pkg:cargo"));
        assert!(summed.clone().all(|it| it["hashes"][0]["content"].is_string()), "{text}");
    }
}
