//! Test fixture: a service on its own pool, and requests to it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use api::Problem;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, header};
use region::{Region, RegionSpec};
use serde_json::Value;
use tempfile::TempDir;
use tower::ServiceExt;
use volumes::{Engine, EngineOptions, Volume};

use crate::attachments::AttachmentList;
use crate::broker_lock::BrokerLock;
use crate::config::{
    AllowList, ImagesConfig, JournalConfig, NbdConfig, OnJournalFailure, StorePlace,
};
use crate::durable::{self, Durable, Keeper};
use crate::events::EventLog;
use crate::export_list::ExportList;
use crate::exports::{
    Catalog, DeviceFailure, KernelDevices, NbdExport, NbdParts, OtherUser, RingExport, RingParts,
    VhostUserExports,
};
use crate::http::{AccessRule, Readiness, readiness};
use crate::maintenance::PoolWatch;
use crate::pool_medium::Medium;
use crate::service::{ChangeLocks, CpuLatency, Devices, Role, Service, UsageCache};
use crate::tasks::Tasks;
use crate::volume_labels::VolumeLabels;
use crate::volume_users::VolumeUsers;

const POOL_BYTES: u64 = 64 << 20;
const CAPACITY_BYTES: u64 = 128 << 20;

/// The service and its router. Dropping it removes the pool.
pub(super) struct Fixture {
    pub(super) service: Arc<Service>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) devices: Arc<PretendedDevices>,
    /// Unavailable, as on most hosts, unless a test changes that.
    pub(super) ublk: Arc<PretendedDevices>,
    _keeper: Keeper,
    pub(super) dir: TempDir,
}

/// A received response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        Self::in_dir(dir).expect("an empty disk")
    }

    /// Fails if journal and images cannot be opened in `dir`.
    pub(super) fn in_dir(dir: TempDir) -> anyhow::Result<Self> {
        Self::on_medium(dir, Medium::Tmpfs)
    }

    /// The same on a pool with this simulated medium.
    pub(super) fn on_medium(dir: TempDir, medium: Medium) -> anyhow::Result<Self> {
        let spec = RegionSpec { path: dir.path().join("region"), size_bytes: POOL_BYTES };
        let region = Region::open_growable(&spec, CAPACITY_BYTES).expect("memory for a small pool");
        let options = EngineOptions { lane_count: 2, fresh_secret: [7; 32] };
        let engine = Arc::new(Engine::open(region, options).expect("a new pool"));
        let catalog = Arc::new(Catalog::new(Arc::clone(&engine)));
        let permits = Arc::new(adaptive_polling::SpinPermits::new(0));
        let users = Arc::new(VolumeUsers::read(dir.path())?);
        let parts = NbdParts {
            catalog: Arc::clone(&catalog),
            rule: AccessRule::of_this_host(),
            users: Arc::clone(&users),
            spin_permits: Arc::clone(&permits),
        };
        let nbd = NbdExport::start(&nbd_config(dir.path()), parts.clone());
        let ring = start_ring(&dir, parts);
        let (rule, folder) = (AccessRule::of_this_host(), dir.path().join("vhost"));
        let vhost_user = VhostUserExports::new(folder, rule, Arc::clone(&users), permits)?;
        let devices = Arc::new(PretendedDevices::default());
        let ublk = Arc::new(PretendedDevices::default());
        ublk.fail_with(Some(missing));
        let (events, tasks) = (Arc::<EventLog>::default(), Arc::<Tasks>::default());
        let durable = Durable::start(durable::Parts {
            engine: Arc::clone(&engine),
            events: Arc::clone(&events),
            journal: &journal_config(dir.path()),
            images: &images_config(dir.path()),
            serving: None,
            encryption: None,
            state_dir: dir.path(),
            pool_path: &spec.path,
            accept_loss: None,
            say: &|_| (),
        })?;
        let keeper = Keeper::start(Arc::clone(&durable), Arc::clone(&tasks)).expect("a thread");
        let service = Arc::new(Service {
            labels: VolumeLabels::read(dir.path())?,
            broker_lock: BrokerLock::of(dir.path()),
            engine,
            catalog,
            watch: Arc::new(PoolWatch::new(vec![80, 90, 95], Arc::clone(&events))),
            filling: Arc::default(),
            events,
            tasks,
            role: Role::Primary(durable),
            promotion: None,
            nbd: Some(Arc::new(nbd.expect("a server"))),
            ring: Arc::new(ring),
            vhost_user: Arc::new(vhost_user),
            store_serving: None,
            certificates: Arc::default(),
            users,
            devices: Devices::On {
                devices: Arc::<PretendedDevices>::clone(&devices),
                mount_point: "/mnt".to_owned(),
            },
            ublk: Some(Arc::<PretendedDevices>::clone(&ublk)),
            attachments: AttachmentList::read(dir.path()).expect("an empty list"),
            exports: ExportList::read(dir.path()).expect("an empty list"),
            cpu_latency: CpuLatency::Unavailable { reason: "not in tests".to_owned() },
            pool_path: spec.path,
            pool_medium: medium,
            changes: ChangeLocks::default(),
            usages: UsageCache::default(),
            started: Instant::now(),
        });
        let readiness = Arc::new(Readiness::new());
        readiness.serving(Arc::clone(&service));
        Ok(Self { service, readiness, devices, ublk, _keeper: keeper, dir })
    }

    /// Sends a request. An empty `body` sends none.
    pub(super) async fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        self.ask_if((method, path, body), None).await
    }

    /// The same with an `If-Match` header.
    pub(super) async fn ask_if(
        &self,
        (method, path, body): (&str, &str, &str),
        tags: Option<&str>,
    ) -> Answer {
        let builder = Request::builder().method(method).uri(path);
        let builder = match tags {
            Some(tags) => builder.header(header::IF_MATCH, tags),
            None => builder,
        };
        let request = builder.body(Body::from(body.to_owned())).expect("a well-formed request");
        let router = readiness::router(Arc::clone(&self.readiness));
        let response = router.oneshot(request).await.expect("the router always answers");
        Answer::read(response).await
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "").await
    }

    /// Looks up a volume.
    pub(super) fn volume(&self, name: &str) -> Arc<Volume> {
        self.service.volume(name).expect("the test made it")
    }

    /// Creates a volume of 1 MiB.
    pub(super) async fn create(&self, name: &str) -> Value {
        let body = format!(r#"{{"name": "{name}", "size": "1MiB"}}"#);
        self.ask("POST", "/v1/volumes", &body).await.json(201)
    }
}

fn nbd_config(dir: &Path) -> NbdConfig {
    NbdConfig {
        socket: dir.join("nbd.sock"),
        tcp: None,
        tls: None,
        allowed: AllowList::default(),
        is_insecure: false,
    }
}

fn journal_config(dir: &Path) -> JournalConfig {
    JournalConfig {
        dir: dir.join("journal"),
        bytes_max: 8 << 20,
        on_failure: OnJournalFailure::Wait,
    }
}

fn images_config(dir: &Path) -> ImagesConfig {
    ImagesConfig {
        store: StorePlace::Directory(dir.join("images")),
        credentials: None,
        every: None,
        keep_count: 2,
        ship_every: None,
        mirror: durable_set::MirrorOptions::default(),
        saves_at_stop: true,
    }
}

impl Answer {
    pub(super) async fn read(response: axum::response::Response) -> Self {
        let (head, body) = response.into_parts();
        let bytes = to_bytes(body, 1 << 20).await.expect("a short body");
        let text = String::from_utf8(bytes.to_vec()).expect("text");
        Self { status: head.status.as_u16(), headers: head.headers, text }
    }

    #[track_caller]
    pub(super) fn json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        serde_json::from_str(&self.text).expect("JSON")
    }

    #[track_caller]
    pub(super) fn nothing(&self) {
        assert_eq!((self.status, self.text.as_str()), (204, ""));
    }

    /// Parses the problem details, and checks that they agree with the status line.
    #[track_caller]
    pub(super) fn problem(&self) -> Problem {
        assert_eq!(self.headers[header::CONTENT_TYPE], api::PROBLEM_CONTENT_TYPE, "{self:?}");
        let problem: Problem = serde_json::from_str(&self.text).expect("a problem");
        assert_eq!((problem.status, problem.kind.status()), (self.status, self.status));
        problem
    }

    #[track_caller]
    pub(super) fn refused(&self, kind: &str, field: Option<&str>) {
        let problem = self.problem();
        assert_eq!((problem.kind.name(), problem.field.as_deref()), (kind, field), "{problem:?}");
    }
}

fn start_ring(dir: &TempDir, parts: NbdParts) -> RingExport {
    let NbdParts { catalog, rule, users, spin_permits } = parts;
    let parts = RingParts { catalog, rule, users, spin_permits, devices: None, ublk: None };
    RingExport::start(&dir.path().join("ring.sock"), parts).expect("a server")
}

fn missing() -> DeviceFailure {
    DeviceFailure::Missing(anyhow::anyhow!("run modprobe ublk_drv"))
}

/// Simulated devices that consist only of names.
#[derive(Default)]
pub(super) struct PretendedDevices {
    pub(super) bound: Mutex<BTreeMap<u64, String>>,
    /// Error that the simulated host reports.
    pub(super) failure: Mutex<Option<fn() -> DeviceFailure>>,
    /// Called while a device is created.
    pub(super) making: Mutex<Option<Box<dyn Fn() + Send>>>,
    /// Sizes that were announced to the kernel.
    pub(super) resized: Mutex<Vec<u64>>,
    /// Simulated user of a volume other than its device.
    pub(super) other_user: Mutex<Option<OtherUser>>,
}

impl PretendedDevices {
    pub(super) fn fail_with(&self, failure: Option<fn() -> DeviceFailure>) {
        *self.failure.lock().expect("no panics") = failure;
    }

    fn check(&self) -> Result<(), DeviceFailure> {
        self.failure.lock().expect("no panics").map_or(Ok(()), |failure| Err(failure()))
    }
}

impl KernelDevices for PretendedDevices {
    fn is_offered(&self) -> bool {
        self.check().is_ok()
    }

    fn attach(
        &self,
        volume: &Arc<Volume>,
        _flush_each_write: bool,
    ) -> Result<String, DeviceFailure> {
        self.check()?;
        self.making.lock().expect("no panics").iter().for_each(|see| see());
        let mut bound = self.bound.lock().expect("no panics");
        let fresh = format!("/dev/pretended{}", volume.id());
        Ok(bound.entry(volume.id()).or_insert(fresh).clone())
    }

    fn detach(&self, volume: &Volume) -> Result<(), DeviceFailure> {
        self.check()?;
        self.bound.lock().expect("no panics").remove(&volume.id());
        Ok(())
    }

    fn has_device(&self, volume_id: u64) -> bool {
        self.bound.lock().expect("no panics").contains_key(&volume_id)
    }

    fn other_user(&self, _: &Volume) -> Result<Option<OtherUser>, DeviceFailure> {
        Ok(self.other_user.lock().expect("no panics").clone())
    }

    fn check_resizable(&self, _: &Volume) -> Result<(), DeviceFailure> {
        self.check()
    }

    fn resized(&self, volume: &Volume) -> Result<(), DeviceFailure> {
        self.check()?;
        let size_bytes = block_device::BlockDevice::geometry(volume).size_bytes;
        self.resized.lock().expect("no panics").push(size_bytes);
        Ok(())
    }

    fn write_cache_changed(&self, _: &Volume) -> Result<(), DeviceFailure> {
        Ok(())
    }

    fn devices(&self) -> Vec<(u64, String)> {
        let bound = self.bound.lock().expect("no panics");
        bound.iter().map(|(&id, device)| (id, device.clone())).collect()
    }

    fn dead_devices(&self) -> Vec<String> {
        Vec::new()
    }

    fn traffic(&self) -> export_kit::Traffic {
        export_kit::Traffic { reads: 3, read_bytes: 4096, ..export_kit::Traffic::default() }
    }
}
