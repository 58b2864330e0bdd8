//! Start and end of the daemon, and their order.
//!
//! The REST interface always responds. During start and stop it reports the current step. A killed
//! daemon loses no data; the next start only has more work.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::maintenance::Maintenance;
use adaptive_polling::{CpuLatencyRequest, SpinPermits};
use service_manager::MoreTime;
use volumes::Engine;

use anyhow::Context;

use crate::attachments::AttachmentList;
use crate::broker_lock::BrokerLock;
use crate::certificates::Certificates;
use crate::config::{Config, CpuLatencyPolicy, Flags};
use crate::durable::{self, Durable, Keeper};
use crate::endings::Endings;
use crate::events::EventLog;
use crate::export_list::ExportList;
use crate::exports::{
    Catalog, FuseDevices, KernelDevices, NbdExport, NbdParts, RingExport, RingParts, UblkDevices,
    VhostUserExports,
};
use crate::forecast::Filling;
use crate::http::{AccessRule, Interface, Readiness};
use crate::log::Log;
use crate::maintenance::{self, PoolWatch};
use crate::reload::Reload;
use crate::scrubber::Scrubber;
use crate::service::{ChangeLocks, CpuLatency, Devices, Role, Service, UsageCache, note_holders};
use crate::signals::Wishes;
use crate::slow_start::SlowStart;
use crate::standby::{self, Standby, StandbyKeeper, StandbyParts, Start};
use crate::start_resources::StartResources;
use crate::store_serving::StoreServing;
use crate::tasks::Tasks;
use crate::ticker::Ticker;
use crate::volume_labels::VolumeLabels;
use crate::volume_users::VolumeUsers;
use crate::wanted::{Restart, Wanted};
use crate::watchdog::{Pulse, Watchdog};
use crate::{pool, pool_medium, process, run_dir};

/// Maximum time for exports, tasks and requests in flight to end, all together.
const EXPORTS_TIME_MAX: Duration = Duration::from_secs(10);

/// Interval at which requests in flight are checked during the stop.
const REQUESTS_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Interval of the interface's heartbeat.
const INTERFACE_PULSE_INTERVAL: Duration = Duration::from_millis(500);

/// Runs the daemon until a signal stops it.
pub(crate) fn run(flags: Flags, config: Config, log: Log) -> anyhow::Result<()> {
    let begun = Instant::now();
    let _run_dir = run_dir::take(&config.run_dir)?;
    // Released after the interface has ended.
    let _state_dir;
    process::keep_memory_small();
    process::protect_from_memory_shortage();
    let rule = AccessRule::of_this_host();
    run_dir::make_broker_lock(&config.run_dir, &rule)?;
    let mut interface = Interface::prepare()?;
    let resources = Arc::new(StartResources::new(config.api_socket()));
    let wishes = Wishes::listen(interface.runtime(), Arc::clone(&resources))?;
    interface.listen(&config.api_socket(), &rule)?;
    let readiness = interface.readiness();
    let slow_start = SlowStart::watch(readiness);
    readiness.starting(format!("opening the state directory {}", config.state_dir.display()));
    _state_dir = run_dir::take_state(&config.state_dir)?;
    let events = Arc::new(EventLog::open(&config.state_dir));
    resources.note_events(&events);
    let restart = wishes.restart();
    let serving = start_serving(&config, readiness, &events)?;
    let (restart, events, serving) = (&restart, &events, &serving);
    let around = Around { readiness, resources: &resources, restart, events, serving };
    let start = |config: &Config| {
        Daemon::start(config, &rule, around).inspect_err(|error| {
            resources.undo();
            tell_refused(events, error);
        })
    };
    let daemon = start(&config)?;
    readiness.serving(Arc::clone(&daemon.service));
    drop(slow_start);
    let socket = config.api_socket();
    tracing::info!(
        socket = %socket.display(),
        milliseconds = begun.elapsed().as_millis(),
        "ready"
    );
    service_manager::ready();
    let reload = Reload { flags, config, log, service: Arc::clone(&daemon.service) };
    let daemon = serve_until_stopped(daemon, reload, &wishes, &interface, start)?;
    tracing::info!("stopping; a second signal stops at once");
    daemon.service.warn_of_attachments();
    // First, so that the service manager does not time out.
    let more_time = MoreTime::ask();
    service_manager::stopping();
    daemon.stop(readiness);
    drop(more_time);
    events.stopped();
    Ok(())
}

/// Reloads and restarts the daemon as requested, until it is to stop.
fn serve_until_stopped(
    mut daemon: Daemon,
    mut reload: Reload,
    wishes: &Wishes,
    interface: &Interface,
    start: impl Fn(&Config) -> anyhow::Result<Daemon>,
) -> anyhow::Result<Daemon> {
    let (readiness, pulse) = (interface.readiness(), pulse_of(interface));
    let watch = |daemon: &Daemon| {
        Watchdog::start(vec![
            ("pool maintenance", daemon.service.watch.pulse().clone()),
            ("the interface", pulse.clone()),
        ])
    };
    let mut watchdog = watch(&daemon);
    loop {
        match wishes.next() {
            Wanted::Stop => return Ok(daemon),
            Wanted::Reload => reload.run(),
            Wanted::Restart => {
                tracing::info!("restarting as the writer");
                let Reload { flags, config, log, service } = reload;
                drop((service, watchdog));
                daemon.stop(readiness);
                let slow_start = SlowStart::watch(readiness);
                // With the settings that were reloaded.
                daemon = start(&config)?;
                readiness.serving(Arc::clone(&daemon.service));
                drop(slow_start);
                service_manager::ready();
                watchdog = watch(&daemon);
                reload = Reload { flags, config, log, service: Arc::clone(&daemon.service) };
            }
        }
    }
}

/// Heartbeat of the interface's runtime.
fn pulse_of(interface: &Interface) -> Pulse {
    let pulse = Pulse::default();
    let beating = pulse.clone();
    interface.runtime().spawn(async move {
        loop {
            beating.beat();
            tokio::time::sleep(INTERFACE_PULSE_INTERVAL).await;
        }
    });
    pulse
}

/// Thread that maintains or follows the durable set.
enum AnyKeeper {
    Primary { _keeper: Keeper },
    Standby { _keeper: StandbyKeeper },
}

/// Surroundings of the daemon, which outlive its restart as the writer.
#[derive(Clone, Copy)]
struct Around<'run> {
    readiness: &'run Readiness,
    resources: &'run StartResources,
    restart: &'run Restart,
    events: &'run Arc<EventLog>,
    serving: &'run Option<Arc<StoreServing>>,
}

/// All running parts of the daemon.
struct Daemon {
    keeper: AnyKeeper,
    scrubber: Scrubber,
    maintenance: Maintenance,
    certificates: Option<Ticker>,
    fuse: Option<Arc<FuseDevices>>,
    ublk: Option<Arc<UblkDevices>>,
    service: Arc<Service>,
}

impl Daemon {
    fn start(config: &Config, rule: &AccessRule, around: Around<'_>) -> anyhow::Result<Self> {
        let Around { readiness, resources, events, serving, .. } = around;
        resources.begin();
        let attachments = AttachmentList::read(&config.state_dir)?;
        let exports = ExportList::read(&config.state_dir)?;
        readiness.starting(format!("opening the pool {}", config.pool.path.display()));
        let engine = pool::open(config, resources)?;
        let filling = Arc::<Filling>::default();
        let watch = start_watch(config, events);
        let tasks = Arc::<Tasks>::default();
        let (role, keeper, catalog) = start_role(config, &engine, around, &tasks)?;
        let is_primary = matches!(role, Role::Primary(_));
        let promotion =
            is_primary.then(|| standby::promotion_at_start(&config.state_dir)).flatten();
        resources.start_exports();
        readiness.starting("starting exports and taking over devices");
        let scrubber = Scrubber::start(&config.scrub, Arc::clone(&engine), Arc::clone(events))?;
        let cpu_latency = start_cpu_latency(config.cpu_latency);
        let permits = Arc::new(spin_permits(config, &cpu_latency));
        let users = Arc::new(VolumeUsers::read(&config.state_dir)?);
        let labels = VolumeLabels::read(&config.state_dir)?;
        let parts = NbdParts {
            catalog: Arc::clone(&catalog),
            rule: rule.clone(),
            users: Arc::clone(&users),
            spin_permits: Arc::clone(&permits),
        };
        let (fuse, devices, ublk) = start_devices(config, &role, &catalog, &permits);
        // Done before a client can open a volume.
        note_holders(&catalog, &attachments, &exports, found(&devices, &ublk));
        let nbd = start_nbd(config, parts.clone())?;
        let vhost_user = start_vhost_user(config, &permits, rule, &users)?;
        let ring = start_ring(config, parts, &devices, &ublk)?;
        let maintenance = start_maintenance(&engine, config, (&watch, &filling), fuse.clone())?;
        let (certificates, watching) = start_certificates(config, events)?;
        let service = Arc::new(Service {
            engine,
            catalog,
            watch,
            filling,
            events: Arc::clone(events),
            tasks,
            role,
            promotion,
            nbd,
            ring,
            vhost_user,
            store_serving: serving.clone(),
            certificates,
            users,
            labels,
            broker_lock: BrokerLock::of(&config.run_dir),
            devices,
            ublk: ublk.clone().map(|ublk| -> Arc<dyn KernelDevices> { ublk }),
            attachments,
            exports,
            cpu_latency,
            pool_medium: pool_medium::of(&config.pool.path)?,
            pool_path: config.pool.path.clone(),
            changes: ChangeLocks::default(),
            usages: UsageCache::default(),
            started: Instant::now(),
        });
        if is_primary {
            service.restore_exports();
            service.restore_attachments();
        }
        resources.keep();
        Ok(Self { keeper, scrubber, maintenance, certificates: watching, fuse, ublk, service })
    }

    /// Stops the exports concurrently, saves an image even if some exports hang, and closes the
    /// pool.
    fn stop(self, readiness: &Readiness) {
        let more_time = MoreTime::ask();
        readiness.stopping("exports end");
        let Self { keeper, scrubber, maintenance, certificates, fuse, ublk, service } = self;
        let engine = Arc::clone(&service.engine);
        let durable = service.durable().ok().map(Arc::clone);
        let (ring, vhost_user) = (Arc::clone(&service.ring), Arc::clone(&service.vhost_user));
        let (nbd, tasks) = (service.nbd.clone(), Arc::clone(&service.tasks));
        let mut endings = Endings::within(EXPORTS_TIME_MAX);
        if let Some(ending) = durable.clone() {
            endings.begin("flushes waiting for the journal", move |_| ending.before_exports_stop());
        }
        endings.begin("tasks", move |time_max| tasks.close(time_max));
        endings.begin("requests", move |time_max| end_requests(service, time_max));
        endings.begin("journal and images", move |_| drop(keeper));
        endings.begin("maintenance", move |_| drop((scrubber, maintenance, certificates)));
        if let Some(nbd) = nbd {
            endings.begin("NBD", move |time_max| nbd.stop(time_max));
        }
        endings.begin("the ring", move |time_max| ring.stop(time_max));
        endings.begin("vhost-user", move |time_max| vhost_user.stop(time_max));
        if let Some(fuse) = fuse {
            endings.begin("the FUSE file system", move |_| fuse.stop());
        }
        if let Some(ublk) = ublk {
            endings.begin("ublk devices", move |_| ublk.stop());
        }
        for what in endings.wait() {
            tracing::warn!("abandoning {what}: not stopped in time");
        }
        readiness.stopping("saving the last image");
        more_time.progress();
        if let Some(durable) = durable {
            durable.stop(&more_time);
        }
        match Arc::into_inner(engine) {
            Some(engine) => {
                engine.close();
                tracing::info!("stopped");
            }
            None => tracing::warn!("stopped with work in flight; the next start cleans up"),
        }
    }
}

/// Waits for accepted requests. Each holds a reference to the service.
fn end_requests(service: Arc<Service>, time_max: Duration) {
    let deadline = Instant::now() + time_max;
    while Arc::strong_count(&service) > 1 {
        if Instant::now() >= deadline {
            tracing::warn!("abandoning API requests that did not finish in time");
            return;
        }
        std::thread::sleep(REQUESTS_POLL_INTERVAL);
    }
}

/// If the host refuses the request, the daemon runs without it.
fn start_cpu_latency(policy: CpuLatencyPolicy) -> CpuLatency {
    if policy == CpuLatencyPolicy::Unmanaged {
        return CpuLatency::Unmanaged;
    }
    match CpuLatencyRequest::start() {
        Ok(request) => CpuLatency::Managed(Arc::new(request)),
        Err(error) => {
            let reason = format!("{:#}", anyhow::Error::from(error));
            tracing::warn!(reason, "cannot set CPU latency (PM QoS); idle cores wake more slowly");
            CpuLatency::Unavailable { reason }
        }
    }
}

fn spin_permits(config: &Config, cpu_latency: &CpuLatency) -> SpinPermits {
    let permits = match config.spin_thread_count {
        Some(count) => SpinPermits::new(count),
        None => SpinPermits::for_this_machine(),
    };
    match cpu_latency {
        CpuLatency::Managed(request) => permits.with_cpu_latency(Arc::clone(request)),
        CpuLatency::Unmanaged | CpuLatency::Unavailable { .. } => permits,
    }
}

fn start_certificates(
    config: &Config,
    events: &Arc<EventLog>,
) -> anyhow::Result<(Arc<Certificates>, Option<Ticker>)> {
    let certificates = Arc::new(Certificates::of(config, events));
    let watching = Certificates::watch(&certificates);
    let watching = watching.context("cannot start the thread that checks certificates")?;
    Ok((certificates, watching))
}

fn start_nbd(config: &Config, parts: NbdParts) -> anyhow::Result<Option<Arc<NbdExport>>> {
    let Some(nbd) = &config.nbd else { return Ok(None) };
    Ok(Some(Arc::new(NbdExport::start(nbd, parts)?)))
}

fn start_serving(
    config: &Config,
    readiness: &Readiness,
    events: &Arc<EventLog>,
) -> anyhow::Result<Option<Arc<StoreServing>>> {
    let Some(config) = &config.store_server else { return Ok(None) };
    readiness.starting(format!("serving the image store in {}", config.directory.display()));
    let serving = StoreServing::start(config, events);
    Ok(Some(Arc::new(serving.inspect_err(|error| tell_refused(events, error))?)))
}

fn tell_refused(events: &EventLog, error: &anyhow::Error) {
    events.error("start_refused", None, format!("the daemon does not start: {error:#}"));
    events.stopped();
}

fn start_durable(
    config: &Config,
    engine: &Arc<Engine>,
    around: Around<'_>,
) -> anyhow::Result<Arc<Durable>> {
    let Around { readiness, events, serving, .. } = around;
    Durable::start(durable::Parts {
        engine: Arc::clone(engine),
        events: Arc::clone(events),
        journal: &config.journal,
        images: &config.images,
        serving: serving.as_deref(),
        encryption: config.encryption.as_ref(),
        state_dir: &config.state_dir,
        pool_path: &config.pool.path,
        accept_loss: config.accept_loss,
        say: &|doing| readiness.starting(doing),
    })
}

/// Starts the daemon's role, writer or standby.
fn start_role(
    config: &Config,
    engine: &Arc<Engine>,
    around: Around<'_>,
    tasks: &Arc<Tasks>,
) -> anyhow::Result<(Role, AnyKeeper, Arc<Catalog>)> {
    let Around { readiness, restart, events, serving, .. } = around;
    let interval = config.standby_interval;
    let start = standby::role_at_start(interval.is_some(), &config.state_dir, engine)?;
    if let (Start::Standby, Some(interval)) = (start, interval) {
        readiness.starting("opening the image store to follow it");
        let standby = Standby::start(StandbyParts {
            engine: Arc::clone(engine),
            events: Arc::clone(events),
            images: &config.images,
            serving: serving.as_deref(),
            encryption: config.encryption.as_ref(),
            state_dir: config.state_dir.clone(),
            journal_dir: config.journal.dir.clone(),
            interval,
            may_rejoin: config.standby_may_rejoin,
            restart: restart.clone(),
        })?;
        let follower = Arc::clone(standby.follower());
        let catalog = Arc::new(Catalog::of_standby(Arc::clone(engine), follower));
        let keeper = StandbyKeeper::start(Arc::clone(&standby))?;
        return Ok((Role::Standby(standby), AnyKeeper::Standby { _keeper: keeper }, catalog));
    }
    if start == Start::Promoted {
        tracing::warn!(
            "ignoring the standby configuration: this daemon was promoted and is the writer; \
             remove [standby] from its configuration"
        );
    }
    let durable = start_durable(config, engine, around)?;
    let keeper = Keeper::start(Arc::clone(&durable), Arc::clone(tasks))?;
    let catalog = Arc::new(Catalog::new(Arc::clone(engine)));
    Ok((Role::Primary(durable), AnyKeeper::Primary { _keeper: keeper }, catalog))
}

fn start_vhost_user(
    config: &Config,
    permits: &Arc<SpinPermits>,
    rule: &AccessRule,
    users: &Arc<VolumeUsers>,
) -> anyhow::Result<Arc<VhostUserExports>> {
    let folder = config.run_dir.join("vhost");
    Ok(Arc::new(VhostUserExports::new(
        folder,
        rule.clone(),
        Arc::clone(users),
        Arc::clone(permits),
    )?))
}

fn start_ring(
    config: &Config,
    parts: NbdParts,
    devices: &Devices,
    ublk: &Option<Arc<UblkDevices>>,
) -> anyhow::Result<Arc<RingExport>> {
    let NbdParts { catalog, rule, users, spin_permits } = parts;
    let ublk = ublk.clone().map(|ublk| -> Arc<dyn KernelDevices> { ublk });
    let devices = attached(devices);
    let parts = RingParts { catalog, rule, users, spin_permits, devices, ublk };
    Ok(Arc::new(RingExport::start(&config.run_dir.join("ring.sock"), parts)?))
}

fn start_watch(config: &Config, events: &Arc<EventLog>) -> Arc<PoolWatch> {
    Arc::new(PoolWatch::new(config.thresholds_percent.clone(), Arc::clone(events)))
}

fn start_maintenance(
    engine: &Arc<Engine>,
    config: &Config,
    (watch, filling): (&Arc<PoolWatch>, &Arc<Filling>),
    fuse: Option<Arc<FuseDevices>>,
) -> anyhow::Result<Maintenance> {
    let look_after = move || fuse.iter().for_each(|fuse| fuse.look_after_devices());
    let lookout = (Arc::clone(watch), Arc::clone(filling));
    maintenance::start(engine, config.idle, lookout, look_after)
}

/// Devices of the last daemon.
fn found(devices: &Devices, ublk: &Option<Arc<UblkDevices>>) -> Vec<(u64, String)> {
    let on_loop = attached(devices).map_or_else(Vec::new, |(devices, _)| devices.devices());
    let on_ublk = ublk.as_ref().map_or_else(Vec::new, |ublk| ublk.devices());
    [on_loop, on_ublk].concat()
}

/// Loop devices and the mount point of their file system.
fn attached(devices: &Devices) -> Option<(Arc<dyn KernelDevices>, PathBuf)> {
    match devices {
        Devices::On { devices, mount_point } => {
            Some((Arc::clone(devices), PathBuf::from(mount_point)))
        }
        Devices::Off { .. } => None,
    }
}

/// Starts the device drivers. A standby attaches no devices.
fn start_devices(
    config: &Config,
    role: &Role,
    catalog: &Arc<Catalog>,
    permits: &Arc<SpinPermits>,
) -> (Option<Arc<FuseDevices>>, Devices, Option<Arc<UblkDevices>>) {
    if let Role::Standby(_) = role {
        let reason = "a standby attaches no volumes".to_owned();
        return (None, Devices::Off { reason }, None);
    }
    let (fuse, devices) = start_fuse(config, catalog, permits);
    (fuse, devices, start_ublk(config, catalog, permits))
}

/// Starts FUSE. A host without FUSE or loop devices still serves volumes over NBD.
fn start_fuse(
    config: &Config,
    catalog: &Arc<Catalog>,
    permits: &Arc<SpinPermits>,
) -> (Option<Arc<FuseDevices>>, Devices) {
    let Some(fuse) = &config.fuse else {
        let reason = "loop devices need root and no-fuse = false";
        return (None, Devices::Off { reason: reason.to_owned() });
    };
    match FuseDevices::start(fuse, Arc::clone(catalog), Arc::clone(permits)) {
        Ok(export) => {
            let export = Arc::new(export);
            let devices: Arc<dyn KernelDevices> = Arc::<FuseDevices>::clone(&export);
            let mount_point = fuse.mount_point.display().to_string();
            (Some(export), Devices::On { devices, mount_point })
        }
        Err(error) => {
            let reason = format!("{error:#}");
            tracing::error!(reason, "cannot attach volumes as loop devices");
            (None, Devices::Off { reason })
        }
    }
}

/// Starts ublk. The daemon also runs without the driver, which may be loaded later.
fn start_ublk(
    config: &Config,
    catalog: &Arc<Catalog>,
    permits: &Arc<SpinPermits>,
) -> Option<Arc<UblkDevices>> {
    config.fuse.as_ref()?;
    let registry = config.state_dir.join("ublk.json");
    Some(Arc::new(UblkDevices::start(registry, Arc::clone(catalog), Arc::clone(permits))))
}
