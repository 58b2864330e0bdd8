//! Paths to operations of the service.

use std::sync::Arc;

use api::{AttachmentCreate, Problem, ProblemKind, VolumeCreate, VolumePatch};
use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};

use crate::http::answer::{Answer, Refusal, blocking, created, json, nothing, text};
use crate::http::body::Body;
use crate::http::metrics;
use crate::service::Service;

type Shared = State<Arc<Service>>;

/// Everything that is served to those who may ask.
pub(super) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route(api::VOLUMES_PATH, get(list_volumes).post(create_volume))
        .route(api::VOLUME_PATH, get(show_volume).patch(change_volume).delete(delete_volume))
        .route(api::ATTACHMENTS_PATH, get(list_attachments).post(attach_volume))
        .route(api::ATTACHMENT_PATH, delete(detach_volume))
        .route(api::STATUS_PATH, get(status))
        .route(api::METRICS_PATH, get(show_metrics))
        .route(api::OPENAPI_PATH, get(openapi))
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(&service), refuse_while_draining))
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

async fn refuse_while_draining(State(service): Shared, request: Request, next: Next) -> Response {
    if service.is_draining() {
        let detail = "the daemon is shutting down; try again when it is back";
        return Refusal(Problem::new(ProblemKind::ShuttingDown, detail)).into_response();
    }
    next.run(request).await
}

async fn unknown_path(request: Request) -> Refusal {
    let detail = format!("nothing is served at {}; see /openapi.json", request.uri().path());
    Refusal(Problem::new(ProblemKind::UnknownPath, detail))
}

async fn method_not_allowed(request: Request) -> Refusal {
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

async fn list_volumes(State(service): Shared) -> Answer {
    Ok(json(blocking(move || service.list_volumes()).await?))
}

async fn create_volume(State(service): Shared, Body(request): Body<VolumeCreate>) -> Answer {
    Ok(created(blocking(move || service.create_volume(&request)).await??))
}

async fn show_volume(State(service): Shared, name: Name) -> Answer {
    let name = text_of(name)?;
    Ok(json(blocking(move || service.show_volume(&name)).await??))
}

async fn change_volume(
    State(service): Shared,
    name: Name,
    Body(request): Body<VolumePatch>,
) -> Answer {
    let name = text_of(name)?;
    Ok(json(blocking(move || service.change_volume(&name, &request)).await??))
}

async fn delete_volume(State(service): Shared, name: Name) -> Answer {
    let name = text_of(name)?;
    blocking(move || service.delete_volume(&name)).await??;
    Ok(nothing())
}

async fn list_attachments(State(service): Shared) -> Answer {
    Ok(json(blocking(move || service.list_attachments()).await?))
}

async fn attach_volume(State(service): Shared, Body(request): Body<AttachmentCreate>) -> Answer {
    Ok(created(blocking(move || service.attach_volume(&request)).await??))
}

async fn detach_volume(State(service): Shared, name: Name) -> Answer {
    let name = text_of(name)?;
    blocking(move || service.detach_volume(&name)).await??;
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
