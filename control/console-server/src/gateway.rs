//! Forwarding of requests to the daemon and `memlane-machines`, after authorization.
//!
//! The crate `api` matches requests to operations and their permissions. This module checks the
//! caller's role and restriction to projects.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use api::{
    ByteSize, CONSOLE_STATUS, ENDPOINTS, Endpoint, Method as ApiMethod, Operation, Permission,
    Reach, Role, Unrecognized, Volume, permission,
};
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use rest_client::Answer;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::{Accounts, Caller, Project};
use crate::backend::{Backend, NoAnswer};
use crate::exchange::Asked;
use crate::refusal::{Kind, Refusal};

/// Response headers that are forwarded.
const ANSWERED: &[HeaderName] =
    &[header::CONTENT_TYPE, header::ETAG, header::LOCATION, header::RETRY_AFTER];

/// Maximum number of concurrent requests per user, a fraction of the total.
const AT_ONCE_OF_USER_MAX: usize = 8;

/// Concurrency limits by name. A limit exists only while requests use it.
#[derive(Debug)]
struct RequestQueues {
    at_once_max: usize,
    queues: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl RequestQueues {
    fn new(at_once_max: usize) -> Self {
        Self { at_once_max, queues: Mutex::default() }
    }

    async fn enter(&self, name: &str) -> Result<OwnedSemaphorePermit, Refusal> {
        let queue = {
            let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
            queues.retain(|_, queue| queue.strong_count() > 0);
            let made = || Arc::new(Semaphore::new(self.at_once_max));
            let queue = queues.get(name).and_then(Weak::upgrade).unwrap_or_else(made);
            queues.insert(name.to_owned(), Arc::downgrade(&queue));
            queue
        };
        let permit = queue.acquire_owned().await;
        permit.map_err(|_| Refusal::new(Kind::Internal, "queues are never closed"))
    }
}

/// Forwards authorized requests.
#[derive(Debug)]
pub(crate) struct Gateway {
    daemon: Arc<Backend>,
    machines: Option<Backend>,
    accounts: Arc<Accounts>,
    /// Serializes creation and growth of volumes in a project, so that concurrent requests cannot
    /// exceed its quota.
    project_queues: RequestQueues,
    /// Limits concurrent requests per user, so that users do not block each other.
    user_queues: RequestQueues,
}

/// A received request.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Bytes,
}

/// Fields of a body that authorization needs. The daemon parses the whole body.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: Option<String>,
    size: Option<ByteSize>,
    volumes: Vec<String>,
    users: Option<Value>,
}

impl Gateway {
    pub(crate) fn new(
        daemon: Arc<Backend>,
        machines: Option<Backend>,
        accounts: Arc<Accounts>,
    ) -> Self {
        let (project_queues, user_queues) =
            (RequestQueues::new(1), RequestQueues::new(AT_ONCE_OF_USER_MAX));
        Self { daemon, machines, accounts, project_queues, user_queues }
    }

    /// Returns whether virtual machines are configured.
    pub(crate) fn has_machines(&self) -> bool {
        self.machines.is_some()
    }

    /// Authorizes and forwards a request.
    pub(crate) async fn pass(
        &self,
        caller: &Caller,
        incoming: Incoming<'_>,
    ) -> Result<Response, Refusal> {
        let operation = Operation::of(incoming.method, incoming.uri).map_err(unrecognized)?;
        let needed = operation.endpoint.permission;
        check_role(caller, needed.role)?;
        if operation.endpoint.status == CONSOLE_STATUS {
            let what = "consoles of machines are WebSockets here: \
                        /console/v1/machines/NAME/serial or /screen; on the host, use memlane vm \
                        console";
            return Err(Refusal::forbidden(what));
        }
        let _permit = self.user_queues.enter(&caller.user).await?;
        let answer = match caller.is_limited() {
            false => self.ask(&operation, &incoming).await?,
            true => self.pass_limited(caller, &operation, needed, &incoming).await?,
        };
        Ok(shown(answer))
    }

    /// Returns the object at a path before it is changed. Null if the caller may not see it, or it
    /// belongs to `memlane-machines`.
    pub(crate) async fn before(&self, caller: &Caller, uri: &Uri) -> Value {
        let Ok(operation) = Operation::of(&Method::GET, uri) else { return Value::Null };
        let may_look = check_role(caller, operation.endpoint.permission.role).is_ok();
        let is_inside = |name: &String| may_see(&self.accounts, caller)(name);
        let is_seen = may_look && operation.name.as_ref().is_some_and(is_inside);
        if !is_seen || operation.is_of_machines() {
            return Value::Null;
        }
        self.daemon.get(&operation.path()).await.unwrap_or_default()
    }

    /// Fails if the volume does not exist or the caller may not see it.
    pub(crate) async fn check_volume(&self, caller: &Caller, name: &str) -> Result<(), Refusal> {
        check_role(caller, role_of("show_volume")?)?;
        if caller.is_limited() {
            Limits::of(&self.accounts, caller).check(&[name])?;
        }
        let path = api::path_of(api::VOLUME_PATH, name);
        let answer = self.daemon.ask(Asked::get(&path)).await.map_err(unanswered)?;
        match answer.status {
            StatusCode::NOT_FOUND => {
                Err(Refusal::new(Kind::NotFound, &format!("no volume {name:?}")))
            }
            status if status.is_success() => Ok(()),
            status => Err(Refusal::new(Kind::BadGateway, &format!("the daemon answered {status}"))),
        }
    }

    /// Opens a console of a machine, by path template and name. The caller must have passed
    /// [`check_console`].
    pub(crate) async fn open_console(
        &self,
        (path, name): (&str, &str),
        query: &[(&str, &str)],
    ) -> Result<Answer, Refusal> {
        let path = api::with_query(&api::path_of(path, name), query);
        self.machines()?.upgrade(&path).await.map_err(machines_unanswered)
    }

    /// Forwards a health check, without authentication.
    pub(crate) async fn pass_health(
        &self,
        method: &Method,
        path: &str,
    ) -> Result<Response, Refusal> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Refusal::new(Kind::NoMethod, "the path does not support this method"));
        }
        self.daemon.ask(Asked::get(path)).await.map(shown).map_err(unanswered)
    }

    /// Forwards a request of a caller restricted to projects.
    async fn pass_limited(
        &self,
        caller: &Caller,
        operation: &Operation,
        needed: Permission,
        incoming: &Incoming<'_>,
    ) -> Result<Answer, Refusal> {
        let limits = Limits::of(&self.accounts, caller);
        let body: Named = match incoming.body.is_empty() {
            true => Named::default(),
            false => serde_json::from_slice(&incoming.body)
                .map_err(|error| Refusal::new(Kind::Invalid, &format!("the body: {error}")))?,
        };
        let named = operation.name.iter();
        let mut touched: Vec<&str> = named.map(String::as_str).collect();
        match needed.reach {
            Reach::Everything => {
                return Err(beyond_projects());
            }
            Reach::Compared => {
                let others = operation.query.iter().filter(|(name, _)| name == "to");
                touched.extend(others.map(|(_, value)| value.as_str()));
            }
            Reach::Created | Reach::Changed | Reach::Cloned => touched.extend(body.name.as_deref()),
            Reach::Several => touched.extend(body.volumes.iter().map(String::as_str)),
            Reach::Nothing | Reach::Named | Reach::Restored | Reach::Listed(_) => {}
        }
        limits.check(&touched)?;
        if body.users.is_some() {
            return Err(Refusal::forbidden(
                "users limited to projects cannot set users of a volume",
            ));
        }
        let grows = matches!(
            needed.reach,
            Reach::Created | Reach::Changed | Reach::Cloned | Reach::Restored | Reach::Several
        );
        if !grows {
            let answer = self.ask(operation, incoming).await?;
            return match needed.reach {
                Reach::Listed(field) => limits.filter(answer, field),
                _ => Ok(answer),
            };
        }
        // Locks the project that grows. A request never waits for two projects.
        let target = match needed.reach {
            Reach::Several => body.volumes.first().map(String::as_str),
            Reach::Created | Reach::Cloned => body.name.as_deref(),
            Reach::Changed => body.name.as_deref().or(operation.name.as_deref()),
            _ => operation.name.as_deref(),
        };
        let project = limits.project_of(target.unwrap_or_default());
        let project = project.map(|it| it.name.clone()).unwrap_or_default();
        let _permit = self.project_queues.enter(&project).await?;
        match needed.reach {
            Reach::Several => self.check_snapshot_count(&limits, &body.volumes).await?,
            reach => self.check_quota(&limits, (operation, reach), &body).await?,
        }
        self.ask(operation, incoming).await
    }

    /// Checks that a new or growing volume fits the quota of its project.
    async fn check_quota(
        &self,
        limits: &Limits,
        (operation, reach): (&Operation, Reach),
        body: &Named,
    ) -> Result<(), Refusal> {
        let volumes: Vec<Volume> = self.daemon.get(api::VOLUMES_PATH).await.map_err(unanswered)?;
        let size_of =
            |name: &str| volumes.iter().find(|it| it.name == name).map(|it| it.size_bytes);
        let source = operation.name.as_deref().unwrap_or_default();
        // The resulting volume, and the volume that it replaces.
        let (target, replaced) = match reach {
            Reach::Created | Reach::Cloned => (body.name.as_deref().unwrap_or_default(), None),
            Reach::Restored => {
                let volume = source.split('@').next().unwrap_or(source);
                (volume, Some(volume))
            }
            _ => (body.name.as_deref().unwrap_or(source), Some(source)),
        };
        let size_bytes = match (body.size, size_of(source)) {
            (Some(size), _) => size.0,
            (None, Some(size_bytes)) => size_bytes,
            (None, None) => self.snapshot_bytes(source).await?,
        };
        let Some(project) = limits.project_of(target) else { return Ok(()) };
        let is_new = replaced.is_none_or(|it| !it.starts_with(&project.prefix));
        if is_new {
            self.check_count(project, &volumes, 1).await?;
        }
        let Some(quota) = project.quota_bytes else { return Ok(()) };
        let old_bytes = replaced.filter(|it| it.starts_with(&project.prefix)).and_then(size_of);
        if old_bytes.is_some_and(|old_bytes| size_bytes <= old_bytes) {
            // A volume above the quota may still shrink.
            return Ok(());
        }
        let inside = volumes.iter().filter(|it| it.name.starts_with(&project.prefix));
        let others = inside.filter(|it| Some(it.name.as_str()) != replaced);
        let used: u64 = others.map(|it| it.size_bytes).sum();
        if used.saturating_add(size_bytes) <= quota {
            return Ok(());
        }
        let what = format!(
            "the quota of project {:?} is exceeded: {quota} bytes, of which its other volumes use \
             {used}, and this one needs {size_bytes}",
            project.name
        );
        Err(Refusal::new(Kind::OverQuota, &what))
    }

    /// Checks that the projects may have a further snapshot of each volume.
    async fn check_snapshot_count(&self, limits: &Limits, named: &[String]) -> Result<(), Refusal> {
        let volumes: Vec<Volume> = self.daemon.get(api::VOLUMES_PATH).await.map_err(unanswered)?;
        for project in &limits.projects {
            let inside = named.iter().filter(|it| it.starts_with(&project.prefix)).count();
            if inside > 0 {
                self.check_count(project, &volumes, inside).await?;
            }
        }
        Ok(())
    }

    /// Checks that a project may have `more` volumes and snapshots. A host supports about 1,000.
    async fn check_count(
        &self,
        project: &Project,
        volumes: &[Volume],
        more: usize,
    ) -> Result<(), Refusal> {
        let snapshots = self.daemon.get(api::SNAPSHOTS_PATH).await.map_err(unanswered)?;
        let snapshots: Vec<api::Snapshot> = snapshots;
        let is_inside = |name: &str| name.starts_with(&project.prefix);
        let volumes = volumes.iter().filter(|it| is_inside(&it.name)).count();
        let snapshots = snapshots.iter().filter(|it| is_inside(&it.volume)).count();
        let count = volumes + snapshots + more;
        if count <= usize::try_from(project.quota_volumes).unwrap_or(usize::MAX) {
            return Ok(());
        }
        let what = format!(
            "the quota of project {:?} is exceeded: at most {} volumes and snapshots, and there \
             would be {count}",
            project.name, project.quota_volumes
        );
        Err(Refusal::new(Kind::OverQuota, &what))
    }

    /// Returns the size of a snapshot, or 0 if it does not exist; then the daemon will reject the
    /// request.
    async fn snapshot_bytes(&self, name: &str) -> Result<u64, Refusal> {
        let path = api::path_of(api::SNAPSHOT_PATH, name);
        let answer = self.daemon.ask(Asked::get(&path)).await.map_err(unanswered)?;
        let snapshot = serde_json::from_slice::<api::Snapshot>(&answer.body);
        Ok(snapshot.map_or(0, |it| it.size_bytes))
    }

    async fn ask(&self, operation: &Operation, incoming: &Incoming<'_>) -> Result<Answer, Refusal> {
        let path = operation.path();
        let asked = Asked {
            method: incoming.method.clone(),
            path: &path,
            if_match: incoming.headers.get(header::IF_MATCH),
            body: incoming.body.clone(),
        };
        if !operation.is_of_machines() {
            return self.daemon.ask(asked).await.map_err(unanswered);
        }
        self.machines()?.ask(asked).await.map_err(machines_unanswered)
    }

    fn machines(&self) -> Result<&Backend, Refusal> {
        let what = "memlane-console was started without --machines-socket";
        self.machines.as_ref().ok_or_else(|| Refusal::new(Kind::NoMachines, what))
    }
}

/// Checks that a caller may open a console of a machine. `operation` is the operation id.
pub(crate) fn check_console(caller: &Caller, operation: &str) -> Result<(), Refusal> {
    check_unlimited(caller, role_of(operation)?)
}

/// Checks that a caller may use what belongs to no project: topics and consoles of machines.
pub(crate) fn check_unlimited(caller: &Caller, least: Role) -> Result<(), Refusal> {
    check_role(caller, least)?;
    match caller.is_limited() {
        true => Err(beyond_projects()),
        false => Ok(()),
    }
}

/// Returns the minimum role for an operation id.
fn role_of(operation: &str) -> Result<Role, Refusal> {
    let needed = permission(operation).map(|it| it.role);
    needed.ok_or_else(|| Refusal::forbidden("the console does not offer this operation"))
}

fn check_role(caller: &Caller, least: Role) -> Result<(), Refusal> {
    if caller.role >= least {
        return Ok(());
    }
    Err(Refusal::forbidden(&format!("this requires the role {}", least.name())))
}

fn beyond_projects() -> Refusal {
    Refusal::forbidden("you are limited to projects, and this is not part of them")
}

/// Returns a predicate for the names of volumes that the caller may see.
pub(crate) fn may_see(accounts: &Accounts, caller: &Caller) -> impl Fn(&str) -> bool + use<> {
    let limits = caller.is_limited().then(|| Limits::of(accounts, caller));
    move |volume| limits.as_ref().is_none_or(|it| it.project_of(volume).is_some())
}

/// Projects of a restricted caller.
#[derive(Debug)]
struct Limits {
    projects: Vec<Project>,
}

impl Limits {
    fn of(accounts: &Accounts, caller: &Caller) -> Self {
        let mut projects = accounts.projects();
        projects.retain(|it| caller.projects.contains(&it.name));
        Self { projects }
    }

    /// Returns the project of a volume or snapshot.
    fn project_of(&self, name: &str) -> Option<&Project> {
        let volume = name.split('@').next().unwrap_or(name);
        self.projects.iter().find(|it| volume.starts_with(&it.prefix))
    }

    fn check(&self, names: &[&str]) -> Result<(), Refusal> {
        match names.iter().find(|it| self.project_of(it).is_none()) {
            None => Ok(()),
            Some(name) => {
                let prefixes: Vec<_> = self.projects.iter().map(|it| it.prefix.as_str()).collect();
                let what = format!(
                    "{name:?} has none of the prefixes of your projects: {}",
                    prefixes.join(", ")
                );
                Err(Refusal::forbidden(&what))
            }
        }
    }

    fn holds(&self, entry: &Value, field: &str) -> bool {
        let name = entry.get(field).and_then(Value::as_str);
        name.is_some_and(|name| self.project_of(name).is_some())
    }

    /// Removes the entries of a list that are outside the projects.
    fn filter(&self, answer: Answer, field: &str) -> Result<Answer, Refusal> {
        if !answer.status.is_success() {
            return Ok(answer);
        }
        let list = serde_json::from_slice::<Vec<Value>>(&answer.body);
        let unreadable = |error| Refusal::new(Kind::BadGateway, &format!("the daemon: {error}"));
        let mut list = list.map_err(unreadable)?;
        list.retain(|it| self.holds(it, field));
        let body = serde_json::to_vec(&list).map_err(unreadable)?;
        Ok(Answer { body: body.into(), ..answer })
    }
}

fn unrecognized(what: Unrecognized) -> Refusal {
    match what {
        Unrecognized::Path => Refusal::new(Kind::NotFound, "no such path"),
        Unrecognized::Method => {
            Refusal::new(Kind::NoMethod, "the path does not support this method")
        }
        Unrecognized::Query(what) => Refusal::new(Kind::Invalid, &what),
    }
}

fn unanswered(error: NoAnswer) -> Refusal {
    refusal_of(&error, Kind::DaemonDown)
}

fn machines_unanswered(error: NoAnswer) -> Refusal {
    refusal_of(&error, Kind::MachinesDown)
}

fn refusal_of(error: &NoAnswer, down: Kind) -> Refusal {
    let kind = match error {
        NoAnswer::Unreachable(_) => down,
        NoAnswer::Broken(_) => Kind::BadGateway,
        NoAnswer::Late(_) => Kind::Late,
    };
    Refusal::new(kind, &error.to_string())
}

fn shown(answer: Answer) -> Response {
    let mut response = (answer.status, answer.body).into_response();
    response.headers_mut().remove(header::CONTENT_TYPE);
    for name in ANSWERED {
        if let Some(value) = answer.headers.get(name) {
            response.headers_mut().insert(name.clone(), value.clone());
        }
    }
    response
}

/// Returns whether the daemon serves the path, under `/v1` or elsewhere.
pub(crate) fn is_the_daemons(path: &str) -> bool {
    let is_it = |it: &&Endpoint| it.method == ApiMethod::Get && it.path == path;
    path == "/v1" || path.starts_with("/v1/") || ENDPOINTS.iter().any(|it| is_it(&it))
}
