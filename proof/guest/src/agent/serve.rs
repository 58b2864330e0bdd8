//! Receives frames from the host and dispatches them to processes.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use guest::{Frame, FrameKind};

use crate::sender::{Sender, send};
use crate::started::{self, Started};

/// Name of the serial port in QEMU.
const PORT_NAME: &str = "memlane";
const PORTS: &str = "/sys/class/virtio-ports";

/// Serves until the host disconnects, then turns the machine off.
pub(crate) fn serve() -> Result<()> {
    let served = port().and_then(|path| serve_on(&path));
    if let Err(error) = &served {
        // The console is the only remaining place to report it.
        let _ = fs::write("/dev/console", format!("guest-agent: {error:#}\n"));
    }
    fs::write("/proc/sysrq-trigger", "o").context("cannot turn the machine off")?;
    served
}

fn serve_on(path: &Path) -> Result<()> {
    let mut port = File::options()
        .read(true)
        .write(true)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    let sender: Sender = Arc::new(Mutex::new(port.try_clone().context("cannot share the port")?));
    send(&sender, FrameKind::Ready, 0, &[]);
    let mut processes: HashMap<u32, Started> = HashMap::new();
    while let Some(frame) = Frame::read(&mut port).context("cannot read what the host sends")? {
        processes.retain(|_, process| !process.has_ended());
        match frame.kind {
            FrameKind::Run => {
                if let Some(process) = started::start(&frame, &sender) {
                    processes.insert(frame.id, process);
                }
            }
            FrameKind::Input => {
                if let Some(process) = processes.get_mut(&frame.id) {
                    process.feed(frame.bytes);
                }
            }
            FrameKind::Signal => {
                if let Some(process) = processes.get(&frame.id) {
                    process.signal(frame.bytes.first().copied().unwrap_or_default());
                }
            }
            kind => ensure!(false, "the host sent a frame of kind {kind:?}"),
        }
    }
    Ok(())
}

fn port() -> Result<PathBuf> {
    let ports = fs::read_dir(PORTS).with_context(|| format!("cannot list {PORTS}"))?;
    let is_ours = |folder: &PathBuf| {
        fs::read_to_string(folder.join("name")).is_ok_and(|name| name.trim() == PORT_NAME)
    };
    let ours = ports.flatten().map(|entry| entry.path()).find(is_ours);
    let folder = ours.with_context(|| format!("no serial port is called {PORT_NAME}"))?;
    Ok(Path::new("/dev").join(folder.file_name().context("a port has a name")?))
}
