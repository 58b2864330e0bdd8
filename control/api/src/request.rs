//! Parsing of request bodies, with errors that name the invalid field.

use serde::de::DeserializeOwned;

use crate::problem::{Problem, ProblemKind};

/// Parses the body of a request. Unknown fields are rejected, because a typo must not be ignored.
pub fn parse_request<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // Serde would also accept an array with the fields in order.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Problem::new(ProblemKind::InvalidRequest, "the body is not a JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let request = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| problem_of(&error.path().to_string(), error.inner()))?;
    reader
        .end()
        .map_err(|error| Problem::new(ProblemKind::InvalidRequest, format!("the body: {error}")))?;
    Ok(request)
}

/// Converts a parse error. `path` is `.` for the whole body.
fn problem_of(path: &str, error: &serde_json::Error) -> Problem {
    let message = without_position(&error.to_string());
    if !error.is_data() {
        return Problem::new(ProblemKind::InvalidRequest, format!("the body is not JSON: {error}"));
    }
    if message.starts_with("unknown field") {
        let field = quoted(&message).unwrap_or(path).to_owned();
        return Problem::new(ProblemKind::UnknownField, message).in_field(field);
    }
    if message.starts_with("missing field") {
        let field = quoted(&message).unwrap_or(path).to_owned();
        return Problem::new(ProblemKind::InvalidField, message).in_field(field);
    }
    if path == "." {
        return Problem::new(ProblemKind::InvalidRequest, format!("the body: {message}"));
    }
    Problem::new(ProblemKind::InvalidField, message).in_field(path)
}

/// Removes the position in the text, which does not help callers that use a client library.
fn without_position(message: &str) -> String {
    message.split(" at line ").next().unwrap_or(message).to_owned()
}

/// Returns the first word in backquotes.
fn quoted(message: &str) -> Option<&str> {
    message.split('`').nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttachmentCreate, VolumeCreate, VolumePatch};

    #[track_caller]
    fn check<T: DeserializeOwned + std::fmt::Debug>(
        body: &str,
        kind: ProblemKind,
        field: Option<&str>,
    ) {
        let problem = parse_request::<T>(body.as_bytes()).expect_err(body);
        assert_eq!((problem.kind, problem.field.as_deref()), (kind, field), "{problem:?}");
    }

    #[test]
    fn each_field_that_cannot_be_read_is_named() {
        let cases = [
            (r#"{"name": 1, "size": 4096}"#, "name"),
            (r#"{"name": "a", "size": "10GB"}"#, "size"),
            (r#"{"name": "a", "size": -1}"#, "size"),
            (r#"{"name": "a", "size": 1.5}"#, "size"),
            (r#"{"name": "a", "size": 4096, "sector_bytes": 1024}"#, "sector_bytes"),
            (r#"{"name": "a", "size": 4096, "reduction": "some"}"#, "reduction"),
            (r#"{"name": "a", "size": 4096, "durability": "disk"}"#, "durability"),
            (r#"{"name": "a", "size": 4096, "capacity": "thick"}"#, "capacity"),
            (r#"{"size": 4096}"#, "name"),
            (r#"{"name": "a"}"#, "size"),
        ];
        for (body, field) in cases {
            check::<VolumeCreate>(body, ProblemKind::InvalidField, Some(field));
        }
        check::<VolumePatch>(r#"{"force": "yes"}"#, ProblemKind::InvalidField, Some("force"));
        check::<AttachmentCreate>(
            r#"{"volume": "a", "as": "scsi"}"#,
            ProblemKind::InvalidField,
            Some("as"),
        );
    }

    #[test]
    fn an_unknown_field_is_refused_by_name() {
        let (kind, field) = (ProblemKind::UnknownField, Some("colour"));
        check::<VolumeCreate>(r#"{"name": "a", "size": 1, "colour": 3}"#, kind, field);
        check::<VolumePatch>(r#"{"colour": 3}"#, kind, field);
        check::<AttachmentCreate>(r#"{"volume": "a", "colour": 3}"#, kind, field);
    }

    #[test]
    fn what_is_not_one_json_object_is_refused_as_a_whole() {
        for body in ["", "{", "[]", "{} {}", "7", "\u{0}"] {
            check::<VolumePatch>(body, ProblemKind::InvalidRequest, None);
        }
    }

    #[test]
    fn left_out_fields_get_their_defaults() {
        let request: VolumeCreate =
            parse_request(br#"{"name": "a", "size": "1G"}"#).expect("a good request");
        let json = serde_json::to_value(&request).expect("a request is plain data");
        assert_eq!(
            json,
            serde_json::json!({
                "name": "a", "size": 1 << 30, "sector_bytes": 512,
                "reduction": "full", "durability": "ram", "capacity": "thin",
            })
        );
    }
}
