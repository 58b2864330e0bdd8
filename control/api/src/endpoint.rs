//! An entry of the endpoint tables: one method of one path.

use std::borrow::Cow;

use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use crate::permission::Permission;
use crate::problem::ProblemKind::{
    self, BodyTooLarge, InvalidField, InvalidRequest, Timeout, UnknownField,
};
use crate::task::Task;

/// HTTP method of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Patch,
    Delete,
}

impl Method {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// Schema of a type.
#[derive(Clone, Copy, Debug)]
pub struct SchemaOf {
    pub name: fn() -> Cow<'static, str>,
    /// Adds the schema, and the schemas that it refers to.
    pub add_to: fn(&mut Vec<(String, RefOr<Schema>)>),
}

/// Returns the schema of `T`.
pub const fn schema<T: ToSchema>() -> SchemaOf {
    SchemaOf { name: T::name, add_to: add_schema::<T> }
}

fn add_schema<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

/// Response body.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// One object.
    One(SchemaOf),
    /// An array of objects.
    Many(SchemaOf),
    /// A JSON document whose schema is defined elsewhere.
    Json,
    /// Plain text.
    Text,
    Nothing,
}

/// A response of one `T`.
pub(crate) const fn one<T: ToSchema>() -> Answer {
    Answer::One(schema::<T>())
}

/// A response of an array of `T`.
pub(crate) const fn many<T: ToSchema>() -> Answer {
    Answer::Many(schema::<T>())
}

/// An optional query parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    pub name: &'static str,
    pub summary: &'static str,
    pub kind: QueryKind,
}

impl Query {
    pub const fn new(name: &'static str, kind: QueryKind, summary: &'static str) -> Self {
        Self { name, summary, kind }
    }
}

/// Type of a query parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKind {
    Text,
    /// A non-negative integer.
    Number,
    /// `true` or `false`.
    Flag,
}

/// Use of entity tags for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    Without,
    /// Responses have an `ETag` header.
    Shown,
    /// Responses have an `ETag` header, and requests may have an `If-Match` header.
    Matched,
}

/// One method of one path.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    pub method: Method,
    /// Path with at most one placeholder, as in [`VOLUME_PATH`].
    pub path: &'static str,
    pub query: &'static [Query],
    pub tag: Tag,
    /// Operation id, a name for generated clients.
    pub operation: &'static str,
    /// Permission that console users need.
    pub permission: Permission,
    pub summary: &'static str,
    /// Schema of the request body.
    pub request: Option<SchemaOf>,
    /// Status code of success.
    pub status: u16,
    pub answer: Answer,
    /// Kinds of problems specific to this endpoint, in addition to [`GENERAL_PROBLEMS`].
    pub problems: &'static [ProblemKind],
}

/// Kinds of problems that every endpoint may return.
pub(crate) const GENERAL_PROBLEMS: &[ProblemKind] = &[
    ProblemKind::Forbidden,
    ProblemKind::Standby,
    ProblemKind::Starting,
    ProblemKind::ShuttingDown,
    ProblemKind::Internal,
];

impl Endpoint {
    pub(crate) const fn get(
        path: &'static str,
        operation: &'static str,
        permission: Permission,
        answer: Answer,
    ) -> Self {
        Self {
            method: Method::Get,
            path,
            query: &[],
            tag: Tag::Without,
            operation,
            permission,
            summary: "",
            request: None,
            status: 200,
            answer,
            problems: &[],
        }
    }

    pub(crate) const fn post(
        path: &'static str,
        operation: &'static str,
        permission: Permission,
        answer: Answer,
    ) -> Self {
        let this = Self::get(path, operation, permission, answer);
        Self { method: Method::Post, status: 201, ..this }
    }

    /// An endpoint that starts a task and returns it.
    pub(crate) const fn begin(
        path: &'static str,
        operation: &'static str,
        permission: Permission,
    ) -> Self {
        Self::post(path, operation, permission, one::<Task>()).answers(202)
    }

    pub(crate) const fn patch(
        path: &'static str,
        operation: &'static str,
        permission: Permission,
        answer: Answer,
    ) -> Self {
        Self { method: Method::Patch, ..Self::get(path, operation, permission, answer) }
    }

    pub(crate) const fn delete(
        path: &'static str,
        operation: &'static str,
        permission: Permission,
    ) -> Self {
        let this = Self::get(path, operation, permission, Answer::Nothing);
        Self { method: Method::Delete, status: 204, ..this }
    }

    pub(crate) const fn about(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    pub(crate) const fn takes(self, schema: SchemaOf) -> Self {
        Self { request: Some(schema), ..self }
    }

    pub(crate) const fn asks(self, query: &'static [Query]) -> Self {
        Self { query, ..self }
    }

    pub(crate) const fn tagged(self, tag: Tag) -> Self {
        Self { tag, ..self }
    }

    pub(crate) const fn answers(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(crate) const fn refuses(self, problems: &'static [ProblemKind]) -> Self {
        Self { problems, ..self }
    }
}

/// Kinds of problems that every endpoint with a request body may return.
pub(crate) const BODY_PROBLEMS: &[ProblemKind] =
    &[InvalidRequest, InvalidField, UnknownField, BodyTooLarge, Timeout];
