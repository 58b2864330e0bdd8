//! Limits with two users: a user at a limit does not affect the other one, and unauthenticated
//! clients do not lock users out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use system::wait_for;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::fixture::{Client, Fixture, PASSWORD};
use crate::{allow_descriptors, check, whole_audit};

/// Maximum number of connections of the console.
const HOSTILE_CONNECTIONS: usize = 1_024;

/// Requests on a connection that reads no response. The page's script has 250 KB, so the responses
/// exceed the kernel's send buffer (4 MiB, `tcp_wmem`).
const REQUESTS_UNREAD: usize = 40;

const RECEIVE_BUFFER_BYTES: u32 = 4 << 10;

/// Limits per user; see `WATCHERS_OF_USER_MAX`, `TOKENS_OF_USER_MAX`, `SESSIONS_OF_USER_MAX`,
/// `QUOTA_VOLUMES_DEFAULT`.
const WATCHERS: usize = 32;
const TOKENS: usize = 50;
const SESSIONS: usize = 32;
const VOLUMES: usize = 100;

const REFUSALS: usize = 300;

/// Number of concurrent attackers, each in its own network. More than fit the queue for password
/// hashing.
const GUESSERS: usize = 60;
/// Below the number of failures that delay a network.
const GUESSES_OF_NETWORK: usize = 15;
const LOGINS: usize = 8;

type Secured = TlsStream<TcpStream>;

/// TLS client that connects from a given address.
struct Dialer {
    tls: TlsConnector,
    to: SocketAddr,
}

impl Dialer {
    fn of(fixture: &Fixture) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(fixture.state_dir().join("certificate.pem"))?)?;
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(Self { tls: TlsConnector::from(Arc::new(config)), to: fixture.address() })
    }

    async fn dial(&self, from: &str) -> Result<Secured> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        socket.bind(SocketAddr::new(from.parse()?, 0))?;
        let stream = socket.connect(self.to).await?;
        let name = ServerName::IpAddress(self.to.ip().into());
        Ok(self.tls.connect(name, stream).await?)
    }

    /// Tries a password. Returns the status code.
    async fn guess(&self, from: &str, name: &str) -> Result<u16> {
        let mut stream = self.dial(from).await?;
        let body = json!({"name": name, "password": "nobody has this"}).to_string();
        let head = "POST /console/v1/session HTTP/1.1\r\nHost: here\r\nConnection: close\r\n";
        let length = body.len();
        let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await?;
        Ok(String::from_utf8_lossy(&status[9..]).parse()?)
    }

    /// Requests a path. Returns the status code and the connection.
    async fn ask(&self, client: &Client, path: &str) -> Result<(u16, Secured)> {
        let mut stream = self.dial("127.0.0.3").await?;
        stream.write_all(request(client, path).as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8(head)?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        Ok((status, stream))
    }
}

fn request(client: &Client, path: &str) -> String {
    let headers: String = client.headers.iter().map(|it| format!("{it}\r\n")).collect();
    format!("GET {path} HTTP/1.1\r\nHost: here\r\n{headers}\r\n")
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// Path of the page's script.
fn script_path(fixture: &Fixture) -> Result<String> {
    let page = fixture.get(&Client::nobody(), "/")?.body;
    let mut paths = page.split('"').filter(|it| it.starts_with("/assets/") && it.ends_with(".js"));
    Ok(paths.next().context("the page has no script")?.to_owned())
}

/// Opens the maximum number of connections, which request a path and never read.
async fn besiege(
    dialer: &Dialer,
    addresses: &[&str],
    client: &Client,
    path: &str,
) -> Result<Vec<Secured>> {
    let asked = request(client, path).repeat(REQUESTS_UNREAD);
    let mut held = Vec::new();
    for number in 0..HOSTILE_CONNECTIONS {
        let address = addresses[number % addresses.len()];
        let mut stream = dialer.dial(address).await?;
        let writing = stream.write_all(asked.as_bytes());
        // Writes that do not fit the buffers time out.
        let _unread = tokio::time::timeout(std::time::Duration::from_millis(1), writing).await;
        held.push(stream);
    }
    Ok(held)
}

#[test]
fn strangers_who_ask_and_never_read_keep_nobody_out() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    allow_descriptors(4 * HOSTILE_CONNECTIONS)?;
    let dialer = Dialer::of(&fixture)?;
    let (runtime, path) = (runtime()?, script_path(&fixture)?);
    // From two other addresses, and from that of the users.
    for addresses in [&["127.0.0.3", "127.0.0.4"][..], &["127.0.0.2"]] {
        let _held = runtime.block_on(besiege(&dialer, addresses, &Client::nobody(), &path))?;
        let begun = std::time::Instant::now();
        fixture.log_in("ann", PASSWORD)?;
        assert_eq!(fixture.get(&administrator, "/v1/volumes")?.status, 200);
        eprintln!("{addresses:?}: logged in, and asked, within {:?}", begun.elapsed());
    }
    Ok(())
}

/// Guesses passwords from one network after another until stopped. Counts the guesses that were
/// refused as too many.
async fn guess(dialer: &Dialer, place: usize, is_over: &AtomicBool, refused: &AtomicUsize) {
    for network in 0.. {
        let from = format!("127.0.{}.{}", 10 + network % 200, 1 + place);
        for name in 0..GUESSES_OF_NETWORK {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            // The connection may have been closed in favour of another.
            if dialer.guess(&from, &format!("user{name}")).await.is_ok_and(|it| it == 429) {
                refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Logs in repeatedly while attackers fill the queue for password hashing.
fn check_logins_besieged(fixture: &Fixture) -> Result<()> {
    allow_descriptors(4 * HOSTILE_CONNECTIONS)?;
    let dialer = Arc::new(Dialer::of(fixture)?);
    let (is_over, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let runtime = runtime()?;
    for place in 0..GUESSERS {
        let (dialer, is_over, refused) = (dialer.clone(), is_over.clone(), refused.clone());
        runtime.spawn(async move { guess(&dialer, place, &is_over, &refused).await });
    }
    let is_besieged = |least: usize| {
        let what = "guesses to take all places";
        wait_for(what, crate::TIME_LIMIT, || Ok(refused.load(Ordering::Relaxed) >= least))
    };
    for _ in 0..LOGINS {
        is_besieged(refused.load(Ordering::Relaxed) + 1)?;
        let begun = std::time::Instant::now();
        fixture.log_in("ann", PASSWORD)?;
        eprintln!("logged in within {:?}", begun.elapsed());
    }
    is_over.store(true, Ordering::Relaxed);
    Ok(())
}

#[test]
fn who_logged_in_before_gets_in_while_passwords_are_guessed_from_many_networks() -> Result<()> {
    let (fixture, _) = Fixture::with_administrator()?;
    fixture.log_in("ann", PASSWORD)?;
    check_logins_besieged(&fixture)
}

#[test]
fn so_does_who_logged_in_before_the_console_was_started_again() -> Result<()> {
    let (mut fixture, _) = Fixture::with_administrator()?;
    let stored = fixture.state_dir().join("accounts.json");
    let is_stored = || Ok(std::fs::read_to_string(&stored)?.contains("networks"));
    wait_for("the place of the first login to be stored", crate::TIME_LIMIT, is_stored)?;
    fixture.end_console(Signal::KILL)?;
    fixture.start_console()?;
    check_logins_besieged(&fixture)
}

#[test]
fn a_user_who_asks_and_never_reads_keeps_nobody_out() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    allow_descriptors(4 * HOSTILE_CONNECTIONS)?;
    let vic = fixture.user(&administrator, &json!({"name": "vic", "role": "viewer"}))?;
    let dialer = Dialer::of(&fixture)?;
    let _held =
        runtime()?.block_on(besiege(&dialer, &["127.0.0.2"], &vic, &script_path(&fixture)?))?;
    fixture.log_in("ann", PASSWORD)?;
    assert_eq!(fixture.get(&administrator, "/v1/volumes")?.status, 200);
    Ok(())
}

#[test]
fn browsers_that_one_user_leaves_open_shut_nobody_out() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let vic = fixture.user(&administrator, &json!({"name": "vic", "role": "viewer"}))?;
    let dialer = Dialer::of(&fixture)?;
    runtime()?.block_on(async {
        let mut held = Vec::new();
        for _ in 0..WATCHERS {
            let (status, stream) = dialer.ask(&vic, "/console/v1/events").await?;
            ensure!(status == 200, "{status}");
            held.push(stream);
        }
        let (status, _) = dialer.ask(&vic, "/console/v1/events").await?;
        assert_eq!(status, 429);
        let (status, _) = dialer.ask(&administrator, "/console/v1/events").await?;
        assert_eq!(status, 200);
        anyhow::Ok(())
    })
}

#[test]
fn tokens_and_sessions_of_one_user_take_no_room_of_others() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let vic = fixture.user(&administrator, &json!({"name": "vic", "role": "viewer"}))?;
    let make = |client: &Client, name: &str| {
        fixture.post(client, "/console/v1/tokens", &json!({"name": name, "role": "viewer"}))
    };
    for number in 0..TOKENS {
        assert_eq!(make(&vic, &number.to_string())?.status, 201);
    }
    check(&make(&vic, "another")?, 409, "conflict");
    assert_eq!(make(&administrator, "mine")?.status, 201);
    for _ in 0..40 {
        fixture.log_in("vic", PASSWORD)?;
    }
    let last = fixture.log_in("vic", PASSWORD)?;
    let of_vic = fixture.get(&last, "/console/v1/sessions")?.json()?;
    assert_eq!(of_vic.as_array().map(Vec::len), Some(SESSIONS));
    assert_eq!(fixture.get(&administrator, "/console/v1/session")?.status, 200);
    Ok(())
}

/// Creates an operator restricted to a project with the same name.
fn operator_of(fixture: &Fixture, administrator: &Client, name: &str) -> Result<Client> {
    let project = json!({"name": name, "prefix": format!("{name}-"), "quota_bytes": 1 << 30});
    assert_eq!(fixture.post(administrator, "/console/v1/projects", &project)?.status, 201);
    fixture.user(administrator, &json!({"name": name, "role": "operator", "projects": [name]}))
}

#[test]
fn volumes_and_snapshots_of_one_project_take_no_room_of_others() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let sam = operator_of(&fixture, &administrator, "sam")?;
    let tom = operator_of(&fixture, &administrator, "tom")?;
    let create = |client: &Client, name: &str| {
        fixture.post(client, "/v1/volumes", &json!({"name": name, "size": "4KiB"}))
    };
    for number in 0..VOLUMES - 2 {
        let made = create(&sam, &format!("sam-{number}"))?;
        assert_eq!(made.status, 201, "{made:?}");
    }
    let snapshots = |volumes: Value, name: &str| {
        fixture.post(&sam, "/v1/snapshots", &json!({"volumes": volumes, "snapshot": name}))
    };
    assert_eq!(snapshots(json!(["sam-0"]), "a")?.status, 201);
    check(&snapshots(json!(["sam-0", "sam-1"]), "b")?, 409, "over_quota");
    assert_eq!(create(&sam, "sam-last")?.status, 201);
    check(&create(&sam, "sam-more")?, 409, "over_quota");
    let cloned = fixture.post(&sam, "/v1/volumes/sam-0/clone", &json!({"name": "sam-more"}))?;
    check(&cloned, 409, "over_quota");
    let resized = fixture.ask(&sam, "PATCH", "/v1/volumes/sam-0", Some(r#"{"size": "8KiB"}"#))?;
    assert_eq!(resized.status, 200, "{resized:?}");
    assert_eq!(create(&tom, "tom-0")?.status, 201);
    let more = Some(r#"{"quota_volumes": 101}"#);
    assert_eq!(fixture.ask(&administrator, "PATCH", "/console/v1/projects/sam", more)?.status, 200);
    assert_eq!(create(&sam, "sam-more")?.status, 201);
    check(&create(&sam, "sam-most")?, 409, "over_quota");
    Ok(())
}

#[test]
fn refusals_of_one_user_become_counts_and_push_nothing_out() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let vic = fixture.user(&administrator, &json!({"name": "vic", "role": "viewer"}))?;
    let before = whole_audit(&fixture, &administrator)?;
    for number in 0..REFUSALS {
        check(&fixture.get(&vic, &format!("/console/v1/users?{number}"))?, 403, "forbidden");
    }
    let audit = whole_audit(&fixture, &administrator)?;
    let refused: Vec<_> =
        audit.iter().filter(|it| it["user"] == "vic" && it["status"] == 403).collect();
    let counted: u64 = refused.iter().filter_map(|it| it["count"].as_u64()).sum();
    assert_eq!(counted, u64::try_from(REFUSALS)?);
    assert!(refused.len() < 40, "{} entries", refused.len());
    assert!(audit.ends_with(&before), "{audit:?}");
    Ok(())
}

#[test]
fn wrong_passwords_keep_nobody_out_who_comes_from_elsewhere() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    fixture.user(&administrator, &json!({"name": "bob", "role": "viewer"}))?;
    let body = json!({"name": "bob", "password": "not his password"}).to_string();
    let from_elsewhere = || fixture.ask_from("127.0.0.9", "/console/v1/session", &body);
    let mut statuses = Vec::new();
    while statuses.last() != Some(&429) {
        statuses.push(from_elsewhere()?.status);
        ensure!(statuses.len() < 60, "nobody waits: {statuses:?}");
    }
    fixture.log_in("bob", PASSWORD)?;
    // A delay longer than the rest of the test, until an administrator resets it.
    system::wait_for("a long wait", crate::TIME_LIMIT, || {
        let answer = from_elsewhere()?;
        let seconds = answer.head.lines().find_map(|it| it.strip_prefix("retry-after: "));
        Ok(seconds.is_some_and(|it| it.parse().is_ok_and(|it: u64| it > 10)))
    })?;
    let reset = Some(r#"{"password": "another four words"}"#);
    assert_eq!(fixture.ask(&administrator, "PATCH", "/console/v1/users/bob", reset)?.status, 200);
    check(&from_elsewhere()?, 401, "unauthorized");
    Ok(())
}
