//! The messages of both mechanisms: what a server reads and writes, and the nonces in them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::{SaslError, SaslErrorKind};
use crate::keys::ScramKeys;
use crate::text::{self, NAME_BYTES_MAX, SECRET_BYTES_MAX};

/// Longest message that is looked at.
pub const MESSAGE_BYTES_MAX: usize = 4096;

/// Random bytes of a nonce before they become text.
const NONCE_BYTES: usize = 24;

/// Longest nonce of one side, in characters.
const NONCE_CHARS_MAX: usize = 256;

/// One side's share of the nonce that ties the messages of an exchange together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nonce(String);

impl Nonce {
    /// From bytes that nothing can foresee.
    pub fn from_bytes(bytes: [u8; NONCE_BYTES]) -> Self {
        Self(BASE64.encode(bytes))
    }

    /// From bytes of the system's generator.
    pub fn random() -> Result<Self, SaslError> {
        let mut bytes = [0; NONCE_BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| {
            let what = "the system gives no random bytes for a nonce";
            SaslError::new(SaslErrorKind::Randomness, what)
        })?;
        Ok(Self::from_bytes(bytes))
    }

    /// Parses the name as clients may choose it: printable ASCII without a comma.
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

/// The one message of PLAIN.
pub struct PlainLogin<'a> {
    /// On behalf of whom, if that is named.
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

/// The client's first message of SCRAM.
#[derive(Debug)]
pub struct ClientFirst {
    /// On behalf of whom, if that is named.
    pub authorization: Option<String>,
    pub name: String,
    pub nonce: Nonce,
    /// What the client's last message must repeat.
    gs2_header: String,
    /// The part that is signed.
    bare: String,
}

impl ClientFirst {
    /// Optional extensions are ignored, as RFC 5802 asks for; mandatory ones are refused.
    pub fn parse(message: &[u8]) -> Result<Self, SaslError> {
        Self::parse_named(message, None)
    }

    /// Parses as [`ClientFirst::parse`] does, where the client said its name before: what it says
    /// here counts for nothing, and may be empty. Source: PostgreSQL's documentation, "SASL
    /// Authentication".
    pub fn parse_of(message: &[u8], name: &str) -> Result<Self, SaslError> {
        Self::parse_named(message, Some(name))
    }

    fn parse_named(message: &[u8], known: Option<&str>) -> Result<Self, SaslError> {
        let text = text_of(message)?;
        let wrong = || SaslError::malformed("the first SCRAM message does not follow its grammar");
        let (binding, rest) = text.split_once(',').ok_or_else(wrong)?;
        if binding.starts_with("p=") {
            let what = "the client asks for channel binding, which is not offered";
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
            let what = "the client asks for a SCRAM extension that is not there";
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

    /// Joins `message` and the others to the text that both sides sign.
    pub fn auth_message(&self, server_first: &str, message: &ClientFinal) -> Vec<u8> {
        auth_message(&self.bare, server_first, &message.without_proof)
    }
}

/// The server's first message of SCRAM: both nonces, salt and iterations.
pub fn server_first(client: &Nonce, server: &Nonce, keys: &ScramKeys) -> String {
    let salt = BASE64.encode(keys.salt());
    format!("r={}{},s={salt},i={}", client.0, server.0, keys.iterations())
}

/// The client's last message of SCRAM.
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
        let wrong = || SaslError::malformed("the last SCRAM message does not follow its grammar");
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

    /// Returns whether it belongs to this exchange: it repeats both nonces and the header of the
    /// first message, so that nothing on the way has taken channel binding out.
    ///
    /// More may stand before the nonces, as Apache Kafka allows it too: librdkafka 2.0 sends its
    /// own one twice. The proof is over what the client sent in any case.
    pub fn follows(&self, first: &ClientFirst, server: &Nonce) -> bool {
        let own = self.nonce.strip_suffix(server.as_str());
        own.is_some_and(|own| own.ends_with(first.nonce.as_str()))
            && self.gs2_header == first.gs2_header.as_bytes()
    }
}

/// The server's last message of SCRAM: its signature.
pub fn server_final(keys: &ScramKeys, auth_message: &[u8]) -> String {
    format!("v={}", BASE64.encode(keys.server_signature(auth_message)))
}

/// Text that both sides sign: all messages without the proof.
pub(crate) fn auth_message(client_first: &str, server_first: &str, client_final: &str) -> Vec<u8> {
    format!("{client_first},{server_first},{client_final}").into_bytes()
}

/// The message as text, if it is not too long.
pub(crate) fn text_of(message: &[u8]) -> Result<&str, SaslError> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(SaslError::malformed(format!(
            "a SASL message of {} bytes is longer than {MESSAGE_BYTES_MAX}",
            message.len()
        )));
    }
    str::from_utf8(message).map_err(|_| SaslError::malformed("a SASL message is not UTF-8"))
}

/// A letter other than `m`, which would be mandatory, `=` and a value.
fn is_extension(attribute: &str) -> bool {
    let mut chars = attribute.chars();
    let letter = chars.next().is_some_and(|it| it.is_ascii_alphabetic() && it != 'm');
    letter && chars.next() == Some('=') && chars.next().is_some()
}
