//! Every path and method that is served: one table for the server's tests, the clients and the
//! OpenAPI document.

use crate::problem::ProblemKind::{
    self, AlreadyExists, BodyTooLarge, DataBehindNewEnd, HostFailed, InUse, InvalidField,
    InvalidRequest, NoSpace, NotFound, NotSupported, Timeout, TooManyVolumes, UnknownField,
};

pub const VOLUMES_PATH: &str = "/v1/volumes";
pub const VOLUME_PATH: &str = "/v1/volumes/{name}";
pub const ATTACHMENTS_PATH: &str = "/v1/attachments";
pub const ATTACHMENT_PATH: &str = "/v1/attachments/{volume}";
pub const STATUS_PATH: &str = "/v1/status";
pub const METRICS_PATH: &str = "/metrics";
pub const OPENAPI_PATH: &str = "/openapi.json";

/// The method of an endpoint.
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

/// What the body of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// One object of the named schema.
    One(&'static str),
    /// An array of objects of the named schema.
    Many(&'static str),
    /// A JSON document of a schema that others define.
    Json,
    /// Plain text.
    Text,
    Nothing,
}

/// One method of one path.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    pub method: Method,
    /// With placeholders, as in [`VOLUME_PATH`].
    pub path: &'static str,
    /// A name for generated clients.
    pub operation: &'static str,
    pub summary: &'static str,
    /// The schema of the request's body.
    pub request: Option<&'static str>,
    /// The status code of success.
    pub status: u16,
    pub answer: Answer,
    /// The refusals that belong to this endpoint. Those of every endpoint are in
    /// [`GENERAL_PROBLEMS`].
    pub problems: &'static [ProblemKind],
}

/// The refusals that any endpoint may answer with.
pub(crate) const GENERAL_PROBLEMS: &[ProblemKind] =
    &[ProblemKind::Forbidden, ProblemKind::ShuttingDown, ProblemKind::Internal];

pub const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        method: Method::Get,
        path: VOLUMES_PATH,
        operation: "list_volumes",
        summary: "All volumes, by name",
        request: None,
        status: 200,
        answer: Answer::Many("Volume"),
        problems: &[],
    },
    Endpoint {
        method: Method::Post,
        path: VOLUMES_PATH,
        operation: "create_volume",
        summary: "Make an empty volume",
        request: Some("VolumeCreate"),
        status: 201,
        answer: Answer::One("Volume"),
        problems: &[
            InvalidRequest,
            InvalidField,
            UnknownField,
            NotSupported,
            AlreadyExists,
            TooManyVolumes,
            NoSpace,
            BodyTooLarge,
            Timeout,
        ],
    },
    Endpoint {
        method: Method::Get,
        path: VOLUME_PATH,
        operation: "show_volume",
        summary: "One volume",
        request: None,
        status: 200,
        answer: Answer::One("Volume"),
        problems: &[NotFound],
    },
    Endpoint {
        method: Method::Patch,
        path: VOLUME_PATH,
        operation: "change_volume",
        summary: "Resize, rename or reconfigure a volume while it is in use",
        request: Some("VolumePatch"),
        status: 200,
        answer: Answer::One("Volume"),
        problems: &[
            InvalidRequest,
            InvalidField,
            UnknownField,
            NotSupported,
            NotFound,
            AlreadyExists,
            DataBehindNewEnd,
            NoSpace,
            BodyTooLarge,
            Timeout,
            HostFailed,
        ],
    },
    Endpoint {
        method: Method::Delete,
        path: VOLUME_PATH,
        operation: "delete_volume",
        summary: "Delete a volume that nobody uses, and give its memory back",
        request: None,
        status: 204,
        answer: Answer::Nothing,
        problems: &[NotFound, InUse],
    },
    Endpoint {
        method: Method::Get,
        path: ATTACHMENTS_PATH,
        operation: "list_attachments",
        summary: "All volumes that are kernel block devices, by name",
        request: None,
        status: 200,
        answer: Answer::Many("Attachment"),
        problems: &[],
    },
    Endpoint {
        method: Method::Post,
        path: ATTACHMENTS_PATH,
        operation: "attach_volume",
        summary: "Make a volume a kernel block device of this host, now and after restarts",
        request: Some("AttachmentCreate"),
        status: 201,
        answer: Answer::One("Attachment"),
        problems: &[
            InvalidRequest,
            InvalidField,
            UnknownField,
            NotSupported,
            NotFound,
            AlreadyExists,
            BodyTooLarge,
            Timeout,
            HostFailed,
        ],
    },
    Endpoint {
        method: Method::Delete,
        path: ATTACHMENT_PATH,
        operation: "detach_volume",
        summary: "Take the kernel block device of a volume away",
        request: None,
        status: 204,
        answer: Answer::Nothing,
        problems: &[NotFound, InUse, HostFailed],
    },
    Endpoint {
        method: Method::Get,
        path: STATUS_PATH,
        operation: "status",
        summary: "The daemon, its pool and its exports",
        request: None,
        status: 200,
        answer: Answer::One("Status"),
        problems: &[],
    },
    Endpoint {
        method: Method::Get,
        path: METRICS_PATH,
        operation: "metrics",
        summary: "Metrics in Prometheus' text format",
        request: None,
        status: 200,
        answer: Answer::Text,
        problems: &[],
    },
    Endpoint {
        method: Method::Get,
        path: OPENAPI_PATH,
        operation: "openapi",
        summary: "This document",
        request: None,
        status: 200,
        answer: Answer::Json,
        problems: &[],
    },
];

/// The path of one volume or attachment: `template` with its placeholder replaced by `name`,
/// quoted so that any text is one segment. A template without one is a path already.
pub fn path_of(template: &str, name: &str) -> String {
    let Some((before, (_placeholder, after))) =
        template.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    else {
        return template.to_owned();
    };
    let mut path = String::from(before);
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path + after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_one_segment_of_a_path() {
        assert_eq!(path_of(VOLUME_PATH, "db-1.x_y"), "/v1/volumes/db-1.x_y");
        assert_eq!(path_of(ATTACHMENT_PATH, "a/b c?"), "/v1/attachments/a%2Fb%20c%3F");
        assert_eq!(path_of(STATUS_PATH, "x"), STATUS_PATH);
    }
}
