//! A node: a daemon, the driver, and folders in place of the kubelet's.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use prost::Message;
use rustix::process::Signal;
use system::{Ability, Background, Daemon, DaemonOptions, Random, missing, product, wait_for};

use crate::client::{Refusal, call};
use crate::wire::*;

pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(120);

pub(crate) const MIB: i64 = 1 << 20;

/// gRPC status codes.
pub(crate) const NOT_FOUND: i32 = 5;
pub(crate) const ALREADY_EXISTS: i32 = 6;
pub(crate) const RESOURCE_EXHAUSTED: i32 = 8;
pub(crate) const FAILED_PRECONDITION: i32 = 9;
pub(crate) const OUT_OF_RANGE: i32 = 11;

const PROGRAMS: [Ability; 5] = [
    Ability::BlockDevices,
    Ability::Program("mkfs.ext4"),
    Ability::Program("resize2fs"),
    Ability::Program("mkfs.xfs"),
    Ability::Program("xfs_growfs"),
];

/// One node. Its folders are inside the daemon's, which checks for leftovers at the end.
pub(crate) struct Fixture {
    pub(crate) daemon: Daemon,
    driver: Mutex<Option<Background>>,
    socket: PathBuf,
}

impl Fixture {
    /// Returns `None`, after printing the reason, if the host lacks what a node needs.
    pub(crate) fn start(options: DaemonOptions) -> Result<Option<Self>> {
        if let Some(reason) = missing(&PROGRAMS) {
            eprintln!("skipped: {reason}");
            return Ok(None);
        }
        let daemon = Daemon::start(options)?;
        let socket = daemon.folder().join("csi.sock");
        let fixture = Self { daemon, driver: Mutex::new(None), socket };
        fixture.start_driver()?;
        Ok(Some(fixture))
    }

    pub(crate) fn start_driver(&self) -> Result<()> {
        let driver = product("memlane-csi")
            .arg("--socket")
            .arg(&self.socket)
            .arg("--registry")
            .arg(self.path("registry"))
            .args(["--node", "node-1", "--daemon-socket"])
            .arg(self.daemon.api_socket());
        *self.driver() = Some(Background::start(driver)?);
        wait_for("the driver to serve", TIME_LIMIT, || {
            let probed = self.try_call::<_, Readiness>("Identity/Probe", &Nothing {});
            Ok(probed.is_ok_and(|answer| answer.is_ok()))
        })
    }

    fn driver(&self) -> MutexGuard<'_, Option<Background>> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn kill_driver(&self) -> Result<()> {
        let Some(mut driver) = self.driver().take() else { bail!("no driver runs") };
        driver.end(Signal::KILL, TIME_LIMIT).map(drop)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.daemon.folder().join(name)
    }

    /// Calls a service. Fails if the driver does not respond.
    pub(crate) fn try_call<Q: Message, A: Message + Default>(
        &self,
        name: &str,
        request: &Q,
    ) -> Result<Result<A, Refusal>> {
        call(&self.socket, &format!("/csi.v1.{name}"), request)
    }

    pub(crate) fn call<Q: Message + Debug, A: Message + Default>(
        &self,
        name: &str,
        request: &Q,
    ) -> Result<A> {
        let answered = self.try_call(name, request)?;
        answered.map_err(|refusal| anyhow!("{name} {request:?}: {refusal:?}"))
    }

    /// Returns the message of a call that must fail with `code`.
    pub(crate) fn refused<Q: Message + Debug>(
        &self,
        name: &str,
        request: &Q,
        code: i32,
    ) -> Result<String> {
        match self.try_call::<_, Nothing>(name, request)? {
            Ok(_) => bail!("{name} {request:?} is not refused"),
            Err(refusal) => {
                ensure!(refusal.code == code, "{name} {request:?}: {refusal:?}");
                Ok(refusal.words)
            }
        }
    }

    pub(crate) fn create(&self, request: &CreateVolumeRequest) -> Result<String> {
        let made: VolumeAnswer = self.call("Controller/CreateVolume", request)?;
        Ok(made.volume.unwrap_or_default().volume_id)
    }

    pub(crate) fn stage(&self, volume: &str, capability: &VolumeCapability) -> Result<()> {
        self.call("Node/NodeStageVolume", &self.staging(volume, capability)).map(|_: Nothing| ())
    }

    pub(crate) fn staging(&self, volume: &str, capability: &VolumeCapability) -> StageRequest {
        StageRequest {
            volume_id: volume.to_owned(),
            staging_target_path: self.staged(volume).display().to_string(),
            volume_capability: Some(capability.clone()),
            ..StageRequest::default()
        }
    }

    pub(crate) fn staged(&self, volume: &str) -> PathBuf {
        self.path(&format!("staged-{volume}"))
    }

    pub(crate) fn publishing(
        &self,
        volume: &str,
        pod: &str,
        capability: &VolumeCapability,
    ) -> PublishRequest {
        PublishRequest {
            volume_id: volume.to_owned(),
            staging_target_path: self.staged(volume).display().to_string(),
            target_path: self.path(pod).display().to_string(),
            volume_capability: Some(capability.clone()),
            ..PublishRequest::default()
        }
    }

    /// Publishes the volume to a pod. Returns the target path.
    pub(crate) fn publish(
        &self,
        volume: &str,
        pod: &str,
        capability: &VolumeCapability,
    ) -> Result<PathBuf> {
        let request = self.publishing(volume, pod, capability);
        let _: Nothing = self.call("Node/NodePublishVolume", &request)?;
        Ok(self.path(pod))
    }

    pub(crate) fn unpublish(&self, volume: &str, pod: &str) -> Result<()> {
        let target_path = self.path(pod).display().to_string();
        let request = UnpublishRequest { volume_id: volume.to_owned(), target_path };
        self.call("Node/NodeUnpublishVolume", &request).map(|_: Nothing| ())
    }

    pub(crate) fn unstage(&self, volume: &str) -> Result<()> {
        let staging_target_path = self.staged(volume).display().to_string();
        let request = UnstageRequest { volume_id: volume.to_owned(), staging_target_path };
        self.call("Node/NodeUnstageVolume", &request).map(|_: Nothing| ())
    }

    pub(crate) fn delete(&self, volume: &str) -> Result<()> {
        self.call("Controller/DeleteVolume", &named(volume)).map(|_: Nothing| ())
    }

    pub(crate) fn snapshot(&self, volume: &str, name: &str) -> Result<Snapshot> {
        let request =
            CreateSnapshotRequest { source_volume_id: volume.to_owned(), name: name.to_owned() };
        let taken: SnapshotAnswer = self.call("Controller/CreateSnapshot", &request)?;
        Ok(taken.snapshot.unwrap_or_default())
    }

    /// Available capacity for volumes of a class.
    pub(crate) fn capacity(&self, class: &[(&str, &str)]) -> Result<i64> {
        let request = GetCapacityRequest { parameters: map(class), ..Default::default() };
        let told: GetCapacityAnswer = self.call("Controller/GetCapacity", &request)?;
        Ok(told.available_capacity)
    }

    /// Number of mounts on a path.
    pub(crate) fn mount_count(&self, path: &Path) -> Result<usize> {
        let table = fs::read_to_string("/proc/self/mounts")?;
        let path = path.display().to_string();
        Ok(table.lines().filter(|line| line.split(' ').nth(1) == Some(&path)).count())
    }

    /// Stops the driver and the daemon, and checks for leftovers.
    pub(crate) fn finish(self) -> Result<()> {
        if let Some(mut driver) = self.driver().take() {
            let ended = driver.end(Signal::TERM, TIME_LIMIT)?;
            ensure!(ended.success(), "the driver ended with {ended}");
        }
        ensure!(!self.socket.exists(), "the driver's socket stays");
        self.daemon.finish()
    }
}

pub(crate) fn named(volume: &str) -> VolumeId {
    VolumeId { volume_id: volume.to_owned() }
}

pub(crate) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, word)| ((*key).to_owned(), (*word).to_owned())).collect()
}

/// Request for a volume of `size_bytes`.
pub(crate) fn claim(name: &str, size_bytes: i64) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: size_bytes, limit_bytes: 0 }),
        volume_capabilities: vec![ext4()],
        ..CreateVolumeRequest::default()
    }
}

/// Request for a copy of a volume or snapshot.
pub(crate) fn copy(name: &str, size_bytes: i64, source: &str) -> CreateVolumeRequest {
    let id = Some(SourceId { id: source.to_owned() });
    let source = match source.contains('@') {
        true => ContentSource { snapshot: id, volume: None },
        false => ContentSource { snapshot: None, volume: id },
    };
    CreateVolumeRequest { volume_content_source: Some(source), ..claim(name, size_bytes) }
}

pub(crate) fn ext4() -> VolumeCapability {
    mounted("ext4", access::SINGLE_NODE_WRITER)
}

pub(crate) fn mounted(fs_type: &str, mode: i32) -> VolumeCapability {
    let mount = MountVolume { fs_type: fs_type.to_owned(), ..MountVolume::default() };
    VolumeCapability { block: None, mount: Some(mount), access_mode: Some(Kind { kind: mode }) }
}

pub(crate) fn block(mode: i32) -> VolumeCapability {
    let access_mode = Some(Kind { kind: mode });
    VolumeCapability { block: Some(Nothing {}), mount: None, access_mode }
}

/// Incompressible bytes without duplicates.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Random::new(1).fill(&mut bytes);
    bytes
}
