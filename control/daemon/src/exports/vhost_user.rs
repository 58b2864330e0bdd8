//! Volumes as disks of virtual machines, one socket each.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use vhost_user::{Config, Export, ThreadBudget, Traffic};
use volume::Volume;
use waiting::{SPIN_MAX_DEFAULT, SpinPermits};

use crate::http::AccessRule;
use crate::run_dir;

/// Threads for all disks together; a disk has three and one for each queue, up to the cores.
const THREAD_COUNT_MAX: usize = 512;

/// Queues of a disk for which nobody has chosen a number, at most.
const QUEUE_COUNT_DEFAULT_MAX: usize = 4;

/// How long the last requests of a disk that is taken away may take.
const END_PATIENCE: Duration = Duration::from_secs(10);

const NO_PANIC: &str = "nobody panics with this lock";

/// The running exports, by the id of their volume.
pub(crate) struct VhostUserExports {
    folder: PathBuf,
    rule: AccessRule,
    threads: Arc<ThreadBudget>,
    spin_permits: Arc<SpinPermits>,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    exports: BTreeMap<u64, Export>,
    /// What exports served that have ended.
    past: Traffic,
}

/// What machines did since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VhostUserCounts {
    pub(crate) exports: u64,
    pub(crate) connected: u64,
    pub(crate) traffic: Traffic,
}

impl VhostUserExports {
    /// Sockets will lie in `folder`, which is made.
    pub(crate) fn new(
        folder: PathBuf,
        rule: AccessRule,
        spin_permits: Arc<SpinPermits>,
    ) -> anyhow::Result<Self> {
        run_dir::make_dir(&folder, 0o755)?;
        let threads = Arc::new(ThreadBudget::new(THREAD_COUNT_MAX));
        Ok(Self { folder, rule, threads, spin_permits, running: Mutex::default() })
    }

    /// As many queues as a disk has when nobody says how many.
    pub(crate) fn queue_count_default() -> u16 {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        u16::try_from(cores.min(QUEUE_COUNT_DEFAULT_MAX)).expect("a small number")
    }

    /// Serves a volume that is not served yet.
    pub(crate) fn begin(&self, volume: &Arc<Volume>, queue_count: u16) -> anyhow::Result<()> {
        let config = Config {
            socket: self.folder.join(format!("{}.sock", volume.name())),
            serial: serial_of(volume.id()),
            queue_count,
            threads: Arc::clone(&self.threads),
            spin_permits: Arc::clone(&self.spin_permits),
            spin_max: SPIN_MAX_DEFAULT,
        };
        let export = Export::start(config, Arc::<Volume>::clone(volume))
            .context("cannot serve it over vhost-user")?;
        self.rule.restrict(export.socket())?;
        self.running().exports.insert(volume.id(), export);
        Ok(())
    }

    /// Takes a volume's disk away, if it has one.
    pub(crate) fn end(&self, volume_id: u64) {
        let ended = self.running().exports.remove(&volume_id);
        let Some(export) = ended else { return };
        self.running().past += export.traffic();
        if !export.stop(END_PATIENCE) {
            tracing::warn!(volume_id, "a disk was taken away while requests did not end");
        }
    }

    /// Takes all disks away. Machines wait for the next daemon.
    pub(crate) fn stop(&self) {
        let volume_ids: Vec<u64> = self.running().exports.keys().copied().collect();
        volume_ids.into_iter().for_each(|volume_id| self.end(volume_id));
    }

    /// Tells a machine the new size of its disk.
    pub(crate) fn resized(&self, volume_id: u64) {
        self.running().exports.get(&volume_id).into_iter().for_each(Export::resized);
    }

    /// The path of a volume's socket, while it is served.
    pub(crate) fn socket_of(&self, volume_id: u64) -> Option<String> {
        let running = self.running();
        running.exports.get(&volume_id).map(|export| export.socket().display().to_string())
    }

    pub(crate) fn is_connected(&self, volume_id: u64) -> bool {
        self.running().exports.get(&volume_id).is_some_and(Export::is_connected)
    }

    pub(crate) fn folder(&self) -> String {
        self.folder.display().to_string()
    }

    pub(crate) fn counts(&self) -> VhostUserCounts {
        let running = self.running();
        let mut traffic = running.past;
        running.exports.values().for_each(|export| traffic += export.traffic());
        let connected = running.exports.values().filter(|export| export.is_connected()).count();
        VhostUserCounts {
            exports: running.exports.len() as u64,
            connected: connected as u64,
            traffic,
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().expect(NO_PANIC)
    }
}

/// What a machine is told as the serial number of its disk: `memlane-` and the volume's id.
fn serial_of(volume_id: u64) -> [u8; 20] {
    let text = format!("memlane-{volume_id:x}");
    let mut serial = [0; 20];
    serial.iter_mut().zip(text.bytes()).for_each(|(place, letter)| *place = letter);
    serial
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_names_the_volume() {
        assert_eq!(&serial_of(0x2a), b"memlane-2a\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(&serial_of(u64::MAX), b"memlane-ffffffffffff");
    }
}
