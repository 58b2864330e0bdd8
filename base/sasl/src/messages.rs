//! Messages of both mechanisms: parsers and encoders for servers, and nonces.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::{SaslError, SaslErrorKind};
use crate::keys::ScramKeys;
use crate::text::{self, NAME_BYTES_MAX, SECRET_BYTES_MAX};

/// Maximum length of a message.
pub const MESSAGE_BYTES_MAX: usize = 4096;

/// Number of random bytes of a nonce, before encoding.
const NONCE_BYTES: usize = 24;

/// Maximum length of one side's nonce, in characters.
const NONCE_CHARS_MAX: usize = 256;

/// Nonce of one side. Both nonces together bind the messages of an exchange to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nonce(String);

impl Nonce {
    /// Encodes random bytes, which must be unpredictable.
    pub fn from_bytes(bytes: [u8; NONCE_BYTES]) -> Self {
        Self(BASE64.encode(bytes))
    }

    /// Generates a nonce with the system's random number generator.
    pub fn random() -> Result<Self, SaslError> {
        let mut bytes = [0; NONCE_BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| {
            let what = "cannot get random bytes for a nonce";
            SaslError::new(SaslErrorKind::Randomness, what)
        })?;
        Ok(Self::from_bytes(bytes))
    }

    /// Parses a nonce of a client: printable ASCII without a comma.
    pub fn from_text(text: &str) -> Result<Self, SaslError> {
        let is_allowed = |byte| matches!(byte, b'!'..=b'~') && byte != b',';
        if text.is_empty() || text.len() > NONCE_CHARS_MAX || !text.bytes().all(is_allowed) {
            return Err(SaslError::malformed(
                "the nonce in the SCRAM message is empty, too long or not printable",
            ));
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The only message of PLAIN.
pub struct PlainLogin<'a> {
    /// Authorization identity, if the client sent one.
    pub authorization: Option<&'a str>,
    pub name: &'a str,
    pub secret: &'a [u8],
}

impl<'a> PlainLogin<'a> {
    pub fn parse(message: &'a [u8]) -> Result<Self, SaslError> {
        let text = text_of(message)?;
        let mut parts = text.split('\0');
        let (Some(authorization), Some(name), Some(secret), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(SaslError::malformed("the PLAIN message does not have three parts"));
        };
        let longest = name.len().max(authorization.len());
        if name.is_empty() || longest > NAME_BYTES_MAX {
            return Err(SaslError::malformed("the name in the PLAIN message is empty or too long"));
        }
        if secret.is_empty() || secret.len() > SECRET_BYTES_MAX {
            let what = "the secret in the PLAIN message is empty or too long";
            return Err(SaslError::malformed(what));
        }
        let authorization = (!authorization.is_empty()).then_some(authorization);
        Ok(Self { authorization, name, secret: secret.as_bytes() })
    }
}

/// The client-first message of SCRAM.
#[derive(Debug)]
pub struct ClientFirst {
    /// Authorization identity, if the client sent one.
    pub authorization: Option<String>,
    pub name: String,
    pub nonce: Nonce,
    /// GS2 header, which the client-final message must repeat.
    gs2_header: String,
    /// The client-first-message-bare, which is part of the AuthMessage.
    bare: String,
}

impl ClientFirst {
    /// Parses the message. Optional extensions are ignored (RFC 5802), mandatory ones are rejected.
    pub fn parse(message: &[u8]) -> Result<Self, SaslError> {
        Self::parse_named(message, None)
    }

    /// Parses the message of a client whose user name is already known. The name in the message is
    /// ignored and may be empty. Source: PostgreSQL's documentation, "SASL Authentication".
    pub fn parse_of(message: &[u8], name: &str) -> Result<Self, SaslError> {
        Self::parse_named(message, Some(name))
    }

    fn parse_named(message: &[u8], known: Option<&str>) -> Result<Self, SaslError> {
        let text = text_of(message)?;
        let wrong = || SaslError::malformed("malformed client-first-message of SCRAM");
        let (binding, rest) = text.split_once(',').ok_or_else(wrong)?;
        if binding.starts_with("p=") {
            let what = "the client requires SCRAM channel binding, which is not supported";
            return Err(SaslError::new(SaslErrorKind::Unsupported, what));
        }
        if binding != "n" && binding != "y" {
            return Err(wrong());
        }
        let (authorization, bare) = rest.split_once(',').ok_or_else(wrong)?;
        let authorization = match authorization {
            "" => None,
            named => Some(text::unescape(named.strip_prefix("a=").ok_or_else(wrong)?)?),
        };
        if bare.starts_with("m=") {
            let what = "the client requires an unsupported SCRAM extension";
            return Err(SaslError::new(SaslErrorKind::Unsupported, what));
        }
        let mut attributes = bare.split(',');
        let name = attributes.next().and_then(|it| it.strip_prefix("n=")).ok_or_else(wrong)?;
        let nonce = attributes.next().and_then(|it| it.strip_prefix("r=")).ok_or_else(wrong)?;
        if !attributes.all(is_extension) {
            return Err(wrong());
        }
        Ok(Self {
            authorization,
            name: known.map_or_else(|| text::unescape(name), |known| Ok(known.to_owned()))?,
            nonce: Nonce::from_text(nonce)?,
            gs2_header: text[..text.len() - bare.len()].to_owned(),
            bare: bare.to_owned(),
        })
    }

    /// Returns the AuthMessage, which both sides sign.
    pub fn auth_message(&self, server_first: &str, message: &ClientFinal) -> Vec<u8> {
        auth_message(&self.bare, server_first, &message.without_proof)
    }
}

/// Encodes the server-first message of SCRAM: both nonces, salt and iteration count.
pub fn server_first(client: &Nonce, server: &Nonce, keys: &ScramKeys) -> String {
    let salt = BASE64.encode(keys.salt());
    format!("r={}{},s={salt},i={}", client.0, server.0, keys.iterations())
}

/// The client-final message of SCRAM.
#[derive(Debug)]
pub struct ClientFinal {
    pub proof: Vec<u8>,
    nonce: String,
    gs2_header: Vec<u8>,
    without_proof: String,
}

impl ClientFinal {
    pub fn parse(message: &[u8]) -> Result<Self, SaslError> {
        let text = text_of(message)?;
        let wrong = || SaslError::malformed("malformed client-final-message of SCRAM");
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or_else(wrong)?;
        let mut attributes = without_proof.split(',');
        let binding = attributes.next().and_then(|it| it.strip_prefix("c=")).ok_or_else(wrong)?;
        let nonce = attributes.next().and_then(|it| it.strip_prefix("r=")).ok_or_else(wrong)?;
        if !attributes.all(is_extension) {
            return Err(wrong());
        }
        Ok(Self {
            proof: BASE64.decode(proof).map_err(|_| wrong())?,
            nonce: nonce.to_owned(),
            gs2_header: BASE64.decode(binding).map_err(|_| wrong())?,
            without_proof: without_proof.to_owned(),
        })
    }

    /// Returns whether the message belongs to this exchange. It must repeat both nonces and the GS2
    /// header of the client-first message, which detects a removed request for channel binding.
    ///
    /// Text before the nonces is accepted, as by Apache Kafka: librdkafka 2.0 sends its own nonce
    /// twice. The proof covers the message as the client sent it.
    pub fn follows(&self, first: &ClientFirst, server: &Nonce) -> bool {
        let own = self.nonce.strip_suffix(server.as_str());
        own.is_some_and(|own| own.ends_with(first.nonce.as_str()))
            && self.gs2_header == first.gs2_header.as_bytes()
    }
}

/// Encodes the server-final message of SCRAM: the ServerSignature.
pub fn server_final(keys: &ScramKeys, auth_message: &[u8]) -> String {
    format!("v={}", BASE64.encode(keys.server_signature(auth_message)))
}

/// Builds the AuthMessage: all messages except the proof.
pub(crate) fn auth_message(client_first: &str, server_first: &str, client_final: &str) -> Vec<u8> {
    format!("{client_first},{server_first},{client_final}").into_bytes()
}

/// Returns the message as text, or an error if it is too long or not UTF-8.
pub(crate) fn text_of(message: &[u8]) -> Result<&str, SaslError> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(SaslError::malformed(format!(
            "a SASL message of {} bytes is longer than {MESSAGE_BYTES_MAX}",
            message.len()
        )));
    }
    str::from_utf8(message).map_err(|_| SaslError::malformed("a SASL message is not UTF-8"))
}

/// Returns whether an attribute is an optional extension: a letter except `m` (mandatory), `=`,
/// value.
fn is_extension(attribute: &str) -> bool {
    let mut chars = attribute.chars();
    let letter = chars.next().is_some_and(|it| it.is_ascii_alphabetic() && it != 'm');
    letter && chars.next() == Some('=') && chars.next().is_some()
}
