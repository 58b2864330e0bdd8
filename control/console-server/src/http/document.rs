//! OpenAPI document of the console's own interface, generated from the endpoint table and the types
//! of requests and responses.

use std::collections::BTreeMap;

use api::{PROBLEM_CONTENT_TYPE, Problem, Query, QueryKind, SchemaOf, schema, success_words};
use serde_json::{Map, Value, json};

use crate::http::caller::COOKIE;
use crate::http::endpoint::{Answer, Endpoint, Method, Who};
use crate::refusal::Kind;

/// Problems of requests with a body, and of all requests.
const BODY_PROBLEMS: &[Kind] = &[Kind::Invalid, Kind::TooLarge, Kind::Slow];
const GENERAL_PROBLEMS: &[Kind] = &[Kind::Internal];

/// Suffix for schema names of objects with an `etag`.
const TAGGED: &str = "Tagged";

/// Returns the document of these endpoints as indented JSON.
pub(super) fn json_of(endpoints: &[Endpoint]) -> String {
    let mut paths = Map::new();
    for endpoint in endpoints {
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[endpoint.method.name()] = operation(endpoint);
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Memlane console",
            "description": "Users, projects, tokens, sessions, topics and the audit log: the \
                            console's own interface. The daemon's is at /openapi.json",
            "license": {"name": "Apache-2.0"},
            "version": "1",
        },
        "paths": paths,
        "components": {
            "schemas": schemas(endpoints),
            "securitySchemes": {
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
    });
    format!("{document:#}\n")
}

fn operation(endpoint: &Endpoint) -> Value {
    let names = endpoint.path.split('/').filter_map(|it| it.strip_prefix('{')?.strip_suffix('}'));
    let text = json!({"type": "string"});
    let in_path =
        names.map(|name| json!({"name": name, "in": "path", "required": true, "schema": text}));
    let mut parameters: Vec<_> = in_path.chain(endpoint.query.iter().map(query)).collect();
    let changes = endpoint.method != Method::Get;
    let header = |name: &str, required: bool, description: &str| {
        let head = json!({"name": name, "in": "header", "required": required});
        let mut header = head;
        header["description"] = description.into();
        header["schema"] = text.clone();
        header
    };
    if changes && endpoint.who != Who::Everybody {
        let what = "The csrf value of the session; not needed with a token";
        let is_needed = matches!(endpoint.who, Who::Session | Who::Enrolled);
        parameters.push(header("X-Memlane-CSRF", is_needed, what));
    }
    if changes && matches!(endpoint.answer, Answer::Tagged(_)) {
        let what = "The ETag that was read; if it has changed since, the request is refused";
        parameters.push(header("If-Match", false, what));
    }
    let mut operation = json!({
        "operationId": endpoint.operation,
        "summary": endpoint.summary,
        "security": security(endpoint.who),
        "responses": responses(endpoint),
    });
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(schema) = endpoint.request {
        let content = json!({"application/json": {"schema": reference(schema)}});
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    operation
}

fn query(query: &Query) -> Value {
    let schema = match query.kind {
        QueryKind::Text => json!({"type": "string"}),
        QueryKind::Number => json!({"type": "integer", "format": "int64", "minimum": 0}),
        QueryKind::Flag => json!({"type": "boolean"}),
    };
    json!({
        "name": query.name,
        "in": "query",
        "required": false,
        "description": query.summary,
        "schema": schema,
    })
}

fn security(who: Who) -> Value {
    match who {
        Who::Everybody => json!([]),
        Who::Session | Who::Enrolled => json!([{"session": []}]),
        Who::Known | Who::Administrator => json!([{"session": []}, {"token": []}]),
    }
}

fn responses(endpoint: &Endpoint) -> Value {
    let of_type = |media: &str, schema: Value| json!({media: {"schema": schema}});
    let as_json = |schema| of_type("application/json", schema);
    let list = |schema| json!({"type": "array", "items": schema});
    let content = match endpoint.answer {
        Answer::One(schema) => Some(as_json(reference(schema))),
        Answer::Many(schema) => Some(as_json(list(reference(schema)))),
        Answer::Tagged(schema) => Some(as_json(tagged_reference(schema))),
        Answer::ManyTagged(schema) => Some(as_json(list(tagged_reference(schema)))),
        Answer::Json => Some(as_json(json!({}))),
        Answer::Stream(media) => Some(of_type(media, json!({"type": "string"}))),
        Answer::Redirect | Answer::Upgrade | Answer::Nothing => None,
    };
    let mut success = json!({"description": success_words(endpoint.status)});
    if let Some(content) = content {
        success["content"] = content;
    }
    let mut responses = Map::from_iter([(endpoint.status.to_string(), success)]);
    let problem = as_problem();
    for (status, lines) in problems(endpoint) {
        let response = json!({"description": lines.join("; "), "content": problem});
        responses.insert(status.to_string(), response);
    }
    responses.into()
}

/// Returns a line for each kind of problem, by status code.
fn problems(endpoint: &Endpoint) -> BTreeMap<u16, Vec<String>> {
    let changes = endpoint.method != Method::Get;
    let of_caller: &[Kind] = match (endpoint.who, changes) {
        (Who::Everybody, _) => &[],
        (Who::Session, false) => &[Kind::Unauthorized],
        (Who::Session, true) => &[Kind::Unauthorized, Kind::Forged],
        (Who::Enrolled | Who::Known, false) => &[Kind::Unauthorized, Kind::MustEnrol],
        (Who::Enrolled | Who::Known, true) => &[Kind::Unauthorized, Kind::MustEnrol, Kind::Forged],
        (Who::Administrator, false) => &[Kind::Unauthorized, Kind::MustEnrol, Kind::Forbidden],
        (Who::Administrator, true) => {
            &[Kind::Unauthorized, Kind::MustEnrol, Kind::Forbidden, Kind::Forged]
        }
    };
    let of_body = if endpoint.request.is_some() { BODY_PROBLEMS } else { &[] };
    let all = [of_caller, of_body, endpoint.refuses, GENERAL_PROBLEMS].concat();
    let mut by_status: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for kind in all {
        let (word, status, title) = kind.parts();
        by_status.entry(status).or_default().push(format!("`{word}`: {title}"));
    }
    by_status
}

fn as_problem() -> Value {
    json!({PROBLEM_CONTENT_TYPE: {"schema": reference(schema::<Problem>())}})
}

fn reference(schema: SchemaOf) -> Value {
    json!({"$ref": format!("#/components/schemas/{}", (schema.name)())})
}

fn tagged_reference(schema: SchemaOf) -> Value {
    json!({"$ref": format!("#/components/schemas/{}{TAGGED}", (schema.name)())})
}

/// Collects the schemas of requests and responses, with all schemas that they refer to.
fn schemas(endpoints: &[Endpoint]) -> Value {
    let mut named = Map::new();
    let mut add = |schema: SchemaOf| {
        let mut found = Vec::new();
        (schema.add_to)(&mut found);
        for (name, schema) in found {
            named.insert(name, serde_json::to_value(schema).expect("a schema is plain data"));
        }
        named[(schema.name)().as_ref()].clone()
    };
    let mut tagged = Vec::new();
    for endpoint in endpoints {
        endpoint.request.into_iter().for_each(|it| _ = add(it));
        match endpoint.answer {
            Answer::One(schema) | Answer::Many(schema) => _ = add(schema),
            Answer::Tagged(schema) | Answer::ManyTagged(schema) => {
                let mut with_tag = add(schema);
                with_tag["properties"]["etag"] = json!({"type": "string"});
                if let Some(required) = with_tag["required"].as_array_mut() {
                    required.push("etag".into());
                }
                tagged.push((format!("{}{TAGGED}", (schema.name)()), with_tag));
            }
            Answer::Json
            | Answer::Stream(_)
            | Answer::Redirect
            | Answer::Upgrade
            | Answer::Nothing => {}
        }
    }
    add(schema::<Problem>());
    named.extend(tagged);
    // The console has more kinds of problems than the daemon.
    let words: Vec<_> = Kind::ALL.iter().map(|it| it.parts().0).collect();
    named["Problem"]["properties"]["kind"] = json!({"type": "string", "enum": words});
    named.remove("ProblemKind");
    named.into()
}
