//! Paths to operations of the service.

use std::sync::Arc;

use api::{
    AttachmentCreate, CloneCreate, ExportCreate, ImageRestore, ImageSave, PoolPatch, Problem,
    ProblemKind, SnapshotCreate, SnapshotPatch, VolumeCreate, VolumePatch,
};
use axum::Router;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;

use crate::http::answer::{
    Answer, Refusal, accepted, blocking, created, created_volume, json, nothing, text, volume,
};
use crate::http::body::Body;
use crate::http::metrics;
use crate::service::{Clients, Precondition, Service};

type Shared = State<Arc<Service>>;

/// The operations of the service.
pub(super) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route(api::VOLUMES_PATH, get(list_volumes).post(create_volume))
        .route(api::VOLUME_PATH, get(show_volume).patch(change_volume).delete(delete_volume))
        .route(api::CLONE_PATH, post(clone_volume))
        .route(api::DISCONNECT_PATH, post(disconnect_volume))
        .route(api::SNAPSHOTS_PATH, get(list_snapshots).post(create_snapshots))
        .route(
            api::SNAPSHOT_PATH,
            get(show_snapshot).patch(change_snapshot).delete(delete_snapshot),
        )
        .route(api::SNAPSHOT_RESTORE_PATH, post(restore_snapshot))
        .route(api::SNAPSHOT_DIFF_PATH, get(diff_snapshot))
        .route(api::IMAGES_PATH, get(list_images).post(save_image))
        .route(api::IMAGE_REHEARSE_PATH, post(rehearse_image))
        .route(api::IMAGE_PATH, get(show_image).delete(delete_image))
        .route(api::IMAGE_RESTORE_PATH, post(restore_image))
        .route(api::IMAGE_VERIFY_PATH, post(verify_image))
        .route(api::ACCEPT_LOSS_PATH, post(accept_loss))
        .route(api::TASKS_PATH, get(list_tasks))
        .route(api::TASK_PATH, get(show_task).delete(cancel_task))
        .route(api::EVENTS_PATH, get(list_events))
        .route(api::POOL_PATH, get(show_pool).patch(change_pool))
        .route(api::ATTACHMENTS_PATH, get(list_attachments).post(attach_volume))
        .route(api::ATTACHMENT_PATH, get(show_attachment).delete(detach_volume))
        .route(api::EXPORTS_PATH, get(list_exports).post(export_volume))
        .route(api::EXPORT_PATH, get(show_export).delete(unexport_volume))
        .route(api::STATUS_PATH, get(status))
        .route(api::METRICS_PATH, get(show_metrics))
        .route(api::OPENAPI_PATH, get(openapi))
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(service)
}

/// What everybody else is told.
pub(super) fn forbidding_router() -> Router {
    Router::new().fallback(async || {
        let detail = "only root, the user of the daemon and the group memlane may use this socket; \
                      add yourself to the group and log in again";
        Refusal(Problem::new(ProblemKind::Forbidden, detail))
    })
}

async fn unknown_path(request: Request) -> Refusal {
    let detail = format!("nothing is served at {}; see /openapi.json", request.uri().path());
    Refusal(Problem::new(ProblemKind::UnknownPath, detail))
}

pub(super) async fn method_not_allowed(request: Request) -> Refusal {
    let detail = format!("{} cannot be done to {}", request.method(), request.uri().path());
    Refusal(Problem::new(ProblemKind::MethodNotAllowed, detail))
}

/// The last segment of a path. Not every sequence of bytes that can be quoted there is text.
type Name = Result<Path<String>, PathRejection>;

fn text_of(name: Name) -> Result<String, Refusal> {
    name.map(|Path(name)| name).map_err(|rejection| {
        let problem = Problem::new(ProblemKind::InvalidField, rejection.body_text());
        Refusal(problem.in_field("name"))
    })
}

/// The number of an image or the id of a task in a path.
fn number_of(text: Name, field: &str) -> Result<u64, Refusal> {
    let text = text_of(text)?;
    text.parse().map_err(|_| {
        let problem = Problem::new(ProblemKind::InvalidField, format!("{text:?} is no number"));
        Refusal(problem.in_field(field))
    })
}

/// What is behind the `?` of a path.
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

/// What the request says of the state that it is meant for.
fn precondition(headers: &HeaderMap) -> Result<Precondition, Refusal> {
    let mut tags = Vec::new();
    for value in headers.get_all(header::IF_MATCH) {
        let text = value.to_str().map_err(|_| {
            let detail = "the header If-Match is no list of entity tags";
            Refusal(Problem::new(ProblemKind::InvalidRequest, detail))
        })?;
        tags.extend(text.split(',').map(|tag| tag.trim().to_owned()));
    }
    Ok(Precondition::of(tags))
}

async fn list_volumes(State(service): Shared) -> Answer {
    Ok(json(blocking(move || service.list_volumes()).await?))
}

async fn create_volume(State(service): Shared, Body(request): Body<VolumeCreate>) -> Answer {
    Ok(created_volume(blocking(move || service.create_volume(&request)).await??))
}

async fn show_volume(State(service): Shared, name: Name) -> Answer {
    let name = text_of(name)?;
    Ok(volume(blocking(move || service.show_volume(&name)).await??))
}

async fn change_volume(
    State(service): Shared,
    name: Name,
    headers: HeaderMap,
    Body(request): Body<VolumePatch>,
) -> Answer {
    let (name, condition) = (text_of(name)?, precondition(&headers)?);
    let change = move || service.change_volume(&name, &request, &condition);
    Ok(volume(blocking(change).await??))
}

async fn delete_volume(
    State(service): Shared,
    name: Name,
    query: Asked<Forced>,
    headers: HeaderMap,
) -> Answer {
    let (name, condition) = (text_of(name)?, precondition(&headers)?);
    let clients = asked(query)?.clients();
    blocking(move || service.delete_volume(&name, clients, &condition)).await??;
    Ok(nothing())
}

async fn disconnect_volume(State(service): Shared, name: Name) -> Answer {
    let name = text_of(name)?;
    Ok(json(blocking(move || service.disconnect_volume(&name)).await??))
}

async fn clone_volume(
    State(service): Shared,
    name: Name,
    Body(request): Body<CloneCreate>,
) -> Answer {
    let name = text_of(name)?;
    Ok(created_volume(blocking(move || service.clone_volume(&name, &request)).await??))
}

async fn list_snapshots(State(service): Shared, query: Asked<OfVolume>) -> Answer {
    let volume = asked(query)?.volume;
    Ok(json(blocking(move || service.list_snapshots(volume.as_deref())).await??))
}

async fn create_snapshots(State(service): Shared, Body(request): Body<SnapshotCreate>) -> Answer {
    let made = blocking(move || service.create_snapshots(&request)).await??;
    // Of several the first stands for all, which have the same name.
    let name = made.first().map(|snapshot| snapshot.name.clone()).unwrap_or_default();
    Ok(created(api::path_of(api::SNAPSHOT_PATH, &name), made))
}

async fn show_snapshot(State(service): Shared, name: Name) -> Answer {
    let name = text_of(name)?;
    Ok(json(blocking(move || service.show_snapshot(&name)).await??))
}

async fn change_snapshot(
    State(service): Shared,
    name: Name,
    Body(request): Body<SnapshotPatch>,
) -> Answer {
    let name = text_of(name)?;
    Ok(json(blocking(move || service.rename_snapshot(&name, &request)).await??))
}

async fn delete_snapshot(State(service): Shared, name: Name) -> Answer {
    let name = text_of(name)?;
    blocking(move || service.delete_snapshot(&name)).await??;
    Ok(nothing())
}

async fn restore_snapshot(State(service): Shared, name: Name) -> Answer {
    let name = text_of(name)?;
    Ok(json(blocking(move || service.restore_snapshot(&name)).await??))
}

async fn diff_snapshot(State(service): Shared, name: Name, query: Asked<Comparison>) -> Answer {
    let (name, Comparison { to, offset }) = (text_of(name)?, asked(query)?);
    let compare = move || service.diff_snapshot(&name, to.as_deref(), offset);
    Ok(json(blocking(compare).await??))
}

async fn list_images(State(service): Shared) -> Answer {
    Ok(json(blocking(move || service.list_images()).await??))
}

async fn save_image(State(service): Shared, Body(request): Body<ImageSave>) -> Answer {
    Ok(accepted(blocking(move || service.save_image(&request)).await??))
}

async fn rehearse_image(State(service): Shared) -> Answer {
    Ok(accepted(blocking(move || service.rehearse_image()).await??))
}

async fn show_image(State(service): Shared, number: Name) -> Answer {
    let number = number_of(number, "number")?;
    Ok(json(blocking(move || service.show_image(number)).await??))
}

async fn delete_image(State(service): Shared, number: Name) -> Answer {
    let number = number_of(number, "number")?;
    blocking(move || service.delete_image(number)).await??;
    Ok(nothing())
}

async fn restore_image(
    State(service): Shared,
    number: Name,
    Body(request): Body<ImageRestore>,
) -> Answer {
    let number = number_of(number, "number")?;
    Ok(accepted(blocking(move || service.restore_image(number, &request)).await??))
}

async fn verify_image(State(service): Shared, number: Name) -> Answer {
    let number = number_of(number, "number")?;
    Ok(accepted(blocking(move || service.verify_image(number)).await??))
}

async fn accept_loss(State(service): Shared, name: Name) -> Answer {
    let name = text_of(name)?;
    Ok(json(blocking(move || service.accept_loss(&name)).await??))
}

async fn list_tasks(State(service): Shared) -> Answer {
    Ok(json(blocking(move || service.tasks.list()).await?))
}

async fn show_task(State(service): Shared, id: Name) -> Answer {
    let id = number_of(id, "id")?;
    Ok(json(blocking(move || service.tasks.show(id)).await??))
}

async fn cancel_task(State(service): Shared, id: Name) -> Answer {
    let id = number_of(id, "id")?;
    blocking(move || service.tasks.cancel(id)).await??;
    Ok(nothing())
}

async fn list_events(State(service): Shared, query: Asked<After>) -> Answer {
    let After { after } = asked(query)?;
    Ok(json(blocking(move || service.events.after(after)).await?))
}

async fn show_pool(State(service): Shared) -> Answer {
    Ok(json(blocking(move || service.show_pool()).await?))
}

async fn change_pool(State(service): Shared, Body(request): Body<PoolPatch>) -> Answer {
    Ok(accepted(blocking(move || service.change_pool(&request)).await??))
}

async fn list_attachments(State(service): Shared) -> Answer {
    Ok(json(blocking(move || service.list_attachments()).await?))
}

async fn attach_volume(State(service): Shared, Body(request): Body<AttachmentCreate>) -> Answer {
    let made = blocking(move || service.attach_volume(&request)).await??;
    Ok(created(api::path_of(api::ATTACHMENT_PATH, &made.volume), made))
}

async fn show_attachment(State(service): Shared, name: Name) -> Answer {
    let name = text_of(name)?;
    Ok(json(blocking(move || service.show_attachment(&name)).await??))
}

async fn detach_volume(State(service): Shared, name: Name) -> Answer {
    let name = text_of(name)?;
    blocking(move || service.detach_volume(&name)).await??;
    Ok(nothing())
}

async fn list_exports(State(service): Shared) -> Answer {
    Ok(json(blocking(move || service.list_exports()).await?))
}

async fn export_volume(State(service): Shared, Body(request): Body<ExportCreate>) -> Answer {
    let made = blocking(move || service.export_volume(&request)).await??;
    Ok(created(api::path_of(api::EXPORT_PATH, &made.volume), made))
}

async fn show_export(State(service): Shared, name: Name) -> Answer {
    let name = text_of(name)?;
    Ok(json(blocking(move || service.show_export(&name)).await??))
}

async fn unexport_volume(State(service): Shared, name: Name, query: Asked<Forced>) -> Answer {
    let (name, clients) = (text_of(name)?, asked(query)?.clients());
    blocking(move || service.unexport_volume(&name, clients)).await??;
    Ok(nothing())
}

async fn status(State(service): Shared) -> Answer {
    Ok(json(blocking(move || service.status()).await?))
}

async fn show_metrics(State(service): Shared) -> Answer {
    let metrics = blocking(move || service.metrics()).await?;
    Ok(text(metrics::CONTENT_TYPE, metrics::write(&metrics)))
}

async fn openapi() -> Response {
    text("application/json", api::openapi_json())
}
