//! Black-box tests of the console over HTTPS, with a real daemon: permissions, sessions, limits,
//! crashes.

mod command_line;
mod evidence;
mod fixture;
mod limits;
mod machines;
mod second_factor;
mod sign_on;
mod topics;

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use api::{ENDPOINTS, Endpoint, Method, Role};
use rustix::process::{Resource, Signal, getrlimit, setrlimit};
use serde_json::{Value, json};
use system::wait_for;

use crate::fixture::{Answer, Client, Fixture, PASSWORD};

/// Operations without authentication.
const FOR_EVERYBODY: &[&str] = &["health", "readiness"];

/// Requests that match no endpoint.
const UNKNOWN: &[(&str, &str)] = &[
    ("GET", "/v1/nothing"),
    ("PUT", "/v1/volumes"),
    ("DELETE", "/v1/status"),
    ("POST", "/v1/volumes/nothing/nothing"),
    ("GET", "/v2/volumes"),
];

/// Requests that change the console's own state, with their bodies.
const OWN_CHANGES: &[(&str, &str, &str)] = &[
    ("POST", "users", r#"{"name": "eve", "password": "four words are long", "role": "viewer"}"#),
    ("PATCH", "users/ann", r#"{"role": "administrator"}"#),
    ("DELETE", "users/ann", "{}"),
    ("POST", "projects", r#"{"name": "shop", "prefix": "shop-"}"#),
    ("PATCH", "projects/shop", "{}"),
    ("DELETE", "projects/shop", "{}"),
    ("POST", "tokens", r#"{"name": "t", "role": "viewer"}"#),
    ("DELETE", "tokens/1", "{}"),
    ("DELETE", "sessions/1", "{}"),
    ("POST", "password", r#"{"current": "a", "new": "four words are long"}"#),
    ("POST", "second-factor", r#"{"password": "four words are long enough"}"#),
    ("POST", "second-factor/confirm", r#"{"code": "123456"}"#),
    ("POST", "second-factor/disable", r#"{"password": "a", "code": "123456"}"#),
    ("DELETE", "users/ann/second-factor", "{}"),
    ("PATCH", "rules", r#"{"second_factor_required": true}"#),
    ("POST", "query", r#"{"query": "SELECT 1"}"#),
    ("POST", "groups/readers/offsets", r#"{"to": "latest"}"#),
    ("DELETE", "session", "{}"),
];

const TIME_LIMIT: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Number of concurrent logins with wrong passwords.
const GUESSES: usize = 20;

/// Resolution of the console's clock.
const CLOCK_STEP: Duration = Duration::from_secs(1);

/// Number of requests whose head is too long.
const LONG_HEADS: usize = 20;

/// More than the console's limit.
const IDLE_CONNECTIONS: usize = 3_000;

#[track_caller]
fn check(answer: &Answer, status: u16, kind: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.kind().expect("a problem"), kind, "{answer:?}");
}

/// Sends a request of the endpoint for objects that do not exist.
fn try_endpoint(fixture: &Fixture, client: &Client, endpoint: &Endpoint) -> Result<Answer> {
    let path = match endpoint.path.contains("{number}") || endpoint.path.contains("{id}") {
        true => api::path_of(endpoint.path, "4000000"),
        false => api::path_of(endpoint.path, "nothing"),
    };
    let body =
        (endpoint.method == Method::Post || endpoint.method == Method::Patch).then_some("{}");
    fixture.ask(client, endpoint.method.name(), &path, body)
}

#[test]
fn each_operation_of_the_daemon_takes_a_login_and_its_role() -> Result<()> {
    let (mut fixture, administrator) = Fixture::with_administrator()?;
    let viewer = fixture.user(&administrator, &json!({"name": "vic", "role": "viewer"}))?;
    let operator = fixture.user(&administrator, &json!({"name": "olga", "role": "operator"}))?;
    let mut asked = 0;
    for endpoint in ENDPOINTS {
        let name = endpoint.operation;
        let is_public = FOR_EVERYBODY.contains(&name);
        let rank = match endpoint.permission.role {
            Role::Viewer => 0,
            Role::Operator => 1,
            Role::Administrator => 2,
        };
        for client in [&Client::nobody(), &Client::with_token("made-up")] {
            let status = try_endpoint(&fixture, client, endpoint)?.status;
            assert_eq!(status == 401, !is_public, "{name}: {status}");
        }
        for (place, client) in [&viewer, &operator, &administrator].into_iter().enumerate() {
            let answer = try_endpoint(&fixture, client, endpoint)?;
            if place < rank {
                check(&answer, 403, "forbidden");
            } else {
                assert!(![401, 403, 405].contains(&answer.status), "{name} {place}: {answer:?}");
            }
            asked += 1;
        }
    }
    eprintln!("{asked} requests to {} operations", ENDPOINTS.len());
    // Without a daemon, the console itself must reject unknown requests.
    fixture.daemon.kill()?;
    check(&fixture.get(&administrator, "/v1/volumes")?, 503, "daemon_down");
    for (method, path) in UNKNOWN {
        let status = fixture.ask(&administrator, method, path, None)?.status;
        assert!([403, 404, 405].contains(&status), "{method} {path}: {status}");
    }
    Ok(())
}

#[test]
fn what_changes_something_comes_from_the_consoles_own_page() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let cookie = Client { headers: administrator.headers[..1].to_vec() };
    let body = json!({"name": "db", "size": "1MiB"});
    let post = |client: &Client| fixture.post(client, "/v1/volumes", &body);
    let origin = format!("Origin: https://{}", fixture.address());
    for forged in [&cookie, &cookie.with("X-Memlane-CSRF: made-up")] {
        check(&post(forged)?, 403, "forged");
        for endpoint in ENDPOINTS.iter().filter(|it| it.method != Method::Get) {
            check(&try_endpoint(&fixture, forged, endpoint)?, 403, "forged");
        }
        for (method, path, body) in OWN_CHANGES {
            let path = format!("/console/v1/{path}");
            check(&fixture.ask(forged, method, &path, Some(body))?, 403, "forged");
        }
    }
    for foreign in ["Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "Origin: null"] {
        check(&post(&administrator.with(foreign))?, 403, "forged");
        let login = json!({"name": "ann", "password": PASSWORD});
        let answer =
            fixture.post(&Client::nobody().with(foreign), "/console/v1/session", &login)?;
        check(&answer, 403, "forged");
    }
    ensure!(fixture.daemon.volumes()?.is_empty(), "a volume was made");
    let own = administrator.with(&origin).with("Sec-Fetch-Site: same-origin");
    assert_eq!(post(&own)?.status, 201);
    Ok(())
}

#[test]
fn a_login_begins_a_session_of_its_own_that_ends_with_the_logout() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let fixed = "Cookie: __Host-memlane-session=chosen-by-somebody-else";
    let login = json!({"name": "ann", "password": PASSWORD});
    let before = Client::nobody().with(fixed);
    let answer = fixture.post(&before, "/console/v1/session", &login)?;
    assert_eq!(answer.status, 200);
    let cookie = answer.cookie()?;
    assert!(!cookie.contains("chosen"), "{cookie}");
    for word in ["Secure", "HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(answer.head.contains(word), "{answer:?}");
    }
    check(&fixture.get(&before, "/v1/volumes")?, 401, "unauthorized");
    let client = fixture::client_of(&answer)?;
    // A second login in the same browser ends the first session.
    let again = Client { headers: client.headers[..1].to_vec() };
    let second = fixture.post(&again, "/console/v1/session", &login)?;
    assert_eq!(second.status, 200);
    check(&fixture.get(&client, "/v1/volumes")?, 401, "unauthorized");
    let client = fixture::client_of(&second)?;
    assert_eq!(fixture.ask(&client, "DELETE", "/console/v1/session", None)?.status, 204);
    check(&fixture.get(&client, "/console/v1/session")?, 401, "unauthorized");
    assert_eq!(fixture.get(&administrator, "/console/v1/session")?.status, 200);
    Ok(())
}

#[test]
fn the_setup_link_works_once() -> Result<()> {
    let mut fixture = Fixture::start()?;
    let old = fixture.setup_code()?;
    fixture.end_console(Signal::TERM)?;
    fixture.start_console()?;
    let code = fixture.setup_code()?;
    let set_up = |code: &str, password: &str| {
        let body = json!({"code": code, "name": "ann", "password": password});
        fixture.post(&Client::nobody(), "/console/v1/setup", &body)
    };
    check(&set_up(&old, PASSWORD)?, 403, "forbidden");
    check(&set_up(&code, "short")?, 422, "invalid_field");
    assert_eq!(set_up(&code, PASSWORD)?.status, 200);
    check(&set_up(&code, PASSWORD)?, 403, "forbidden");
    assert!(!fixture.state_dir().join("setup-link").exists());
    let mut logs = fixture.log() + &fixture.daemon.log_end();
    for file in std::fs::read_dir(fixture.state_dir())? {
        logs += &String::from_utf8_lossy(&std::fs::read(file?.path())?);
    }
    assert!(logs.contains("ann"), "{logs}");
    assert!(!logs.contains(&code) && !logs.contains(&old), "the code was logged: {logs}");
    Ok(())
}

#[test]
fn tricks_with_paths_lead_nowhere() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let limited = limited_user(&fixture, &administrator, 1 << 30)?;
    fixture.daemon.memlane("volume create secret --size 1MiB")?;
    for path in [
        "/v1/../console/v1/users",
        "/v1/volumes/../status",
        "/v1/volumes/%2e%2e/status",
        "/v1/volumes/shop-%2f..%2fsecret",
        "/v1/volumes/shop-/../secret",
        "//v1/volumes/secret",
        "/v1//volumes/secret",
        "/v1/volumes/secret/",
        "/v1/volumes/shop-%00secret",
        "/V1/volumes/secret",
        "/./v1/volumes/secret",
        "/v1/snapshots/shop-a@b/../../volumes/secret",
        "/console/v1/users/",
        "/assets/../../../../etc/passwd",
        "/..%2f..%2fetc/passwd",
    ] {
        let answer = fixture.get(&limited, path)?;
        assert!([400, 403, 404].contains(&answer.status), "{path}: {answer:?}");
        assert!(!answer.body.contains("size_bytes") && !answer.body.contains("root:"), "{path}");
    }
    // A percent-encoded name is the same name.
    check(&fixture.get(&limited, "/v1/volumes/%73ecret")?, 403, "forbidden");
    Ok(())
}

#[test]
fn what_is_too_large_or_takes_too_long_is_refused_and_others_are_served() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let body = json!({"name": "x".repeat(300 << 10), "size": "1MiB"});
    check(&fixture.post(&administrator, "/v1/volumes", &body)?, 413, "body_too_large");
    // The response is sent before the request is read, and must not be lost when the connection
    // closes.
    let long = administrator.with(&format!("X-Long: {}", "x".repeat(120 << 10)));
    for _ in 0..LONG_HEADS {
        assert_eq!(fixture.get(&long, "/v1/volumes")?.status, 431);
    }
    for (path, body) in [
        ("/console/v1/users", "{"),
        ("/console/v1/users", "[]"),
        ("/console/v1/users", r#"{"name": "bob", "password": "four words", "role": "king"}"#),
        ("/console/v1/tokens", r#"{"name": "t", "role": "viewer", "colour": 1}"#),
    ] {
        let answer = fixture.ask(&administrator, "POST", path, Some(body))?;
        assert!([400, 422].contains(&answer.status), "{answer:?}");
    }
    allow_descriptors(IDLE_CONNECTIONS)?;
    let idle: Vec<_> = (0..IDLE_CONNECTIONS)
        .map(|_| TcpStream::connect(fixture.address()).context("a connection"))
        .collect::<Result<_>>()?;
    // Idle connections take at most half of the slots, and time out.
    assert_eq!(fixture.get(&administrator, "/v1/volumes")?.status, 200);
    eprintln!("served behind {} idle connections", idle.len());
    Ok(())
}

/// Raises the limit on open files for `count` connections.
fn allow_descriptors(count: usize) -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    let needed = u64::try_from(count)? + 500;
    if limit.current.is_some_and(|it| it < needed) {
        limit.current = Some(limit.maximum.map_or(needed, |it| it.min(needed)));
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(())
}

#[test]
fn who_guesses_passwords_waits() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    fixture.user(&administrator, &json!({"name": "bob", "role": "viewer"}))?;
    let retry_after = |answer: &Answer| -> Option<u64> {
        answer.head.lines().find_map(|it| it.strip_prefix("retry-after: "))?.parse().ok()
    };
    // Repeat until the delay is long enough for a slow host.
    let mut failures = 0;
    wait_for("a long wait", TIME_LIMIT, || {
        let answer = fixture.try_log_in("bob", "not his password")?;
        failures += usize::from(answer.status == 401);
        Ok(answer.status == 429 && retry_after(&answer) > Some(3))
    })?;
    assert!(failures > 5, "{failures}");
    let late = |password: &str| fixture.try_log_in("bob", password);
    // The correct password is delayed as well.
    check(&late(PASSWORD)?, 429, "too_many_attempts");
    assert_eq!(fixture.try_log_in("ann", PASSWORD)?.status, 200);
    wait_for("the end of the wait", TIME_LIMIT, || Ok(late(PASSWORD)?.status == 200))?;
    let entries = whole_audit(&fixture, &administrator)?;
    let refused = |it: &&Value| it["status"] == 401 && it["user"] == "bob";
    assert_eq!(entries.iter().filter(refused).count(), failures);
    assert!(entries.iter().all(|it| !it.to_string().contains(PASSWORD)));
    Ok(())
}

/// Returns all audit entries, newest first. Refused attempts are entries as well, so there are more
/// than one response holds.
fn whole_audit(fixture: &Fixture, administrator: &Client) -> Result<Vec<Value>> {
    let mut entries: Vec<Value> = Vec::new();
    loop {
        let before = entries.last().map_or(String::new(), |it| format!("&before={}", it["id"]));
        let path = format!("/console/v1/audit?limit=1000{before}");
        let more = fixture.get(administrator, &path)?.json()?;
        let more = more.as_array().context("a list")?;
        if more.is_empty() {
            return Ok(entries);
        }
        entries.extend_from_slice(more);
    }
}

#[test]
fn many_guesses_at_once_are_no_more_than_one_after_the_other() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    fixture.user(&administrator, &json!({"name": "bob", "role": "viewer"}))?;
    let begin = Instant::now();
    let guess = || fixture.try_log_in("bob", "not his password").map(|it| it.status);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let guessing: Vec<_> = (0..GUESSES).map(|_| scope.spawn(guess)).collect();
        guessing.into_iter().map(|it| it.join().expect("it does not panic")).collect::<Result<_>>()
    })?;
    let count = |status| statuses.iter().filter(|it| **it == status).count();
    assert_eq!(count(401) + count(429), GUESSES, "{statuses:?}");
    // On a slow host, earlier delays (2 s, doubling) may have passed before the last attempt.
    let mut over = 0;
    while Duration::from_secs((2 << (over + 1)) - 2) <= begin.elapsed() + CLOCK_STEP {
        over += 1;
    }
    assert!((5..=5 + over).contains(&count(401)), "{over} waits were over: {statuses:?}");
    let odd = fixture.try_log_in(&"my secret password ".repeat(100), "x")?;
    check(&odd, 401, "unauthorized");
    let audit = fixture.get(&administrator, "/console/v1/audit")?.body;
    assert!(!audit.contains("my secret"), "{audit}");
    Ok(())
}

#[test]
fn the_state_folder_is_one_consoles_and_its_owners() -> Result<()> {
    let (mut fixture, _) = Fixture::with_administrator()?;
    for file in std::fs::read_dir(fixture.state_dir())? {
        let file = file?;
        let mode = file.metadata()?.permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", file.path());
    }
    let second = system::product("memlane-console").args(["--listen", "127.0.0.1:0"]);
    let second = second.arg("--state-dir").arg(fixture.state_dir()).run()?;
    assert_eq!(second.exit_code, Some(1));
    assert!(second.stderr.contains("another memlane-console"), "{}", second.stderr);
    fixture.end_console(Signal::TERM)?;
    std::fs::set_permissions(fixture.state_dir(), std::fs::Permissions::from_mode(0o755))?;
    let open = system::product("memlane-console").args(["--listen", "127.0.0.1:0"]);
    let open = open.arg("--state-dir").arg(fixture.state_dir()).run()?;
    assert!(open.stderr.contains("chmod 700"), "{}", open.stderr);
    Ok(())
}

#[test]
fn tokens_act_for_their_owner_until_they_expire_or_are_deleted() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let olga = fixture.user(&administrator, &json!({"name": "olga", "role": "operator"}))?;
    let make = |client: &Client, body: Value| fixture.post(client, "/console/v1/tokens", &body);
    check(&make(&olga, json!({"name": "t", "role": "administrator"}))?, 422, "invalid_field");
    let made = make(&olga, json!({"name": "t", "role": "operator"}))?.json()?;
    let secret = made["secret"].as_str().context("no secret")?;
    let token = Client::with_token(secret);
    let volume = json!({"name": "db", "size": "1MiB"});
    assert_eq!(fixture.post(&token, "/v1/volumes", &volume)?.status, 201);
    check(&make(&token, json!({"name": "u", "role": "viewer"}))?, 403, "forbidden");
    check(&fixture.get(&token, "/console/v1/users")?, 403, "forbidden");
    for file in std::fs::read_dir(fixture.state_dir())? {
        let contents = std::fs::read(file?.path())?;
        assert!(!String::from_utf8_lossy(&contents).contains(secret), "a secret is kept");
    }
    let short = json!({"name": "short", "role": "viewer", "expires_in_seconds": 1});
    let short = make(&olga, short)?.json()?;
    let short = Client::with_token(short["secret"].as_str().context("no secret")?);
    let is_over = || Ok(fixture.get(&short, "/v1/volumes")?.status == 401);
    wait_for("the end of a token", TIME_LIMIT, is_over)?;
    let deleted = make(&olga, json!({"name": "gone", "role": "viewer"}))?.json()?;
    let gone = Client::with_token(deleted["secret"].as_str().context("no secret")?);
    assert_eq!(fixture.get(&gone, "/v1/volumes")?.status, 200);
    let path = format!("/console/v1/tokens/{}", deleted["id"].as_str().context("no id")?);
    assert_eq!(fixture.ask(&olga, "DELETE", &path, None)?.status, 204);
    check(&fixture.get(&gone, "/v1/volumes")?, 401, "unauthorized");
    let user = "/console/v1/users/olga";
    let demoted = fixture.ask(&administrator, "PATCH", user, Some(r#"{"role": "viewer"}"#))?;
    assert_eq!(demoted.status, 200);
    check(&fixture.post(&token, "/v1/volumes", &volume)?, 403, "forbidden");
    let disabled = fixture.ask(&administrator, "PATCH", user, Some(r#"{"disabled": true}"#))?;
    assert_eq!(disabled.status, 200);
    check(&fixture.get(&token, "/v1/volumes")?, 401, "unauthorized");
    check(&fixture.get(&olga, "/v1/volumes")?, 401, "unauthorized");
    check(&fixture.ask(&administrator, "DELETE", "/console/v1/users/ann", None)?, 409, "conflict");
    Ok(())
}

#[test]
fn a_new_password_ends_the_other_sessions_of_its_user() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let olga = fixture.user(&administrator, &json!({"name": "olga", "role": "operator"}))?;
    let other = fixture.log_in("olga", PASSWORD)?;
    let token = json!({"name": "t", "role": "viewer"});
    assert_eq!(fixture.post(&olga, "/console/v1/tokens", &token)?.status, 201);
    let goes_on =
        |client: &Client| -> Result<bool> { Ok(fixture.get(client, "/v1/volumes")?.status == 200) };
    let change = |client: &Client, current: &str, new: &str| {
        fixture.post(client, "/console/v1/password", &json!({"current": current, "new": new}))
    };
    check(&change(&olga, "not this one", "another long one")?, 422, "invalid_field");
    ensure!(goes_on(&other)?, "a refused change ended a session");
    let changed = change(&olga, PASSWORD, "another long one")?;
    assert_eq!(changed.json()?, json!({"sessions_ended": 1, "tokens": 1}), "{changed:?}");
    ensure!(goes_on(&olga)? && !goes_on(&other)? && goes_on(&administrator)?, "{changed:?}");
    // Changing one's own password keeps the current session. All sessions of other users end.
    let second = fixture.log_in("ann", PASSWORD)?;
    let patch = Some(r#"{"password": "words and more words"}"#);
    for name in ["ann", "olga"] {
        let path = format!("/console/v1/users/{name}");
        assert_eq!(fixture.ask(&administrator, "PATCH", &path, patch)?.status, 200);
    }
    ensure!(goes_on(&administrator)? && !goes_on(&second)? && !goes_on(&olga)?, "sessions");
    Ok(())
}

/// Creates an operator restricted to volumes with the prefix `shop-`.
fn limited_user(fixture: &Fixture, administrator: &Client, quota_bytes: u64) -> Result<Client> {
    let project = json!({"name": "shop", "prefix": "shop-", "quota_bytes": quota_bytes});
    let made = fixture.post(administrator, "/console/v1/projects", &project)?;
    ensure!(made.status == 201, "{made:?}");
    fixture.user(administrator, &json!({"name": "sam", "role": "operator", "projects": ["shop"]}))
}

#[test]
fn who_is_limited_to_a_project_sees_and_touches_nothing_else() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let sam = limited_user(&fixture, &administrator, 4 << 20)?;
    fixture.daemon.memlane("volume create secret --size 1MiB")?;
    fixture.daemon.memlane("snapshot create secret@a")?;
    let ask = |method: &str, path: &str, body: Value| {
        fixture.ask(&sam, method, path, Some(&body.to_string()))
    };
    let create =
        |name: &str, size: &str| ask("POST", "/v1/volumes", json!({"name": name, "size": size}));
    assert_eq!(create("shop-a", "2MiB")?.status, 201);
    check(&create("other", "1MiB")?, 403, "forbidden");
    check(&create("shop-b", "3MiB")?, 409, "over_quota");
    assert_eq!(create("shop-b", "1MiB")?.status, 201);
    check(&ask("PATCH", "/v1/volumes/shop-a", json!({"size": "4MiB"}))?, 409, "over_quota");
    assert_eq!(ask("PATCH", "/v1/volumes/shop-a", json!({"size": "3MiB"}))?.status, 200);
    check(&ask("PATCH", "/v1/volumes/shop-a", json!({"name": "mine"}))?, 403, "forbidden");
    check(&ask("POST", "/v1/volumes/shop-a/clone", json!({"name": "shop-c"}))?, 409, "over_quota");
    check(&ask("POST", "/v1/volumes/secret/clone", json!({"name": "shop-c"}))?, 403, "forbidden");
    let snapshots = json!({"volumes": ["shop-a", "secret"], "snapshot": "b"});
    check(&ask("POST", "/v1/snapshots", snapshots)?, 403, "forbidden");
    let snapshots = json!({"volumes": ["shop-a"], "snapshot": "b"});
    assert_eq!(ask("POST", "/v1/snapshots", snapshots)?.status, 201);
    let shrunk = ask("PATCH", "/v1/volumes/shop-a", json!({"size": "1MiB"}))?;
    assert_eq!(shrunk.status, 200, "{shrunk:?}");
    assert_eq!(create("shop-d", "2MiB")?.status, 201);
    check(&ask("POST", "/v1/snapshots/shop-a%40b/restore", json!({}))?, 409, "over_quota");
    let host_users = json!({"users": ["root"]});
    check(&ask("PATCH", "/v1/volumes/shop-a", host_users)?, 403, "forbidden");
    // Volumes above a lowered quota may still be shrunk and deleted.
    let less = Some(r#"{"quota_bytes": 1048576}"#);
    assert_eq!(
        fixture.ask(&administrator, "PATCH", "/console/v1/projects/shop", less)?.status,
        200
    );
    assert_eq!(ask("PATCH", "/v1/volumes/shop-d", json!({"size": "1MiB"}))?.status, 200);
    assert_eq!(fixture.ask(&sam, "DELETE", "/v1/volumes/shop-d", None)?.status, 204);
    for path in [
        "/v1/volumes/secret",
        "/v1/snapshots/secret%40a",
        "/v1/snapshots/shop-a%40b/diff?to=secret",
        "/v1/status",
        "/v1/events",
        "/v1/tasks",
        "/metrics",
        "/console/v1/history",
        "/console/v1/busiest",
        "/console/v1/slowest",
        "/console/v1/volumes/secret/history",
    ] {
        check(&fixture.get(&sam, path)?, 403, "forbidden");
    }
    check(&ask("DELETE", "/v1/volumes/secret", json!({}))?, 403, "forbidden");
    check(&ask("POST", "/v1/attachments", json!({"volume": "shop-a"}))?, 403, "forbidden");
    let names = |path: &str| -> Result<Vec<String>> {
        let list = fixture.get(&sam, path)?.json()?;
        let list = list.as_array().context("a list")?.iter().map(|it| it["name"].to_string());
        Ok(list.collect())
    };
    assert_eq!(names("/v1/volumes")?, ["\"shop-a\"", "\"shop-b\""]);
    assert_eq!(names("/v1/snapshots")?, ["\"shop-a@b\""]);
    assert_eq!(fixture.daemon.volumes()?.len(), 3);
    Ok(())
}

#[test]
fn deaths_of_the_daemon_and_the_console_lose_nothing_but_sessions() -> Result<()> {
    let (mut fixture, administrator) = Fixture::with_administrator()?;
    let body = json!({"name": "t", "role": "operator"});
    let made = fixture.post(&administrator, "/console/v1/tokens", &body)?.json()?;
    let token = Client::with_token(made["secret"].as_str().context("no secret")?);
    limited_user(&fixture, &administrator, 4 << 20)?;
    let kept = kept_lists(&fixture, &administrator)?;
    let entries = whole_audit(&fixture, &administrator)?;
    fixture.daemon.kill()?;
    check(&fixture.get(&token, "/v1/volumes")?, 503, "daemon_down");
    assert_eq!(fixture.get(&token, "/console/v1/tokens")?.status, 200);
    fixture.daemon.start_again()?;
    assert_eq!(fixture.get(&token, "/v1/volumes")?.status, 200);
    for _ in 0..3 {
        fixture.end_console(Signal::KILL)?;
        fixture.start_console()?;
        assert_eq!(fixture.get(&token, "/v1/volumes")?.status, 200);
    }
    check(&fixture.get(&administrator, "/console/v1/session")?, 401, "unauthorized");
    let ann = fixture.log_in("ann", PASSWORD)?;
    assert_eq!(kept_lists(&fixture, &ann)?, kept);
    let audit = whole_audit(&fixture, &ann)?;
    assert!(!entries.is_empty() && audit.ends_with(&entries), "{audit:?} of {entries:?}");
    let ids: Vec<_> = audit.iter().map(|it| it["id"].as_u64()).collect();
    assert!(ids.is_sorted_by(|newer, older| newer > older), "{ids:?}");
    Ok(())
}

/// Returns users, projects and tokens without the time of last use. None of the lists is empty.
fn kept_lists(fixture: &Fixture, administrator: &Client) -> Result<Vec<Value>> {
    let mut kept = Vec::new();
    for path in ["users", "projects", "tokens"] {
        let mut list = fixture.get(administrator, &format!("/console/v1/{path}"))?.json()?;
        let entries = list.as_array_mut().context("a list")?;
        ensure!(!entries.is_empty(), "there are no {path}");
        for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
            entry.remove("last_used");
        }
        kept.push(list);
    }
    Ok(kept)
}

#[test]
fn certificates_are_read_again_and_a_bad_one_changes_nothing() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let path = fixture.state_dir().join("certificate.pem");
    let good = std::fs::read(&path)?;
    std::fs::write(&path, "no certificate")?;
    fixture.signal_console(Signal::HUP)?;
    wait_for("the refusal", TIME_LIMIT, || Ok(fixture.log().contains("keeping the old one")))?;
    std::fs::write(&path, good)?;
    assert_eq!(fixture.get(&administrator, "/v1/volumes")?.status, 200);
    fixture.signal_console(Signal::HUP)?;
    wait_for("the reload", TIME_LIMIT, || Ok(fixture.log().contains("reloaded the certificate")))?;
    assert_eq!(fixture.get(&administrator, "/v1/volumes")?.status, 200);
    Ok(())
}

/// Places a certificate in the state directory, as an administrator may, that expires in some days.
fn place_certificate(fixture: &Fixture, days: u32) -> Result<()> {
    let mut parameters =
        rcgen::CertificateParams::new(["127.0.0.1", "localhost"].map(str::to_owned))?;
    let in_time = SystemTime::now().duration_since(UNIX_EPOCH)? + days * DAY;
    parameters.not_after = rcgen::date_time_ymd(1970, 1, 1) + in_time;
    let key = rcgen::KeyPair::generate()?;
    let signed = parameters.self_signed(&key)?;
    std::fs::write(fixture.state_dir().join("key.pem"), key.serialize_pem())?;
    Ok(std::fs::write(fixture.state_dir().join("certificate.pem"), signed.pem())?)
}

#[test]
fn a_certificate_that_expires_soon_is_logged_at_a_start_and_at_a_reload() -> Result<()> {
    let mut fixture = Fixture::start()?;
    let count = |fixture: &Fixture, text| fixture.log().matches(text).count();
    let warnings = |fixture: &Fixture| count(fixture, "certificate.pem (console) expires on 20");
    assert_eq!(warnings(&fixture), 0);
    fixture.end_console(Signal::TERM)?;
    place_certificate(&fixture, 10)?;
    fixture.start_console()?;
    wait_for("the warning", TIME_LIMIT, || Ok(warnings(&fixture) == 1))?;
    place_certificate(&fixture, 300)?;
    fixture.signal_console(Signal::HUP)?;
    let reloads = |fixture: &Fixture| count(fixture, "reloaded the certificate");
    wait_for("the reload", TIME_LIMIT, || Ok(reloads(&fixture) == 1))?;
    assert_eq!(warnings(&fixture), 1);
    place_certificate(&fixture, 5)?;
    fixture.signal_console(Signal::HUP)?;
    wait_for("the other warning", TIME_LIMIT, || Ok(warnings(&fixture) == 2))
}

#[test]
fn every_answer_has_the_headers_that_browsers_heed() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    for path in ["/", "/nothing", "/v1/volumes", "/console/v1/session", "/healthz", "/%zz"] {
        for client in [&administrator, &Client::nobody()] {
            let head = fixture.get(client, path)?.head;
            for header in [
                "content-security-policy: default-src 'none'; script-src 'self'",
                "strict-transport-security: max-age=31536000",
                "x-content-type-options: nosniff",
                "referrer-policy: no-referrer",
                "x-frame-options: DENY",
                "cache-control: no-",
            ] {
                assert!(head.contains(header), "{path}: no {header} in {head}");
            }
            assert!(!head.contains("\nserver:"), "{head}");
        }
    }
    Ok(())
}
