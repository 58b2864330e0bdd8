//! Virtual machines in a browser, with a real libvirt, QEMU and daemon.

use anyhow::Result;
use console_clients::{Fixture, has_browser};
use system::{Ability, missing};

#[test]
fn machines_are_made_started_typed_into_and_deleted() -> Result<()> {
    if !has_browser() {
        return Ok(());
    }
    if let Some(reason) = missing(&[Ability::Program("libvirtd"), Ability::BlockDevices]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    Fixture::with_machines()?.run("machines")
}
