//! From start to end: what is started in which order, and how it ends.
//!
//! The end runs backwards. A daemon that is killed instead loses nothing; it only leaves the next
//! one more to clean up.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use upkeep::Upkeep;
use volume::Engine;
use waiting::{CpuLatencyRequest, SpinPermits};

use crate::attachments::AttachmentList;
use crate::config::{Config, CpuLatencyPolicy};
use crate::durable::{self, Durable, Keeper};
use crate::events::EventLog;
use crate::export_list::ExportList;
use crate::exports::{
    Catalog, FuseDevices, KernelDevices, NbdExport, NbdParts, RingExport, RingParts, UblkDevices,
    VhostUserExports,
};
use crate::forecast::Filling;
use crate::http::{self, AccessRule};
use crate::maintenance::{self, PoolWatch};
use crate::scrubber::Scrubber;
use crate::service::{CpuLatency, Devices, Parts, Service};
use crate::tasks::Tasks;
use crate::volume_users::VolumeUsers;
use crate::{notify, pool, process, run_dir};

/// How long NBD requests in flight may take when the daemon stops.
const NBD_DRAIN_TIME_MAX: Duration = Duration::from_secs(10);

/// How long clients of the ring may take to end when the daemon stops.
const RING_TIME_MAX: Duration = Duration::from_secs(10);

/// How long operations that nobody waits for any more may take when the daemon stops.
const OPERATIONS_TIME_MAX: Duration = Duration::from_secs(10);

/// Threads that operations of the REST interface may block at once.
const BLOCKING_THREAD_COUNT_MAX: usize = 8;

/// Serves until a signal says to stop.
pub(crate) fn run(config: &Config) -> anyhow::Result<()> {
    let begun = Instant::now();
    let _run_dir = run_dir::take(&config.run_dir)?;
    run_dir::make_dir(&config.state_dir, 0o700)?;
    process::keep_memory_small();
    process::protect_from_memory_shortage();
    let daemon = Daemon::start(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(BLOCKING_THREAD_COUNT_MAX)
        .enable_all()
        .build()
        .context("cannot start the threads of the REST interface")?;
    let served = runtime.block_on(daemon.serve(config, begun));
    // Operations whose client has gone still run; they hold the engine.
    runtime.shutdown_timeout(OPERATIONS_TIME_MAX);
    daemon.stop();
    served
}

/// Everything that runs.
struct Daemon {
    engine: Arc<Engine>,
    durable: Arc<Durable>,
    keeper: Keeper,
    scrubber: Scrubber,
    upkeep: Upkeep,
    nbd: Option<Arc<NbdExport>>,
    ring: Arc<RingExport>,
    vhost_user: Arc<VhostUserExports>,
    fuse: Option<Arc<FuseDevices>>,
    ublk: Option<Arc<UblkDevices>>,
    service: Arc<Service>,
    rule: AccessRule,
}

impl Daemon {
    fn start(config: &Config) -> anyhow::Result<Self> {
        let attachments = AttachmentList::read(&config.state_dir)?;
        let exports = ExportList::read(&config.state_dir)?;
        let engine = Arc::new(pool::open(config)?);
        let events = Arc::<EventLog>::default();
        let filling = Arc::<Filling>::default();
        let thresholds = config.thresholds_percent.clone();
        let watch = Arc::new(PoolWatch::new(thresholds, Arc::clone(&events)));
        let durable = start_durable(config, &engine, &events)?;
        let tasks = Arc::<Tasks>::default();
        let scrubber = Scrubber::start(&config.scrub, Arc::clone(&engine), Arc::clone(&events))?;
        let keeper = Keeper::start(Arc::clone(&durable), Arc::clone(&tasks))?;
        let catalog = Arc::new(Catalog::new(Arc::clone(&engine)));
        let rule = AccessRule::of_this_host();
        let cpu_latency = start_cpu_latency(config.cpu_latency);
        let permits = Arc::new(spin_permits(config, &cpu_latency));
        let users = Arc::new(VolumeUsers::read(&config.state_dir)?);
        let parts = NbdParts {
            catalog: Arc::clone(&catalog),
            rule: rule.clone(),
            users: Arc::clone(&users),
            spin_permits: Arc::clone(&permits),
        };
        let nbd = start_nbd(config, parts.clone())?;
        let vhost_user = start_vhost_user(config, &permits, &rule, &users)?;
        let (fuse, devices) = start_fuse(config, &catalog, &permits);
        let ublk = start_ublk(config, &catalog, &permits);
        let ring = start_ring(config, parts, (&devices, &ublk))?;
        let held = fuse.clone();
        let look_after = move || held.iter().for_each(|fuse| fuse.look_after_devices());
        let (watched, filled) = (Arc::clone(&watch), Arc::clone(&filling));
        let upkeep = maintenance::start(&engine, watched, filled, look_after)?;
        let service = Arc::new(Service::new(Parts {
            engine: Arc::clone(&engine),
            catalog,
            watch,
            filling,
            events,
            tasks,
            durable: Arc::clone(&durable),
            nbd: nbd.clone(),
            ring: Arc::clone(&ring),
            vhost_user: Arc::clone(&vhost_user),
            users,
            devices,
            ublk: ublk.clone().map(|ublk| -> Arc<dyn KernelDevices> { ublk }),
            attachments,
            exports,
            cpu_latency,
            pool_path: config.pool.path.clone(),
        }));
        service.restore_exports();
        service.restore_attachments();
        Ok(Self {
            engine,
            durable,
            keeper,
            scrubber,
            upkeep,
            nbd,
            ring,
            vhost_user,
            fuse,
            ublk,
            service,
            rule,
        })
    }

    /// Serves the REST interface until a signal says to stop, then ends its requests in flight.
    async fn serve(&self, config: &Config, begun: Instant) -> anyhow::Result<()> {
        let mut signals = Signals::new()?;
        let socket = config.api_socket();
        let listener: UnixListener = http::bind(&socket, &self.rule)?;
        tracing::info!(
            socket = %socket.display(),
            milliseconds = begun.elapsed().as_millis(),
            "ready"
        );
        notify::ready();
        let service = Arc::clone(&self.service);
        let stop = async move {
            signals.next().await;
            tracing::info!("stopping; a second signal stops at once");
            notify::stopping();
            service.drain();
            tokio::spawn(async move {
                signals.next().await;
                tracing::warn!("stopped at once; the next start cleans up");
                exit_at_once();
            });
        };
        let service = Arc::clone(&self.service);
        http::serve(listener, service, self.rule.clone(), stop).await;
        remove_socket(&socket);
        Ok(())
    }

    /// Ends the exports, saves an image, and closes the pool.
    fn stop(self) {
        let Self { engine, durable, keeper, scrubber, upkeep, nbd, ring, vhost_user, .. } = self;
        let (fuse, ublk, service) = (self.fuse, self.ublk, self.service);
        drop((keeper, scrubber));
        service.tasks.close(OPERATIONS_TIME_MAX);
        durable.before_exports_stop();
        if let Some(nbd) = nbd {
            nbd.stop(NBD_DRAIN_TIME_MAX);
        }
        ring.stop(RING_TIME_MAX);
        drop(ring);
        vhost_user.stop();
        drop(vhost_user);
        drop(upkeep);
        drop(service);
        if let Some(fuse) = fuse {
            fuse.stop();
        }
        if let Some(ublk) = ublk {
            ublk.stop();
        }
        durable.stop(notify::extend_timeout);
        drop(durable);
        match Arc::into_inner(engine) {
            Some(engine) => {
                engine.close();
                tracing::info!("stopped");
            }
            None => tracing::warn!("stopped with work in flight; the next start cleans up"),
        }
    }
}

/// A host that takes no such request is served all the same.
fn start_cpu_latency(policy: CpuLatencyPolicy) -> CpuLatency {
    if policy == CpuLatencyPolicy::Unmanaged {
        return CpuLatency::Unmanaged;
    }
    match CpuLatencyRequest::start() {
        Ok(request) => CpuLatency::Managed(Arc::new(request)),
        Err(error) => {
            let reason = format!("{:#}", anyhow::Error::from(error));
            tracing::warn!(reason, "idle cores take longer to wake under traffic than they could");
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

fn start_nbd(config: &Config, parts: NbdParts) -> anyhow::Result<Option<Arc<NbdExport>>> {
    let Some(nbd) = &config.nbd else { return Ok(None) };
    Ok(Some(Arc::new(NbdExport::start(nbd, parts)?)))
}

fn start_durable(
    config: &Config,
    engine: &Arc<Engine>,
    events: &Arc<EventLog>,
) -> anyhow::Result<Arc<Durable>> {
    Durable::start(durable::Parts {
        engine: Arc::clone(engine),
        events: Arc::clone(events),
        journal: &config.journal,
        images: &config.images,
        pool_path: &config.pool.path,
        accept_loss: config.accept_loss,
    })
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
    (devices, ublk): (&Devices, &Option<Arc<UblkDevices>>),
) -> anyhow::Result<Arc<RingExport>> {
    let NbdParts { catalog, rule, users, spin_permits } = parts;
    let ublk = ublk.clone().map(|ublk| -> Arc<dyn KernelDevices> { ublk });
    let devices = attached(devices);
    let parts = RingParts { catalog, rule, users, spin_permits, devices, ublk };
    Ok(Arc::new(RingExport::start(&config.run_dir.join("ring.sock"), parts)?))
}

/// Attached devices, and where their file system is.
fn attached(devices: &Devices) -> Option<(Arc<dyn KernelDevices>, PathBuf)> {
    match devices {
        Devices::On { devices, mount_point } => {
            Some((Arc::clone(devices), PathBuf::from(mount_point)))
        }
        Devices::Off { .. } => None,
    }
}

/// A host without FUSE or loop devices is not refused: volumes are served over NBD there.
fn start_fuse(
    config: &Config,
    catalog: &Arc<Catalog>,
    permits: &Arc<SpinPermits>,
) -> (Option<Arc<FuseDevices>>, Devices) {
    let Some(fuse) = &config.fuse else {
        let reason = "they are switched off by no-fuse, or as the daemon does not run as root";
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
            tracing::error!(reason, "no kernel block devices");
            (None, Devices::Off { reason })
        }
    }
}

/// A host without the driver is served all the same, also when it is loaded later.
fn start_ublk(
    config: &Config,
    catalog: &Arc<Catalog>,
    permits: &Arc<SpinPermits>,
) -> Option<Arc<UblkDevices>> {
    config.fuse.as_ref()?;
    let registry = config.state_dir.join("ublk.json");
    Some(Arc::new(UblkDevices::start(registry, Arc::clone(catalog), Arc::clone(permits))))
}

fn remove_socket(socket: &Path) {
    if let Err(error) = run_dir::remove_stale(socket) {
        tracing::warn!(%error, socket = %socket.display(), "cannot remove the socket");
    }
}

#[expect(clippy::disallowed_methods, reason = "whoever asks twice wants no clean end")]
fn exit_at_once() {
    std::process::exit(1);
}

/// The signals that stop the daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
