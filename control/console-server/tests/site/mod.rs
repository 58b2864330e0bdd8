//! A daemon, a console before it, and curl as its client.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use system::{
    Background, Daemon, DaemonOptions, Tool, check_for_panics, free_address, product, wait_for,
};
use tempfile::TempDir;

const START_TIME_LIMIT: Duration = Duration::from_secs(60);
const STOP_TIME_LIMIT: Duration = Duration::from_secs(30);
/// In seconds, for curl.
const ANSWER_TIME_LIMIT: &str = "90";

/// Where clients are: not where idle connections come from.
const CLIENT_ADDRESS: &str = "127.0.0.2";

pub(crate) const PASSWORD: &str = "four words are long enough";

/// Ends with the test.
pub(crate) struct Site {
    pub(crate) daemon: Daemon,
    console: Option<Background>,
    address: SocketAddr,
    /// Of the console, besides those that each has.
    flags: Vec<String>,
    folder: TempDir,
}

/// Answer of the console.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Status line and headers, whose names are in small letters.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.body).with_context(|| format!("{self:?}"))
    }

    pub(crate) fn kind(&self) -> Result<String> {
        Ok(self.json()?["kind"].as_str().context("no kind")?.to_owned())
    }

    pub(crate) fn cookie(&self) -> Result<String> {
        let line = self.head.lines().find_map(|it| it.strip_prefix("set-cookie: "));
        let pair = line.and_then(|it| it.split(';').next());
        Ok(pair.with_context(|| format!("no cookie: {self:?}"))?.to_owned())
    }
}

/// Somebody who is logged in by a browser, or has a token.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Headers as curl prints them.
    pub(crate) headers: Vec<String>,
}

impl Client {
    pub(crate) fn nobody() -> Self {
        Self { headers: Vec::new() }
    }

    pub(crate) fn with_token(secret: &str) -> Self {
        Self { headers: vec![format!("Authorization: Bearer {secret}")] }
    }

    pub(crate) fn with(&self, header: &str) -> Self {
        let mut headers = self.headers.clone();
        headers.push(header.to_owned());
        Self { headers }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let checked = check_for_panics(&self.log_path());
        assert!(checked.is_ok() || thread::panicking(), "the console panicked: {checked:?}");
    }
}

impl Site {
    pub(crate) fn start() -> Result<Self> {
        Self::start_with(Vec::new())
    }

    fn start_with(flags: Vec<String>) -> Result<Self> {
        let daemon = Daemon::start(DaemonOptions { pool_size: "256MiB", flags: "--no-fuse" })?;
        let folder = tempfile::Builder::new().prefix("memlane-console-").tempdir()?;
        let address = free_address()?;
        let mut site = Self { daemon, console: None, address, flags, folder };
        site.start_console()?;
        Ok(site)
    }

    pub(crate) fn start_console(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let console = product("memlane-console")
            .args(["--listen", &self.address.to_string()])
            .arg("--state-dir")
            .arg(self.state_dir())
            .arg("--daemon-socket")
            .arg(self.daemon.api_socket())
            .args(&self.flags)
            .output_to(log)?;
        self.console = Some(Background::start(console)?);
        let is_there = || Ok(self.get(&Client::nobody(), "/").is_ok());
        wait_for("the console", START_TIME_LIMIT, is_there).with_context(|| self.log())
    }

    pub(crate) fn end_console(&mut self, signal: Signal) -> Result<()> {
        let mut console = self.console.take().context("no console runs")?;
        console.end(signal, STOP_TIME_LIMIT)?;
        Ok(())
    }

    pub(crate) fn signal_console(&self, signal: Signal) -> Result<()> {
        let console = self.console.as_ref().context("no console runs")?;
        let id = i32::try_from(console.id()).ok().and_then(rustix::process::Pid::from_raw);
        Ok(rustix::process::kill_process(id.context("no process")?, signal)?)
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn setup_code(&self) -> Result<String> {
        self.setup_code_at(&format!("https://{}", self.address))
    }

    fn setup_code_at(&self, origin: &str) -> Result<String> {
        let path = self.state_dir().join("setup-link");
        let mode = fs::metadata(&path)?.permissions().mode() & 0o777;
        ensure!(mode == 0o600, "the link has mode {mode:o}");
        let link = fs::read_to_string(path)?;
        let prefix = format!("{origin}/#/setup/");
        Ok(link.trim_end().strip_prefix(&prefix).context(link.clone())?.to_owned())
    }

    /// A site with its administrator, who is logged in.
    pub(crate) fn with_administrator() -> Result<(Self, Client)> {
        Self::with_administrator_and(Vec::new())
    }

    /// The same, of a console that was started with these flags.
    pub(crate) fn with_administrator_and(flags: Vec<String>) -> Result<(Self, Client)> {
        let site = Self::start_with(flags)?;
        let code = site.setup_code()?;
        site.set_up(&code)
    }

    /// The same, which browsers see elsewhere.
    pub(crate) fn with_administrator_to(
        flags: Vec<String>,
        origin: &str,
    ) -> Result<(Self, Client)> {
        let site = Self::start_with(flags)?;
        let code = site.setup_code_at(origin)?;
        site.set_up(&code)
    }

    fn set_up(self, code: &str) -> Result<(Self, Client)> {
        let body = serde_json::json!({"code": code, "name": "ann", "password": PASSWORD});
        let made = self.post(&Client::nobody(), "/console/v1/setup", &body)?;
        ensure!(made.status == 200, "{made:?}");
        let client = client_of(&made)?;
        Ok((self, client))
    }

    /// A user with the common password, who is logged in.
    pub(crate) fn user(&self, administrator: &Client, user: &Value) -> Result<Client> {
        let mut body = user.clone();
        body["password"] = PASSWORD.into();
        let made = self.post(administrator, "/console/v1/users", &body)?;
        ensure!(made.status == 201, "{made:?}");
        self.log_in(user["name"].as_str().context("no name")?, PASSWORD)
    }

    pub(crate) fn log_in(&self, name: &str, password: &str) -> Result<Client> {
        let answer = self.try_log_in(name, password)?;
        ensure!(answer.status == 200, "{answer:?}");
        client_of(&answer)
    }

    pub(crate) fn try_log_in(&self, name: &str, password: &str) -> Result<Answer> {
        let body = serde_json::json!({"name": name, "password": password});
        self.post(&Client::nobody(), "/console/v1/session", &body)
    }

    pub(crate) fn get(&self, client: &Client, path: &str) -> Result<Answer> {
        self.ask(client, "GET", path, None)
    }

    pub(crate) fn post(&self, client: &Client, path: &str, body: &Value) -> Result<Answer> {
        self.ask(client, "POST", path, Some(&body.to_string()))
    }

    /// Sends a body from an address of choice.
    pub(crate) fn ask_from(&self, address: &str, path: &str, body: &str) -> Result<Answer> {
        self.send(&Client::nobody(), ("POST", address), path, Some(body))
    }

    /// Sends a path as it stands. The certificate is the console's own, and verified.
    pub(crate) fn ask(
        &self,
        client: &Client,
        method: &str,
        path: &str,
        body: Option<&str>,
    ) -> Result<Answer> {
        self.send(client, (method, CLIENT_ADDRESS), path, body)
    }

    fn send(
        &self,
        client: &Client,
        (method, from): (&str, &str),
        path: &str,
        body: Option<&str>,
    ) -> Result<Answer> {
        let mut curl = Tool::new("curl -sS -i --path-as-is --http1.1 --cacert")
            .arg(self.state_dir().join("certificate.pem"))
            .args(["-X", method, "--max-time", ANSWER_TIME_LIMIT])
            .args(["--interface", from]);
        for header in &client.headers {
            curl = curl.args(["-H", header]);
        }
        if let Some(body) = body {
            // A long one does not fit into an argument.
            let file = tempfile::NamedTempFile::new_in(self.folder.path())?;
            let path = file.into_temp_path().keep()?;
            fs::write(&path, body)?;
            let data = format!("@{}", path.display());
            curl = curl.args(["-H", "Content-Type: application/json", "-H", "Expect:"]);
            curl = curl.args(["--data-binary", &data]);
        }
        let output = curl.arg(format!("https://{}{path}", self.address)).check()?;
        let (head, body) = output.split_once("\r\n\r\n").context(output.clone())?;
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        Ok(Answer { status, head: small_names(head), body: body.to_owned() })
    }
}

fn small_names(head: &str) -> String {
    let lines = head.lines().map(|line| match line.split_once(':') {
        Some((name, value)) => format!("{}:{value}\n", name.to_lowercase()),
        None => format!("{line}\n"),
    });
    lines.collect()
}

/// Who was logged in by an answer.
pub(crate) fn client_of(answer: &Answer) -> Result<Client> {
    let csrf = answer.json()?["csrf"].as_str().context("no csrf")?.to_owned();
    let cookie = answer.cookie()?;
    Ok(Client { headers: vec![format!("Cookie: {cookie}"), format!("X-Memlane-CSRF: {csrf}")] })
}
