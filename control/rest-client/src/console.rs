//! A console before a daemon: where it is, how it is known, and how it knows who asks.

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

/// Where hosts keep the authorities that they believe: as Debian has it, and as Fedora.
const AUTHORITIES: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

const SCHEME: &str = "https://";
const PORT_DEFAULT: u16 = 443;

/// Identity of a console.
#[derive(Clone, Debug)]
pub enum ConsoleTrust {
    /// By the fingerprint of its certificate, whatever else that says.
    Pinned(Pin),
    /// By a certificate for its name that is in this file, or that one in it signed.
    Signed(PathBuf),
    /// By one that an authority of this host signed.
    Host,
}

/// A console, and who asks it.
#[derive(Debug)]
pub struct Console {
    /// An IPv6 address has its brackets.
    host: String,
    port: u16,
    name: ServerName<'static>,
    trust: Trust,
    /// The authorities are those of the host.
    is_host_trust: bool,
    proof: Proof,
}

/// Proof to a console of who asks.
#[derive(Debug)]
pub enum Proof {
    Token(Token),
    /// Of a login by a password.
    Session(Session),
    /// Not at all: whoever asks may log in, and no more.
    Nothing,
}

impl Console {
    /// Returns whether the URL is one of a console.
    pub fn is_named_by(url: &str) -> bool {
        url.starts_with(SCHEME)
    }

    /// The console at `https://HOST:PORT`.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the URL or with a file of certificates.
    pub fn new(url: &str, trust: &ConsoleTrust, proof: Proof) -> Result<Self, String> {
        let authority = url.strip_prefix(SCHEME);
        let authority = authority.ok_or_else(|| refused(url, "write https://HOST:PORT"))?;
        let (host, port) = host_and_port(url, authority, PORT_DEFAULT)?;
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare);
        let name = name.map_err(|_| refused(url, "it names no host"))?;
        let is_host_trust = matches!(trust, ConsoleTrust::Host);
        let trust = match trust {
            ConsoleTrust::Pinned(pin) => Trust::pinned(*pin),
            ConsoleTrust::Signed(path) => Trust::signed(path)?,
            ConsoleTrust::Host => Trust::signed(&authorities_of_host()?)?,
        };
        Ok(Self { host, port, name, trust, is_host_trust, proof })
    }

    /// Host and port as a URL has them.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub(crate) fn socket_address(&self) -> (&str, u16) {
        (self.host.trim_start_matches('[').trim_end_matches(']'), self.port)
    }

    /// The same console, which knows by a session who asks.
    pub(crate) fn within(&self, session: Session) -> Self {
        let Self { host, port, name, trust, is_host_trust, .. } = self;
        let (name, trust) = (name.clone(), trust.clone());
        let (host, proof) = (host.clone(), Proof::Session(session));
        Self { host, port: *port, name, trust, is_host_trust: *is_host_trust, proof }
    }

    /// The headers that say who asks.
    pub(crate) fn proof(&self) -> Vec<(HeaderName, HeaderValue)> {
        match &self.proof {
            Proof::Token(token) => vec![(header::AUTHORIZATION, token.authorization())],
            Proof::Session(session) => session.headers(),
            Proof::Nothing => Vec::new(),
        }
    }

    /// Encrypts the connection, whose other end has to prove who it is.
    pub(crate) async fn encrypt(
        &self,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, RestError> {
        let (connector, seen) = self.trust.connector();
        connector.connect(self.name.clone(), stream).await.map_err(|error| {
            let place = format!("https://{}", self.authority());
            let Some(pin) = seen.unbelieved() else {
                return RestError::Unreachable(format!("no TLS with {place}: {error}"));
            };
            let advice = match self.is_host_trust {
                true => {
                    "compare it with what the console logged when it started, and name it with \
                     --pin; or name the console's certificate with --ca"
                }
                false => "nothing was sent to it; compare it with what the console logged",
            };
            RestError::Other(format!(
                "the certificate of {place} is not believed ({error}). Its SHA-256 is {pin}: \
                 {advice}"
            ))
        })
    }
}

fn authorities_of_host() -> Result<PathBuf, String> {
    let found = AUTHORITIES.iter().map(PathBuf::from).find(|path| path.exists());
    found.ok_or_else(|| {
        "this host has no list of authorities; name the console's certificate with --pin or --ca"
            .to_owned()
    })
}
