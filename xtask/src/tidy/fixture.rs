//! Small repositories for the tests of rules.

use crate::repository::{Dependency, DependencyUse, Package, Repository, TextFile};

/// Creates a repository of files given as path and text, without crates.
pub(crate) fn repository(files: &[(&str, &str)]) -> Repository {
    let file = |(path, text): &(&str, &str)| TextFile {
        path: (*path).to_owned(),
        text: (*text).to_owned(),
    };
    Repository { files: files.iter().map(file).collect(), ..Repository::default() }
}

/// Creates a crate at `path` with a library, named like its folder.
pub(crate) fn package(path: &str, uses: &[(&str, DependencyUse)]) -> Package {
    Package {
        name: path.rsplit('/').next().unwrap_or(path).to_owned(),
        path: path.to_owned(),
        roots: vec![format!("{path}/src/lib.rs")],
        dependencies: uses
            .iter()
            .map(|(path, dependency_use)| Dependency {
                crate_path: (*path).to_owned(),
                dependency_use: *dependency_use,
            })
            .collect(),
    }
}
