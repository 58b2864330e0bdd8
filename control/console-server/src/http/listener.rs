//! Startup, listening socket with its limits, and shutdown.

use std::fs;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::{Extension, Router};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use program::{Signals, Wish};
use tls::{TlsFiles, TlsSettings};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch as signals;
use tokio_rustls::TlsAcceptor;

use crate::access::{
    Accounts, Attempts, AuditLog, AuditSink, Enrolments, Passwords, Sessions, Setup, is_name,
};
use crate::backend::Backend;
use crate::broker::{AskedFor, Interface, Kafka, Queries, SqlPlace};
use crate::gateway::Gateway;
use crate::http::certificate::{self, Expiry};
use crate::http::connections::Connections;
use crate::http::console::Console;
use crate::http::lingering::Lingering;
use crate::http::pace::Paced;
use crate::http::peer::Line;
use crate::http::routes;
use crate::options::{Options, PublicUrl};
use crate::page::Page;
use crate::sign_on::SignOn;
use crate::watch::{self, History, Told, VolumeHistory, Watch};

/// Time limits for the TLS handshake, and for the head of a request.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
const HEAD_TIME_MAX: Duration = Duration::from_secs(15);

/// Maximum length of the head of a request.
const CONNECTION_BUFFER_BYTES: usize = 32 << 10;

/// Interval at which the latest uses of tokens are stored.
const KEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Time for responses in progress at shutdown.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);

/// Serves until a signal stops the process.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let folder = &options.state_dir;
    // Files are created for the owner only.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    prepare(folder)?;
    let _lock = lock(folder)?;
    let listener = TcpListener::bind(options.listen)
        .await
        .with_context(|| format!("cannot listen on {}", options.listen))?;
    let address = listener.local_addr()?;
    let mut names = vec!["localhost".to_owned(), address.ip().to_string()];
    if address.ip().is_unspecified() {
        names.push("127.0.0.1".to_owned());
        names.push("::1".to_owned());
        names.extend(program::host_name().ok().filter(|it| is_name(it)));
    }
    names.extend(options.host_name.clone());
    names.extend(options.public_url.as_ref().map(PublicUrl::host));
    names.sort();
    names.dedup();
    let given = options.certificate.as_deref().zip(options.key.as_deref());
    let files = certificate::files(given, folder, &names)?;
    let tls = RwLock::new(certificate::load(&files)?);
    let expiry = Expiry::of(&files);
    let fingerprint = certificate::fingerprint(&files.certificate)?;
    let host = match (&options.host_name, address.ip().is_unspecified()) {
        (Some(name), _) => name.clone(),
        (None, true) => "localhost".to_owned(),
        (None, false) => address.ip().to_string(),
    };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let own = || format!("https://{host}:{}", address.port());
    let origin = options.public_url.as_ref().map_or_else(own, |it| it.0.clone());
    let console = open(options, &origin).await?;
    tracing::info!(%origin, sha256 = fingerprint, "serving");
    service_manager::ready();
    let (audit, accounts) = (Arc::clone(&console.audit), Arc::clone(&console.accounts));
    let router = routes::router(console);
    let end = signals::Sender::new(false);
    tokio::select! {
        () = accept_all(&listener, &tls, &router, &end) => {}
        () = keep(&accounts) => {}
        () = expiry.watch() => {}
        stopped = heed(&tls, (&files, &expiry), &audit) => stopped?,
    }
    service_manager::stopping();
    drop(listener);
    end.send_replace(true);
    accounts.keep();
    // Event streams never end by themselves.
    if tokio::time::timeout(DRAIN_TIME_MAX, end.closed()).await.is_err() {
        tracing::debug!("closed connections that did not end in time");
    }
    Ok(())
}

/// Creates the state folder, accessible to its owner only.
fn prepare(folder: &std::path::Path) -> anyhow::Result<()> {
    let unusable = || format!("cannot use the state directory {}", folder.display());
    if !folder.exists() {
        fs::create_dir(folder).with_context(unusable)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).with_context(unusable)?;
    }
    let mode = fs::metadata(folder).with_context(unusable)?.permissions().mode() & 0o7777;
    ensure!(
        mode & 0o077 == 0,
        "the state directory {} is accessible to other users (mode {mode:o}); run chmod 700",
        folder.display()
    );
    Ok(())
}

/// Locks the state folder, because two consoles would overwrite each other's accounts.
fn lock(folder: &std::path::Path) -> anyhow::Result<fs::File> {
    let path = folder.join("lock");
    let unusable = || format!("cannot lock {}", path.display());
    let file = fs::File::options().create(true).append(true).open(&path).with_context(unusable)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .with_context(|| format!("another memlane-console uses {}", folder.display()))?;
    Ok(file)
}

async fn open(options: &Options, origin: &str) -> anyhow::Result<Arc<Console>> {
    let folder = &options.state_dir;
    let unusable = |what: &str| format!("cannot use the {what} in {}", folder.display());
    let accounts = Arc::new(Accounts::open(folder).with_context(|| unusable("accounts"))?);
    let setup = match accounts.is_empty() {
        true => offer_setup(folder, origin)?,
        false => Setup::none(folder),
    };
    let daemon = Arc::new(Backend::daemon(options.daemon_socket.clone()));
    let machines = options.machines_socket.clone().map(Backend::machines);
    let history = Arc::new(History::open(folder));
    let busiest = Arc::<Told>::default();
    let sink = options.audit_to.as_ref().map(AuditSink::open).transpose();
    let sink = sink.context("--audit-to cannot be used")?;
    let volumes = Arc::new(VolumeHistory::default());
    tokio::spawn(watch::record(
        Arc::clone(&daemon),
        Arc::clone(&history),
        Arc::clone(&busiest),
        Arc::clone(&volumes),
    ));
    Ok(Arc::new(Console {
        sessions: Sessions::default(),
        attempts: Attempts::default(),
        enrolments: Enrolments::default(),
        passwords: Passwords::new()?,
        audit: Arc::new(AuditLog::open(folder, sink).with_context(|| unusable("audit log"))?),
        setup,
        sign_on: SignOn::new(&options.sign_on, origin)?,
        gateway: Gateway::new(Arc::clone(&daemon), machines, Arc::clone(&accounts)),
        consoles: Console::consoles(),
        broker: options.broker.clone().map(Interface::at),
        queries: queries(options)?,
        kafka: kafka(options)?,
        watch: Watch::begin(daemon),
        watchers: Console::watchers(),
        history,
        busiest,
        volumes,
        page: Page::load(options.page.as_deref())?,
        public_url: options.public_url.as_ref().map(|it| it.0.clone()),
        proxies: options.trusted_proxy.clone(),
        accounts,
    }))
}

fn queries(options: &Options) -> anyhow::Result<Option<Queries>> {
    let Some(address) = options.broker_sql else { return Ok(None) };
    let login = options.broker_login();
    let asked_for = match options.broker_users {
        true => AskedFor::User,
        false => AskedFor::Console,
    };
    let place = SqlPlace::new(address, login, asked_for).context("--broker-sql cannot be used")?;
    Ok(Some(Queries::of(place)))
}

fn kafka(options: &Options) -> anyhow::Result<Option<Kafka>> {
    let Some(address) = options.broker_kafka else { return Ok(None) };
    ensure!(
        !options.broker_users,
        "--broker-kafka cannot be used with --broker-users: Kafka's protocol has no way to ask for \
         the user by whom a change was asked for, who would get the rights of --broker-user"
    );
    let kafka = Kafka::at(address, options.broker_login());
    kafka.context("--broker-kafka cannot be used").map(Some)
}

/// Prints the setup link if the console was started in a terminal. Otherwise the link is only in a
/// file, because logs have more readers.
fn offer_setup(folder: &std::path::Path, origin: &str) -> anyhow::Result<Setup> {
    let (setup, link) = Setup::offer(folder, origin)?;
    let path = setup.path().display();
    tracing::info!(
        %path, "no user exists yet: the setup link in this file creates the first administrator"
    );
    let mut out = std::io::stdout();
    if out.is_terminal() {
        writeln!(out, "Create the first administrator: {link}")
            .context("cannot print the setup link")?;
    }
    Ok(setup)
}

async fn accept_all(
    listener: &TcpListener,
    tls: &RwLock<TlsSettings>,
    router: &Router,
    end: &signals::Sender<bool>,
) {
    let connections = Arc::new(Connections::default());
    loop {
        let (stream, peer) = program::accept("connection", || listener.accept()).await;
        let address = peer.ip().to_canonical();
        let (connection, ended) = connections.enter(address);
        let config = tls.read().unwrap_or_else(PoisonError::into_inner).server_config();
        let router = router.clone().layer(Extension(Line { address, connection }));
        let end = end.subscribe();
        let serving = async move {
            let shaking = TlsAcceptor::from(config).accept(Paced::new(stream));
            let shaken = tokio::time::timeout(HANDSHAKE_TIME_MAX, shaking).await;
            let Ok(Ok(stream)) = shaken else {
                tracing::debug!(%peer, "TLS handshake failed");
                return;
            };
            if let Err(error) = serve(stream, router, end).await {
                tracing::debug!(%peer, %error, "a connection ended");
            }
        };
        tokio::spawn(async move {
            tokio::select! {
                () = serving => {}
                // Carries no messages. Its sender is dropped when a newer connection displaces this
                // one.
                _ = ended => tracing::debug!(%peer, "too many connections; closed the oldest of \
                                                     the user or address with most connections"),
            }
        });
    }
}

/// Serves a connection until it closes or is upgraded. After `end`, the current response is the
/// last one.
async fn serve(
    stream: tokio_rustls::server::TlsStream<Paced<TcpStream>>,
    router: Router,
    mut end: signals::Receiver<bool>,
) -> hyper::Result<()> {
    let connection = program::http1_limited(HEAD_TIME_MAX)
        .max_buf_size(CONNECTION_BUFFER_BYTES)
        .serve_connection(TokioIo::new(Lingering::new(stream)), TowerToHyperService::new(router))
        // Machine consoles are WebSockets.
        .with_upgrades();
    let mut connection = pin!(connection);
    tokio::select! {
        served = connection.as_mut() => return served,
        _ = end.wait_for(|&it| it) => {}
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}

/// Stores the latest uses of tokens periodically.
async fn keep(accounts: &Arc<Accounts>) {
    loop {
        tokio::time::sleep(KEEP_INTERVAL).await;
        let accounts = Arc::clone(accounts);
        if let Err(error) = tokio::task::spawn_blocking(move || accounts.keep()).await {
            tracing::error!(%error, "cannot store the accounts");
        }
    }
}

/// Handles signals. SIGHUP reloads the certificate and reopens the second audit destination.
/// Returns at a signal to stop.
async fn heed(
    tls: &RwLock<TlsSettings>,
    (files, expiry): (&TlsFiles, &Expiry),
    audit: &AuditLog,
) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    while signals.next().await == Wish::Reload {
        service_manager::reloading();
        if let Err(error) = audit.reopen() {
            tracing::error!(
                %error, "cannot reopen the second destination of the audit log; keeping the old one"
            );
        }
        match certificate::load(files) {
            Ok(read) => {
                *tls.write().unwrap_or_else(PoisonError::into_inner) = read;
                expiry.note_loaded(files);
                let path = files.certificate.display();
                tracing::info!(%path, "reloaded the certificate");
            }
            Err(error) => {
                tracing::error!("cannot reload the certificate; keeping the old one: {error:#}")
            }
        }
        service_manager::ready();
    }
    Ok(())
}
