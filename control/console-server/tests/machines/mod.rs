//! Permissions on virtual machines. `memlane-machines` runs without libvirt here; other tests cover
//! its function.

use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use api::{CONSOLE_STATUS, MACHINE_ENDPOINTS, MACHINES_PATH, Method};
use rustix::process::Signal;
use serde_json::json;
use system::{Background, check_for_panics, product, wait_for};
use tempfile::TempDir;

use crate::fixture::{Answer, Client, Fixture};
use crate::{check, try_endpoint};

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// WebSocket request headers (RFC 6455, section 4.1).
const WEB_SOCKET: [&str; 4] = [
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
];

/// A console with `memlane-machines`, which finds no libvirt.
struct Together {
    // Fields are dropped in this order.
    fixture: Fixture,
    administrator: Client,
    machines: Background,
    folder: TempDir,
}

impl Drop for Together {
    fn drop(&mut self) {
        let checked = check_for_panics(&self.folder.path().join("log"));
        assert!(checked.is_ok() || thread::panicking(), "memlane-machines panicked: {checked:?}");
    }
}

impl Together {
    fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("memlane-machines-").tempdir()?;
        let socket = folder.path().join("api.sock");
        let machines = start_machines(folder.path(), &socket)?;
        let flag = socket.to_str().context("the path is text")?.to_owned();
        let flags = vec!["--machines-socket".to_owned(), flag];
        let (fixture, administrator) = Fixture::with_administrator_and(flags)?;
        Ok(Self { fixture, administrator, machines, folder })
    }
}

fn start_machines(folder: &Path, socket: &Path) -> Result<Background> {
    let tool = product("memlane-machines").arg("--socket").arg(socket);
    let tool = tool.arg("--libvirt-socket").arg(folder.join("no-libvirt"));
    let tool = tool.arg("--daemon-socket").arg(folder.join("no-daemon"));
    let machines = Background::start(tool.output_to(File::create(folder.join("log"))?)?)?;
    wait_for("memlane-machines to serve", TIME_LIMIT, || Ok(socket.exists()))?;
    Ok(machines)
}

/// Creates an operator restricted to a project.
fn limited_operator(fixture: &Fixture, administrator: &Client) -> Result<Client> {
    let project = json!({"name": "shop", "prefix": "shop-", "quota_bytes": null});
    assert_eq!(fixture.post(administrator, "/console/v1/projects", &project)?.status, 201);
    let limited = json!({"name": "lin", "role": "operator", "projects": ["shop"]});
    fixture.user(administrator, &limited)
}

#[test]
fn a_session_says_which_services_the_console_was_started_with() -> Result<()> {
    let cases: [(&[&str], bool, bool); 3] = [
        (&[], false, false),
        (&["--broker", "127.0.0.1:1"], true, false),
        (&["--machines-socket", "/nowhere/api.sock"], false, true),
    ];
    for (flags, broker, machines) in cases {
        let flags = flags.iter().map(|&it| it.to_owned()).collect();
        let (fixture, administrator) = Fixture::with_administrator_and(flags)?;
        let session = fixture.get(&administrator, "/console/v1/session")?.json()?;
        assert_eq!(session["services"], json!({"broker": broker, "machines": machines}));
    }
    Ok(())
}

#[test]
fn each_operation_of_machines_takes_a_login_and_its_role() -> Result<()> {
    let together = Together::start()?;
    let (fixture, administrator) = (&together.fixture, &together.administrator);
    let viewer = fixture.user(administrator, &json!({"name": "vic", "role": "viewer"}))?;
    let operator = fixture.user(administrator, &json!({"name": "olga", "role": "operator"}))?;
    let limited = limited_operator(fixture, administrator)?;
    let mut asked = 0;
    for endpoint in MACHINE_ENDPOINTS.iter().filter(|it| it.path.starts_with(MACHINES_PATH)) {
        let name = endpoint.operation;
        let is_console = endpoint.status == CONSOLE_STATUS;
        for client in [&Client::nobody(), &Client::with_token("made-up")] {
            assert_eq!(try_endpoint(fixture, client, endpoint)?.status, 401, "{name}");
        }
        check(&try_endpoint(fixture, &limited, endpoint)?, 403, "forbidden");
        let looks = endpoint.method == Method::Get;
        for (client, may) in [(&viewer, looks), (&operator, true), (administrator, true)] {
            let answer = try_endpoint(fixture, client, endpoint)?;
            match may && !is_console {
                false => check(&answer, 403, "forbidden"),
                // The request reached memlane-machines, which finds no libvirt or an empty body.
                true => {
                    let kind = answer.kind()?;
                    let is_theirs = ["host_failed", "invalid_field"].contains(&kind.as_str());
                    assert!(is_theirs, "{name}: {answer:?}");
                }
            }
            asked += 1;
        }
    }
    eprintln!("{asked} requests to operations of machines");
    Ok(())
}

#[test]
fn a_console_opens_for_operators_on_the_consoles_own_page() -> Result<()> {
    let together = Together::start()?;
    let (fixture, administrator) = (&together.fixture, &together.administrator);
    let viewer = fixture.user(administrator, &json!({"name": "vic", "role": "viewer"}))?;
    let operator = fixture.user(administrator, &json!({"name": "olga", "role": "operator"}))?;
    let limited = limited_operator(fixture, administrator)?;
    let open = |client: &Client, what: &str, more: &[&str]| -> Result<Answer> {
        let headers = WEB_SOCKET.iter().chain(more);
        let client = headers.fold(client.clone(), |client, header| client.with(header));
        fixture.get(&client, &format!("/console/v1/machines/web/{what}"))
    };
    for what in ["serial", "screen"] {
        check(&open(&Client::nobody(), what, &[])?, 401, "unauthorized");
        for client in [&viewer, &limited] {
            check(&open(client, what, &[])?, 403, "forbidden");
        }
        let foreign = open(&operator, what, &["Origin: https://evil.example"])?;
        check(&foreign, 403, "forged");
        // memlane-machines opens it, and reports the missing libvirt in it.
        let opened = open(&operator, what, &[])?;
        assert!(opened.status == 101 && opened.body.contains("libvirt"), "{opened:?}");
        let plain = fixture.get(administrator, &format!("/console/v1/machines/web/{what}"))?;
        check(&plain, 400, "invalid_request");
    }
    check(&open(administrator, "serial?force=perhaps", &[])?, 400, "invalid_request");
    let audit = fixture.get(administrator, "/console/v1/audit")?;
    assert!(audit.body.contains("/console/v1/machines/web/screen"), "{audit:?}");
    Ok(())
}

#[test]
fn without_machines_the_console_says_so() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    check(&fixture.get(&administrator, MACHINES_PATH)?, 404, "no_machines");
    let mut together = Together::start()?;
    let ended = together.machines.end(Signal::TERM, TIME_LIMIT)?;
    assert!(ended.success(), "{ended}");
    let answer = together.fixture.get(&together.administrator, MACHINES_PATH)?;
    check(&answer, 503, "machines_down");
    Ok(())
}
