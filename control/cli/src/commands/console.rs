//! Users, projects, tokens and sessions of the console, with the token of an administrator.
//! Creating a token requires a login, which ends with the command.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use api::Method;
use serde_json::{Map, Value, json};

use super::connection::ProvedBy;
use super::streams::connect::password;
use super::{or_dash, time_text};
use crate::arguments::Command;
use crate::arguments::console::{
    ConsoleCommand, Password, ProjectCommand, Quota, SessionCommand, TokenCommand, TokenCreate,
    UserCommand,
};
use crate::failure::Failure;
use crate::output::{Report, tell};
use crate::table::{Cell, Column, Table, View};
use rest_client::{Address, Client};

const USERS: &str = "/console/v1/users";
const PROJECTS: &str = "/console/v1/projects";
const TOKENS: &str = "/console/v1/tokens";
const SESSIONS: &str = "/console/v1/sessions";
/// The command's own session, created by a login.
const SESSION: &str = "/console/v1/session";

const PASSWORD_VARIABLE: &str = "MEMLANE_CONSOLE_PASSWORD";

const USER_COLUMNS: &[(&str, &str)] =
    &[("NAME", "name"), ("ROLE", "role"), ("PROJECTS", "projects"), ("DISABLED", "disabled")];
const PROJECT_COLUMNS: &[(&str, &str)] = &[
    ("NAME", "name"),
    ("PREFIX", "prefix"),
    ("QUOTA", "quota_bytes"),
    ("VOLUMES", "quota_volumes"),
];
const TOKEN_COLUMNS: &[(&str, &str)] = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("OWNER", "owner"),
    ("ROLE", "role"),
    ("PROJECTS", "projects"),
    ("EXPIRES", "expires"),
    ("USED", "last_used"),
];
const SESSION_COLUMNS: &[(&str, &str)] =
    &[("ID", "id"), ("USER", "user"), ("ADDRESS", "address"), ("BEGUN", "begun"), ("USED", "used")];

/// Credentials that this command requires.
pub(super) fn proved_by(command: &Command) -> ProvedBy {
    match command {
        Command::Console(ConsoleCommand::Token(TokenCommand::Create(_))) => ProvedBy::Password,
        _ => ProvedBy::Token,
    }
}

pub(super) fn run(client: &Client, command: ConsoleCommand) -> Result<Report, Failure> {
    if !matches!(client.address, Address::Console(_)) {
        let what =
            "this command needs a console: give --url https://HOST:PORT and --token-file FILE";
        return Err(Failure::other(what.to_owned()));
    }
    match command {
        ConsoleCommand::User(command) => run_user(client, command),
        ConsoleCommand::Project(command) => run_project(client, command),
        ConsoleCommand::Token(TokenCommand::List(view)) => {
            list(client, TOKENS, TOKEN_COLUMNS, &view)
        }
        ConsoleCommand::Token(TokenCommand::Create(asked)) => make_token(client, asked),
        ConsoleCommand::Token(TokenCommand::Delete { id }) => delete(client, TOKENS, &id),
        ConsoleCommand::Session(SessionCommand::List(view)) => {
            list(client, SESSIONS, SESSION_COLUMNS, &view)
        }
        ConsoleCommand::Session(SessionCommand::End { id }) => delete(client, SESSIONS, &id),
    }
}

fn run_user(client: &Client, command: UserCommand) -> Result<Report, Failure> {
    match command {
        UserCommand::List(view) => list(client, USERS, USER_COLUMNS, &view),
        UserCommand::Create { name, role, projects, password: Password { password_file } } => {
            let password = password(password_file.as_deref(), PASSWORD_VARIABLE, &name)?;
            let user =
                json!({"name": name, "password": password, "role": role, "projects": projects});
            make(client, USERS, &user)
        }
        UserCommand::Set { name, role, projects, all_volumes, disable, enable, password_file } => {
            let mut patch = Map::new();
            let mut set = |field: &str, value: Value| patch.insert(field.to_owned(), value);
            if let Some(role) = role {
                set("role", role.into());
            }
            if all_volumes || !projects.is_empty() {
                set("projects", projects.into());
            }
            if disable || enable {
                set("disabled", disable.into());
            }
            if let Some(file) = password_file {
                set("password", password(Some(&file), PASSWORD_VARIABLE, &name)?.into());
            }
            change(client, USERS, &name, &patch)
        }
        UserCommand::Delete { name } => delete(client, USERS, &name),
    }
}

fn run_project(client: &Client, command: ProjectCommand) -> Result<Report, Failure> {
    match command {
        ProjectCommand::List(view) => list(client, PROJECTS, PROJECT_COLUMNS, &view),
        ProjectCommand::Create { name, prefix, quota: Quota { quota, quota_volumes } } => {
            let mut project = json!({"name": name, "prefix": prefix, "quota_bytes": quota});
            if let Some(count) = quota_volumes {
                project["quota_volumes"] = count.into();
            }
            make(client, PROJECTS, &project)
        }
        ProjectCommand::Set { name, prefix, quota, no_quota, quota_volumes } => {
            let mut patch = Map::new();
            let mut set = |field: &str, value: Value| patch.insert(field.to_owned(), value);
            if let Some(prefix) = prefix {
                set("prefix", prefix.into());
            }
            if no_quota || quota.is_some() {
                set("quota_bytes", json!(quota));
            }
            if let Some(count) = quota_volumes {
                set("quota_volumes", count.into());
            }
            change(client, PROJECTS, &name, &patch)
        }
        ProjectCommand::Delete { name } => delete(client, PROJECTS, &name),
    }
}

/// Logs in, creates a token, and logs out again. The file for the secret is created before the
/// token.
fn make_token(client: &Client, asked: TokenCreate) -> Result<Report, Failure> {
    let TokenCreate {
        name,
        role,
        projects,
        expires,
        user,
        password: Password { password_file },
        code,
        out,
    } = asked;
    let password = password(password_file.as_deref(), PASSWORD_VARIABLE, &user)?;
    let out = out.map(SecretFile::new).transpose()?;
    let mut login = json!({"name": user, "password": password});
    if let Some(code) = code {
        login["code"] = code.into();
    }
    let within = client.log_in(SESSION, &login)?;
    let mut request = json!({"name": name, "role": role, "projects": projects});
    if let Some(expires) = expires {
        request["expires_in_seconds"] = expires.as_secs().into();
    }
    let made = within.ask(Method::Post, TOKENS, &request).map_err(Failure::from);
    let made = made.and_then(|made| told_once(&within, made, out));
    if let Err(error) = within.delete(SESSION) {
        tell(format_args!("cannot log out; the session ends when it is idle: {error}"));
    }
    made
}

/// Reports a new token. If its secret cannot be stored, the token is deleted.
fn told_once(within: &Client, mut made: Value, out: Option<SecretFile>) -> Result<Report, Failure> {
    let secret = made["secret"].as_str().unwrap_or_default().to_owned();
    let Some(file) = out else { return Ok(Report::of(secret, &made)) };
    if let Err(failure) = file.keep(&secret) {
        let id = made["id"].as_str().unwrap_or_default();
        delete(within, TOKENS, id)?;
        return Err(failure);
    }
    made.as_object_mut().and_then(|it| it.remove("secret"));
    Ok(Report::silent(&made))
}

/// A file for a secret. It is removed if the secret is not stored.
struct SecretFile {
    path: PathBuf,
    file: File,
    is_kept: bool,
}

impl SecretFile {
    fn new(path: PathBuf) -> Result<Self, Failure> {
        let made = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let file = made.map_err(|error| unwritten(&path, &error))?;
        Ok(Self { path, file, is_kept: false })
    }

    fn keep(mut self, secret: &str) -> Result<(), Failure> {
        let written = writeln!(self.file, "{secret}").and_then(|()| self.file.sync_all());
        written.map_err(|error| unwritten(&self.path, &error))?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // The cause of the missing secret is reported instead.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::other(format!("cannot write the secret to {}: {error}", path.display()))
}

fn list(
    client: &Client,
    path: &str,
    columns: &[(&'static str, &str)],
    view: &View,
) -> Result<Report, Failure> {
    let found: Vec<Value> = client.get(path)?;
    let cells: Vec<_> =
        columns.iter().map(|&(_, field)| move |it: &Value| cell(field, &it[field])).collect();
    let columns: Vec<Column<'_, Value>> = columns
        .iter()
        .zip(&cells)
        .map(|((title, _), cell)| (*title, cell as &dyn Fn(&Value) -> Cell))
        .collect();
    Ok(Report::of(Table::of(&found, &columns).viewed(view)?, &found))
}

fn cell(field: &str, value: &Value) -> Cell {
    match (field, value) {
        (_, Value::Null) => Cell::text("-"),
        ("quota_bytes", Value::Number(bytes)) => Cell::size(bytes.as_u64().unwrap_or_default()),
        ("quota_volumes", Value::Number(count)) => Cell::number(count.as_u64().unwrap_or_default()),
        (_, Value::Number(seconds)) => Cell::text(time_text(seconds.as_u64().unwrap_or_default())),
        (_, Value::Bool(is_so)) => Cell::text(if *is_so { "yes" } else { "no" }),
        (_, Value::String(text)) => Cell::text(text),
        (_, Value::Array(names)) => {
            let names: Vec<_> = names.iter().filter_map(Value::as_str).collect();
            Cell::text(or_dash((!names.is_empty()).then(|| names.join(", "))))
        }
        (_, other) => Cell::text(other),
    }
}

fn make(client: &Client, path: &str, request: &Value) -> Result<Report, Failure> {
    let made: Value = client.ask(Method::Post, path, request)?;
    Ok(Report::silent(&made))
}

fn change(
    client: &Client,
    path: &str,
    name: &str,
    patch: &Map<String, Value>,
) -> Result<Report, Failure> {
    let changed: Value = client.ask(Method::Patch, &one(path, name), patch)?;
    Ok(Report::silent(&changed))
}

fn delete(client: &Client, path: &str, name: &str) -> Result<Report, Failure> {
    client.delete(&one(path, name))?;
    Ok(Report::silent(&json!({"deleted": name})))
}

fn one(path: &str, name: &str) -> String {
    api::path_of(&format!("{path}/{{name}}"), name)
}
