//! Opening of an image store by its location.

use std::path::Path;
use std::sync::{Arc, Once};
use std::time::Duration;

use image::{FolderStore, ImageError, ImageErrorKind, ImageStore};
use object_store::RetryConfig;
use object_store::aws::AmazonS3Builder;

use crate::credentials::Credentials;
use crate::failure::image_error;
use crate::found_credentials::FoundCredentials;
use crate::object_images::ObjectImages;

/// Limits on retries when the network or the server fails.
const RETRY_DURATION_MAX: Duration = Duration::from_secs(30);

const RETRIES_MAX: usize = 6;

/// Access mode of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    /// For claiming it. No other process on this host can open the same folder for writing.
    Write,
}

/// Opens the store at `place`: `s3://BUCKET/PREFIX`, `file:///FOLDER`, or the path of a folder.
///
/// S3 is configured by the usual variables: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
/// `AWS_SESSION_TOKEN`, `AWS_REGION`, and for other servers `AWS_ENDPOINT_URL`, with
/// `AWS_ALLOW_HTTP=true` if without TLS. Keys in the file `credentials` take precedence over
/// variables, which all child processes would inherit.
pub fn open_store(
    place: &str,
    access: Access,
    credentials: Option<&Path>,
) -> Result<Arc<dyn ImageStore>, ImageError> {
    let (scheme, rest) = place.split_once("://").unwrap_or(("file", place));
    match scheme {
        "file" if rest.starts_with('/') => open_folder(Path::new(rest), access),
        "file" => Err(invalid(place, "a folder is named by its whole path, from /")),
        "s3" => open_s3(place, rest, builder(credentials)?),
        _ => Err(invalid(place, "images lie in s3://BUCKET/PREFIX or in a folder")),
    }
}

fn builder(credentials: Option<&Path>) -> Result<AmazonS3Builder, ImageError> {
    let builder = AmazonS3Builder::from_env();
    let Some(path) = credentials else { return Ok(builder) };
    let read = Credentials::read(path).map_err(|source| {
        let attempt = format!("read the credentials in {}", path.display());
        ImageError::new(ImageErrorKind::Invalid, attempt).with_source(source)
    });
    Ok(read?.give_to(builder))
}

fn open_folder(path: &Path, access: Access) -> Result<Arc<dyn ImageStore>, ImageError> {
    Ok(match access {
        Access::Read => Arc::new(FolderStore::open(path)?),
        Access::Write => Arc::new(FolderStore::open_alone(path)?),
    })
}

pub(crate) fn open_s3(
    place: &str,
    rest: &str,
    builder: AmazonS3Builder,
) -> Result<Arc<dyn ImageStore>, ImageError> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(invalid(place, "the bucket's name is missing"));
    }
    choose_cryptography();
    let retry = RetryConfig {
        max_retries: RETRIES_MAX,
        retry_timeout: RETRY_DURATION_MAX,
        ..RetryConfig::default()
    };
    let attempt = || format!("open the images in {place}");
    let failed = |error| image_error(error, attempt());
    let builder = builder.with_bucket_name(bucket).with_retry(retry);
    let found = Arc::clone(builder.clone().build().map_err(failed)?.credentials());
    let found = FoundCredentials { bucket: bucket.to_owned(), found };
    let objects = builder.with_credentials(Arc::new(found)).build().map_err(failed)?;
    let images = ObjectImages::new(Arc::new(objects), prefix.into());
    let images = images.map_err(|error| {
        ImageError::new(ImageErrorKind::Unavailable, attempt()).with_source(error)
    })?;
    Ok(Arc::new(images))
}

fn choose_cryptography() {
    static CHOSEN: Once = Once::new();
    CHOSEN.call_once(|| {
        // An error means that the process has already installed a provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

fn invalid(place: &str, why: &'static str) -> ImageError {
    ImageError::new(ImageErrorKind::Invalid, format!("open the images in {place}")).with_source(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(place: &str) {
        let error = open_store(place, Access::Read, None).expect_err("it is no place for images");
        assert_eq!(error.kind, ImageErrorKind::Invalid, "{place}");
        assert!(error.to_string().contains(place), "{error}");
    }

    /// Goal: without keys, on a host without a metadata service, the error says what is missing.
    #[test]
    fn a_store_without_keys_fails_for_lack_of_credentials() {
        let builder = AmazonS3Builder::new().with_metadata_endpoint("http://127.0.0.1:9");
        let store = open_s3("s3://bucket/a", "bucket/a", builder).expect("it is not used yet");
        let error = store.images().expect_err("there are no keys");
        assert_eq!(error.kind, ImageErrorKind::Denied, "{error:?}");
        let told = error.source.expect("the cause").to_string();
        assert!(told.contains("no credentials were found"), "{told}");
        assert!(told.contains("AWS_ACCESS_KEY_ID") && told.contains("refused"), "{told}");
    }

    #[test]
    fn places_that_are_none_are_refused_by_name() {
        check_refused("ftp://server/images");
        check_refused("images");
        check_refused("file://images");
        check_refused("s3:///prefix");
    }
}
