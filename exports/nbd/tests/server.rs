//! A server on real sockets: start, access, stop.

#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/running.rs"]
mod running;
mod support;
#[path = "support/talk.rs"]
mod talk;

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use certificates::Authority;
use nbd::{
    Config, Export, ExportInfo, Exports, Peer, Quota, Server, ServerError, StartError, TcpAccess,
    TlsError, TlsFiles,
};
use running::{Client, PATIENCE, Running, config, wait_until};
use rustix::process::{Resource, getrlimit, setrlimit};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use support::{ExportTable, SparseDevice};
use talk::{CLIENT_FLAGS, GREETING, Request, command, export_query, option, option_bytes, rep};
use tempfile::TempDir;

const SIZE: u64 = 64 << 20;

fn exports() -> Arc<ExportTable> {
    let device = || Arc::new(SparseDevice::new(SIZE));
    Arc::new(ExportTable::new().with("first", device()).with("second", device()))
}

fn request(command: u16, offset: u64, length: u32) -> Request {
    Request { command, offset, length, ..Request::default() }
}

/// Returns the error with which a server with a changed configuration fails to start.
#[track_caller]
fn refusal(directory: &TempDir, change: impl FnOnce(&mut Config)) -> ServerError {
    let mut config = config(directory);
    change(&mut config);
    match Server::start(config, exports()) {
        Ok(_) => panic!("the server started"),
        Err(error) => error,
    }
}

fn directory() -> TempDir {
    TempDir::new().expect("there is space for temporary files")
}

/// Writes a certificate for `localhost` and its key, and returns their paths.
fn certificate(directory: &Path, name: &str) -> TlsFiles {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("valid name");
    let certificate = directory.join(format!("{name}-cert.pem"));
    let key = directory.join(format!("{name}-key.pem"));
    fs::write(&certificate, made.cert.pem()).expect("there is space");
    fs::write(&key, made.signing_key.serialize_pem()).expect("there is space");
    TlsFiles { certificate, key, client_authorities: None }
}

#[test]
fn everybody_may_connect() {
    let running = Running::new(exports());
    let metadata = fs::metadata(running.socket()).expect("there is a socket");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o666);
}

#[test]
fn what_one_client_wrote_another_one_reads() {
    let running = Running::new(exports());
    let mut writer = running.connect_to("first");
    assert_eq!(writer.request(request(command::WRITE, 4096, 5), b"hello"), 0);
    let mut reader = running.connect_to("first");
    assert_eq!(reader.request(request(command::READ, 4096, 5), &[]), 0);
    assert_eq!(reader.receive(5), b"hello");
}

#[test]
fn the_socket_of_a_dead_process_is_replaced() {
    let directory = directory();
    let config = config(&directory);
    drop(UnixListener::bind(&config.unix_path).expect("the name is free"));
    assert!(config.unix_path.exists());
    Server::start(config, exports()).expect("the server starts");
}

#[test]
fn the_socket_of_a_living_process_is_left_alone() {
    let running = Running::new(exports());
    let error = refusal(&running.directory, |_| {});
    assert!(matches!(error, ServerError::Start(StartError::SocketInUse { .. })), "{error}");
    running.connect_to("first");
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let directory = directory();
    let path = directory.path().join("nbd.sock");
    fs::write(&path, "precious").expect("there is space");
    let error = refusal(&directory, |_| {});
    assert!(matches!(error, ServerError::Start(StartError::NotASocket { .. })), "{error}");
    assert_eq!(fs::read(&path).expect("it is still there"), b"precious");
}

#[test]
fn a_socket_needs_its_directory() {
    let directory = directory();
    let path = directory.path().join("missing/nbd.sock");
    let error = refusal(&directory, |config| config.unix_path = path);
    assert!(matches!(error, ServerError::Start(StartError::Listen { .. })), "{error}");
}

#[test]
fn strangers_need_tls() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:10809"] {
        let address = address.parse().expect("an address");
        let directory = directory();
        let error = refusal(&directory, |config| config.tcp = Some(address));
        assert!(matches!(error, ServerError::TlsRequired { .. }), "{error}");
        assert!(!directory.path().join("nbd.sock").exists(), "nothing is left behind");
    }
}

#[test]
fn a_tcp_address_that_is_taken_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it is bound");
    let directory = directory();
    let error = refusal(&directory, |config| {
        config.tcp = Some(address);
        config.tcp_access = TcpAccess::Anybody;
    });
    assert!(matches!(error, ServerError::ListenTcp { .. }), "{error}");
    assert!(!directory.path().join("nbd.sock").exists(), "nothing is left behind");
}

#[test]
fn tls_needs_files_with_certificates() {
    let directory = directory();
    let good = certificate(directory.path(), "good");
    let empty = directory.path().join("empty.pem");
    fs::write(&empty, "").expect("there is space");
    let missing = directory.path().join("missing.pem");
    for files in [
        TlsFiles { certificate: missing.clone(), ..good.clone() },
        TlsFiles { certificate: empty.clone(), ..good.clone() },
        TlsFiles { key: missing, ..good.clone() },
        TlsFiles { client_authorities: Some(empty), ..good },
    ] {
        let error = refusal(&directory, |config| config.tls = Some(files));
        assert!(matches!(error, ServerError::Tls(TlsError::File { .. })), "{error}");
    }
}

#[test]
fn a_certificate_needs_its_own_key() {
    let directory = directory();
    let other = certificate(directory.path(), "other");
    let files = TlsFiles { key: other.key, ..certificate(directory.path(), "good") };
    let error = refusal(&directory, |config| config.tls = Some(files));
    assert!(matches!(error, ServerError::Tls(TlsError::Pair { .. })), "{error}");
}

/// Connects to a server over TCP.
fn tcp_client(running: &Running) -> Client<TcpStream> {
    let address = running.server.tcp_address().expect("TCP was asked for");
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time can be set");
    Client { stream }
}

#[test]
fn neighbours_over_tcp_need_no_tls() {
    let loopback = "127.0.0.1:0".parse().expect("an address");
    let running = Running::with(exports(), |config| Config {
        tcp: Some(loopback),
        tcp_access: TcpAccess::Anybody,
        ..config
    });
    let mut client = tcp_client(&running);
    client.go("first");
    assert_eq!(client.request(request(command::FLUSH, 0, 0), &[]), 0);
}

#[test]
fn tcp_without_proof_of_clients_is_refused_unless_everybody_is_allowed() {
    let directory = directory();
    let loopback = "127.0.0.1:0".parse().expect("an address");
    let plain = refusal(&directory, |config| config.tcp = Some(loopback));
    let files = certificate(directory.path(), "server");
    let one_sided = refusal(&directory, |config| {
        config.tcp = Some(loopback);
        config.tls = Some(files);
    });
    for error in [plain, one_sided] {
        assert!(matches!(error, ServerError::Unprotected { .. }), "{error}");
    }
}

/// Export table with access rules: `first` only for certificates of `web.example`, everything for
/// other remote clients, nothing for local ones.
struct ByName(Arc<ExportTable>);

impl ByName {
    fn may_use(name: &str, client: &nbd::Client) -> bool {
        match client {
            nbd::Client::Certified(certificate) if certificate.is_for("web.example") => {
                name == "first"
            }
            nbd::Client::Certified(_) => true,
            nbd::Client::Local(_) | nbd::Client::Anybody => false,
        }
    }
}

impl Exports for ByName {
    fn admits(&self, _peer: &Peer) -> bool {
        false
    }

    fn find(&self, name: &str, client: &nbd::Client) -> Option<Export> {
        Self::may_use(name, client).then(|| self.0.find(name, client)).flatten()
    }

    fn list(&self, client: &nbd::Client) -> Vec<ExportInfo> {
        let mut list = self.0.list(client);
        list.retain(|export| Self::may_use(&export.name, client));
        list
    }
}

type TlsClient = Client<StreamOwned<ClientConnection, TcpStream>>;

/// Connects with TLS and presents a certificate, if it has one.
fn tls_client(running: &Running, authority: &Path, own: Option<&TlsFiles>) -> TlsClient {
    let mut plain = tcp_client(running);
    plain.greet();
    assert_eq!(plain.ask(option::STARTTLS, &[]), rep::ACK);
    let certificates = |path: &Path| -> Vec<CertificateDer<'static>> {
        let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        found.expect("certificates")
    };
    let mut trusted = RootCertStore::empty();
    trusted.add_parsable_certificates(certificates(authority));
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_root_certificates(trusted);
    let config = match own {
        Some(own) => {
            let key = PrivateKeyDer::from_pem_file(&own.key).expect("a key");
            let shown = config.with_client_auth_cert(certificates(&own.certificate), key);
            shown.expect("they belong together")
        }
        None => config.with_no_client_auth(),
    };
    let name = "localhost".try_into().expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
    Client { stream: StreamOwned::new(connection, plain.stream) }
}

#[test]
fn the_name_in_a_certificate_decides_what_a_client_may_use() {
    let directory = directory();
    let authority = Authority::new();
    let published = authority.publish(directory.path(), "authority.pem");
    let mut files = authority.issue(directory.path(), "server");
    files.client_authorities = Some(published.clone());
    let loopback = "127.0.0.1:0".parse().expect("an address");
    let running = Running::with(Arc::new(ByName(exports())), |config| Config {
        tcp: Some(loopback),
        tls: Some(files),
        ..config
    });
    let check = |dns_name: &str, expected: [u32; 2]| {
        let own = authority.issue_for(dns_name, directory.path(), dns_name);
        let mut client = tls_client(&running, &published, Some(&own));
        let go = |name: &str| export_query(name, &[]);
        let answers = ["first", "second"].map(|name| client.ask(option::INFO, &go(name)));
        assert_eq!(answers, expected, "{dns_name}");
    };
    check("web.example", [rep::ACK, rep::ERR_UNKNOWN]);
    check("backup.example", [rep::ACK, rep::ACK]);
    // A local process without access to any export is refused.
    assert!(running.connect().is_closed());
    assert_eq!(running.server.status().refused, 1);
}

#[test]
fn a_certificate_of_another_authority_is_none() {
    let directory = directory();
    let (authority, other) = (Authority::new(), Authority::new());
    let published = authority.publish(directory.path(), "authority.pem");
    let mut files = authority.issue(directory.path(), "server");
    files.client_authorities = Some(published.clone());
    let loopback = "127.0.0.1:0".parse().expect("an address");
    let running = Running::with(exports(), |config| Config {
        tcp: Some(loopback),
        tls: Some(files),
        ..config
    });
    let own = other.issue_for("web.example", directory.path(), "web");
    // Nor is a client without a certificate.
    for own in [Some(&own), None] {
        let mut client = tls_client(&running, &published, own);
        let sent = client.stream.write_all(&option_bytes(option::LIST, &[]));
        assert!(sent.is_err() || client.stream.read_exact(&mut [0]).is_err(), "it is answered");
    }
}

#[test]
fn tls_is_required_where_it_is_configured() {
    let certificates = directory();
    let files = certificate(certificates.path(), "server");
    let loopback = "127.0.0.1:0".parse().expect("an address");
    let running = Running::with(exports(), |config| Config {
        tcp: Some(loopback),
        tcp_access: TcpAccess::Anybody,
        tls: Some(files),
        ..config
    });
    let mut client = tcp_client(&running);
    client.greet();
    assert_eq!(client.ask(option::LIST, &[]), rep::ERR_TLS_REQD);
    assert_eq!(client.ask(option::STARTTLS, &[]), rep::ACK);
    client.send(b"this is no TLS");
    assert!(client.is_closed());
    running.connect_to("first");
}

/// Quota of `total` clients, all of which may be of one user.
fn of_all(total: usize) -> Quota {
    Quota { total, per_user: total, reserved: 0 }
}

#[test]
fn clients_beyond_the_limit_are_closed_at_once() {
    let running = Running::with(exports(), |config| Config { quota: of_all(2), ..config });
    let _first = running.connect_to("first");
    let second = running.connect_to("first");
    assert!(running.connect().is_closed());
    assert_eq!(running.server.status().refused, 1);
    drop(second);
    wait_until("a free place", || running.server.status().clients["first"] == 1);
    running.connect_to("first");
}

#[test]
fn neighbours_over_tcp_do_not_take_the_places_of_local_clients() {
    let loopback = "127.0.0.1:0".parse().expect("an address");
    let running = Running::with(exports(), |config| Config {
        tcp: Some(loopback),
        tcp_access: TcpAccess::Anybody,
        quota: of_all(1),
        ..config
    });
    let mut neighbour = tcp_client(&running);
    neighbour.go("first");
    running.connect_to("first");
}

const SHORT: Duration = Duration::from_millis(50);

#[test]
fn a_silent_client_is_closed() {
    let running = Running::with(exports(), |config| Config { handshake_time_max: SHORT, ..config });
    assert!(running.connect().is_closed());
}

#[test]
fn a_client_that_never_finishes_the_handshake_is_closed() {
    let running = Running::with(exports(), |config| Config { handshake_time_max: SHORT, ..config });
    let mut client = running.connect();
    let mut option = option_bytes(option::GO, &[]);
    option[12..16].fill(0xff);
    // The server may time out at any of these steps.
    let mut begin = || {
        client.stream.read_exact(&mut [0; GREETING.len()])?;
        client.stream.write_all(&CLIENT_FLAGS)?;
        client.stream.write_all(&option)
    };
    if begin().is_ok() {
        while client.stream.write_all(b"x").is_ok() {}
    }
    assert!(client.is_closed());
}

/// Connects and selects an export, repeatedly until that succeeds within the short time limit.
fn connect_in_time(running: &Running) -> Client<UnixStream> {
    let begun = Instant::now();
    loop {
        let mut client = running.connect();
        let go = option_bytes(option::GO, &export_query("first", &[]));
        let sent = client.stream.write_all(&[&CLIENT_FLAGS[..], &go].concat());
        let has_begun = sent.and_then(|()| client.stream.read_exact(&mut [0; GREETING.len()]));
        if has_begun.is_ok() && client.try_last_reply().is_ok_and(|kind| kind == rep::ACK) {
            return client;
        }
        assert!(begun.elapsed() < PATIENCE, "no handshake was over in {SHORT:?}");
    }
}

#[test]
fn a_client_in_transmission_may_be_silent() {
    let running = Running::with(exports(), |config| Config { handshake_time_max: SHORT, ..config });
    let mut patient = connect_in_time(&running);
    // Once a later client has timed out, this client's time limit has passed as well.
    assert!(running.connect().is_closed());
    assert_eq!(patient.request(request(command::FLUSH, 0, 0), &[]), 0);
}

#[test]
fn a_hostile_client_loses_its_own_connection_only() {
    let running = Running::new(exports());
    let mut good = running.connect_to("first");
    let mut bad = running.connect_to("first");
    bad.send(&[0xff; 4096]);
    assert!(bad.is_closed());
    assert_eq!(good.request(request(command::FLUSH, 0, 0), &[]), 0);
}

#[test]
fn a_client_that_does_not_take_its_replies_holds_up_nobody_else() {
    let running = Running::new(exports());
    let mut greedy = running.connect_to("first");
    for _ in 0..64 {
        greedy.send(&request(command::READ, 0, 1 << 20).bytes());
    }
    let mut good = running.connect_to("first");
    assert_eq!(good.request(request(command::FLUSH, 0, 0), &[]), 0);
}

#[test]
fn the_status_tells_who_is_connected() {
    let running = Running::new(exports());
    let first = running.connect_to("first");
    let _second = running.connect_to("first");
    let _third = running.connect_to("second");
    let _undecided = running.connect();
    wait_until("four connections", || running.server.status().handshakes == 1);
    let status = running.server.status();
    assert_eq!(status.clients["first"], 2);
    assert_eq!(status.clients["second"], 1);
    assert_eq!(status.accepted, 4);
    drop(first);
    wait_until("one less", || running.server.status().clients["first"] == 1);
}

#[test]
fn the_status_tells_what_was_done_by_whoever_has_gone() {
    let running = Running::new(exports());
    let mut client = running.connect_to("first");
    client.request(request(command::WRITE, 0, 4), b"abcd");
    assert_eq!(running.server.status().traffic.written_bytes, 4);
    drop(client);
    wait_until("silence", || running.server.status().clients.is_empty());
    assert_eq!(running.server.status().traffic.written_bytes, 4);
}

#[test]
fn an_export_can_be_disconnected() {
    let running = Running::new(exports());
    let mut first = running.connect_to("first");
    let mut second = running.connect_to("second");
    assert_eq!(running.server.disconnect("first"), 1);
    assert!(first.is_closed());
    assert_eq!(second.request(request(command::FLUSH, 0, 0), &[]), 0);
    wait_until("one less", || !running.server.status().clients.contains_key("first"));
}

#[test]
fn a_stopped_server_leaves_nothing_behind() {
    let running = Running::new(exports());
    let mut client = running.connect_to("first");
    let socket = running.socket();
    assert_eq!(running.server.stop(PATIENCE), 0);
    assert!(client.is_closed());
    assert!(!socket.exists());
}

#[test]
fn a_stopped_server_has_answered_what_had_arrived() {
    let running = Running::new(exports());
    let mut client = running.connect_to("first");
    for _ in 0..100 {
        client.send(&request(command::WRITE, 0, 4).bytes());
        client.send(b"abcd");
    }
    assert_eq!(running.server.stop(PATIENCE), 0);
    for _ in 0..100 {
        assert_eq!(client.receive(16)[4..8], [0; 4]);
    }
    assert!(client.is_closed());
}

#[test]
fn a_client_that_does_not_take_its_replies_is_cut_in_the_end() {
    let running = Running::new(exports());
    let mut greedy = running.connect_to("first");
    for _ in 0..64 {
        greedy.send(&request(command::READ, 0, 1 << 20).bytes());
    }
    wait_until("a full socket", || running.server.status().traffic.reads > 0);
    assert_eq!(running.server.stop(SHORT), 1);
}

#[test]
fn a_stopped_server_leaves_the_socket_of_its_successor() {
    let running = Running::new(exports());
    let socket = running.socket();
    fs::remove_file(&socket).expect("it is there");
    let successor = UnixListener::bind(&socket).expect("the name is free");
    running.server.stop(PATIENCE);
    assert!(socket.exists());
    drop(successor);
}

#[test]
fn a_dropped_server_is_stopped() {
    let running = Running::new(exports());
    let mut client = running.connect_to("first");
    drop(running.server);
    assert!(client.is_closed());
}

#[test]
fn each_serving_thread_is_prepared() {
    static PREPARED: AtomicUsize = AtomicUsize::new(0);
    fn prepare() {
        PREPARED.fetch_add(1, Ordering::Relaxed);
    }
    let running = Running::with(exports(), |config| Config { thread_start: prepare, ..config });
    running.connect_to("first");
    running.connect_to("first");
    assert_eq!(PREPARED.load(Ordering::Relaxed), 2);
}

/// Environment variable set for the process that has no descriptors left.
const STARVED: &str = "NBD_TEST_STARVED";

/// Runs in a separate process, because a limit on descriptors applies to all threads.
#[test]
fn a_server_that_cannot_have_its_thread_is_reported() {
    if env::var_os(STARVED).is_none() {
        let this = env::current_exe().expect("it is running");
        let test = "a_server_that_cannot_have_its_thread_is_reported";
        let child = Command::new(this).args(["--exact", test]).env(STARVED, "1").output();
        let child = child.expect("it can run twice");
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let directory = directory();
    let next = rustix::io::dup(io::stdin()).expect("there are descriptors").as_raw_fd();
    let mut limit = getrlimit(Resource::Nofile);
    // One descriptor for the socket, none for the accepting thread's event.
    limit.current = Some(u64::try_from(next).expect("descriptors are not negative") + 1);
    setrlimit(Resource::Nofile, limit).expect("limits can be lowered");
    let error = refusal(&directory, |_| {});
    assert!(matches!(error, ServerError::Start(StartError::Thread { .. })), "{error}");
}

#[test]
fn errors_tell_what_to_do() {
    let directory = directory();
    let address = "0.0.0.0:10809".parse().expect("an address");
    let error = refusal(&directory, |config| config.tcp = Some(address));
    assert_eq!(
        error.to_string(),
        "cannot serve NBD on 0.0.0.0:10809 without TLS: configure a certificate and a key, or \
         listen on a loopback address"
    );
}

#[test]
fn an_export_that_does_not_exist_can_be_asked_for_in_vain() {
    let running = Running::new(exports());
    let mut client = running.connect();
    client.greet();
    assert_eq!(client.ask(option::GO, &export_query("third", &[])), rep::ERR_UNKNOWN);
    assert_eq!(client.ask(option::GO, &export_query("first", &[])), rep::ACK);
}
