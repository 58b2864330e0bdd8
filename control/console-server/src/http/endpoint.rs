//! One method of a path of the console's own interface: who serves it, and what the OpenAPI
//! document says of it.

use std::sync::Arc;

use api::{Query, SchemaOf};
use axum::routing::MethodRouter;

use crate::http::console::Console;
use crate::refusal::Kind;

/// A method. Those but GET change something, or may.
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

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// Those, too, who are not known.
    Everybody,
    /// Who is logged in, also those who have to enable a second factor first; no token will do.
    Session,
    /// Who is logged in and has the second factor that the rules want; no token will do.
    Enrolled,
    /// Who is logged in or shows a token; the summary says where that is not enough.
    Known,
    /// Known administrators.
    Administrator,
}

/// Body of the answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    One(SchemaOf),
    Many(SchemaOf),
    /// As `One` and `Many`, with an `etag` that a change may name in If-Match.
    Tagged(SchemaOf),
    ManyTagged(SchemaOf),
    /// JSON that the broker, or the history, is written in.
    Json,
    /// Something of this media type that goes on for as long as it is read.
    Stream(&'static str),
    /// The browser goes elsewhere.
    Redirect,
    /// A WebSocket.
    Upgrade,
    Nothing,
}

pub(super) struct Endpoint {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// Name of the call in generated clients.
    pub(super) operation: &'static str,
    pub(super) summary: &'static str,
    pub(super) who: Who,
    pub(super) query: &'static [Query],
    pub(super) request: Option<SchemaOf>,
    pub(super) status: u16,
    pub(super) answer: Answer,
    /// Besides those of who may ask, and of bodies.
    pub(super) refuses: &'static [Kind],
    pub(super) served_by: fn() -> MethodRouter<Arc<Console>>,
}

/// What serves an endpoint.
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
