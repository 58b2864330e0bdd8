//! Header fields of a request that its response needs, and encoding of responses without records.

use kafka_protocol::messages::{ApiKey, ResponseKind};

/// Identity of a request: key, version and correlation id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) key: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
}

impl Asked {
    /// Encodes a response with the protocol crate.
    pub(crate) fn frame(self, response: &ResponseKind) -> Vec<u8> {
        let mut body = bytes::BytesMut::new();
        if let Err(error) = response.encode(&mut body, self.version) {
            // A field that does not exist in this version was set, which is a bug.
            tracing::error!(
                request = ?self.key,
                version = self.version,
                %error,
                "cannot encode a response"
            );
            return self.refusal(kafka_protocol::ResponseError::UnknownServerError.code());
        }
        let mut frame = Vec::with_capacity(body.len() + 16);
        kafka::begin_response(self.key, self.version, self.correlation_id, &mut frame);
        frame.extend_from_slice(&body);
        kafka::end_response(&mut frame, 0);
        frame
    }

    /// Encodes a minimal response with an error code only.
    pub(crate) fn refusal(self, error_code: i16) -> Vec<u8> {
        let mut frame = Vec::new();
        kafka::begin_response(self.key, self.version, self.correlation_id, &mut frame);
        frame.extend(error_code.to_be_bytes());
        kafka::end_response(&mut frame, 0);
        frame
    }
}

/// Encodes the response to an unknown request: the oldest header, and an error code.
pub(crate) fn bare_refusal(correlation_id: i32, error_code: i16) -> Vec<u8> {
    let mut frame = vec![0; kafka::LENGTH_BYTES];
    frame.extend(correlation_id.to_be_bytes());
    frame.extend(error_code.to_be_bytes());
    kafka::end_response(&mut frame, 0);
    frame
}
