//! A guest with a daemon, and access to its blocks.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use guest::{Guest, GuestDaemon};
use system::{BLOCK_BYTES, NbdClient, Request};

use crate::{BLOCK_COUNT, DAEMON_FLAGS, IMAGE, JOURNAL};

pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(240);

/// Access path of a writer to its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A file beside the journal, on the guest's disk, which verifies the checks themselves.
    Plain,
    /// From the host, through NBD.
    Nbd,
    /// A raw attached device.
    Device,
    /// A file in ext4 on an attached device.
    File,
    /// From the host, through NBD, to a volume of class `image`.
    Image,
}

impl Way {
    pub(crate) fn is_from_host(self) -> bool {
        matches!(self, Self::Nbd | Self::Image)
    }
}

/// A guest with a recovered daemon.
pub(crate) struct Fixture<'guest> {
    pub(crate) guest: &'guest Guest,
    pub(crate) daemon: GuestDaemon<'guest>,
    pub(crate) nbd_socket: PathBuf,
}

impl<'guest> Fixture<'guest> {
    /// Starts the daemon on the contents of the guest's disk.
    pub(crate) fn start(guest: &'guest Guest, nbd_socket: PathBuf) -> Result<Self> {
        guest.check("mkdir /state && mount -t ext4 /dev/vda /state", TIME_LIMIT)?;
        let daemon = GuestDaemon::start(guest, DAEMON_FLAGS)?;
        Ok(Self { guest, daemon, nbd_socket })
    }

    /// Creates the target of a writer.
    pub(crate) fn make(&self, volume: &str, way: Way) -> Result<()> {
        let size = BLOCK_COUNT * BLOCK_BYTES as u64;
        if way == Way::Plain {
            let line = format!("truncate -s {size} /state/plain && sync");
            return self.guest.check(&line, TIME_LIMIT).map(|_| ());
        }
        // A file system needs additional space.
        let volume_size = if way == Way::File { 4 * size } else { size };
        let class = if way == Way::Image { IMAGE } else { JOURNAL };
        self.daemon.memlane(&format!("volume create {volume} --size {volume_size} {class}"))?;
        if way.is_from_host() {
            return Ok(());
        }
        let device = self.daemon.memlane(&format!("attach {volume}"))?;
        let device = device.trim();
        if way == Way::File {
            let line = format!(
                "mkfs.ext4 -q {device} && mount {device} /mnt && truncate -s {size} /mnt/f && sync"
            );
            self.guest.check(&line, TIME_LIMIT)?;
        }
        Ok(())
    }

    /// Makes the target usable again after a cut.
    pub(crate) fn find_again(&self, volume: &str, way: Way) -> Result<()> {
        if way == Way::File {
            let device = self.device(volume)?;
            // The first mount replays the journal of the file system, which is then checked.
            let line = format!(
                "mount {device} /mnt && umount /mnt && e2fsck -fn {device} && mount {device} /mnt"
            );
            self.guest.check(&line, TIME_LIMIT)?;
        }
        Ok(())
    }

    /// Path of the blocks in the guest.
    pub(crate) fn path(&self, volume: &str, way: Way) -> Result<String> {
        match way {
            Way::Plain => Ok("/state/plain".to_owned()),
            Way::File => Ok("/mnt/f".to_owned()),
            Way::Device | Way::Nbd | Way::Image => self.device(volume),
        }
    }

    /// Reads all blocks.
    pub(crate) fn read(&self, volume: &str, way: Way) -> Result<Vec<u8>> {
        if !way.is_from_host() {
            return self.guest.read(&self.path(volume, way)?, TIME_LIMIT);
        }
        let mut client = NbdClient::connect(&self.nbd_socket, volume)?;
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < client.size_bytes() {
            let request = Request::Read { offset: bytes.len() as u64, length: 1 << 20 };
            bytes.extend(client.ask(&request)?);
        }
        Ok(bytes)
    }

    /// Returns the device of an attached volume.
    pub(crate) fn device(&self, volume: &str) -> Result<String> {
        let shown = self.daemon.memlane(&format!("--json volume show {volume}"))?;
        let shown: api::Volume = serde_json::from_str(&shown)
            .with_context(|| format!("memlane volume show printed {shown}"))?;
        let log = || format!("{volume} is not attached:\n{}", self.daemon.log_end());
        shown.device.with_context(log)
    }
}
