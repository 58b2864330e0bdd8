//! Users, tokens and projects, in one file that is replaced atomically.
//!
//! A change is on disk before the response is sent. Once there was an administrator who can log in,
//! there always is one.

mod codes;
mod rules;

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::Role;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use state_file::StateFile;
use utoipa::ToSchema;

use crate::access::attempts::network_of;
use crate::access::caller::Caller;
use crate::access::password::PasswordHash;
use crate::access::second_factor::SecondFactor;
use crate::access::secret::Secret;

pub(crate) use rules::Rules;

const FILE_NAME: &str = "accounts.json";

const USERS_MAX: usize = 1_000;

/// Maximum number of tokens per user, so that users do not exhaust each other's quota.
const TOKENS_OF_USER_MAX: usize = 50;

/// Maximum number of networks remembered per user from earlier logins.
const NETWORKS_OF_USER_MAX: usize = 16;

const PROJECTS_MAX: usize = 1_000;
const NAME_BYTES_MAX: usize = 64;

/// Maximum lifetime of a token: ten years.
const TOKEN_SECONDS_MAX: u64 = 10 * 365 * 24 * 60 * 60;

/// Resolution of the time at which a token was last used.
const LAST_USED_SECONDS: u64 = 60;

/// Reason for which a change was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccountError {
    /// The invalid field, and what is wrong with it.
    Invalid(&'static str, String),
    NotFound(String),
    Exists(String),
    /// Rule that the change would violate.
    Conflict(String),
    NotStored(String),
    /// The object has changed since the caller read it.
    Changed(String),
}

type Result<T> = std::result::Result<T, AccountError>;

/// A user who may log in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Projects to which the user is restricted. Empty means unrestricted.
    pub(crate) projects: Vec<String>,
    pub(crate) disabled: bool,
    pub(crate) password: PasswordHash,
    /// Networks of earlier logins, the most recent last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    networks: Vec<IpAddr>,
    /// Second factor, if enabled. Its code is required after the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) second_factor: Option<SecondFactor>,
}

/// API token: a secret with which a program authenticates in place of its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) owner: String,
    pub(crate) role: Role,
    pub(crate) projects: Vec<String>,
    /// Unix seconds.
    pub(crate) created: u64,
    pub(crate) expires: u64,
    pub(crate) last_used: Option<u64>,
    hash: String,
}

/// A project: volumes with a common name prefix, and their quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Project {
    pub(crate) name: String,
    pub(crate) prefix: String,
    /// Limit on the sizes of its volumes; null or left out: no limit.
    pub(crate) quota_bytes: Option<u64>,
    /// Limit on the number of its volumes and snapshots together. Always set, since a host has some
    /// 1,000 for all projects.
    #[serde(default = "quota_volumes_default")]
    pub(crate) quota_volumes: u64,
}

const QUOTA_VOLUMES_DEFAULT: u64 = 100;

fn quota_volumes_default() -> u64 {
    QUOTA_VOLUMES_DEFAULT
}

#[derive(Debug)]
pub(crate) struct NewUser {
    pub(crate) name: String,
    pub(crate) password: PasswordHash,
    pub(crate) role: Role,
    pub(crate) projects: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct UserPatch {
    pub(crate) password: Option<PasswordHash>,
    pub(crate) role: Option<Role>,
    pub(crate) projects: Option<Vec<String>>,
    pub(crate) disabled: Option<bool>,
}

#[derive(Debug)]
pub(crate) struct NewToken {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) projects: Vec<String>,
    pub(crate) expires_in_seconds: u64,
}

#[derive(Debug, Default)]
pub(crate) struct ProjectPatch {
    pub(crate) prefix: Option<String>,
    /// `Some(None)` removes the limit.
    pub(crate) quota_bytes: Option<Option<u64>>,
    pub(crate) quota_volumes: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    users: Vec<User>,
    tokens: Vec<Token>,
    projects: Vec<Project>,
    #[serde(default, skip_serializing_if = "Rules::are_default")]
    rules: Rules,
}

/// All accounts of the console.
#[derive(Debug)]
pub(crate) struct Accounts {
    file: Mutex<StateFile<State>>,
    /// Set if the file lacks the latest use of a token or network of a login.
    is_used: AtomicBool,
}

impl Accounts {
    /// Reads the file in the state folder. Without a file there are no users.
    pub(crate) fn open(folder: &Path) -> std::io::Result<Self> {
        let file = StateFile::open_or_default(folder.join(FILE_NAME))?;
        Ok(Self { file: Mutex::new(file), is_used: AtomicBool::new(false) })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().state().users.is_empty()
    }

    pub(crate) fn users(&self) -> Vec<User> {
        self.lock().state().users.clone()
    }

    pub(crate) fn user(&self, name: &str) -> Option<User> {
        self.lock().state().users.iter().find(|it| it.name == name).cloned()
    }

    pub(crate) fn projects(&self) -> Vec<Project> {
        self.lock().state().projects.clone()
    }

    /// Returns the tokens of a user, or all tokens.
    pub(crate) fn tokens(&self, owner: Option<&str>) -> Vec<Token> {
        let file = self.lock();
        let is_theirs = |it: &&Token| owner.is_none_or(|owner| it.owner == owner);
        file.state().tokens.iter().filter(is_theirs).cloned().collect()
    }

    /// Returns the user as a caller with current rights, or `None` if the user may not log in.
    pub(crate) fn caller_of_user(&self, name: &str) -> Option<Caller> {
        let user = self.user(name).filter(|it| !it.disabled)?;
        Some(Caller { user: user.name, token: None, role: user.role, projects: user.projects })
    }

    /// Authenticates a token. Its rights never exceed the current rights of its owner.
    pub(crate) fn caller_of_token(&self, secret: &Secret, now: u64) -> Option<Caller> {
        let hash = secret.hash();
        let mut file = self.lock();
        let token = file.state().tokens.iter().find(|it| it.hash == hash)?.clone();
        let owner = file.state().users.iter().find(|it| it.name == token.owner)?.clone();
        if token.expires <= now || owner.disabled {
            return None;
        }
        // The owner may have been restricted since the token was created.
        let projects = match (owner.projects.is_empty(), token.projects.is_empty()) {
            (true, _) => token.projects.clone(),
            (false, true) => owner.projects.clone(),
            (false, false) => {
                let both = token.projects.iter().filter(|it| owner.projects.contains(it));
                let both: Vec<_> = both.cloned().collect();
                if both.is_empty() {
                    return None;
                }
                both
            }
        };
        // A later time is that of a clock that was set back since.
        let is_noted =
            token.last_used.is_some_and(|it| (it..it + LAST_USED_SECONDS).contains(&now));
        if !is_noted {
            let mut state = file.state().clone();
            let kept = state.tokens.iter_mut().find(|it| it.hash == hash);
            kept.into_iter().for_each(|it| it.last_used = Some(now));
            file.replace(state);
            self.is_used.store(true, Ordering::Relaxed);
        }
        let role = token.role.min(owner.role);
        Some(Caller { user: token.owner, token: Some(token.id), role, projects })
    }

    /// Records the network of a login, for [`Accounts::keep`] to store. Returns whether it differs
    /// from the user's latest one.
    pub(crate) fn note_login(&self, name: &str, address: IpAddr) -> bool {
        let network = network_of(address);
        let mut file = self.lock();
        let mut state = file.state().clone();
        let Some(user) = state.users.iter_mut().find(|it| it.name == name) else { return false };
        if user.networks.last() == Some(&network) {
            return false;
        }
        let is_new = !user.networks.contains(&network);
        user.networks.retain(|it| *it != network);
        let too_many = (user.networks.len() + 1).saturating_sub(NETWORKS_OF_USER_MAX);
        user.networks.drain(..too_many);
        user.networks.push(network);
        file.replace(state);
        self.is_used.store(true, Ordering::Relaxed);
        is_new
    }

    /// Stores the latest uses of tokens and networks of logins, if there are new ones. Blocks on
    /// the disk.
    pub(crate) fn keep(&self) {
        if !self.is_used.swap(false, Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.lock().store() {
            self.is_used.store(true, Ordering::Relaxed);
            tracing::warn!(%error, "cannot store last uses of tokens and networks of logins");
        }
    }

    /// Creates the first administrator, if there are no users.
    pub(crate) fn make_first(&self, name: String, password: PasswordHash) -> Result<()> {
        check_name("name", &name)?;
        self.change(|state| {
            if !state.users.is_empty() {
                return Err(AccountError::Conflict("a user already exists".to_owned()));
            }
            let (role, projects) = (Role::Administrator, Vec::new());
            state.users.push(User::of(NewUser { name, password, role, projects }));
            Ok(())
        })
    }

    pub(crate) fn add_user(&self, new: NewUser) -> Result<User> {
        check_name("name", &new.name)?;
        self.change(|state| {
            check_limits(state, new.role, &new.projects)?;
            if state.users.iter().any(|it| it.name == new.name) {
                return Err(AccountError::Exists(format!("user {:?} already exists", new.name)));
            }
            check_room("users", state.users.len(), USERS_MAX)?;
            let user = User::of(new);
            state.users.push(user.clone());
            state.users.sort_by(|one, other| one.name.cmp(&other.name));
            Ok(user)
        })
    }

    /// Changes a user. Returns the user before and after. `expected` is the entity tag that the
    /// user must have.
    pub(crate) fn change_user(
        &self,
        name: &str,
        patch: UserPatch,
        expected: Option<&str>,
    ) -> Result<(User, User)> {
        self.change(|state| {
            let index = find_user(state, name)?;
            let old = state.users[index].clone();
            check_tag(&old.shown(), expected)?;
            let mut user = old.clone();
            user.role = patch.role.unwrap_or(user.role);
            user.projects = patch.projects.unwrap_or(user.projects);
            user.disabled = patch.disabled.unwrap_or(user.disabled);
            user.password = patch.password.unwrap_or(user.password);
            check_limits(state, user.role, &user.projects)?;
            state.users[index] = user.clone();
            check_administrator(state)?;
            Ok((old, user))
        })
    }

    /// Deletes a user with all tokens.
    pub(crate) fn remove_user(&self, name: &str) -> Result<User> {
        self.change(|state| {
            let index = find_user(state, name)?;
            let old = state.users.remove(index);
            state.tokens.retain(|it| it.owner != name);
            check_administrator(state)?;
            Ok(old)
        })
    }

    pub(crate) fn add_token(
        &self,
        owner: &Caller,
        new: NewToken,
        now: u64,
    ) -> Result<(Token, Secret)> {
        check_name("name", &new.name)?;
        if new.role > owner.role {
            let what =
                format!("the role of a token cannot exceed your own role ({})", owner.role.name());
            return Err(AccountError::Invalid("role", what));
        }
        let is_inside = |project: &String| owner.projects.contains(project);
        if owner.is_limited() && (new.projects.is_empty() || !new.projects.iter().all(is_inside)) {
            let what = format!("you are limited to the projects {}", owner.projects.join(", "));
            return Err(AccountError::Invalid("projects", what));
        }
        if !(1..=TOKEN_SECONDS_MAX).contains(&new.expires_in_seconds) {
            let what = format!("invalid lifetime of a token; use 1 to {TOKEN_SECONDS_MAX} seconds");
            return Err(AccountError::Invalid("expires_in_seconds", what));
        }
        let not_stored = |error: anyhow::Error| AccountError::NotStored(format!("{error:#}"));
        let (secret, id) =
            (Secret::make().map_err(not_stored)?, Secret::make().map_err(not_stored)?);
        let id = id.hash().chars().filter(char::is_ascii_alphanumeric).take(12).collect();
        let token = Token {
            id,
            name: new.name,
            owner: owner.user.clone(),
            role: new.role,
            projects: new.projects,
            created: now,
            expires: now + new.expires_in_seconds,
            last_used: None,
            hash: secret.hash(),
        };
        self.change(|state| {
            check_limits(state, token.role, &token.projects)?;
            state.tokens.retain(|it| it.expires > now);
            let own = state.tokens.iter().filter(|it| it.owner == token.owner).count();
            check_room("tokens of this user", own, TOKENS_OF_USER_MAX)?;
            state.tokens.push(token.clone());
            Ok(())
        })?;
        Ok((token, secret))
    }

    /// Deletes a token. With `owner`, only if it belongs to that user.
    pub(crate) fn remove_token(&self, id: &str, owner: Option<&str>) -> Result<Token> {
        self.change(|state| {
            let is_it = |it: &Token| it.id == id && owner.is_none_or(|owner| it.owner == owner);
            let index = state.tokens.iter().position(is_it);
            let index = index.ok_or_else(|| not_found("token", id))?;
            Ok(state.tokens.remove(index))
        })
    }

    pub(crate) fn add_project(&self, project: Project) -> Result<()> {
        check_name("name", &project.name)?;
        check_prefix(&project.prefix)?;
        self.change(|state| {
            if state.projects.iter().any(|it| it.name == project.name) {
                let what = format!("project {:?} already exists", project.name);
                return Err(AccountError::Exists(what));
            }
            check_room("projects", state.projects.len(), PROJECTS_MAX)?;
            state.projects.push(project);
            state.projects.sort_by(|one, other| one.name.cmp(&other.name));
            check_overlaps(state)
        })
    }

    /// Changes a project. Returns the project before and after. `expected` is the entity tag that
    /// the project must have.
    pub(crate) fn change_project(
        &self,
        name: &str,
        patch: ProjectPatch,
        expected: Option<&str>,
    ) -> Result<(Project, Project)> {
        patch.prefix.as_deref().map_or(Ok(()), check_prefix)?;
        self.change(|state| {
            let project = state.projects.iter_mut().find(|it| it.name == name);
            let project = project.ok_or_else(|| not_found("project", name))?;
            let old = project.clone();
            check_tag(&serde_json::json!(old), expected)?;
            project.prefix = patch.prefix.unwrap_or_else(|| project.prefix.clone());
            project.quota_bytes = patch.quota_bytes.unwrap_or(project.quota_bytes);
            project.quota_volumes = patch.quota_volumes.unwrap_or(project.quota_volumes);
            let changed = project.clone();
            check_overlaps(state)?;
            Ok((old, changed))
        })
    }

    /// Deletes a project to which no user or token is restricted.
    pub(crate) fn remove_project(&self, name: &str) -> Result<Project> {
        self.change(|state| {
            let index = state.projects.iter().position(|it| it.name == name);
            let index = index.ok_or_else(|| not_found("project", name))?;
            let holds = |projects: &[String]| projects.iter().any(|it| it == name);
            if let Some(user) = state.users.iter().find(|it| holds(&it.projects)) {
                let what = format!(
                    "user {:?} is limited to this project; change the user first",
                    user.name
                );
                return Err(AccountError::Conflict(what));
            }
            if let Some(token) = state.tokens.iter().find(|it| holds(&it.projects)) {
                let what = format!(
                    "token {:?} is limited to this project; delete the token first",
                    token.name
                );
                return Err(AccountError::Conflict(what));
            }
            Ok(state.projects.remove(index))
        })
    }

    fn lock(&self) -> MutexGuard<'_, StateFile<State>> {
        // Changes are made on a copy, so the state is consistent even after a panic.
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut file = self.lock();
        let mut state = file.state().clone();
        let done = change(&mut state)?;
        file.change(|stored| *stored = state).map_err(|error| {
            AccountError::NotStored(format!("cannot store the accounts: {error}"))
        })?;
        Ok(done)
    }
}

impl User {
    fn of(new: NewUser) -> Self {
        let NewUser { name, password, role, projects } = new;
        let (networks, second_factor) = (Vec::new(), None);
        Self { name, role, projects, disabled: false, password, networks, second_factor }
    }

    /// Returns whether the user has logged in from this network before.
    pub(crate) fn is_known_at(&self, address: IpAddr) -> bool {
        self.networks.contains(&network_of(address))
    }

    /// Returns the JSON that administrators see.
    pub(crate) fn shown(&self) -> Value {
        let Self { name, role, projects, disabled, .. } = self;
        let second_factor = self.second_factor.is_some();
        serde_json::json!(ShownUser {
            name,
            role: *role,
            projects,
            disabled: *disabled,
            second_factor
        })
    }
}

/// A user, without the password.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = User)]
pub(crate) struct ShownUser<'a> {
    name: &'a str,
    role: Role,
    projects: &'a [String],
    disabled: bool,
    second_factor: bool,
}

/// Entity tag of an object as clients see it. It changes whenever the JSON does.
pub(crate) fn tag_of(shown: &Value) -> String {
    Secret::shown(&shown.to_string()).hash()
}

fn check_tag(shown: &Value, expected: Option<&str>) -> Result<()> {
    match expected {
        Some(tag) if tag != "*" && tag != tag_of(shown) => Err(AccountError::Changed(
            "it has changed since it was read; read it again and retry".to_owned(),
        )),
        _ => Ok(()),
    }
}

fn not_found(what: &str, name: &str) -> AccountError {
    AccountError::NotFound(format!("no {what} {name:?}"))
}

fn find_user(state: &State, name: &str) -> Result<usize> {
    let index = state.users.iter().position(|it| it.name == name);
    index.ok_or_else(|| not_found("user", name))
}

/// Returns whether this is a valid user name.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"-_.@".contains(&it);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

fn check_name(field: &'static str, name: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    let what = format!(
        "invalid name; use 1 to {NAME_BYTES_MAX} ASCII letters, digits, '-', '_', '.' or '@'"
    );
    Err(AccountError::Invalid(field, what))
}

fn check_prefix(prefix: &str) -> Result<()> {
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"-_.".contains(&it);
    if (1..=NAME_BYTES_MAX).contains(&prefix.len()) && prefix.bytes().all(is_plain) {
        return Ok(());
    }
    let what = "invalid prefix; use the beginning of volume names, for example shop-".to_owned();
    Err(AccountError::Invalid("prefix", what))
}

/// Rejects overlapping prefixes, because quotas must count each volume once.
fn check_overlaps(state: &State) -> Result<()> {
    for (index, one) in state.projects.iter().enumerate() {
        for other in &state.projects[index + 1..] {
            if one.prefix.starts_with(&other.prefix) || other.prefix.starts_with(&one.prefix) {
                let what = format!(
                    "prefix {:?} of project {:?} overlaps with prefix {:?} of project {:?}",
                    one.prefix, one.name, other.prefix, other.name
                );
                return Err(AccountError::Conflict(what));
            }
        }
    }
    Ok(())
}

fn check_limits(state: &State, role: Role, projects: &[String]) -> Result<()> {
    if role == Role::Administrator && !projects.is_empty() {
        let what = "administrators cannot be limited to projects".to_owned();
        return Err(AccountError::Invalid("projects", what));
    }
    let is_known = |name: &String| state.projects.iter().any(|it| it.name == *name);
    match projects.iter().find(|it| !is_known(it)) {
        Some(name) => Err(AccountError::Invalid("projects", format!("no project {name:?}"))),
        None => Ok(()),
    }
}

fn check_administrator(state: &State) -> Result<()> {
    let may_administer = |it: &User| it.role == Role::Administrator && !it.disabled;
    if state.users.iter().any(may_administer) {
        return Ok(());
    }
    let what = "the last administrator cannot be deleted, disabled or demoted";
    Err(AccountError::Conflict(what.to_owned()))
}

fn check_room(what: &str, count: usize, count_max: usize) -> Result<()> {
    if count < count_max {
        return Ok(());
    }
    Err(AccountError::Conflict(format!("too many {what}; the limit is {count_max}")))
}

#[cfg(test)]
mod tests;
