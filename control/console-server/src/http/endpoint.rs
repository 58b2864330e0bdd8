//! An entry of the endpoint table: method, path, handler, and OpenAPI description.

use std::sync::Arc;

use api::{Query, SchemaOf};
use axum::routing::MethodRouter;

use crate::http::console::Console;
use crate::refusal::Kind;

/// HTTP method. All methods except GET may change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Post,
    Patch,
    Delete,
}

impl Method {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// Required authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// No authentication.
    Everybody,
    /// A session, also of users who must enable a second factor first. Tokens are rejected.
    Session,
    /// A session with the required second factor. Tokens are rejected.
    Enrolled,
    /// A session or a token. The summary mentions further conditions.
    Known,
    /// A session or token of an administrator.
    Administrator,
}

/// Response body.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    One(SchemaOf),
    Many(SchemaOf),
    /// Like `One` and `Many`, with an `etag` for `If-Match`.
    Tagged(SchemaOf),
    ManyTagged(SchemaOf),
    /// JSON of the broker or of the history.
    Json,
    /// A stream of this media type.
    Stream(&'static str),
    /// A redirect.
    Redirect,
    /// A WebSocket.
    Upgrade,
    Nothing,
}

pub(super) struct Endpoint {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// Operation id, a name for generated clients.
    pub(super) operation: &'static str,
    pub(super) summary: &'static str,
    pub(super) who: Who,
    pub(super) query: &'static [Query],
    pub(super) request: Option<SchemaOf>,
    pub(super) status: u16,
    pub(super) answer: Answer,
    /// Problems in addition to those of authentication and bodies.
    pub(super) refuses: &'static [Kind],
    pub(super) served_by: fn() -> MethodRouter<Arc<Console>>,
}

/// Handler of an endpoint.
type ServedBy = fn() -> MethodRouter<Arc<Console>>;

impl Endpoint {
    pub(super) const fn get(path: &'static str, operation: &'static str, by: ServedBy) -> Self {
        Self::new(Method::Get, path, operation, by)
    }

    pub(super) const fn post(path: &'static str, operation: &'static str, by: ServedBy) -> Self {
        Self::new(Method::Post, path, operation, by)
    }

    pub(super) const fn patch(path: &'static str, operation: &'static str, by: ServedBy) -> Self {
        Self::new(Method::Patch, path, operation, by)
    }

    pub(super) const fn delete(path: &'static str, operation: &'static str, by: ServedBy) -> Self {
        Self { status: 204, ..Self::new(Method::Delete, path, operation, by) }
    }

    const fn new(
        method: Method,
        path: &'static str,
        operation: &'static str,
        served_by: ServedBy,
    ) -> Self {
        Self {
            method,
            path,
            operation,
            summary: "",
            who: Who::Known,
            query: &[],
            request: None,
            status: 200,
            answer: Answer::Nothing,
            refuses: &[],
            served_by,
        }
    }

    pub(super) const fn about(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    pub(super) const fn asked_by(self, who: Who) -> Self {
        Self { who, ..self }
    }

    pub(super) const fn asks(self, query: &'static [Query]) -> Self {
        Self { query, ..self }
    }

    pub(super) const fn takes(self, schema: SchemaOf) -> Self {
        Self { request: Some(schema), ..self }
    }

    pub(super) const fn answers(self, answer: Answer) -> Self {
        Self { answer, ..self }
    }

    pub(super) const fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(super) const fn refuses(self, refuses: &'static [Kind]) -> Self {
        Self { refuses, ..self }
    }
}
