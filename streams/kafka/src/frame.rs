//! Framing: each request has a length prefix of 4 bytes and begins with its header.

use std::ops::RangeInclusive;

use kafka_protocol::messages::ApiKey;

use crate::wire::{Reader, Writer};
use crate::{WireError, versions};

/// Size of the length prefix of a frame.
pub const LENGTH_BYTES: usize = 4;

/// Minimum size of a request: a header of version 1 without client id, and an empty body.
const REQUEST_BYTES_MIN: usize = 10;

/// Returns the size of the frame at the start of `bytes`, including its length prefix, or `None` if
/// `bytes` has fewer than 4 bytes. Lengths that are invalid or exceed `bytes_max` are errors.
pub fn frame_bytes(bytes: &[u8], bytes_max: usize) -> Result<Option<usize>, WireError> {
    bytes_of(bytes, REQUEST_BYTES_MIN..=bytes_max)
}

/// Same as [`frame_bytes`] for headerless SASL messages, which follow SaslHandshake version 0.
pub fn bare_message_bytes(bytes: &[u8], bytes_max: usize) -> Result<Option<usize>, WireError> {
    bytes_of(bytes, 0..=bytes_max)
}

fn bytes_of(bytes: &[u8], lengths: RangeInclusive<usize>) -> Result<Option<usize>, WireError> {
    let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length =
        usize::try_from(i32::from_be_bytes(*length)).map_err(|_| WireError::FrameLength)?;
    match lengths.contains(&length) {
        true => Ok(Some(LENGTH_BYTES + length)),
        false => Err(WireError::FrameLength),
    }
}

/// Header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    /// API key as received, which may be unknown.
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: &'a str,
    /// Position at which the body begins.
    pub body_at: usize,
}

impl<'a> RequestHeader<'a> {
    /// Parses the header of a request that follows its length prefix. For unsupported keys and
    /// versions, only the first three fields are parsed.
    pub fn read(request: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(request, false);
        let (api_key, api_version) = (reader.i16()?, reader.i16()?);
        let correlation_id = reader.i32()?;
        let mut header =
            Self { api_key, api_version, correlation_id, client_id: "", body_at: request.len() };
        let Some(key) = header.key().filter(|key| versions::is_served(*key, api_version)) else {
            return Ok(header);
        };
        // All versions of the header encode the client id as a non-compact string.
        header.client_id = reader.string()?.unwrap_or_default();
        header.body_at = reader.position();
        if key.request_header_version(api_version) >= 2 {
            let mut tags = Reader::new(&request[header.body_at..], true);
            tags.skip_tags()?;
            header.body_at += tags.position();
        }
        Ok(header)
    }

    pub fn key(&self) -> Option<ApiKey> {
        ApiKey::try_from(self.api_key).ok()
    }
}

/// Begins the frame of a response: reserves its length prefix and writes its header.
pub fn begin_response(key: ApiKey, version: i16, correlation_id: i32, into: &mut Vec<u8>) {
    into.extend([0; LENGTH_BYTES]);
    let is_flexible = key.response_header_version(version) >= 1;
    let mut writer = Writer::new(into, is_flexible);
    writer.i32(correlation_id);
    writer.no_tags();
}

/// Sets the length prefix of `frame`, which is followed by `more_bytes` bytes that are sent
/// separately.
pub fn end_response(frame: &mut [u8], more_bytes: usize) {
    let length = frame.len() - LENGTH_BYTES + more_bytes;
    let length = i32::try_from(length).expect("responses have limits");
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
}
