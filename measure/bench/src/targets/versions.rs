//! Versions of measured programs.

use std::collections::BTreeMap;

use system::database::Postgres;
use system::{Tool, product};

/// Returns the first line of each program's version output. Missing programs are omitted.
pub fn versions() -> BTreeMap<&'static str, String> {
    let tools = [
        ("fio", Tool::new("fio --version")),
        ("nbdkit", Tool::new("nbdkit --version")),
        ("qemu-nbd", Tool::new("qemu-nbd --version")),
        ("qemu-storage-daemon", Tool::new("qemu-storage-daemon --version")),
        ("losetup", Tool::new("losetup --version")),
        ("kernel", Tool::new("uname --kernel-release")),
        ("memlaned", product("memlaned").arg("--version")),
    ];
    let postgres = Postgres::find().ok().map(|it| ("postgres", it.program("postgres")));
    let postgres = postgres.map(|(name, tool)| (name, tool.arg("--version")));
    let said = |tool: Tool| {
        let text = tool.check().ok()?;
        text.lines().next().map(|line| line.trim().to_owned())
    };
    let found = tools.into_iter().chain(postgres);
    found.filter_map(|(name, tool)| Some((name, said(tool)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_its_version() {
        assert!(versions().contains_key("kernel"));
    }
}
