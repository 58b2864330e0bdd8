//! Tests of a server with clients that are unauthorized, send garbage or send nothing, and of a
//! client with such servers.
#![forbid(unsafe_code)]

mod pair;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use image::{ExtractName, ImageError, ImageErrorKind, ImageStore, ObjectName, PackName};
use pair::{Authority, PATIENCE, Pair, client_files};
use rcgen::date_time_ymd;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use storage::AlignedBuffer;
use store_server::{StoreAddress, StoreClient};
use tls::{TlsClientFiles, load_client};

fn told(error: &ImageError) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |it| it.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[track_caller]
fn check_refused(store: &Arc<dyn ImageStore>, kind: ImageErrorKind, expected: &str) {
    let error = store.images().expect_err("it is refused");
    assert!(error.kind == kind && told(&error).contains(expected), "{}", told(&error));
}

/// Connection of an accepted client, for arbitrary requests.
struct Line(StreamOwned<ClientConnection, TcpStream>);

impl Line {
    fn open(pair: &Pair) -> Self {
        let files = client_files(&pair.authority, "other.example");
        let config = Arc::new(load_client(&files).expect("the files are whole"));
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = TcpStream::connect(pair.spec.listen).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
        let connection = ClientConnection::new(config, name).expect("the settings are whole");
        Self(StreamOwned::new(connection, stream))
    }

    /// Sends bytes. Returns the response up to `enough` or the end of the connection.
    fn exchange(&mut self, request: &[u8], enough: &str) -> String {
        // The server may answer and close before it has read everything.
        let _ = self.0.write_all(request).and_then(|()| self.0.flush());
        let (mut answer, mut piece) = (String::new(), [0; 4096]);
        while !answer.contains(enough) {
            match self.0.read(&mut piece) {
                Ok(0) | Err(_) => break,
                Ok(count) => answer += &String::from_utf8_lossy(&piece[..count]),
            }
        }
        answer
    }
}

#[test]
fn certificates_that_do_not_fit_are_named() {
    let pair = Pair::start();
    let own = client_files(&pair.authority, "writer.example");
    let foreign = Authority::new();
    let client = |tls: TlsClientFiles| pair.client_with(tls);
    let denied = ImageErrorKind::Denied;

    let of_other = client_files(&foreign, "stranger.example");
    let stranger = TlsClientFiles { authorities: own.authorities.clone(), ..of_other.clone() };
    check_refused(&client(stranger), denied, "the server refused store-certificate");
    pair.news.wait_for("refused: the TLS handshake failed");

    let distrusting = TlsClientFiles { authorities: of_other.authorities, ..own.clone() };
    check_refused(&client(distrusting), denied, "is not signed by an authority in store-ca");

    let (certificate, key) = pair.authority.issue_with("old.example", |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    });
    let old = TlsClientFiles { certificate, key, authorities: own.authorities.clone() };
    check_refused(&client(old), denied, "it has expired");

    let place = format!("memlane://127.0.0.1:{}", pair.spec.listen.port());
    let by_address = StoreAddress { place, tls: own.clone() };
    let by_address: Arc<dyn ImageStore> =
        Arc::new(StoreClient::with_patience(by_address, PATIENCE).expect("the files are whole"));
    check_refused(&by_address, denied, "the server's certificate has another name");

    client(own).images().expect("the right one is admitted");
    let refused = pair.status().refused;
    assert!(refused >= 2, "{refused}");
}

#[test]
fn a_servers_certificate_that_has_expired_is_named() {
    let pair = Pair::start_with(|_| {});
    let (certificate, key) = pair.authority.issue_with("localhost", |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    });
    let files = tls::TlsFiles {
        certificate,
        key,
        client_authorities: Some(pair.authority.own_file.clone()),
    };
    let settings = tls::TlsSettings::load(&files).expect("the files are whole");
    pair.server.as_ref().expect("it runs").set_tls(&settings);
    check_refused(&pair.client(), ImageErrorKind::Denied, "the server's certificate has expired");
}

#[test]
fn a_certificate_that_was_renewed_is_used_without_a_restart() {
    let pair = Pair::start();
    let (certificate, key) = pair.authority.issue_with("writer.example", |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    });
    let files = TlsClientFiles { certificate, key, authorities: pair.authority.own_file.clone() };
    let store = pair.client_with(files);
    check_refused(&store, ImageErrorKind::Denied, "it has expired");
    pair.authority.issue("writer.example");
    store.images().expect("the new one is read");
}

#[test]
fn only_clients_that_are_named_are_answered() {
    let pair = Pair::start_with(|spec| spec.clients = vec!["writer.example".to_owned()]);
    pair.client().images().expect("it is named");
    let other = pair.client_with(client_files(&pair.authority, "other.example"));
    check_refused(&other, ImageErrorKind::Denied, "other.example, which is not in clients");
    pair.news.wait_for("refused: its certificate is for other.example");
    pair.news.wait_for("came writer.example");
    let names = put_extracts(&pair.client());
    let removed = other.remove_extracts(&names).expect_err("it is not named");
    assert_eq!(removed.kind, ImageErrorKind::Denied);
    assert_eq!(pair.client().extracts().expect("listed").len(), names.len());
}

/// Puts extracts of the journal, and returns their names.
fn put_extracts(store: &Arc<dyn ImageStore>) -> [ExtractName; 3] {
    let names = [1, 2, 3].map(|segment| ExtractName { writer: 7, segment, offset: 0 });
    for name in names {
        store.put_extract(name, &AlignedBuffer::zeroed(4096)).expect("there is room");
    }
    names
}

#[test]
fn a_removal_of_extracts_that_is_not_valid_as_a_whole_removes_none() {
    let pair = Pair::start();
    let store = pair.client();
    let [one, two, three] = put_extracts(&store);
    let head = |length| {
        format!("DELETE /v1/journal HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")
    };
    let check = |request: String| {
        let answer = Line::open(&pair).exchange(request.as_bytes(), "memlane-error");
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    };
    for body in [format!("{one}\n{two}\n../{three}\n"), format!("{one}\r\n{two}\r\n")] {
        check(head(body.len()) + &body);
    }
    // Too many are refused before they arrive.
    check(head(format!("{one}\n").len() * 4097));
    // One that ends too early.
    let mut line = Line::open(&pair);
    line.0.write_all(format!("{}{one}\n{two}\n", head(165)).as_bytes()).expect("it reads");
    line.0.flush().expect("it reads");
    drop(line);
    let left = store.extracts().expect("listed");
    assert_eq!(left.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), [one, two, three]);
    store.remove_extracts(&[one, three]).expect("removals work");
    let left = store.extracts().expect("listed");
    assert_eq!(left.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), [two]);
}

#[test]
fn plain_text_and_noise_are_refused() {
    let pair = Pair::start();
    for sent in [&b"GET /v1/images HTTP/1.1\r\nHost: a\r\n\r\n"[..], &[0xFF; 4096], b""] {
        let mut stream = TcpStream::connect(pair.spec.listen).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
        // It may close the connection before everything is sent.
        let _ = stream.write_all(sent);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }
    pair.client().images().expect("it still answers");
}

#[test]
fn two_hundred_silent_connections_keep_no_client_away() {
    let pair = Pair::start();
    let store = pair.client();
    store.images().expect("it answers");
    let open = || TcpStream::connect(pair.spec.listen).expect("it listens");
    let silent: Vec<_> = (0..200).map(|_| open()).collect();
    store.images().expect("it still answers");
    pair.client().images().expect("it answers others too");
    drop(silent);
}

#[test]
fn requests_that_make_no_sense_are_refused_and_change_nothing() {
    let pair = Pair::start();
    let pack = PackName { writer: 1, index: 1 };
    let outside = pair.folder.path().join("outside");
    std::fs::write(&outside, [1; 4096]).expect("there is room");
    let long = format!("/v1/packs/{}", "a".repeat(30_000));
    for (method, path, headers) in [
        ("GET", "/v1/packs/../../outside?offset=0&length=4096", ""),
        ("GET", "/v1/packs/%2e%2e%2f%2e%2e%2foutside?offset=0&length=4096", ""),
        ("GET", "/v1/images/../../outside?offset=0&length=4096", ""),
        ("DELETE", "/v1/packs/../../outside", ""),
        ("PUT", "/v1/packs/..", "Content-Length: 4096\r\n"),
        ("PUT", "/v1/journal/.new-1", "Content-Length: 4096\r\n"),
        ("GET", "/v2/images", ""),
        ("GET", "/v1/", ""),
        ("GET", &long, ""),
        ("PATCH", "/v1/images", ""),
        ("DELETE", "/v1/images", ""),
        ("DELETE", "/v1/packs", ""),
        ("DELETE", "/v1/journal", "Content-Length: 4096\r\n"),
        ("DELETE", "/v1/journal", "Content-Length: 1099511627776\r\n"),
        ("DELETE", "/v1/journal", "Transfer-Encoding: chunked\r\n"),
        ("PUT", &format!("/v1/packs/{pack}?offset=1"), "Content-Length: 4096\r\n"),
        ("PUT", &format!("/v1/packs/{pack}?offset=-1"), "Content-Length: 4096\r\n"),
        ("PUT", &format!("/v1/packs/{pack}"), "Content-Length: 4095\r\n"),
        ("PUT", &format!("/v1/packs/{pack}"), "Content-Length: 1099511627776\r\n"),
        ("PUT", &format!("/v1/packs/{pack}"), "Transfer-Encoding: chunked\r\n"),
        ("PUT", "/v1/images/0000000001?offset=4096", "Content-Length: 4096\r\n"),
        ("PUT", "/v1/images/0000000001", "Content-Length: 1099511627776\r\n"),
        ("GET", &format!("/v1/packs/{pack}?offset=0&length=0"), ""),
        ("GET", &format!("/v1/packs/{pack}?offset=0&length=999999999999"), ""),
        ("GET", &format!("/v1/packs/{pack}?offset=18446744073709551615&length=4096"), ""),
    ] {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        let mut line = Line::open(&pair);
        let body = if headers.is_empty() { vec![] } else { vec![0; 4096] };
        let answer = line.exchange(&[request.as_bytes(), &body].concat(), "memlane-error");
        assert!(answer.starts_with("HTTP/1.1 4"), "{method} {path}: {answer}");
    }
    assert!(outside.exists());
    let store = pair.client();
    assert_eq!(store.images().expect("listed"), []);
    assert_eq!(store.packs().expect("listed"), []);
    assert_eq!(store.extracts().expect("listed"), []);
}

#[test]
fn bodies_that_never_end_keep_nobody_away_and_leave_nothing_visible() {
    let pair = Pair::start();
    let mut lines: Vec<Line> = (0..20).map(|_| Line::open(&pair)).collect();
    for (number, line) in lines.iter_mut().enumerate() {
        let head = format!(
            "PUT /v1/images/{number:010} HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n\r\n"
        );
        line.0.write_all(head.as_bytes()).expect("it reads");
        line.0.write_all(&vec![1; 3 << 20]).expect("it reads");
        line.0.flush().expect("it reads");
    }
    let store = pair.client();
    assert_eq!(store.images().expect("listed"), []);
    store.create_image(3, &[7; 4096]).expect("the number is free");
    drop(lines);
    assert_eq!(store.images().expect("listed"), [(3, 4096)]);
    let begun = std::time::Instant::now();
    let left = || std::fs::read_dir(pair.directory().join("images")).expect("listed").count();
    while left() > 1 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} files are left", left());
        thread::sleep(Duration::from_millis(10));
    }
}

/// TLS server that answers each request with these bytes.
fn false_server(authority: &Authority, answer: Vec<u8>) -> SocketAddr {
    server_with(authority, move |_| answer.clone())
}

/// TLS server that answers the first request of each connection with bytes.
fn server_with(
    authority: &Authority,
    answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
) -> SocketAddr {
    let (certificate, key) = authority.issue("localhost");
    let files = tls::TlsFiles { certificate, key, client_authorities: None };
    let config = tls::TlsSettings::load(&files).expect("the files are whole").server_config();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let answer = Arc::new(answer);
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let (config, answer) = (Arc::clone(&config), Arc::clone(&answer));
            thread::spawn(move || {
                let connection = rustls::ServerConnection::new(config).expect("sound settings");
                let mut stream = StreamOwned::new(connection, stream);
                let mut request = [0; 4096];
                let length = stream.read(&mut request).unwrap_or(0);
                let answer = answer(&String::from_utf8_lossy(&request[..length]));
                let _ = stream.write_all(&answer).and_then(|()| stream.flush());
            });
        }
    });
    address
}

#[test]
fn a_server_of_something_else_is_no_image_store() {
    let authority = Authority::new();
    let files = client_files(&authority, "writer.example");
    let head = |status: &str, headers: &str| format!("HTTP/1.1 {status}\r\n{headers}\r\n");
    let ours = "memlane-store: 1\r\n";
    let long = [
        head("200 OK", "memlane-store: 1\r\nContent-Length: 99999999999\r\n").as_bytes(),
        &vec![b'a'; 80 << 20],
    ]
    .concat();
    for (answer, kind, expected) in [
        (head("200 OK", "Content-Length: 0\r\n").into_bytes(), ImageErrorKind::Invalid, "version"),
        (
            head("404 Not Found", "memlane-store: 2\r\nContent-Length: 0\r\n").into_bytes(),
            ImageErrorKind::Invalid,
            "version",
        ),
        (
            format!("{}abc def\n", head("200 OK", &format!("{ours}Content-Length: 8\r\n")))
                .into_bytes(),
            ImageErrorKind::Invalid,
            "no list",
        ),
        (long, ImageErrorKind::Invalid, "is longer than"),
        (
            head("307 Temporary", "Location: https://127.0.0.1/\r\nContent-Length: 0\r\n")
                .into_bytes(),
            ImageErrorKind::Invalid,
            "version",
        ),
        (vec![0xFF; 100], ImageErrorKind::Unavailable, "cannot reach"),
    ] {
        let place = format!("memlane://localhost:{}", false_server(&authority, answer).port());
        let address = StoreAddress { place, tls: files.clone() };
        let store: Arc<dyn ImageStore> =
            Arc::new(StoreClient::with_patience(address, PATIENCE).expect("the files are whole"));
        check_refused(&store, kind, expected);
    }
}

#[test]
fn an_answer_with_too_few_bytes_is_damage() {
    let authority = Authority::new();
    let answer = b"HTTP/1.1 200 OK\r\nmemlane-store: 1\r\nContent-Length: 2\r\n\r\nab".to_vec();
    let place = format!("memlane://localhost:{}", false_server(&authority, answer).port());
    let tls = client_files(&authority, "writer.example");
    let store = StoreClient::with_patience(StoreAddress { place, tls }, PATIENCE);
    let store = store.expect("the files are whole");
    let error = store.read(ObjectName::Image(1), 0, &mut [0; 4096]).expect_err("it is short");
    assert_eq!(error.kind, ImageErrorKind::Damaged);
}

#[test]
fn extracts_are_removed_one_by_one_from_a_server_that_does_not_remove_several_at_once() {
    let authority = Authority::new();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&requests);
    let address = server_with(&authority, move |request| {
        let line = request.lines().next().unwrap_or_default().to_owned();
        let is_known = line.starts_with("DELETE /v1/journal/");
        asked.lock().expect("no thread panics with it").push(line);
        let (status, kind) = match is_known {
            true => ("204 No Content", ""),
            false => ("400 Bad Request", "memlane-error: invalid\r\nContent-Length: 0\r\n"),
        };
        let close = "Connection: close\r\n";
        format!("HTTP/1.1 {status}\r\nmemlane-store: 1\r\n{kind}{close}\r\n").into_bytes()
    });
    let place = format!("memlane://localhost:{}", address.port());
    let tls = client_files(&authority, "writer.example");
    let store = StoreClient::with_patience(StoreAddress { place, tls }, PATIENCE);
    let store = store.expect("the files are whole");
    let names = [1, 2, 3].map(|segment| ExtractName { writer: 7, segment, offset: 0 });
    store.remove_extracts(&names).expect("each is removed");
    let expected = names.map(|name| format!("DELETE /v1/journal/{name} HTTP/1.1"));
    let requests = requests.lock().expect("no thread panics with it");
    assert_eq!(requests[0], "DELETE /v1/journal HTTP/1.1");
    assert_eq!(requests[1..], expected);
}
