//! Credentials that the object store's client finds by itself: configured keys, or those of a cloud
//! host's metadata service. Errors say that credentials are missing and how to configure them.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use object_store::CredentialProvider;
use object_store::aws::{AwsCredential, AwsCredentialProvider};

/// Credentials of the client that was built for a bucket.
#[derive(Debug)]
pub(crate) struct FoundCredentials {
    pub(crate) bucket: String,
    pub(crate) found: AwsCredentialProvider,
}

type Finding<'a> =
    Pin<Box<dyn Future<Output = object_store::Result<Arc<AwsCredential>>> + Send + 'a>>;

impl CredentialProvider for FoundCredentials {
    type Credential = AwsCredential;

    fn get_credential<'a, 'b>(&'a self) -> Finding<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async {
            self.found.get_credential().await.map_err(|source| {
                object_store::Error::Unauthenticated {
                    path: self.bucket.clone(),
                    source: Box::new(NoCredentials(source)),
                }
            })
        })
    }
}

/// Error of a client that has no keys and gets none from the host.
#[derive(Debug)]
struct NoCredentials(object_store::Error);

impl fmt::Display for NoCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no credentials were found; name a file with the keys (credentials in [images]), or \
             set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    }
}

impl Error for NoCredentials {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}
