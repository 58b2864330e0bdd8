//! Construction of paths with names and query parameters.

/// Replaces the placeholder of `template` with `name`, percent-encoded so that it is one segment. A
/// template without a placeholder is returned unchanged.
pub fn path_of(template: &str, name: &str) -> String {
    let Some((before, (_placeholder, after))) =
        template.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    else {
        return template.to_owned();
    };
    format!("{before}{}{after}", quoted(name))
}

/// Appends query parameters to a path.
pub fn with_query(path: &str, parameters: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| format!("{name}={}", quoted(value));
    format!("{path}?{}", parameters.iter().map(pair).collect::<Vec<_>>().join("&"))
}

fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-~".contains(&byte) {
            quoted.push(char::from(byte));
        } else {
            quoted.push_str(&format!("%{byte:02X}"));
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::{
        ATTACHMENT_PATH, EVENTS_PATH, SNAPSHOT_DIFF_PATH, STATUS_PATH, VOLUME_PATH,
    };

    #[test]
    fn a_name_becomes_one_segment_of_a_path() {
        assert_eq!(path_of(VOLUME_PATH, "db-1.x_y"), "/v1/volumes/db-1.x_y");
        assert_eq!(path_of(ATTACHMENT_PATH, "a/b c?"), "/v1/attachments/a%2Fb%20c%3F");
        assert_eq!(path_of(STATUS_PATH, "x"), STATUS_PATH);
        assert_eq!(path_of(SNAPSHOT_DIFF_PATH, "db@a"), "/v1/snapshots/db%40a/diff");
    }

    #[test]
    fn parameters_are_quoted() {
        let path = with_query(EVENTS_PATH, &[("after", "7"), ("to", "a@b&c")]);
        assert_eq!(path, "/v1/events?after=7&to=a%40b%26c");
    }
}
