//! Readiness of the daemon, and the answers to requests before and after it serves.

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

/// Stage of the daemon, and the routes that serve requests meanwhile. Shared by the start, the end
/// and all connections.
#[derive(Debug)]
pub(crate) struct Readiness {
    now: RwLock<Now>,
}

#[derive(Debug)]
enum Now {
    /// Step of the start, and its beginning.
    Starting(String, Instant),
    Serving(Router),
    /// Step of the stop.
    Stopping(&'static str),
}

impl Readiness {
    pub(crate) fn new() -> Self {
        Self { now: RwLock::new(Now::Starting("it prepares".to_owned(), Instant::now())) }
    }

    /// Names the step that the start is at.
    pub(crate) fn starting(&self, doing: impl Into<String>) {
        self.set(Now::Starting(doing.into(), Instant::now()));
    }

    /// Step that the start is at, and for how long. `None` after the start.
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

    /// Refuses requests from now on, and names the step that the end is at. Requests that were
    /// accepted go on, and have the service until they are done.
    pub(crate) fn stopping(&self, doing: &'static str) {
        self.set(Now::Stopping(doing));
    }

    pub(crate) fn is_starting(&self) -> bool {
        matches!(&*self.now(), Now::Starting(..))
    }

    fn set(&self, next: Now) {
        let before = std::mem::replace(&mut *self.now.write().expect(NO_PANIC), next);
        // The service may go with it, which takes its time.
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

    /// What serves requests, or why nothing does.
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

/// Everything that is served to clients that may ask.
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
