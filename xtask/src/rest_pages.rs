//! Pages of the site on the REST interfaces, generated from their OpenAPI documents.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};
use serde_json::{Map, Value};

use crate::repository::Repository;
use crate::tidy::name_of_heading;

/// A generated page, which is no file of the repository.
pub(crate) struct Page {
    /// Path below the root of the site.
    pub path: String,
    pub title: &'static str,
    pub text: String,
}

/// Documents, with the names and titles of their pages.
const DOCUMENTS: [(&str, &str, &str); 3] = [
    ("control/api/openapi.json", "rest-daemon", "REST API of the daemon"),
    ("control/api/machines.json", "rest-machines", "REST API of virtual machines"),
    ("control/console-server/openapi.json", "rest-console", "REST API of the console"),
];

/// Returns the pages of all interfaces.
pub(crate) fn pages(repository: &Repository) -> Result<Vec<Page>> {
    let page = |(path, name, title): &(&str, &str, &'static str)| {
        let file = repository.file(path).with_context(|| format!("there is no {path}"))?;
        let document =
            serde_json::from_str(&file.text).with_context(|| format!("{path} is no JSON"))?;
        let text = text(title, path, &document);
        Ok(Page { path: format!("docs/reference/{name}.md"), title, text })
    };
    DOCUMENTS.iter().map(page).collect()
}

fn text(title: &str, path: &str, document: &Value) -> String {
    let about = words(&document["info"]["description"]);
    let mut text = format!(
        "# {title}\n\n{about}. An OpenAPI 3.1 document, `{path}` of the sources, says the same.\n\n"
    );
    let mut problems = BTreeMap::new();
    let operations = operations(document);
    text += "| request | effect |\n|---|---|\n";
    for operation in &operations {
        let line = operation.heading();
        let _ =
            writeln!(text, "| [`{line}`](#{}) | {} |", name_of_heading(&line), operation.summary());
        problems.extend(operation.problems());
    }
    for operation in &operations {
        operation.write(&mut text);
    }
    text += "\n## Problems\n\nA refusal is a problem of RFC 9457 (`application/problem+json`).\n\n\
             | type | status | meaning |\n|---|---|---|\n";
    for (kind, (status, meaning)) in problems {
        let _ = writeln!(text, "| `{kind}` | {status} | {meaning} |");
    }
    text += "\n## Objects\n";
    for (name, schema) in entries(&document["components"]["schemas"]) {
        write_object(&mut text, name, schema);
    }
    text
}

/// One method of a path.
struct Operation<'a> {
    method: String,
    path: &'a str,
    about: &'a Value,
}

fn operations(document: &Value) -> Vec<Operation<'_>> {
    let mut operations = Vec::new();
    for (path, methods) in entries(&document["paths"]) {
        let of_method = |(method, about): (&String, _)| Operation {
            method: method.to_uppercase(),
            path: path.as_str(),
            about,
        };
        operations.extend(entries(methods).map(of_method));
    }
    operations
}

impl Operation<'_> {
    fn heading(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    fn summary(&self) -> String {
        words(&self.about["summary"])
    }

    /// Returns the kinds of problems in its responses, with status codes and meanings.
    fn problems(&self) -> Vec<(String, (String, String))> {
        let refusals = entries(&self.about["responses"]).filter(|(code, _)| is_refusal(code));
        let of_code = |(code, answer): (&String, &Value)| {
            let kinds = words(&answer["description"]);
            let kind = |line: &str| {
                let (kind, meaning) = line.split_once(": ")?;
                let kind = kind.trim().trim_matches('`').to_owned();
                Some((kind, (code.clone(), meaning.trim().to_owned())))
            };
            kinds.split("; ").filter_map(kind).collect::<Vec<_>>()
        };
        refusals.flat_map(of_code).collect()
    }

    fn write(&self, text: &mut String) {
        let _ = write!(text, "\n## `{}`\n\n{}.\n", self.heading(), self.summary());
        let parameters = self.about["parameters"].as_array().map_or(&[][..], Vec::as_slice);
        if !parameters.is_empty() {
            *text += "\n| parameter | in | type | meaning |\n|---|---|---|---|\n";
        }
        for it in parameters {
            let [name, place, about] = ["name", "in", "description"].map(|key| words(&it[key]));
            let _ = writeln!(text, "| `{name}` | {place} | {} | {about} |", type_of(&it["schema"]));
        }
        if let Some((_, body)) = entries(&self.about["requestBody"]["content"]).next() {
            let _ = write!(text, "\nBody: {}\n", type_of(&body["schema"]));
        }
        for (code, answer) in entries(&self.about["responses"]).filter(|it| !is_refusal(it.0)) {
            let content = entries(&answer["content"]).next();
            let of =
                content.map_or(String::new(), |it| format!(" with {}", type_of(&it.1["schema"])));
            let _ = write!(text, "\nAnswer: {code}{of}\n");
        }
        let kinds: Vec<_> = self.problems().iter().map(|it| format!("`{}`", it.0)).collect();
        let _ = write!(text, "\n[Problems](#problems): {}\n", kinds.join(", "));
    }
}

fn write_object(text: &mut String, name: &str, schema: &Value) {
    let _ = write!(text, "\n### {name}\n\n{}\n", words(&schema["description"]));
    let words_of = |it: &Value| format!("`{}`", it.as_str().unwrap_or_default());
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<_> = values.iter().map(words_of).collect();
        let _ = write!(text, "\nOne of {}.\n", values.join(", "));
    }
    let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    let mut fields = entries(&schema["properties"]).peekable();
    if fields.peek().is_some() {
        *text += "\n| field | type | | meaning |\n|---|---|---|---|\n";
    }
    for (field, about) in fields {
        let need = if required.iter().any(|it| it == field) { "always there" } else { "" };
        let about_words = words(&about["description"]);
        let _ = writeln!(text, "| `{field}` | {} | {need} | {about_words} |", type_of(about));
    }
}

/// Describes the type of a value, with links to objects.
fn type_of(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|it| it.rsplit('/').next()) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    for key in ["oneOf", "anyOf", "allOf"] {
        if let Some(ways) = schema[key].as_array() {
            let ways: Vec<_> = ways.iter().map(type_of).collect();
            return ways.join(" or ");
        }
    }
    match &schema["type"] {
        Value::String(name) if name == "array" => format!("array of {}", type_of(&schema["items"])),
        Value::String(name) => name.clone(),
        Value::Array(names) => {
            let names: Vec<_> = names.iter().filter_map(Value::as_str).collect();
            names.join(" or ")
        }
        _ => "any".to_owned(),
    }
}

fn is_refusal(code: &str) -> bool {
    code.starts_with(['4', '5'])
}

/// Returns a text on one line, as required in tables.
fn words(text: &Value) -> String {
    let text = text.as_str().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_has_operations_problems_and_objects() {
        let document = json!({
            "info": {"description": "An interface"},
            "paths": {"/v1/things/{name}": {"delete": {
                "summary": "Delete a thing",
                "parameters": [
                    {"name": "name", "in": "path", "description": "Its name",
                     "schema": {"type": "string"}}
                ],
                "responses": {
                    "200": {"content": {"application/json": {
                        "schema": {"type": "array", "items": {"$ref": "#/components/schemas/Thing"}}
                    }}},
                    "404": {"description": "`not_found`: There is none"}
                }
            }}},
            "components": {"schemas": {"Thing": {
                "description": "One\nthing.",
                "required": ["size"],
                "properties": {"size": {"type": ["integer", "null"], "description": "Bytes | all"}}
            }}}
        });
        let text = text("Things", "things.json", &document);
        for part in [
            "# Things\n\nAn interface. ",
            "| [`DELETE /v1/things/{name}`](#delete-v1thingsname) | Delete a thing |\n",
            "\n## `DELETE /v1/things/{name}`\n\nDelete a thing.\n",
            "| `name` | path | string | Its name |\n",
            "\nAnswer: 200 with array of [Thing](#thing)\n",
            "\n[Problems](#problems): `not_found`\n",
            "| `not_found` | 404 | There is none |\n",
            "\n### Thing\n\nOne thing.\n",
            "| `size` | integer or null | always there | Bytes \\| all |\n",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }
}
