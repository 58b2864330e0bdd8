//! Readiness of the daemon, and the responses before and after it serves.

use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use api::{Health, Problem, ProblemKind, Stage};
use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tower::ServiceExt;

use crate::http::answer::{Answer, Refusal, json};
use crate::http::routes;
use crate::service::Service;

/// Stage of the daemon, which the service manager also learns, and the router of that stage. Shared
/// by the start, the stop and all connections.
#[derive(Debug)]
pub(crate) struct Readiness {
    now: RwLock<Now>,
}

#[derive(Debug)]
enum Now {
    /// Current step of the start, and the time at which it began.
    Starting(String, Instant),
    Serving(Router),
    /// Current step of the stop.
    Stopping(&'static str),
}

impl Readiness {
    pub(crate) fn new() -> Self {
        Self { now: RwLock::new(Now::Starting("it prepares".to_owned(), Instant::now())) }
    }

    /// Records the current step of the start.
    pub(crate) fn starting(&self, doing: impl Into<String>) {
        let doing = doing.into();
        service_manager::status(&format!("starting: {doing}"));
        self.set(Now::Starting(doing, Instant::now()));
    }

    /// Current step of the start, and its duration. `None` after the start.
    pub(crate) fn start_in_hand(&self) -> Option<(String, Duration)> {
        match &*self.now() {
            Now::Starting(doing, since) => Some((doing.clone(), since.elapsed())),
            Now::Serving(_) | Now::Stopping(_) => None,
        }
    }

    /// Serves requests from now on.
    pub(crate) fn serving(&self, service: Arc<Service>) {
        self.set(Now::Serving(routes::router(service)));
    }

    /// Refuses new requests from now on, and records the current step of the stop. Accepted
    /// requests continue, and keep the service until they complete.
    pub(crate) fn stopping(&self, doing: &'static str) {
        service_manager::status(&format!("stopping: {doing}"));
        self.set(Now::Stopping(doing));
    }

    fn set(&self, next: Now) {
        let before = std::mem::replace(&mut *self.now.write().expect(NO_PANIC), next);
        // This may drop the service, so it is done after the lock is released.
        drop(before);
    }

    fn now(&self) -> RwLockReadGuard<'_, Now> {
        self.now.read().expect(NO_PANIC)
    }

    fn health(&self) -> Health {
        match &*self.now() {
            Now::Starting(doing, _) => health(Stage::Starting, Some(doing)),
            Now::Serving(_) => health(Stage::Serving, None),
            Now::Stopping(doing) => health(Stage::Stopping, Some(doing)),
        }
    }

    /// Router that serves requests, or the problem to respond with.
    fn routes(&self) -> Result<Router, Problem> {
        match &*self.now() {
            Now::Serving(routes) => Ok(routes.clone()),
            Now::Starting(doing, _) => {
                let detail = format!("the daemon is starting ({doing}); retry later");
                Err(Problem::new(ProblemKind::Starting, detail))
            }
            Now::Stopping(doing) => {
                let detail =
                    format!("the daemon is shutting down ({doing}); retry when it is back");
                Err(Problem::new(ProblemKind::ShuttingDown, detail))
            }
        }
    }
}

const NO_PANIC: &str = "no thread panics with this lock";

fn health(stage: Stage, doing: Option<&str>) -> Health {
    Health { stage, doing: doing.map(str::to_owned) }
}

/// Router for clients with permission.
pub(super) fn router(readiness: Arc<Readiness>) -> Router {
    Router::new()
        .route(api::HEALTH_PATH, get(show_health))
        .route(api::READINESS_PATH, get(show_readiness))
        .fallback(pass_on)
        .method_not_allowed_fallback(routes::method_not_allowed)
        .with_state(readiness)
}

async fn show_health(State(readiness): State<Arc<Readiness>>) -> Response {
    json(readiness.health())
}

async fn show_readiness(State(readiness): State<Arc<Readiness>>) -> Answer {
    let _routes = readiness.routes()?;
    Ok(json(readiness.health()))
}

async fn pass_on(State(readiness): State<Arc<Readiness>>, request: Request) -> Response {
    match readiness.routes() {
        Ok(routes) => routes.oneshot(request).await.into_response(),
        Err(problem) => Refusal(problem).into_response(),
    }
}
