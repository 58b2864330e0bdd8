//! OpenAPI documents, generated from the endpoint tables and the types.

use std::collections::BTreeMap;

use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{
    ArrayBuilder, ComponentsBuilder, KnownFormat, ObjectBuilder, SchemaFormat, Type,
};
use utoipa::openapi::{
    Content, Header, HeaderBuilder, InfoBuilder, LicenseBuilder, OpenApiBuilder, PathItem,
    PathsBuilder, Ref, RefOr, Required, Response, ResponseBuilder, Schema,
};

use crate::endpoint::{
    Answer, BODY_PROBLEMS, Endpoint, GENERAL_PROBLEMS, Method, Query, QueryKind, SchemaOf, Tag,
    schema,
};
use crate::endpoints::ENDPOINTS;
use crate::machine_endpoints::MACHINE_ENDPOINTS;
use crate::problem::{PROBLEM_CONTENT_TYPE, Problem};

/// Contents of a document.
struct Interface {
    title: &'static str,
    description: &'static str,
    endpoints: &'static [Endpoint],
    /// Description of the name parameter in paths.
    names: &'static str,
}

const DAEMON: Interface = Interface {
    title: "Memlane",
    description: "RAM as block volumes: the REST API of the daemon on this host",
    endpoints: ENDPOINTS,
    names: "Name of a volume, or VOLUME@SNAPSHOT",
};

const MACHINES: Interface = Interface {
    title: "Memlane machines",
    description: "Virtual machines of libvirt on volumes: the REST API of memlane-machines",
    endpoints: MACHINE_ENDPOINTS,
    names: "Name of a virtual machine",
};

/// Returns the daemon's OpenAPI document as indented JSON.
pub fn openapi_json() -> String {
    json_of(&DAEMON)
}

/// Returns the OpenAPI document of `memlane-machines` as indented JSON.
pub fn machines_openapi_json() -> String {
    json_of(&MACHINES)
}

fn json_of(interface: &Interface) -> String {
    let info = InfoBuilder::new()
        .title(interface.title)
        .description(Some(interface.description))
        .version("1")
        .license(Some(LicenseBuilder::new().name("Apache-2.0").build()));
    let mut paths = PathsBuilder::new();
    for endpoint in interface.endpoints {
        let operation = operation(endpoint, interface.names);
        let item = PathItem::new(http_method(endpoint.method), operation);
        paths = paths.path(endpoint.path, item);
    }
    OpenApiBuilder::new()
        .info(info)
        .paths(paths)
        .components(Some(schemas(interface.endpoints).build()))
        .build()
        .to_pretty_json()
        .expect("a document of plain data can be written as JSON")
        + "\n"
}

/// Collects the schemas of requests and responses, with all schemas that they refer to.
fn schemas(endpoints: &[Endpoint]) -> ComponentsBuilder {
    let of_answer = |endpoint: &Endpoint| match endpoint.answer {
        Answer::One(schema) | Answer::Many(schema) => Some(schema),
        Answer::Json | Answer::Text | Answer::Nothing => None,
    };
    let of_endpoints = endpoints.iter().flat_map(|it| [it.request, of_answer(it)]).flatten();
    let mut schemas = Vec::new();
    for schema in of_endpoints.chain([schema::<Problem>()]) {
        (schema.add_to)(&mut schemas);
    }
    ComponentsBuilder::new().schemas_from_iter(schemas)
}

fn http_method(method: Method) -> HttpMethod {
    match method {
        Method::Get => HttpMethod::Get,
        Method::Post => HttpMethod::Post,
        Method::Patch => HttpMethod::Patch,
        Method::Delete => HttpMethod::Delete,
    }
}

fn operation(endpoint: &Endpoint, names: &str) -> OperationBuilder {
    let mut operation = OperationBuilder::new()
        .operation_id(Some(endpoint.operation))
        .summary(Some(endpoint.summary))
        .response(endpoint.status.to_string(), success(endpoint));
    if let Some(name) = placeholder(endpoint.path) {
        operation = operation.parameter(path_parameter(name, names));
    }
    for query in endpoint.query {
        operation = operation.parameter(query_parameter(query));
    }
    if endpoint.tag == Tag::Matched {
        operation = operation.parameter(precondition());
    }
    if let Some(schema) = endpoint.request {
        let body = RequestBodyBuilder::new()
            .required(Some(Required::True))
            .content("application/json", Content::new(Some(reference(schema))));
        operation = operation.request_body(Some(body.build()));
    }
    for (status, response) in problem_responses(endpoint) {
        operation = operation.response(status.to_string(), response);
    }
    operation
}

fn path_parameter(name: &str, names: &str) -> ParameterBuilder {
    let (schema, description) = match name {
        "number" => (whole_number(1), "Number of an image"),
        "id" => (whole_number(1), "Id of a task"),
        _ => (ObjectBuilder::new().schema_type(Type::String), names),
    };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(description))
        .schema(Some(schema))
}

fn query_parameter(query: &Query) -> ParameterBuilder {
    let schema = match query.kind {
        QueryKind::Text => ObjectBuilder::new().schema_type(Type::String),
        QueryKind::Number => whole_number(0),
        QueryKind::Flag => ObjectBuilder::new().schema_type(Type::Boolean),
    };
    ParameterBuilder::new()
        .name(query.name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(query.summary))
        .schema(Some(schema))
}

fn whole_number(minimum: u64) -> ObjectBuilder {
    let format = SchemaFormat::KnownFormat(KnownFormat::Int64);
    ObjectBuilder::new().schema_type(Type::Integer).format(Some(format)).minimum(Some(minimum))
}

fn precondition() -> ParameterBuilder {
    ParameterBuilder::new()
        .name("If-Match")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "The ETag that was read; if it has changed since, the request is refused",
        ))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
}

fn header(description: &str) -> Header {
    let text = ObjectBuilder::new().schema_type(Type::String);
    HeaderBuilder::new().schema(Some(text)).description(Some(description)).build()
}

fn placeholder(path: &str) -> Option<&str> {
    path.split_once('{')?.1.split_once('}').map(|(name, _)| name)
}

fn reference(schema: SchemaOf) -> RefOr<Schema> {
    RefOr::Ref(Ref::from_schema_name((schema.name)()))
}

/// Returns the description of a success status code.
pub const fn success_words(status: u16) -> &'static str {
    match status {
        101 => "Switching protocols",
        201 => "Created",
        202 => "Accepted: the task is running",
        204 => "Done, without a body",
        303 => "See the redirect",
        _ => "Success",
    }
}

fn success(endpoint: &Endpoint) -> Response {
    let mut response = ResponseBuilder::new().description(success_words(endpoint.status));
    if matches!(endpoint.status, 201 | 202) {
        response = response.header("Location", header("Path of the new object or task"));
    }
    if endpoint.tag != Tag::Without && !matches!(endpoint.answer, Answer::Nothing) {
        response = response.header("ETag", header("Version of the settings"));
    }
    let json = |schema| Content::new(Some(schema));
    match endpoint.answer {
        Answer::One(schema) => response.content("application/json", json(reference(schema))),
        Answer::Many(schema) => {
            let array = ArrayBuilder::new().items(reference(schema));
            response.content("application/json", json(array.into()))
        }
        Answer::Json => response.content("application/json", json(ObjectBuilder::new().into())),
        Answer::Text => response.content(
            "text/plain; version=0.0.4",
            json(ObjectBuilder::new().schema_type(Type::String).into()),
        ),
        Answer::Nothing => response,
    }
    .build()
}

/// Returns a response for each error status code, with its kinds of problem.
fn problem_responses(endpoint: &Endpoint) -> BTreeMap<u16, Response> {
    let mut kinds_by_status: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    let of_body = if endpoint.request.is_some() { BODY_PROBLEMS } else { &[] };
    let of_endpoint = endpoint.problems.iter().filter(|kind| !of_body.contains(kind));
    for kind in of_body.iter().chain(of_endpoint).chain(GENERAL_PROBLEMS) {
        let line = format!("`{kind}`: {}", kind.title());
        kinds_by_status.entry(kind.status()).or_default().push(line);
    }
    let response = |lines: Vec<String>| {
        ResponseBuilder::new()
            .description(lines.join("; "))
            .content(PROBLEM_CONTENT_TYPE, Content::new(Some(reference(schema::<Problem>()))))
            .build()
    };
    kinds_by_status.into_iter().map(|(status, lines)| (status, response(lines))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::ProblemKind;

    /// To accept a change, run `UPDATE_OPENAPI=1 cargo test -p api` and review the diff.
    #[test]
    fn the_committed_documents_are_what_the_code_says() {
        let documents =
            [("openapi.json", openapi_json()), ("machines.json", machines_openapi_json())];
        for (name, document) in documents {
            let path = format!("{}/{name}", env!("CARGO_MANIFEST_DIR"));
            if std::env::var_os("UPDATE_OPENAPI").is_some() {
                std::fs::write(&path, &document).expect("the document can be written");
            }
            let committed = std::fs::read_to_string(&path).expect("the document is committed");
            assert!(committed == document, "stale; run UPDATE_OPENAPI=1 cargo test -p api");
        }
    }

    #[test]
    fn every_schema_that_is_referred_to_is_defined() {
        for document in [openapi_json(), machines_openapi_json()] {
            let document: serde_json::Value =
                serde_json::from_str(&document).expect("the document is JSON");
            let mut references = Vec::new();
            collect_references(&document, &mut references);
            assert!(!references.is_empty());
            for reference in references {
                let pointer = reference.trim_start_matches('#');
                assert!(document.pointer(pointer).is_some(), "{reference} is not defined");
            }
        }
    }

    #[test]
    fn every_number_says_what_it_cannot_be() {
        for document in [openapi_json(), machines_openapi_json()] {
            let document: serde_json::Value =
                serde_json::from_str(&document).expect("the document is JSON");
            let mut numbers = Vec::new();
            collect_numbers(&document, "", &mut numbers);
            assert!(!numbers.is_empty());
            for (place, schema) in numbers {
                let says = |word: &str| schema.get(word).is_some();
                assert!(says("minimum") || says("enum"), "{place}: {schema}");
            }
        }
    }

    fn collect_numbers<'a>(
        value: &'a serde_json::Value,
        place: &str,
        numbers: &mut Vec<(String, &'a serde_json::Value)>,
    ) {
        let is_number = |word: &serde_json::Value| word == "integer" || word == "number";
        let is_one = match value.get("type") {
            Some(serde_json::Value::Array(words)) => words.iter().any(is_number),
            Some(word) => is_number(word),
            None => false,
        };
        if is_one {
            numbers.push((place.to_owned(), value));
        }
        let inside: Vec<(String, &serde_json::Value)> = match value {
            serde_json::Value::Object(fields) => {
                fields.iter().map(|(name, it)| (format!("{place}/{name}"), it)).collect()
            }
            serde_json::Value::Array(items) => {
                items.iter().map(|it| (place.to_owned(), it)).collect()
            }
            _ => Vec::new(),
        };
        inside.into_iter().for_each(|(place, it)| collect_numbers(it, &place, numbers));
    }

    fn collect_references(value: &serde_json::Value, references: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                if let Some(serde_json::Value::String(reference)) = fields.get("$ref") {
                    references.push(reference.clone());
                }
                fields.values().for_each(|value| collect_references(value, references));
            }
            serde_json::Value::Array(items) => {
                items.iter().for_each(|value| collect_references(value, references));
            }
            _ => {}
        }
    }

    #[test]
    fn every_kind_of_problem_is_in_the_document_or_belongs_to_no_endpoint() {
        let document = openapi_json();
        for &kind in ProblemKind::ALL {
            let outside = [ProblemKind::UnknownPath, ProblemKind::MethodNotAllowed];
            assert!(outside.contains(&kind) || document.contains(&format!("`{kind}`")), "{kind}");
        }
    }
}
