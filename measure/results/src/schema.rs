//! JSON Schema of a run's files, generated from the types.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::folder::StepRecord;
use crate::manifest::{Manifest, SCHEMA};
use crate::row::Row;
use crate::summary::Summary;

/// Returns one schema document for all files of a run. `files` names the definition for each.
pub fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let manifest = generator.subschema_for::<Manifest>();
    let step = generator.subschema_for::<StepRecord>();
    let rows = generator.subschema_for::<Vec<Row>>();
    let summaries = generator.subschema_for::<Vec<Summary>>();
    let definitions = generator.take_definitions(true);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("A recorded run of measurements, {SCHEMA}"),
        "description": "manifest.json, a line of steps.jsonl, results.json or summary.json.",
        "anyOf": [manifest, step, rows, summaries],
        "$defs": definitions,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use jsonschema::Validator;

    use super::*;
    use crate::manifest::tests::manifest;
    use crate::row::Suite;
    use crate::summary::summarise;

    fn validator_of(name: &str) -> Validator {
        let mut document = schema();
        let fields = document.as_object_mut().expect("it is an object");
        fields.remove("anyOf");
        fields.insert("$ref".to_owned(), json!(format!("#/$defs/{name}")));
        jsonschema::validator_for(&document).expect("the schema is one")
    }

    fn row() -> Value {
        serde_json::to_value(Row::new(Suite::Engine, "read", "engine")).expect("it is plain data")
    }

    #[test]
    fn the_published_schema_is_that_of_the_types() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let path = root.join("docs/formats/bench-1.schema.json");
        let text = std::fs::read_to_string(path).expect("the schema is published");
        let published: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(
            published,
            schema(),
            "write it anew: memlane-bench schema > docs/formats/bench-1.schema.json"
        );
    }

    #[test]
    fn every_file_of_a_run_has_the_form() {
        let validator = jsonschema::validator_for(&schema()).expect("the schema is one");
        let row = Row::new(Suite::Engine, "read", "engine");
        let summaries = summarise(std::iter::once(&row));
        let files = [json!(manifest()), json!([row]), json!(summaries)];
        for file in files {
            let errors: Vec<String> =
                validator.iter_errors(&file).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{errors:?}");
        }
    }

    #[test]
    fn a_row_with_a_wrong_or_missing_field_does_not_have_the_form() {
        let validator = validator_of("Row");
        assert!(validator.is_valid(&row()));
        for (field, wrong) in [
            ("suite", json!("fastest")),
            ("repeat", json!("first")),
            ("figures", json!({"a": "b"})),
        ] {
            let mut row = row();
            row[field] = wrong;
            assert!(!validator.is_valid(&row), "{field}");
        }
        let mut headless = row();
        headless.as_object_mut().expect("it is an object").remove("case");
        assert!(!validator.is_valid(&headless));
    }
}
