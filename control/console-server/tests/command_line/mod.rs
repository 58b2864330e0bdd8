//! `memlane --url https://…`: the command line on another host, with a token and a trusted
//! certificate.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use system::{ToolOutput, product, wait_for};

use crate::fixture::{Client, Fixture, PASSWORD};

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Another host, with the credentials that the administrator gave out.
struct Host {
    url: String,
    /// Fingerprint of the certificate, from the console's log.
    pin: String,
    folder: tempfile::TempDir,
}

impl Host {
    fn new(fixture: &Fixture) -> Result<Self> {
        let log = fixture.log();
        let pin = log.split("sha256=").nth(1).and_then(|it| it.split_whitespace().next());
        let pin = pin.context(log.clone())?.trim_matches('"').to_owned();
        Ok(Self {
            url: format!("https://{}", fixture.address()),
            pin,
            folder: tempfile::tempdir()?,
        })
    }

    /// Creates a token of this role, and writes it to a file.
    fn token(
        &self,
        fixture: &Fixture,
        owner: &Client,
        role: &str,
        seconds: u64,
    ) -> Result<PathBuf> {
        let asked = json!({"name": role, "role": role, "expires_in_seconds": seconds});
        let made = fixture.post(owner, "/console/v1/tokens", &asked)?;
        ensure!(made.status == 201, "{made:?}");
        let json = made.json()?;
        self.file(role, json["secret"].as_str().context("no secret")?, 0o600)
    }

    fn file(&self, name: &str, contents: &str, mode: u32) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        fs::write(&path, format!("{contents}\n"))?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        Ok(path)
    }

    /// Runs `memlane` with a token file and options for the certificate.
    fn run(&self, token: &Path, trust: &[&str], words: &str) -> Result<ToolOutput> {
        let tool = product("memlane").args(["--url", &self.url, "--token-file"]).arg(token);
        tool.args(trust).args(words.split_whitespace()).run()
    }
}

#[track_caller]
fn check(output: &ToolOutput, exit_code: i32, said: &[&str]) {
    assert_eq!(output.exit_code, Some(exit_code), "{output:?}");
    for text in said {
        assert!(output.stderr.contains(text), "{text:?} is not in {output:?}");
    }
}

#[test]
fn commands_reach_the_daemon_from_another_host() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let host = Host::new(&fixture)?;
    let (token, pin) =
        (host.token(&fixture, &administrator, "administrator", 600)?, host.pin.clone());
    let trust = ["--pin", &pin];
    for words in [
        "volume create db --size 8MiB",
        "volume resize db --size 16MiB",
        "volume set db reduction=compress",
        "snapshot create db@monday",
        "snapshot diff db@monday",
        "clone db@monday copy",
        "volume rename copy other",
        "volume ls",
        "snapshot ls db",
        "export ls",
        "pool show",
        "image ls",
        "task ls",
        "events",
        "status",
        "snapshot rm db@monday",
        "volume rm other",
    ] {
        check(&host.run(&token, &trust, words).context(words)?, 0, &[]);
    }
    let shown = host.run(&token, &trust, "--json volume show db")?;
    let shown: Value = serde_json::from_str(&shown.stdout)?;
    assert_eq!(shown["size_bytes"], 16 << 20, "{shown}");
    assert_eq!(fixture.daemon.volumes()?.len(), 1, "the clone is gone");
    check(&host.run(&token, &trust, "volume show nothing")?, 3, &["nothing"]);
    // The command waits for the task to end.
    check(&host.run(&token, &trust, "image save db")?, 0, &[]);
    check(&host.run(&token, &trust, "run -- /bin/true")?, 2, &["the daemon's host"]);
    let audit = fixture.get(&administrator, "/console/v1/audit")?.body;
    assert!(audit.contains("/v1/volumes"), "{audit}");
    Ok(())
}

#[test]
fn users_projects_tokens_and_sessions_are_administered_by_commands() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let host = Host::new(&fixture)?;
    let token = host.token(&fixture, &administrator, "administrator", 600)?;
    let trust = ["--pin", host.pin.as_str()];
    let password = host.file("password", "a long password of bob", 0o600)?;
    let password = password.to_str().context("a name")?;
    let done = |words: &str| -> Result<()> {
        check(&host.run(&token, &trust, words).context(words.to_owned())?, 0, &[]);
        Ok(())
    };
    let shown = |words: &str| -> Result<Value> {
        let output = host.run(&token, &trust, &format!("--json console {words}"))?;
        ensure!(output.exit_code == Some(0), "{words}: {output:?}");
        Ok(serde_json::from_str(&output.stdout)?)
    };
    done("console project create shop --prefix shop- --quota 1GiB --quota-volumes 5")?;
    done("console project set shop --no-quota")?;
    let projects = shown("project ls")?;
    assert_eq!(projects[0]["quota_bytes"], Value::Null, "{projects}");
    assert_eq!(projects[0]["quota_volumes"], 5, "{projects}");
    done(&format!(
        "console user create bob --role viewer --project shop --password-file {password}"
    ))?;
    fixture.log_in("bob", "a long password of bob")?;
    done("console user set bob --role operator --all-volumes")?;
    let of_bob = || -> Result<Value> {
        let users = shown("user ls")?;
        let users = users.as_array().context("a list")?;
        Ok(users.iter().find(|it| it["name"] == "bob").context("no bob")?.clone())
    };
    assert_eq!(of_bob()?["role"], "operator");
    assert_eq!(of_bob()?["projects"], json!([]));
    let sessions = shown("session ls")?;
    let sessions = sessions.as_array().context("a list")?;
    let id = |user: &str| sessions.iter().find(|it| it["user"] == user).map(|it| &it["id"]);
    let id = id("bob").and_then(Value::as_str).context("no session of bob")?;
    done(&format!("console session end {id}"))?;
    let table = host.run(&token, &trust, "console session ls")?;
    assert!(table.stdout.contains("ann") && !table.stdout.contains("bob"), "{table:?}");
    done("console user set bob --disable")?;
    assert_eq!(of_bob()?["disabled"], true);
    done("console user set bob --enable")?;
    done("console user rm bob")?;
    done("console project rm shop")?;
    let other = host.token(&fixture, &administrator, "viewer", 600)?;
    let tokens = shown("token ls")?;
    let tokens = tokens.as_array().context("a list")?;
    let id = tokens.iter().find(|it| it["name"] == "viewer").context("no token")?["id"].clone();
    check(&host.run(&other, &trust, "console user ls")?, 1, &["administrator"]);
    done(&format!("console token rm {}", id.as_str().context("an id")?))?;
    check(&host.run(&other, &trust, "console session ls")?, 1, &[]);
    check(&host.run(&token, &trust, "console user rm bob")?, 3, &["bob"]);
    check(&host.run(&token, &trust, "console user set ann")?, 2, &["--role"]);
    let local = product("memlane").args(["console", "user", "ls"]).run()?;
    check(&local, 1, &["--url"]);
    Ok(())
}

/// Creates tokens by password login, as the commands do.
struct Maker<'a> {
    fixture: &'a Fixture,
    administrator: &'a Client,
    host: Host,
    password: String,
}

impl<'a> Maker<'a> {
    fn new(fixture: &'a Fixture, administrator: &'a Client) -> Result<Self> {
        let host = Host::new(fixture)?;
        let password = host.file("password", PASSWORD, 0o600)?.display().to_string();
        Ok(Self { fixture, administrator, host, password })
    }

    fn make(&self, words: &str) -> Result<ToolOutput> {
        let tool = product("memlane").args(["--url", &self.host.url, "--pin", &self.host.pin]);
        let tool = tool.args(words.split_whitespace());
        tool.args(["--password-file", &self.password]).run()
    }

    fn run(&self, token: &Path, words: &str) -> Result<ToolOutput> {
        self.host.run(token, &["--pin", &self.host.pin], words)
    }

    fn count(&self, what: &str) -> Result<usize> {
        let path = format!("/console/v1/{what}");
        let listed = self.fixture.get(self.administrator, &path)?.json()?;
        Ok(listed.as_array().context("a list")?.len())
    }

    /// Returns all output that must not contain a secret.
    fn told(&self) -> Result<String> {
        let get = |path: &str| self.fixture.get(self.administrator, path).map(|it| it.body);
        Ok(get("/console/v1/tokens")? + &get("/console/v1/audit")? + &self.fixture.log())
    }
}

#[test]
fn a_token_is_made_by_a_command_that_logs_in_and_its_secret_is_told_once() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let maker = Maker::new(&fixture, &administrator)?;
    let shop = json!({"name": "shop", "prefix": "shop-"});
    ensure!(
        fixture.post(&administrator, "/console/v1/projects", &shop)?.status == 201,
        "no project"
    );
    let before = maker.count("sessions")?;

    // Standard output has only the secret, so that scripts can store it.
    let made = maker.make("console token create ci --role operator --user ann --expires 2h")?;
    check(&made, 0, &[]);
    let secret = made.stdout.trim();
    ensure!(!secret.is_empty() && !made.stderr.contains(secret), "{made:?}");
    let kept = maker.host.file("kept", secret, 0o600)?;
    check(&maker.run(&kept, "volume create shop-db --size 1MiB")?, 0, &[]);
    assert_eq!(maker.count("sessions")?, before, "the login that made the token goes on");

    let written = maker.host.folder.path().join("written");
    let made = maker.make(&format!(
        "--json console token create shop --role viewer --project shop --user ann --out {}",
        written.display()
    ))?;
    check(&made, 0, &[]);
    let shown: Value = serde_json::from_str(&made.stdout)?;
    assert_eq!((&shown["name"], &shown["projects"]), (&json!("shop"), &json!(["shop"])));
    assert_eq!(shown["secret"], Value::Null, "it is in the file: {shown}");
    assert_eq!(fs::metadata(&written)?.permissions().mode() & 0o777, 0o600);
    check(&maker.run(&written, "volume show shop-db")?, 0, &[]);
    check(&maker.run(&written, "volume rm shop-db")?, 1, &[]);
    let json = maker.make("--json console token create third --role viewer --user ann")?;
    let json: Value = serde_json::from_str(&json.stdout)?;
    let third = json["secret"].as_str().context("no secret")?;
    let told = maker.told()?;
    for secret in [secret, third, fs::read_to_string(&written)?.trim(), PASSWORD] {
        assert!(!told.contains(secret), "a secret was told again");
    }
    Ok(())
}

#[test]
fn a_token_that_is_refused_leaves_no_file_and_no_login() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let maker = Maker::new(&fixture, &administrator)?;
    let there = maker.host.file("there", "mine", 0o600)?.display().to_string();
    let spoiled = maker.host.folder.path().join("spoiled");
    let before = maker.count("sessions")?;
    for (words, exit_code, said) in [
        ("--user ann --role nobody --out SPOILED", 2, "--role"),
        ("--user ann --role viewer --project none --out SPOILED", 1, "none"),
        ("--user bob --role viewer --out SPOILED", 1, "wrong name, password or code"),
        ("--user ann --role viewer --out THERE", 1, "there"),
        ("--user ann --role viewer --expires 3s5", 2, "--expires"),
        ("--user ann --role viewer --expires 0s --out SPOILED", 1, "invalid lifetime of a token"),
        ("--user ann --role viewer --out /dev/full", 1, "/dev/full"),
        ("--user ann --role viewer --token-file /x", 2, "a token cannot create tokens"),
        ("--role viewer", 2, "--user"),
    ] {
        let words = words.replace("SPOILED", &spoiled.display().to_string());
        let words = format!("console token create more {}", words.replace("THERE", &there));
        check(&maker.make(&words).context(words.clone())?, exit_code, &[said]);
        assert!(!spoiled.exists(), "{words}");
    }
    assert_eq!(fs::read_to_string(&there)?, "mine\n");
    assert_eq!((maker.count("tokens")?, maker.count("sessions")?), (0, before));
    let local =
        product("memlane").args("console token create a --role viewer --user ann".split(' '));
    check(&local.env("MEMLANE_CONSOLE_PASSWORD", PASSWORD).run()?, 1, &["--url"]);
    Ok(())
}

#[test]
fn what_is_needed_comes_from_the_environment_too() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let host = Host::new(&fixture)?;
    let token = host.token(&fixture, &administrator, "viewer", 600)?;
    let token = token.to_str().context("a name")?;
    let url = host.url.clone();
    let ca = fixture.state_dir().join("certificate.pem");
    let in_environment = |trust: (&str, &str), words: &str| {
        let tool = product("memlane").env("MEMLANE_URL", &url);
        let tool = tool.env("MEMLANE_TOKEN_FILE", token).env(trust.0, trust.1);
        tool.args(words.split_whitespace()).run()
    };
    let by_pin = host.pin.clone();
    let by_ca = ca.to_str().context("a name")?;
    check(&in_environment(("MEMLANE_PIN", &by_pin), "volume ls")?, 0, &[]);
    check(&in_environment(("MEMLANE_CA", by_ca), "volume ls")?, 0, &[]);
    check(&in_environment(("MEMLANE_PIN", "12"), "volume ls")?, 2, &["MEMLANE_PIN", "SHA-256"]);
    let socket = fixture.daemon.api_socket();
    let local = format!("--socket {} volume create db --size 1MiB", socket.display());
    check(&in_environment(("MEMLANE_PIN", &by_pin), &local)?, 0, &[]);
    // A viewer can only read.
    let refused = in_environment(("MEMLANE_PIN", &by_pin), "--json volume rm db")?;
    let refused_json: Value = serde_json::from_str(&refused.stdout)?;
    assert_eq!(refused_json["error"]["kind"], "forbidden", "{refused:?}");
    Ok(())
}

#[test]
fn nothing_is_sent_to_who_cannot_prove_to_be_the_console() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let host = Host::new(&fixture)?;
    let (token, pin) = (host.token(&fixture, &administrator, "operator", 600)?, host.pin.clone());
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    let other = host.file("other.pem", &other.cert.pem(), 0o644)?;
    let other = other.to_str().context("a name")?;
    let wrong = format!("{}00", &pin[..pin.len() - 2]);
    let wrong = if wrong == pin { wrong.replace(":00", ":01") } else { wrong };
    let before = fixture.get(&administrator, "/console/v1/tokens")?.json()?;
    for (trust, exit_code, said) in [
        (
            &["--pin", wrong.as_str()][..],
            1,
            &["cannot verify the certificate", &pin, "nothing was sent"][..],
        ),
        (&["--ca", other], 1, &["cannot verify the certificate", &pin]),
        (&[], 1, &["cannot verify the certificate", &pin, "--pin"]),
        (&["--ca", "/nowhere/ca"], 2, &["/nowhere/ca"]),
        (&["--ca", "/dev/null"], 2, &["holds no certificate"]),
        (&["--pin", "12:34"], 2, &["SHA-256"]),
        (&["--pin", &pin, "--ca", other], 2, &["cannot be used with"]),
    ] {
        check(&host.run(&token, trust, "volume create db --size 1MiB")?, exit_code, said);
    }
    assert!(fixture.daemon.volumes()?.is_empty());
    let after = fixture.get(&administrator, "/console/v1/tokens")?.json()?;
    assert_eq!(before, after, "the token was shown to somebody");
    // A certificate for another name is rejected.
    let port = fixture.address().port().to_string();
    let ca = fixture.state_dir().join("certificate.pem");
    let tool = product("memlane").arg("--ca").arg(&ca).arg("--token-file").arg(&token);
    let output = tool.args(["--url", &format!("https://127.0.0.3:{port}"), "status"]).run()?;
    assert!(matches!(output.exit_code, Some(1 | 5)), "{output:?}");
    Ok(())
}

#[test]
fn tokens_that_are_no_secret_or_not_valid_are_said_so() -> Result<()> {
    let (fixture, administrator) = Fixture::with_administrator()?;
    let host = Host::new(&fixture)?;
    let trust = ["--pin", host.pin.as_str()];
    let open = host.file("open", "made.up", 0o644)?;
    check(&host.run(&open, &trust, "status")?, 1, &["mode 644", "chmod 600"]);
    let empty = host.file("empty", "", 0o600)?;
    check(&host.run(&empty, &trust, "status")?, 1, &["empty"]);
    let missing = Path::new("/nowhere/token");
    check(&host.run(missing, &trust, "status")?, 1, &["/nowhere/token"]);
    let made_up = host.file("made-up", "made.up", 0o600)?;
    let refused = host.run(&made_up, &trust, "--json status")?;
    let json: Value = serde_json::from_str(&refused.stdout)?;
    assert_eq!(json["error"]["kind"], "unauthorized", "{refused:?}");
    let short = host.token(&fixture, &administrator, "viewer", 1)?;
    let has_expired = || {
        let output = host.run(&short, &trust, "status")?;
        Ok(output.exit_code == Some(1) && output.stderr.contains("expired"))
    };
    wait_for("the token to expire", TIME_LIMIT, has_expired)?;
    for (options, said) in [
        ("--url https://127.0.0.1:1 status", "--token-file"),
        ("--url http://127.0.0.1:1 --token-file /x status", "only over https://"),
        ("--token-file /x status", "--url"),
        ("--url https://a/b --token-file FILE status", "host and a port"),
    ] {
        let options = options.replace("FILE", &made_up.display().to_string());
        let output = product("memlane").args(options.split_whitespace()).run()?;
        check(&output, 2, &[said]);
    }
    Ok(())
}

#[test]
fn a_daemon_or_a_console_that_is_not_there_cannot_be_reached() -> Result<()> {
    let (mut fixture, administrator) = Fixture::with_administrator()?;
    let host = Host::new(&fixture)?;
    let token = host.token(&fixture, &administrator, "operator", 600)?;
    let trust = ["--pin", host.pin.as_str()];
    check(&host.run(&token, &trust, "status")?, 0, &[]);
    fixture.daemon.kill()?;
    check(&host.run(&token, &trust, "status")?, 5, &["daemon"]);
    fixture.end_console(Signal::TERM)?;
    check(&host.run(&token, &trust, "status")?, 5, &["refused"]);
    Ok(())
}
