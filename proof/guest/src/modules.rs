//! Kernel modules in loading order.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use system::Tool;

/// Returns the files of the modules `names` and their dependencies, each after its dependencies.
/// Built-in modules need no file.
pub(crate) fn in_order(folder: &Path, names: &[&str]) -> Result<Vec<PathBuf>> {
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let order = order(&read("modules.dep")?, &read("modules.builtin")?, names)?;
    Ok(order.into_iter().map(|path| folder.join(path)).collect())
}

/// Returns the bytes of a module, uncompressed as the kernel needs them.
pub(crate) fn unpacked(path: &Path) -> Result<Vec<u8>> {
    if path.extension().is_some_and(|it| it == "ko") {
        return fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    }
    let folder = tempfile::tempdir().context("cannot make a folder for a module")?;
    let packed = folder.path().join("module.ko.xz");
    fs::copy(path, &packed).with_context(|| format!("cannot copy {}", path.display()))?;
    Tool::new("xz --decompress").arg(&packed).check()?;
    fs::read(folder.path().join("module.ko")).context("cannot read what xz left")
}

fn order(dependencies: &str, built_in: &str, names: &[&str]) -> Result<Vec<String>> {
    let mut needs: HashMap<&str, Vec<&str>> = HashMap::new();
    for (path, needed) in dependencies.lines().filter_map(|line| line.split_once(':')) {
        needs.insert(path, needed.split_whitespace().collect());
    }
    let mut found = Vec::new();
    for name in names {
        let is_it = |path: &&str| stem(path) == stem(name);
        match needs.keys().find(|path| is_it(path)) {
            Some(path) => visit(path, &needs, &mut found),
            None if built_in.lines().any(|path| is_it(&path)) => {}
            None => anyhow::bail!("the kernel has no module {name}"),
        }
    }
    Ok(found)
}

fn visit(path: &str, needs: &HashMap<&str, Vec<&str>>, found: &mut Vec<String>) {
    if found.iter().any(|it| it == path) {
        return;
    }
    for needed in needs.get(path).into_iter().flatten() {
        visit(needed, needs, found);
    }
    found.push(path.to_owned());
}

/// Returns the name of a module: hyphens and underscores are equivalent.
fn stem(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split(".ko").next().unwrap_or(name).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPENDENCIES: &str =
        "k/a.ko.xz: k/b-b.ko.xz k/c.ko.xz\nk/b-b.ko.xz: k/c.ko.xz\nk/c.ko.xz:\n";

    #[test]
    fn a_module_comes_behind_what_it_needs_and_once() {
        let found = order(DEPENDENCIES, "", &["a", "b_b"]).expect("all are there");
        assert_eq!(found, ["k/c.ko.xz", "k/b-b.ko.xz", "k/a.ko.xz"]);
    }

    #[test]
    fn what_is_built_in_needs_no_file() {
        assert!(order(DEPENDENCIES, "k/fs/ext4.ko\n", &["ext4"]).expect("it is there").is_empty());
    }

    #[test]
    fn a_module_that_is_nowhere_is_an_error() {
        order(DEPENDENCIES, "", &["d"]).expect_err("there is no such module");
    }
}
