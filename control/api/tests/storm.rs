//! Random requests: matched requests are forwarded only as parsed.

mod support {
    pub(crate) mod storm;
}

use api::{ENDPOINTS, MACHINE_ENDPOINTS, Operation};
use http::{Method, Uri};
use proptest::prelude::*;
use support::storm;

/// Path segments, including malicious ones.
fn part() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("v1".to_owned()),
        Just(String::new()),
        Just("..".to_owned()),
        Just("%2e%2e".to_owned()),
        Just("a%2fb".to_owned()),
        Just("rehearse".to_owned()),
        Just("%e4%b8%ad".to_owned()),
        "[a-z%@.A-F0-9]{0,8}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn bytes_are_understood_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        storm::request(&bytes);
    }

    #[test]
    fn paths_like_those_of_the_tables_are_understood_or_refused(
        number in 0..ENDPOINTS.len() + MACHINE_ENDPOINTS.len(),
        draw in any::<u8>(),
        parts in proptest::collection::vec(part(), 4),
        query in proptest::option::of("[a-z]{1,8}=[a-z%0-9+&=]{0,10}"),
    ) {
        let endpoint = ENDPOINTS.iter().chain(MACHINE_ENDPOINTS).nth(number).expect("in range");
        let mut parts = parts.iter();
        let path: Vec<&str> = endpoint.path.split('/').map(|it| match it.starts_with('{') {
            true => parts.next().expect("enough of them").as_str(),
            false => it,
        }).collect();
        let query = query.map(|it| format!("?{it}")).unwrap_or_default();
        let mut bytes = vec![draw];
        bytes.extend(format!("{}{query}", path.join("/")).into_bytes());
        storm::request(&bytes);
    }
}

/// Goal: the random test would be meaningless if no request matched.
#[test]
fn each_endpoint_is_recognized_by_its_path() {
    for endpoint in ENDPOINTS.iter().chain(MACHINE_ENDPOINTS) {
        let path = api::path_of(endpoint.path, "db");
        let uri: Uri = path.parse().expect("a path");
        let method: Method = endpoint.method.name().parse().expect("a method");
        let operation = Operation::of(&method, &uri).expect("it is in the table");
        assert_eq!(operation.endpoint.operation, endpoint.operation);
        assert_eq!(operation.path(), path);
        storm::check(&method, &uri);
    }
}
