//! Failed requests, and their conversion to image errors with advice.

use std::error::Error;
use std::io;

use image::{ImageError, ImageErrorKind};
use rustls::{AlertDescription, CertificateError};

use crate::wire::WireError;

/// Failure of one attempt.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Error about certificates. A retry is useless until the files change.
    Certificates(String),
    /// The connection failed, or there was no response in time.
    Connection(String),
    /// Error response of the server.
    Refused { kind: WireError, why: String },
    /// Response of a server that does not use this protocol.
    Foreign(String),
}

impl Trouble {
    /// Describes a failed request.
    pub(crate) fn of(error: &reqwest::Error) -> Self {
        match find_tls(error).and_then(explain) {
            Some(why) => Self::Certificates(why),
            None if error.is_timeout() => {
                Self::Connection("the server does not respond in time".to_owned())
            }
            None => Self::Connection(causes(error)),
        }
    }

    /// Returns whether another attempt may succeed.
    pub(crate) fn may_pass(&self) -> bool {
        let is_busy = matches!(self, Self::Refused { kind: WireError::Busy, .. });
        is_busy || matches!(self, Self::Connection(_))
    }

    pub(crate) fn into_error(self, attempt: String, address: &str) -> ImageError {
        let (kind, why) = match self {
            Self::Certificates(why) => (ImageErrorKind::Denied, format!("{address}: {why}")),
            Self::Connection(why) => {
                (ImageErrorKind::Unavailable, format!("cannot reach {address}: {why}"))
            }
            Self::Foreign(why) => (ImageErrorKind::Invalid, format!("{address}: {why}")),
            Self::Refused { kind, why } => {
                let kind = match kind {
                    WireError::Image(kind) => kind,
                    WireError::Busy => ImageErrorKind::Unavailable,
                    WireError::Client => ImageErrorKind::Denied,
                };
                (kind, format!("{address} answered: {why}"))
            }
        };
        ImageError::new(kind, attempt).with_source(why)
    }
}

/// Finds the TLS error in a chain of causes, including errors wrapped in I/O errors.
fn find_tls<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(found) = inner.and_then(|inner| find_tls(inner)) {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// Explains a TLS error if it is about certificates.
fn explain(error: &rustls::Error) -> Option<String> {
    use AlertDescription as Alert;
    let server = "the server's certificate";
    let own = "the server refused store-certificate:";
    Some(match error {
        // The signature is invalid if another authority has the same name.
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => format!("{server} is not signed by an authority in store-ca"),
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("{server} has another name; use a name that it has in store ({error})"),
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => format!("{server} has expired ({error})"),
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => format!("{server} is not valid yet; check the clocks of both hosts ({error})"),
        rustls::Error::InvalidCertificate(_) => format!("{server} is refused: {error}"),
        rustls::Error::AlertReceived(alert) => match alert {
            Alert::UnknownCA => format!("{own} it is not signed by the server's client-ca"),
            Alert::CertificateExpired => format!("{own} it has expired"),
            Alert::CertificateRequired => format!("{own} none was presented"),
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::AccessDenied
            | Alert::DecryptError => format!("{own} {error}"),
            _ => return None,
        },
        _ => return None,
    })
}

/// Formats the causes of an error, without its own text, which repeats the address.
fn causes(error: &reqwest::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| (**error).source());
    let causes: Vec<String> = causes.map(ToString::to_string).collect();
    match causes.is_empty() {
        true => error.to_string(),
        false => causes.join(": "),
    }
}
