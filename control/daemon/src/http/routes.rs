//! Routes: maps paths to operations of the service.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use api::{Attachment, Export, ImageRestore, Problem, ProblemKind, Snapshot, Task, VolumePatch};
use axum::Router;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};

use crate::http::answer::{
    Answer, Refusal, accepted, blocking, created, created_volume, json, nothing, text, volume,
};
use crate::http::body::Body;
use crate::http::metrics;
use crate::http::places::{Places, may_wait};
use crate::service::{Clients, Ownership, Precondition, Service};

/// State of all routes.
#[derive(Clone)]
struct Shared {
    service: Arc<Service>,
    places: Places,
}

/// Service for one request, and the places that limit it if it may wait.
struct Served {
    service: Arc<Service>,
    places: Option<Places>,
}

impl FromRequestParts<Shared> for Served {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Infallible> {
        let is_limited = may_wait(&parts.method, parts.uri.path());
        let places = is_limited.then(|| shared.places.clone());
        Ok(Self { service: Arc::clone(&shared.service), places })
    }
}

/// Router of all operations of the service.
pub(super) fn router(service: Arc<Service>) -> Router {
    volume_routes()
        .merge(image_routes())
        .merge(host_routes())
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(Shared { service, places: Places::new() })
}

/// Routes of volumes, snapshots and clones.
fn volume_routes() -> Router<Shared> {
    Router::new()
        .route(
            api::VOLUMES_PATH,
            get(all(|service| Ok(service.list_volumes())))
                .post(of_body(Service::create_volume, created_volume)),
        )
        .route(
            api::VOLUME_PATH,
            get(of_name(Service::show_volume, volume)).patch(change_volume).delete(delete_volume),
        )
        .route(api::VOLUME_LATENCIES_PATH, get(of_name(Service::show_latencies, json)))
        .route(api::LATENCIES_PATH, get(all(|service| Ok(service.list_latencies()))))
        .route(api::CLONE_PATH, post(of_name_and_body(Service::clone_volume, created_volume)))
        .route(api::DISCONNECT_PATH, post(of_name(Service::disconnect_volume, json)))
        .route(
            api::SNAPSHOTS_PATH,
            get(list_snapshots).post(of_body(Service::create_snapshots, created_snapshots)),
        )
        .route(
            api::SNAPSHOT_PATH,
            get(of_name(Service::show_snapshot, json))
                .patch(of_name_and_body(Service::rename_snapshot, json))
                .delete(of_name(Service::delete_snapshot, nothing)),
        )
        .route(api::SNAPSHOT_RESTORE_PATH, post(restore_snapshot))
        .route(api::SNAPSHOT_DIFF_PATH, get(diff_snapshot))
}

/// Routes of images, tasks and events.
fn image_routes() -> Router<Shared> {
    Router::new()
        .route(
            api::IMAGES_PATH,
            get(all(Service::list_images)).post(of_body(Service::save_image, accepted)),
        )
        .route(api::IMAGE_REHEARSE_PATH, post(begun(Service::rehearse_image)))
        .route(
            api::IMAGE_PATH,
            get(of_number("number", Service::show_image, json)).delete(of_number(
                "number",
                Service::delete_image,
                nothing,
            )),
        )
        .route(api::IMAGE_RESTORE_PATH, post(restore_image))
        .route(api::IMAGE_VERIFY_PATH, post(of_number("number", Service::verify_image, accepted)))
        .route(api::ACCEPT_LOSS_PATH, post(of_name(Service::accept_loss, json)))
        .route(api::TASKS_PATH, get(all(|service| Ok(service.tasks.list()))))
        .route(
            api::TASK_PATH,
            get(of_number("id", |service, id| service.tasks.show(id), json)).delete(of_number(
                "id",
                |service, id| service.tasks.cancel(id),
                nothing,
            )),
        )
        .route(api::EVENTS_PATH, get(list_events))
}

/// Routes of the pool, attachments, exports and status.
fn host_routes() -> Router<Shared> {
    Router::new()
        .route(
            api::POOL_PATH,
            get(all(|service| Ok(service.show_pool())))
                .patch(of_body(Service::change_pool, accepted)),
        )
        .route(
            api::ATTACHMENTS_PATH,
            get(all(|service| Ok(service.list_attachments())))
                .post(of_body(Service::attach_volume, created_attachment)),
        )
        .route(
            api::ATTACHMENT_PATH,
            get(of_name(Service::show_attachment, json))
                .delete(of_name(Service::detach_volume, nothing)),
        )
        .route(
            api::EXPORTS_PATH,
            get(all(|service| Ok(service.list_exports())))
                .post(of_body(Service::export_volume, created_export)),
        )
        .route(api::EXPORT_PATH, get(of_name(Service::show_export, json)).delete(unexport_volume))
        .route(api::STANDBY_PATH, get(all(Service::show_standby)))
        .route(api::STANDBY_PROMOTE_PATH, post(of_body(Service::promote_standby, json)))
        .route(api::STATUS_PATH, get(all(|service| Ok(service.status()))))
        .route(api::METRICS_PATH, get(show_metrics))
        .route(api::OPENAPI_PATH, get(openapi))
}

/// Router for clients without permission.
pub(super) fn forbidding_router() -> Router {
    Router::new().fallback(async || {
        let detail =
            "permission denied: only root, the daemon's user and members of the group memlane \
             may use this socket; join the group with usermod -aG memlane USER and log in again";
        Refusal(Problem::new(ProblemKind::Forbidden, detail))
    })
}

async fn unknown_path(request: Request) -> Refusal {
    let detail = format!("no such path {}; see /openapi.json", request.uri().path());
    Refusal(Problem::new(ProblemKind::UnknownPath, detail))
}

pub(super) async fn method_not_allowed(request: Request) -> Refusal {
    let detail =
        format!("method {} is not supported for {}", request.method(), request.uri().path());
    Refusal(Problem::new(ProblemKind::MethodNotAllowed, detail))
}

/// Last segment of a path. Percent-encoded bytes may be invalid UTF-8.
type Name = Result<Path<String>, PathRejection>;

fn text_of(name: Name) -> Result<String, Refusal> {
    name.map(|Path(name)| name).map_err(|rejection| {
        let problem = Problem::new(ProblemKind::InvalidField, rejection.body_text());
        Refusal(problem.in_field("name"))
    })
}

/// Parses the number of an image or the id of a task in a path.
fn number_of(text: Name, field: &str) -> Result<u64, Refusal> {
    let text = text_of(text)?;
    text.parse().map_err(|_| {
        let problem = Problem::new(ProblemKind::InvalidField, format!("{text:?} is not a number"));
        Refusal(problem.in_field(field))
    })
}

/// Query parameters of a path.
type Asked<T> = Result<Query<T>, QueryRejection>;

fn asked<T>(query: Asked<T>) -> Result<T, Refusal> {
    query.map(|Query(query)| query).map_err(|rejection| {
        Refusal(Problem::new(ProblemKind::InvalidField, rejection.body_text()))
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfVolume {
    volume: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Comparison {
    to: Option<String>,
    #[serde(default)]
    offset: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct After {
    #[serde(default)]
    after: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Forced {
    #[serde(default)]
    force: bool,
}

impl Forced {
    fn clients(&self) -> Clients {
        if self.force { Clients::Disconnected } else { Clients::Respected }
    }
}

/// Parses the `If-Match` headers.
fn precondition(headers: &HeaderMap) -> Result<Precondition, Refusal> {
    let mut tags = Vec::new();
    for value in headers.get_all(header::IF_MATCH) {
        let text = value.to_str().map_err(|_| {
            let detail = "invalid If-Match header: it must be a list of entity tags";
            Refusal(Problem::new(ProblemKind::InvalidRequest, detail))
        })?;
        tags.extend(text.split(',').map(|tag| tag.trim().to_owned()));
    }
    Ok(Precondition::of(tags))
}

/// Future of a response.
type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Runs an operation of the service on a blocking thread, and converts its result to a response.
async fn run<T: Send + 'static>(
    Served { service, places }: Served,
    operation: impl FnOnce(&Service) -> Result<T, Problem> + Send + 'static,
    answer: impl FnOnce(T) -> Response,
) -> Answer {
    let place = match places {
        Some(places) => Some(places.take().await?),
        None => None,
    };
    let run = move || {
        // Kept until the operation ends, also if its client has disconnected.
        let _place = place;
        operation(&service)
    };
    Ok(answer(blocking(run).await??))
}

/// Handler of an operation without parameters.
fn all<T: Serialize + Send + 'static>(
    operation: fn(&Service) -> Result<T, Problem>,
) -> impl Fn(Served) -> Answering + Clone {
    move |served| Box::pin(run(served, operation, json))
}

/// Handler of an operation without parameters that starts a task.
fn begun(operation: fn(&Service) -> Result<Task, Problem>) -> impl Fn(Served) -> Answering + Clone {
    move |served| Box::pin(run(served, operation, accepted))
}

/// Handler of an operation on a name in the path.
fn of_name<T: Send + 'static>(
    operation: fn(&Service, &str) -> Result<T, Problem>,
    answer: fn(T) -> Response,
) -> impl Fn(Served, Name) -> Answering + Clone {
    move |served, name| {
        Box::pin(async move {
            let name = text_of(name)?;
            run(served, move |service| operation(service, &name), answer).await
        })
    }
}

/// Handler of an operation on a number in the path; `field` names it in errors.
fn of_number<T: Send + 'static>(
    field: &'static str,
    operation: fn(&Service, u64) -> Result<T, Problem>,
    answer: fn(T) -> Response,
) -> impl Fn(Served, Name) -> Answering + Clone {
    move |served, number| {
        Box::pin(async move {
            let number = number_of(number, field)?;
            run(served, move |service| operation(service, number), answer).await
        })
    }
}

/// Handler of an operation with a request body.
fn of_body<B: Send + 'static, T: Send + 'static>(
    operation: fn(&Service, &B) -> Result<T, Problem>,
    answer: fn(T) -> Response,
) -> impl Fn(Served, Body<B>) -> Answering + Clone {
    move |served, Body(request)| {
        Box::pin(run(served, move |service| operation(service, &request), answer))
    }
}

/// Handler of an operation with a name in the path and a request body.
fn of_name_and_body<B: Send + 'static, T: Send + 'static>(
    operation: fn(&Service, &str, &B) -> Result<T, Problem>,
    answer: fn(T) -> Response,
) -> impl Fn(Served, Name, Body<B>) -> Answering + Clone {
    move |served, name, Body(request)| {
        Box::pin(async move {
            let name = text_of(name)?;
            run(served, move |service| operation(service, &name, &request), answer).await
        })
    }
}

fn created_snapshots(made: Vec<Snapshot>) -> Response {
    // All snapshots of the request have the same name, so the first identifies them.
    let name = made.first().map(|snapshot| snapshot.name.clone()).unwrap_or_default();
    created(api::path_of(api::SNAPSHOT_PATH, &name), made)
}

fn created_attachment(made: Attachment) -> Response {
    created(api::path_of(api::ATTACHMENT_PATH, &made.volume), made)
}

fn created_export(made: Export) -> Response {
    created(api::path_of(api::EXPORT_PATH, &made.volume), made)
}

async fn change_volume(
    served: Served,
    name: Name,
    headers: HeaderMap,
    Body(request): Body<VolumePatch>,
) -> Answer {
    let (name, condition) = (text_of(name)?, precondition(&headers)?);
    let change = move |service: &Service| service.change_volume(&name, &request, &condition);
    run(served, change, volume).await
}

async fn delete_volume(
    served: Served,
    name: Name,
    query: Asked<Forced>,
    headers: HeaderMap,
) -> Answer {
    let (name, condition) = (text_of(name)?, precondition(&headers)?);
    let clients = asked(query)?.clients();
    let delete = move |service: &Service| service.delete_volume(&name, clients, &condition);
    run(served, delete, nothing).await
}

async fn list_snapshots(served: Served, query: Asked<OfVolume>) -> Answer {
    let volume = asked(query)?.volume;
    run(served, move |service| service.list_snapshots(volume.as_deref()), json).await
}

async fn restore_snapshot(served: Served, name: Name, query: Asked<Forced>) -> Answer {
    let (name, ownership) = (text_of(name)?, Ownership::of_force(asked(query)?.force));
    run(served, move |service| service.restore_snapshot(&name, ownership), json).await
}

async fn diff_snapshot(served: Served, name: Name, query: Asked<Comparison>) -> Answer {
    let (name, Comparison { to, offset }) = (text_of(name)?, asked(query)?);
    run(served, move |service| service.diff_snapshot(&name, to.as_deref(), offset), json).await
}

async fn restore_image(served: Served, number: Name, Body(request): Body<ImageRestore>) -> Answer {
    let number = number_of(number, "number")?;
    run(served, move |service| service.restore_image(number, &request), accepted).await
}

async fn list_events(served: Served, query: Asked<After>) -> Answer {
    let After { after } = asked(query)?;
    run(served, move |service| Ok(service.events.after(after)), json).await
}

async fn unexport_volume(served: Served, name: Name, query: Asked<Forced>) -> Answer {
    let (name, clients) = (text_of(name)?, asked(query)?.clients());
    run(served, move |service| service.unexport_volume(&name, clients), nothing).await
}

async fn show_metrics(served: Served) -> Answer {
    let page = |metrics| text(metrics_text::CONTENT_TYPE, metrics::write(&metrics));
    run(served, |service| Ok(service.metrics()), page).await
}

async fn openapi() -> Response {
    text("application/json", api::openapi_json())
}
