//! Arbitrary requests, and the properties of every request that matches an operation.

use api::{Endpoint, Method as ApiMethod, Operation};
use http::{Method, Uri};

/// Checks one request: the first byte selects its method, the rest is its path and query.
pub(crate) fn request(bytes: &[u8]) {
    let Some((&draw, target)) = bytes.split_first() else { return };
    let Ok(uri) = Uri::try_from(target) else { return };
    let methods = [Method::GET, Method::POST, Method::PATCH, Method::DELETE, Method::PUT];
    check(&methods[usize::from(draw) % methods.len()], &uri);
}

/// Checks that the forwarded request contains only parsed parts.
pub(crate) fn check(method: &Method, uri: &Uri) {
    let Ok(operation) = Operation::of(method, uri) else { return };
    let endpoint = operation.endpoint;
    assert_eq!(endpoint.method.name(), method.as_str(), "{uri}");

    let path = operation.path();
    let again = Uri::try_from(&path).expect("what is passed on is a path");
    check_shape(endpoint, again.path());
    let read = Operation::of(method, &again).expect("what is passed on is recognized");
    assert!(std::ptr::eq(read.endpoint, endpoint), "{uri} became {path}");
    assert_eq!(read.name, operation.name, "{uri} became {path}");
    assert_eq!(read.query, operation.query, "{uri} became {path}");
    assert_eq!(read.path(), path, "{uri}");
}

/// Checks the number of segments, and that no segment has a special meaning in paths.
fn check_shape(endpoint: &Endpoint, path: &str) {
    let (wanted, parts) = (endpoint.path.split('/'), path.split('/'));
    assert_eq!(wanted.clone().count(), parts.clone().count(), "{path}");
    for (wanted, part) in wanted.zip(parts) {
        if !wanted.starts_with('{') {
            assert_eq!(wanted, part, "{path}");
            continue;
        }
        let part = part.to_ascii_lowercase();
        assert!(!part.is_empty() && part != "." && part != "..", "{path}");
        for hidden in ["%2f", "%5c", "%00", "%25", "%2e", "\\"] {
            assert!(!part.contains(hidden), "{path}");
        }
    }
    // A path that is another endpoint's literal path is never matched as a name.
    let is_name = endpoint.path.contains('{');
    let mut others = api::ENDPOINTS.iter().chain(api::MACHINE_ENDPOINTS);
    let own = others.find(|it| it.method == endpoint.method && it.path == path);
    assert!(!is_name || own.is_none(), "{path} is {own:?}");
    assert!(matches!(
        endpoint.method,
        ApiMethod::Get | ApiMethod::Post | ApiMethod::Patch | ApiMethod::Delete
    ));
}
