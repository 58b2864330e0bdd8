//! Requests that go on to the daemon or to `memlane-machines`, after the permission check.
//!
//! Which operation a request asks for and what that takes is the business of `api`; here is who
//! has it, and what projects allow.

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

/// Headers of answers that go on to the caller.
const ANSWERED: &[HeaderName] =
    &[header::CONTENT_TYPE, header::ETAG, header::LOCATION, header::RETRY_AFTER];

/// Requests of one user that are passed on at a time: a fraction of those of all.
const AT_ONCE_OF_USER_MAX: usize = 8;

/// Queues of requests by name. Each admits so many at a time, and exists while it has requests.
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

/// Passes requests on.
#[derive(Debug)]
pub(crate) struct Gateway {
    daemon: Arc<Backend>,
    machines: Option<Backend>,
    accounts: Arc<Accounts>,
    /// Volumes of a project are made and grown one after the other, so that a quota holds.
    project_queues: RequestQueues,
    /// What one user asks waits for what they asked before: others have the rest.
    user_queues: RequestQueues,
}

/// A request as it came.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Bytes,
}

/// What of a body the check looks at; the daemon reads it as a whole.
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

    /// Has it done, where the caller may.
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

    /// Resource at a path that is to be changed, where the caller may see it and it is the
    /// daemon's.
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

    /// Refuses where there is no such volume, or the caller may not see it.
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

    /// Opens a console of a machine, by its endpoint and name; [`check_console`] says who may.
    pub(crate) async fn open_console(
        &self,
        (path, name): (&str, &str),
        query: &[(&str, &str)],
    ) -> Result<Answer, Refusal> {
        let path = api::with_query(&api::path_of(path, name), query);
        self.machines()?.upgrade(&path).await.map_err(machines_unanswered)
    }

    /// Asks whether the daemon is there, for anybody.
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

    /// As somebody who is limited to projects.
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
        // Of the project that gets more, and alone: nobody waits for two.
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

    /// Whether the projects have room for what a request makes or grows.
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
        // The volume that will be there, and the one that it takes the place of.
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
            // What is too much already may shrink.
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

    /// Whether the projects have room for a snapshot of each of these.
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

    /// Whether a project may have so many volumes and snapshots more: a host has some 1,000.
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

    /// The size of a snapshot. One that is not there is the daemon's to refuse.
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

/// Returns whether a caller may open a console of a machine, by the operation's name.
pub(crate) fn check_console(caller: &Caller, operation: &str) -> Result<(), Refusal> {
    check_unlimited(caller, role_of(operation)?)
}

/// Returns whether a caller may do what concerns no project: topics, consoles of machines.
pub(crate) fn check_unlimited(caller: &Caller, least: Role) -> Result<(), Refusal> {
    check_role(caller, least)?;
    match caller.is_limited() {
        true => Err(beyond_projects()),
        false => Ok(()),
    }
}

/// The least role for the operation of this name.
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

/// Volumes that somebody may see, by their names.
pub(crate) fn may_see(accounts: &Accounts, caller: &Caller) -> impl Fn(&str) -> bool + use<> {
    let limits = caller.is_limited().then(|| Limits::of(accounts, caller));
    move |volume| limits.as_ref().is_none_or(|it| it.project_of(volume).is_some())
}

/// The projects of somebody who is limited.
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

    /// The project of a volume, or of a snapshot of it.
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

    /// The entries of a list that are inside.
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

/// The paths that the daemon serves, as far as they are not under `/v1`.
pub(crate) fn is_the_daemons(path: &str) -> bool {
    let is_it = |it: &&Endpoint| it.method == ApiMethod::Get && it.path == path;
    path == "/v1" || path.starts_with("/v1/") || ENDPOINTS.iter().any(|it| is_it(&it))
}
