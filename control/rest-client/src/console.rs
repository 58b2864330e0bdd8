//! A console in front of a daemon: address, certificate, credentials.

use std::path::PathBuf;

use hyper::header::{self, HeaderName, HeaderValue};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::error::RestError;
use crate::session::Session;
use crate::token::Token;
use crate::trust::{Pin, Trust};
use crate::url::{host_and_port, refused};

/// CA bundles of the host: paths of Debian and Fedora.
const AUTHORITIES: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

const SCHEME: &str = "https://";
const PORT_DEFAULT: u16 = 443;

/// Verification of a console's certificate.
#[derive(Clone, Debug)]
pub enum ConsoleTrust {
    /// Certificate pinning by fingerprint. Nothing else in the certificate is checked.
    Pinned(Pin),
    /// A certificate for the console's name that is in this file or signed by one in it.
    Signed(PathBuf),
    /// A certificate signed by an authority that this host trusts.
    Host,
}

/// A console, and the client's credentials.
#[derive(Debug)]
pub struct Console {
    /// With brackets if it is an IPv6 address.
    host: String,
    port: u16,
    name: ServerName<'static>,
    trust: Trust,
    /// The trusted authorities are those of the host.
    is_host_trust: bool,
    proof: Proof,
}

/// Credentials of the client.
#[derive(Debug)]
pub enum Proof {
    Token(Token),
    /// Session after a password login.
    Session(Session),
    /// No credentials, which only permits to log in.
    Nothing,
}

impl Console {
    /// Returns whether the URL is that of a console (`https`).
    pub fn is_named_by(url: &str) -> bool {
        url.starts_with(SCHEME)
    }

    /// Creates a console from `https://HOST:PORT`.
    ///
    /// # Errors
    /// A sentence that says why the URL or a certificate file is invalid.
    pub fn new(url: &str, trust: &ConsoleTrust, proof: Proof) -> Result<Self, String> {
        let authority = url.strip_prefix(SCHEME);
        let authority = authority.ok_or_else(|| refused(url, "write https://HOST:PORT"))?;
        let (host, port) = host_and_port(url, authority, PORT_DEFAULT)?;
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare);
        let name = name.map_err(|_| refused(url, "its host is not a valid name or address"))?;
        let is_host_trust = matches!(trust, ConsoleTrust::Host);
        let trust = match trust {
            ConsoleTrust::Pinned(pin) => Trust::pinned(*pin),
            ConsoleTrust::Signed(path) => Trust::signed(path)?,
            ConsoleTrust::Host => Trust::signed(&authorities_of_host()?)?,
        };
        Ok(Self { host, port, name, trust, is_host_trust, proof })
    }

    /// Host and port as in a URL.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub(crate) fn socket_address(&self) -> (&str, u16) {
        (self.host.trim_start_matches('[').trim_end_matches(']'), self.port)
    }

    /// Returns this console with a session as credentials.
    pub(crate) fn within(&self, session: Session) -> Self {
        let Self { host, port, name, trust, is_host_trust, .. } = self;
        let (name, trust) = (name.clone(), trust.clone());
        let (host, proof) = (host.clone(), Proof::Session(session));
        Self { host, port: *port, name, trust, is_host_trust: *is_host_trust, proof }
    }

    /// Returns the headers that carry the credentials.
    pub(crate) fn proof(&self) -> Vec<(HeaderName, HeaderValue)> {
        match &self.proof {
            Proof::Token(token) => vec![(header::AUTHORIZATION, token.authorization())],
            Proof::Session(session) => session.headers(),
            Proof::Nothing => Vec::new(),
        }
    }

    /// Performs a TLS handshake and verifies the console's certificate.
    pub(crate) async fn encrypt(
        &self,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, RestError> {
        let (connector, seen) = self.trust.connector();
        connector.connect(self.name.clone(), stream).await.map_err(|error| {
            let place = format!("https://{}", self.authority());
            let Some(pin) = seen.unbelieved() else {
                return RestError::Unreachable(format!(
                    "TLS handshake with {place} failed: {error}"
                ));
            };
            let advice = match self.is_host_trust {
                true => {
                    "compare it with what the console logged when it started, and name it with \
                     --pin; or name the console's certificate with --ca"
                }
                false => "nothing was sent to it; compare it with what the console logged",
            };
            RestError::Other(format!(
                "cannot verify the certificate of {place} ({error}). Its SHA-256 fingerprint is \
                 {pin}: {advice}"
            ))
        })
    }
}

fn authorities_of_host() -> Result<PathBuf, String> {
    let found = AUTHORITIES.iter().map(PathBuf::from).find(|path| path.exists());
    found.ok_or_else(|| {
        "found no CA certificates on this host; name the console's certificate with --pin or --ca"
            .to_owned()
    })
}
