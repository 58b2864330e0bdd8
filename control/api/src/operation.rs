//! Matching of requests to operations.
//!
//! The path of a request is parsed, looked up in the tables of the daemon and of
//! `memlane-machines`, and rebuilt from the parsed parts. So a path that was not checked is never
//! forwarded.

use http::{Method, Uri};

use crate::endpoint::Endpoint;
use crate::endpoints::ENDPOINTS;
use crate::machine_endpoints::{MACHINE_ENDPOINTS, MACHINES_PATH};
use crate::path::{path_of, with_query};
use crate::permission::Permission;

/// Reason for which a request matches no operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unrecognized {
    /// Unknown path.
    Path,
    /// Unknown method of a known path.
    Method,
    /// Invalid or unknown query parameters, with a message.
    Query(String),
}

/// A request that matches an endpoint.
#[derive(Clone, Debug)]
pub struct Operation {
    pub endpoint: &'static Endpoint,
    /// Decoded name in place of the path's placeholder.
    pub name: Option<String>,
    /// Decoded query parameters and their values.
    pub query: Vec<(String, String)>,
}

impl Operation {
    /// Matches a request to an operation.
    ///
    /// # Errors
    /// The request matches none.
    pub fn of(method: &Method, uri: &Uri) -> Result<Self, Unrecognized> {
        let segments = segments(uri.path()).ok_or(Unrecognized::Path)?;
        let fitting = |it: &&Endpoint| matches_path(it.path, &segments);
        let mut of_path = endpoints().filter(fitting).peekable();
        if of_path.peek().is_none() {
            return Err(Unrecognized::Path);
        }
        // Literal paths take precedence over paths with a placeholder.
        let of_method = of_path.filter(|it| method.as_str() == it.method.name());
        let endpoint = of_method.min_by_key(|it| it.path.contains('{'));
        let endpoint = endpoint.ok_or(Unrecognized::Method)?;
        let placeholder = endpoint.path.split('/').position(|it| it.starts_with('{'));
        let name = placeholder.and_then(|at| segments.get(at).cloned());
        let query = query_of(uri.query().unwrap_or_default())?;
        for (name, _) in &query {
            if !endpoint.query.iter().any(|it| it.name == name) {
                return Err(Unrecognized::Query(format!("unknown parameter {name:?}")));
            }
        }
        Ok(Self { endpoint, name, query })
    }

    /// Returns whether the operation belongs to `memlane-machines`. A path that both servers have
    /// belongs to the daemon.
    pub fn is_of_machines(&self) -> bool {
        self.endpoint.path.starts_with(MACHINES_PATH)
    }

    /// Rebuilds the path and query for the server of the operation.
    pub fn path(&self) -> String {
        let path = match &self.name {
            Some(name) => path_of(self.endpoint.path, name),
            None => self.endpoint.path.to_owned(),
        };
        if self.query.is_empty() {
            return path;
        }
        let pairs: Vec<_> = self.query.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        with_query(&path, &pairs)
    }
}

fn endpoints() -> impl Iterator<Item = &'static Endpoint> {
    ENDPOINTS.iter().chain(MACHINE_ENDPOINTS)
}

/// Returns the permission that the operation with this id needs, or `None` if the id is unknown.
pub fn permission(operation: &str) -> Option<Permission> {
    endpoints().find(|it| it.operation == operation).map(|it| it.permission)
}

fn matches_path(template: &str, segments: &[String]) -> bool {
    let mut wanted = template.split('/');
    let fits = segments
        .iter()
        .all(|segment| wanted.next().is_some_and(|it| it.starts_with('{') || it == segment));
    fits && wanted.next().is_none()
}

/// Splits a path at slashes and decodes the segments. Returns `None` if a segment is empty, `.` or
/// `..`, or contains a slash or another character that names cannot contain.
fn segments(path: &str) -> Option<Vec<String>> {
    let mut segments = Vec::new();
    for (index, part) in path.split('/').enumerate() {
        let part = decode(part, false)?;
        let is_odd = matches!(part.as_str(), "." | "..")
            || part.contains(|it: char| it.is_control() || "/\\%?#".contains(it));
        if is_odd || (part.is_empty() != (index == 0)) {
            return None;
        }
        segments.push(part);
    }
    Some(segments)
}

fn query_of(query: &str) -> Result<Vec<(String, String)>, Unrecognized> {
    let refuse = || Unrecognized::Query("cannot parse the query parameters".to_owned());
    let pairs = query.split('&').filter(|it| !it.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = decode(name, true).zip(decode(value, true));
            decoded.ok_or_else(refuse)
        })
        .collect()
}

/// Decodes percent-encoding. Returns `None` if the encoding is invalid.
pub fn decode(text: &str, plus_is_space: bool) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digit = |it: u8| char::from(it).to_digit(16);
                let value = digit(bytes.next()?)? * 16 + digit(bytes.next()?)?;
                u8::try_from(value).ok()?
            }
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Method as ApiMethod;
    use crate::machine_endpoints::CONSOLE_STATUS;
    use crate::permission::{Reach, Role};

    fn operation(method: Method, uri: &str) -> Result<(&'static str, String), Unrecognized> {
        let uri: Uri = uri.parse().expect("a path");
        let found = Operation::of(&method, &uri)?;
        Ok((found.endpoint.operation, found.path()))
    }

    #[test]
    fn a_path_is_recognized_and_written_anew() {
        let get = |uri| operation(Method::GET, uri);
        let is = |name, path: &str| Ok((name, path.to_owned()));
        assert_eq!(get("/v1/volumes"), is("list_volumes", "/v1/volumes"));
        assert_eq!(get("/v1/volumes/%64b"), is("show_volume", "/v1/volumes/db"));
        let snapshot = is("show_snapshot", "/v1/snapshots/db%40a");
        assert_eq!(get("/v1/snapshots/db@a"), snapshot);
        let listed = is("list_snapshots", "/v1/snapshots?volume=a%26b");
        assert_eq!(get("/v1/snapshots?volume=a%26b"), listed);
        let begun = operation(Method::POST, "/v1/images/rehearse");
        assert_eq!(begun, is("rehearse_image", "/v1/images/rehearse"));
    }

    #[test]
    fn odd_paths_lead_nowhere() {
        for uri in [
            "/v1/volumes/",
            "//v1/volumes",
            "/v1//volumes",
            "/v1/volumes/..",
            "/v1/volumes/%2e%2e/status",
            "/v1/volumes/a%2fb",
            "/v1/volumes/a%00",
            "/v1/volumes/a%25b",
            "/v1/volumes/%zz",
            "/v1/volumes/%ff",
            "/v1/volumes/a/b/c",
            "/V1/volumes",
            "/v2/volumes",
        ] {
            assert_eq!(operation(Method::GET, uri), Err(Unrecognized::Path), "{uri}");
        }
        assert_eq!(operation(Method::PUT, "/v1/volumes"), Err(Unrecognized::Method));
        for uri in ["/v1/volumes?admin=true", "/v1/events?after=%zz"] {
            let refused = operation(Method::GET, uri);
            assert!(matches!(refused, Err(Unrecognized::Query(_))), "{uri}: {refused:?}");
        }
    }

    /// To accept a change, run `UPDATE_OPENAPI=1 cargo test -p api` and review the diff.
    #[test]
    fn the_page_knows_the_least_role_of_each_operation() {
        let mut lines: Vec<_> = endpoints()
            .map(|it| format!("  {}: '{}',\n", it.operation, it.permission.role.name()))
            .collect();
        lines.sort();
        lines.dedup();
        let text = format!(
            "/** The least role for each operation, of the tables in control/api: remade by its \
             tests. */\n\
             import type {{ Role }} from './model';\n\n\
             export const LEAST_ROLES = {{\n{}}} as const satisfies Record<string, Role>;\n",
            lines.concat()
        );
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../web/src/api/roles.ts");
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(path, &text).expect("the file can be written");
        }
        let committed = std::fs::read_to_string(path).expect("the file is committed");
        assert!(committed == text, "stale; run UPDATE_OPENAPI=1 cargo test -p api");
    }

    #[test]
    fn what_changes_something_takes_more_than_looking() {
        for endpoint in endpoints() {
            let asked = endpoint.permission.role;
            let only_looks = endpoint.method == ApiMethod::Get && endpoint.status != CONSOLE_STATUS;
            assert_eq!(asked == Role::Viewer, only_looks, "{endpoint:?}");
        }
    }

    #[test]
    fn what_names_a_volume_in_its_path_is_limited_by_it() {
        for endpoint in endpoints().filter(|it| {
            ["{name}", "{volume}"].iter().any(|placeholder| it.path.contains(placeholder))
        }) {
            let reach = endpoint.permission.reach;
            let is_limited = matches!(
                reach,
                Reach::Named
                    | Reach::Compared
                    | Reach::Changed
                    | Reach::Cloned
                    | Reach::Restored
                    | Reach::Everything
            );
            assert!(is_limited, "{endpoint:?}");
        }
    }
}
