//! Arbitrary requests, as from malicious clients. Shared with the fuzzer, which declares the same
//! modules.
#![allow(dead_code, reason = "each program that includes this uses a part of it")]

use std::str::Utf8Error;

use kafka::shapes::{check, requests};
use kafka::{LENGTH_BYTES, RequestHeader, frame_bytes, is_served};
use kafka_protocol::messages::{self, ApiKey, FetchRequest, ProduceRequest};
use kafka_protocol::protocol::{Decodable, Encodable};

use crate::decoders::decode;
use crate::own_parsers;

/// Maximum number of elements in one request.
pub(crate) const ELEMENTS_MAX: usize = 10_000;

/// Maximum size of one request in bytes.
const REQUEST_BYTES_MAX: usize = 1 << 16;

/// Tests one request. The first two bytes select its key and version, the others are its body.
pub(crate) fn request(bytes: &[u8]) {
    let Some(([request, version], body)) = bytes.split_first_chunk() else { return };
    let shapes: Vec<_> = requests().collect();
    let shape = shapes[usize::from(*request) % shapes.len()];
    let versions: Vec<i16> = shape.versions().collect();
    judge(shape.api_key, versions[usize::from(*version) % versions.len()], body);
}

/// Tests consecutive frames, split as by a broker.
pub(crate) fn frames(mut bytes: &[u8]) {
    while let Ok(Some(frame_count)) = frame_bytes(bytes, REQUEST_BYTES_MAX) {
        assert!((LENGTH_BYTES..=LENGTH_BYTES + REQUEST_BYTES_MAX).contains(&frame_count));
        let Some((frame, rest)) = bytes.split_at_checked(frame_count) else { return };
        bytes = rest;
        headed(&frame[LENGTH_BYTES..]);
    }
}

/// Tests a request with a header.
fn headed(request: &[u8]) {
    let read = RequestHeader::read(request);
    let Some((numbers, _)) = request.split_first_chunk() else { return };
    let [key_high, key_low, version_high, version_low] = *numbers;
    let version = i16::from_be_bytes([version_high, version_low]);
    let Ok(api_key) = ApiKey::try_from(i16::from_be_bytes([key_high, key_low])) else { return };
    if !is_served(api_key, version) {
        return;
    }
    let mut body = request;
    let header_version = api_key.request_header_version(version);
    if let Ok(expected) = messages::RequestHeader::decode(&mut body, header_version) {
        let (head, _) = request.split_at(request.len() - body.len());
        let header = match read {
            Ok(header) => header,
            // The decoder of `kafka-protocol` accepts varints of more than 32 bits.
            Err(_) if !is_canonical(&expected, header_version, head) => return,
            Err(error) => panic!("{error:?}: {request:?}"),
        };
        assert_eq!((header.key(), header.api_version), (Some(api_key), version));
        assert_eq!(header.correlation_id, expected.correlation_id);
        assert_eq!(header.client_id, expected.client_id.as_deref().unwrap_or_default());
        assert_eq!(header.body_at, head.len(), "{request:?}");
        judge(api_key, version, body);
    }
}

/// Returns whether encoding the header again results in the same bytes.
fn is_canonical(header: &messages::RequestHeader, version: i16, head: &[u8]) -> bool {
    let mut encoded = Vec::new();
    header.encode(&mut encoded, version).is_ok() && encoded == head
}

/// Tests that a body that passes the check is decoded unless a string is not UTF-8, that encoding
/// it again adds no bytes, and that the crate's own parsers agree with the decoder.
pub(crate) fn judge(api_key: ApiKey, version: i16, body: &[u8]) {
    let mut body = body;
    let is_decoded = check(api_key, version, body, ELEMENTS_MAX).is_ok()
        && match decode(api_key, version, body) {
            Ok(decoded) => {
                // Trailing bytes are not part of the body.
                body = &body[..body.len() - decoded.left_count];
                let encoded = decoded.encoded;
                assert!(encoded.len() <= body.len(), "{api_key:?} {version}: {body:?} {encoded:?}");
                true
            }
            Err(error) => {
                let is_about_text = error.root_cause().is::<Utf8Error>();
                assert!(is_about_text, "{api_key:?} {version}: {error:#}: {body:?}");
                false
            }
        };
    if is_served(api_key, version) {
        parse(api_key, version, body, is_decoded);
    }
}

fn parse(api_key: ApiKey, version: i16, mut body: &[u8], is_decoded: bool) {
    let whole = body;
    match api_key {
        ApiKey::Produce => {
            let decoded = is_decoded.then(|| ProduceRequest::decode(&mut body, version));
            let decoded = decoded.map(|it| it.expect("it was decoded before"));
            own_parsers::produce(version, whole, decoded.as_ref());
        }
        ApiKey::Fetch => {
            let decoded = is_decoded.then(|| FetchRequest::decode(&mut body, version));
            let decoded = decoded.map(|it| it.expect("it was decoded before"));
            own_parsers::fetch(version, whole, decoded.as_ref());
        }
        _ => {}
    }
}
