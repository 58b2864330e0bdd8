//! Bodies of requests from clients that send anything at all. Shared with the fuzzer, which
//! declares the same modules.

use std::str::Utf8Error;

use kafka::shapes::{check, requests};
use kafka_protocol::messages::ApiKey;

use crate::decoders::decode;

/// The limit of elements in one request.
pub(crate) const ELEMENTS_MAX: usize = 10_000;

/// The first bytes choose a request and its version, the others are its body.
pub(crate) fn request(bytes: &[u8]) {
    let Some(([request, version], body)) = bytes.split_first_chunk() else { return };
    let shapes: Vec<_> = requests().collect();
    let shape = shapes[usize::from(*request) % shapes.len()];
    let versions: Vec<i16> = shape.versions().collect();
    judge(shape.api_key, versions[usize::from(*version) % versions.len()], body);
}

/// A body that passes is decoded to its end, but for a string that is no UTF-8. Encoding it makes
/// nothing of what was not there.
pub(crate) fn judge(api_key: ApiKey, version: i16, body: &[u8]) {
    if check(api_key, version, body, ELEMENTS_MAX).is_err() {
        return;
    }
    match decode(api_key, version, body) {
        Ok(decoded) => {
            assert_eq!(decoded.left_count, 0, "{api_key:?} {version}: {body:?}");
            let encoded = decoded.encoded;
            assert!(encoded.len() <= body.len(), "{api_key:?} {version}: {body:?} {encoded:?}");
        }
        Err(error) => {
            let is_about_text = error.root_cause().is::<Utf8Error>();
            assert!(is_about_text, "{api_key:?} {version}: {error:#}: {body:?}");
        }
    }
}
