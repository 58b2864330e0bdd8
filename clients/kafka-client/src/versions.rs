//! API versions that broker and client have in common.

use std::collections::HashMap;

use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::{Decodable, Message, Request, StrBytes, VersionRange};

use crate::error::{ClientError, ErrorKind, check};

/// API versions that a broker announced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Versions(HashMap<i16, VersionRange>);

/// Name of a request in messages.
pub(crate) fn name_of(key: i16) -> String {
    ApiKey::try_from(key).map_or_else(|()| format!("request {key}"), |key| format!("{key:?}"))
}

impl Versions {
    /// Versions assumed before negotiation: only those of `ApiVersions` itself.
    pub(crate) fn before_announcement() -> Self {
        let range = VersionRange { min: 0, max: ApiVersionsRequest::VERSIONS.max };
        Self(HashMap::from([(ApiVersionsRequest::KEY, range)]))
    }

    pub(crate) fn of(announced: &[ApiVersion]) -> Self {
        let range = |api: &ApiVersion| {
            (api.api_key, VersionRange { min: api.min_version, max: api.max_version })
        };
        Self(announced.iter().map(range).collect())
    }

    /// Returns the highest common version of `R`, up to `version_max`.
    pub(crate) fn highest<R: Request>(
        &self,
        address: &str,
        version_max: i16,
    ) -> Result<i16, ClientError> {
        let unsupported = |why: String| {
            let context = format!("broker {address} does not support {}", name_of(R::KEY));
            ClientError::new(ErrorKind::Unsupported, context).because(why)
        };
        let Some(theirs) = self.0.get(&R::KEY) else {
            return Err(unsupported("it does not know this request".to_owned()));
        };
        let ours = VersionRange { min: R::VERSIONS.min, max: R::VERSIONS.max.min(version_max) };
        let common = ours.intersect(theirs);
        if common.is_empty() {
            let VersionRange { min, max } = theirs;
            return Err(unsupported(format!(
                "it supports versions {min} to {max}, this client {} to {}",
                ours.min, ours.max
            )));
        }
        Ok(common.max)
    }
}

/// Version of the first `ApiVersions` request. Brokers that do not support it answer in version 0.
pub(crate) const VERSION_FIRST: i16 = 3;

pub(crate) fn request() -> ApiVersionsRequest {
    ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("memlane"))
        .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")))
}

/// Result of version negotiation: the versions, or an older version in which to repeat the request.
pub(crate) enum Announcement {
    Versions(Versions),
    AskAgain(i16),
}

/// Decodes a response. If the broker does not support `version`, the response has version 0.
pub(crate) fn read(
    body: &mut bytes::Bytes,
    version: i16,
    address: &str,
) -> Result<Announcement, ClientError> {
    const UNSUPPORTED_VERSION: i16 = 35;
    let broken = || ClientError::protocol(format!("invalid ApiVersions response from {address}"));
    let code = body.first_chunk().map(|&code| i16::from_be_bytes(code)).ok_or_else(broken)?;
    let is_refused = code == UNSUPPORTED_VERSION && version > 0;
    let version_sent = if is_refused { 0 } else { version };
    let response = ApiVersionsResponse::decode(body, version_sent);
    let response = response.map_err(|error| broken().because(error))?;
    let versions = Versions::of(&response.api_keys);
    if is_refused {
        // Kafka before 2.4 does not include its versions in the error response.
        let known = versions.highest::<ApiVersionsRequest>(address, version - 1).unwrap_or(0);
        return Ok(Announcement::AskAgain(known));
    }
    check(code, None, format_args!("get the API versions of {address}"))?;
    Ok(Announcement::Versions(versions))
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{CreateTopicsRequest, MetadataRequest};

    use super::*;

    fn versions(key: ApiKey, min: i16, max: i16) -> Versions {
        let api = ApiVersion::default().with_api_key(key as i16);
        Versions::of(&[api.with_min_version(min).with_max_version(max)])
    }

    #[test]
    fn the_highest_common_version_is_taken() {
        let versions = versions(ApiKey::Metadata, 0, 9);
        assert_eq!(versions.highest::<MetadataRequest>("a:1", i16::MAX).ok(), Some(9));
        assert_eq!(versions.highest::<MetadataRequest>("a:1", 4).ok(), Some(4));
    }

    #[test]
    fn requests_without_a_common_version_are_refused_by_name() {
        for (versions, why) in [
            (
                versions(ApiKey::CreateTopics, 0, 1),
                "it supports versions 0 to 1, this client 2 to 7",
            ),
            (versions(ApiKey::Metadata, 0, 9), "it does not know this request"),
        ] {
            let error = versions.highest::<CreateTopicsRequest>("a:1", i16::MAX);
            let error = error.expect_err("nothing in common");
            assert_eq!(error.to_string(), "broker a:1 does not support CreateTopics");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            let source = std::error::Error::source(&error).map(ToString::to_string);
            assert_eq!(source.as_deref(), Some(why));
        }
    }
}
