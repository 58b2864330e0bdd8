//! The start, the listener with its limits, and the end.

use std::collections::HashMap;
use std::fs;
use std::io::{IsTerminal, Write};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tls::{TlsFiles, TlsSettings};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch as signals};
use tokio_rustls::TlsAcceptor;

use crate::access::{Accounts, Attempts, AuditLog, Passwords, Sessions, Setup};
use crate::backend::Backend;
use crate::broker::{Interface, Queries, SqlPlace};
use crate::gateway::Gateway;
use crate::http::certificate;
use crate::http::console::{Console, Peer};
use crate::http::lingering::Lingering;
use crate::http::routes;
use crate::options::Options;
use crate::page::Page;
use crate::sign_on::SignOn;
use crate::watch::{self, History, Watch};

/// Connections beyond so many wait to be accepted.
const CONNECTIONS_MAX: usize = 1_024;

/// Of one address; more are closed, so that others find room.
const CONNECTIONS_OF_ADDRESS_MAX: usize = 512;

/// A connection that does not get so far with TLS, or with the head of a request, is closed.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
const HEAD_TIME_MAX: Duration = Duration::from_secs(15);

/// The longest head of a request.
const CONNECTION_BUFFER_BYTES: usize = 32 << 10;

/// How long to pause after the system had no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers that are on their way when the console is told to end have so long.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);

/// Serves until a signal says to end.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let folder = &options.state_dir;
    // What is written is the owner's alone.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    prepare(folder)?;
    let _lock = lock(folder)?;
    let listener = TcpListener::bind(options.listen)
        .await
        .with_context(|| format!("cannot serve at {}", options.listen))?;
    let address = listener.local_addr()?;
    let mut names = vec!["localhost".to_owned(), address.ip().to_string()];
    names.extend(options.host_name.clone());
    let given = options.certificate.as_deref().zip(options.key.as_deref());
    let files = certificate::files(given, folder, &names)?;
    let tls = RwLock::new(certificate::load(&files)?);
    let fingerprint = certificate::fingerprint(&files.certificate)?;
    let host = match (&options.host_name, address.ip().is_unspecified()) {
        (Some(name), _) => name.clone(),
        (None, true) => "localhost".to_owned(),
        (None, false) => address.ip().to_string(),
    };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let origin = format!("https://{host}:{}", address.port());
    let console = open(options, &origin).await?;
    tracing::info!(%origin, sha256 = fingerprint, "serving");
    service_manager::ready();
    let router = routes::router(console);
    let end = signals::Sender::new(false);
    tokio::select! {
        () = accept_all(&listener, &tls, &router, &end) => {}
        stopped = heed(&tls, &files) => stopped?,
    }
    service_manager::stopping();
    drop(listener);
    end.send_replace(true);
    // Browsers that watch never end by themselves.
    if tokio::time::timeout(DRAIN_TIME_MAX, end.closed()).await.is_err() {
        tracing::debug!("connections were cut off");
    }
    Ok(())
}

/// The state folder is its owner's alone.
fn prepare(folder: &std::path::Path) -> anyhow::Result<()> {
    let unusable = || format!("the state folder {} cannot be used", folder.display());
    if !folder.exists() {
        fs::create_dir(folder).with_context(unusable)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).with_context(unusable)?;
    }
    let mode = fs::metadata(folder).with_context(unusable)?.permissions().mode() & 0o7777;
    ensure!(
        mode & 0o077 == 0,
        "the state folder {} has mode {mode:o}, so that others may look into it: chmod 700",
        folder.display()
    );
    Ok(())
}

/// Two consoles would write over each other's accounts.
fn lock(folder: &std::path::Path) -> anyhow::Result<fs::File> {
    let path = folder.join("lock");
    let unusable = || format!("cannot lock {}", path.display());
    let file = fs::File::options().create(true).append(true).open(&path).with_context(unusable)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .with_context(|| format!("another console uses {}", folder.display()))?;
    Ok(file)
}

async fn open(options: &Options, origin: &str) -> anyhow::Result<Arc<Console>> {
    let folder = &options.state_dir;
    let unusable = |what: &str| format!("the {what} in {} cannot be used", folder.display());
    let accounts = Arc::new(Accounts::open(folder).with_context(|| unusable("accounts"))?);
    let setup = match accounts.is_empty() {
        true => offer_setup(folder, origin)?,
        false => Setup::none(folder),
    };
    let daemon = Arc::new(Backend::daemon(options.daemon_socket.clone()));
    let machines = options.machines_socket.clone().map(Backend::machines);
    let history = Arc::new(History::open(folder));
    tokio::spawn(watch::record(Arc::clone(&daemon), Arc::clone(&history)));
    Ok(Arc::new(Console {
        sessions: Sessions::default(),
        attempts: Attempts::default(),
        passwords: Passwords::new()?,
        audit: Arc::new(AuditLog::open(folder).with_context(|| unusable("audit log"))?),
        setup,
        sign_on: SignOn::new(&options.sign_on, origin)?,
        gateway: Gateway::new(Arc::clone(&daemon), machines, Arc::clone(&accounts)),
        consoles: Console::consoles(),
        broker: options.broker.clone().map(Interface::at),
        queries: queries(options)?,
        watch: Watch::begin(daemon),
        watchers: Console::watchers(),
        history,
        page: Page::load(options.page.as_deref())?,
        accounts,
    }))
}

fn queries(options: &Options) -> anyhow::Result<Option<Queries>> {
    let Some(address) = options.broker_sql else { return Ok(None) };
    let login = options.broker_user.as_deref().zip(options.broker_password_file.as_deref());
    let place = SqlPlace::new(address, login).context("--broker-sql cannot be used")?;
    Ok(Some(Queries::of(place)))
}

/// The link is shown to who started the console by hand, and lies in a file otherwise: logs are
/// read by more people.
fn offer_setup(folder: &std::path::Path, origin: &str) -> anyhow::Result<Setup> {
    let (setup, link) = Setup::offer(folder, origin)?;
    let path = setup.path().display();
    tracing::info!(%path, "there is no user yet: the link in this file makes the first one");
    let mut out = std::io::stdout();
    if out.is_terminal() {
        writeln!(out, "Make the first administrator: {link}").context("cannot print the link")?;
    }
    Ok(setup)
}

async fn accept_all(
    listener: &TcpListener,
    tls: &RwLock<TlsSettings>,
    router: &Router,
    end: &signals::Sender<bool>,
) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let addresses = Arc::new(Addresses::default());
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections for a moment");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let address = peer.ip().to_canonical();
        let Some(place) = addresses.enter(address) else {
            tracing::debug!(%peer, "too many connections of one address");
            continue;
        };
        let config = tls.read().unwrap_or_else(PoisonError::into_inner).server_config();
        let router = router.clone().layer(Extension(Peer(address)));
        let end = end.subscribe();
        tokio::spawn(async move {
            let _held = (permit, place);
            let shaking = TlsAcceptor::from(config).accept(stream);
            let shaken = tokio::time::timeout(HANDSHAKE_TIME_MAX, shaking).await;
            let Ok(Ok(stream)) = shaken else {
                tracing::debug!(%peer, "no TLS");
                return;
            };
            if let Err(error) = serve(stream, router, end).await {
                tracing::debug!(%peer, %error, "a connection ended");
            }
        });
    }
}

/// How many connections each address has.
#[derive(Debug, Default)]
struct Addresses(Mutex<HashMap<IpAddr, usize>>);

/// A connection that counts as its address's until it is dropped.
struct Place(Arc<Addresses>, IpAddr);

impl Addresses {
    fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= CONNECTIONS_OF_ADDRESS_MAX {
            return None;
        }
        *count += 1;
        Some(Place(Arc::clone(self), address))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.1);
            }
        }
    }
}

/// Serves a connection until it ends or becomes another, or until its last answer after `end`.
async fn serve(
    stream: tokio_rustls::server::TlsStream<TcpStream>,
    router: Router,
    mut end: signals::Receiver<bool>,
) -> hyper::Result<()> {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(CONNECTION_BUFFER_BYTES)
        .serve_connection(TokioIo::new(Lingering::new(stream)), TowerToHyperService::new(router))
        // Consoles of machines are WebSockets.
        .with_upgrades();
    let mut connection = pin!(connection);
    tokio::select! {
        served = connection.as_mut() => return served,
        _ = end.wait_for(|&it| it) => {}
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}

/// Returns at a signal to end. At SIGHUP the certificate is read again.
async fn heed(tls: &RwLock<TlsSettings>, files: &TlsFiles) -> anyhow::Result<()> {
    let listen = |kind| signal(kind).context("cannot listen to signals");
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hang_up.recv() => {}
        }
        service_manager::reloading();
        match certificate::load(files) {
            Ok(read) => {
                *tls.write().unwrap_or_else(PoisonError::into_inner) = read;
                let path = files.certificate.display();
                tracing::info!(%path, "the certificate was read again");
            }
            Err(error) => tracing::error!("the certificate stays as it was: {error:#}"),
        }
        service_manager::ready();
    }
}
