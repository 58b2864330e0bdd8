//! Crates use only the layers that the table in `ARCHITECTURE.md` allows, and are where it says. No
//! crate enables the feature of crash points.
//!
//! Tests may also use `base/` and `proof/`, which contain only tools for them.

use crate::repository::{Dependency, DependencyUse, Package, Repository};
use crate::tidy::Complaint;
use crate::tidy::architecture::{self, Layer};

/// Crates that serve the repository itself and belong to no layer.
const CRATES_AT_THE_ROOT: &[&str] = &["xtask"];

/// Layers whose crates tests of any layer may use.
const LAYERS_FOR_TESTS: &[&str] = &["base", "proof"];

/// Feature with which each store to a region can be a crash point.
const CRASH_POINTS: &str = "crash-points";

pub(crate) fn dependencies_follow_the_table(repository: &Repository) -> Vec<Complaint> {
    let layers = architecture::layers(repository);
    if layers.is_empty() && !repository.packages.is_empty() {
        return vec![Complaint::new(architecture::PATH, 0, "the layer table is missing")];
    }
    let mut complaints = Vec::new();
    for package in &repository.packages {
        for dependency in &package.dependencies {
            complaints.extend(refusal(&layers, package, dependency));
        }
    }
    complaints
}

pub(crate) fn crates_are_named_as_their_folders(repository: &Repository) -> Vec<Complaint> {
    let layers = architecture::layers(repository);
    let mut complaints = Vec::new();
    for package in &repository.packages {
        if CRATES_AT_THE_ROOT.contains(&package.path.as_str()) {
            continue;
        }
        let mut complain = |text: String| {
            complaints.push(Complaint::new(&format!("{}/Cargo.toml", package.path), 0, text));
        };
        match package.path.split('/').collect::<Vec<_>>()[..] {
            [layer, folder] => {
                if folder != package.name {
                    complain(format!("the crate is named {:?}, its folder not", package.name));
                }
                if !layers.iter().any(|known| known.folder == layer) {
                    complain(format!("the layer table has no row for `{layer}/`"));
                }
            }
            _ => complain("a crate sits at layer/crate, at depth two".to_owned()),
        }
    }
    complaints
}

/// Features may forward it, and tests may require it. A build that does not name it is then without
/// it, whatever else it builds.
pub(crate) fn no_crate_asks_for_crash_points(repository: &Repository) -> Vec<Complaint> {
    let manifests = repository.files.iter().filter(|file| file.path.ends_with("Cargo.toml"));
    let mut complaints = Vec::new();
    for file in manifests {
        let mut section = "";
        for (number, line) in (1..).zip(file.text.lines()) {
            if line.starts_with('[') {
                section = line;
            }
            let is_offered = section == "[features]" && !line.starts_with("default");
            let is_needed = section == "[[test]]" && line.starts_with("required-features");
            let is_named = !line.starts_with('#') && line.contains(CRASH_POINTS);
            if is_named && !is_offered && !is_needed {
                let text = "asks for crash points, which no program may have";
                complaints.push(Complaint::new(&file.path, number, text));
            }
        }
    }
    complaints
}

fn refusal(layers: &[Layer], package: &Package, dependency: &Dependency) -> Option<Complaint> {
    let user = layer_of(&package.path);
    let used = layer_of(&dependency.crate_path);
    let by_table = layers
        .iter()
        .any(|layer| layer.folder == user && layer.may_use.iter().any(|name| name == used));
    let by_tests =
        dependency.dependency_use == DependencyUse::TestsOnly && LAYERS_FOR_TESTS.contains(&used);
    if by_table || by_tests {
        return None;
    }
    let manifest = format!("{}/Cargo.toml", package.path);
    Some(Complaint::new(
        &manifest,
        0,
        format!("`{user}/` may not use {}, says the layer table", dependency.crate_path),
    ))
}

fn layer_of(crate_path: &str) -> &str {
    crate_path.split('/').next().unwrap_or(crate_path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::fixture;

    const TABLE: &str = "| folder | what | may use |\n|---|---|---|\n| `base/` | a | `base/` |\n\
                         | `pool/` | b | `pool/`, `base/` |\n| `proof/` | c | `pool/` |\n";

    #[track_caller]
    fn check(user: &str, used: &str, dependency_use: DependencyUse, complaint_count: usize) {
        let mut repository = fixture::repository(&[(architecture::PATH, TABLE)]);
        repository.packages.push(fixture::package(user, &[(used, dependency_use)]));
        assert_eq!(dependencies_follow_the_table(&repository).len(), complaint_count);
    }

    #[test]
    fn a_layer_may_use_what_its_row_names() {
        check("pool/codec", "base/sync", DependencyUse::Product, 0);
        check("pool/codec", "pool/other", DependencyUse::Product, 0);
    }

    #[test]
    fn a_layer_may_not_use_what_its_row_does_not_name() {
        check("base/sync", "pool/codec", DependencyUse::Product, 1);
        check("pool/codec", "proof/model", DependencyUse::Product, 1);
    }

    #[test]
    fn tests_of_any_layer_may_use_base_and_proof_but_nothing_above_them() {
        check("base/sync", "proof/model", DependencyUse::TestsOnly, 0);
        check("base/sync", "pool/codec", DependencyUse::TestsOnly, 1);
    }

    #[test]
    fn a_repository_without_a_layer_table_is_refused() {
        let mut repository = fixture::repository(&[]);
        repository.packages.push(fixture::package("base/sync", &[]));
        assert_eq!(dependencies_follow_the_table(&repository).len(), 1);
    }

    #[track_caller]
    fn check_manifest(text: &str, complaint_count: usize) {
        let repository = fixture::repository(&[("engine/volumes/Cargo.toml", text)]);
        assert_eq!(no_crate_asks_for_crash_points(&repository).len(), complaint_count);
    }

    #[test]
    fn crash_points_are_offered_and_required_but_never_asked_for() {
        check_manifest("[features]\ncrash-points = [\"region/crash-points\"]\n", 0);
        check_manifest("[[test]]\nrequired-features = [\"crash-points\"]\n", 0);
        check_manifest("[features]\ndefault = [\"crash-points\"]\n", 1);
        let asks = "region = { workspace = true, features = [\"crash-points\"] }\n";
        check_manifest(&format!("[dependencies]\n{asks}"), 1);
        check_manifest(&format!("[dev-dependencies]\n{asks}"), 1);
    }

    #[track_caller]
    fn check_place(path: &str, name: &str, complaint_count: usize) {
        let mut repository = fixture::repository(&[(architecture::PATH, TABLE)]);
        let package = Package { name: name.to_owned(), ..fixture::package(path, &[]) };
        repository.packages.push(package);
        assert_eq!(crates_are_named_as_their_folders(&repository).len(), complaint_count);
    }

    #[test]
    fn a_crate_sits_at_depth_two_in_a_known_layer_under_its_own_name() {
        check_place("base/sync", "sync", 0);
        check_place("base/sync", "atomics", 1);
        check_place("other/sync", "sync", 1);
        check_place("base/deep/sync", "sync", 1);
        check_place("xtask", "xtask", 0);
    }
}
