//! SASL authentication, before any other request.

use bytes::Bytes;
use kafka_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::StrBytes;
use sasl::{ClientExchange, ClientStep, Nonce};

use crate::connection::Connection;
use crate::error::{ClientError, ErrorKind, check};
use crate::settings::SaslSettings;

/// Maximum number of messages in an exchange. SCRAM takes two.
const MESSAGES_MAX: usize = 4;

/// Runs the SASL exchange. With SCRAM, the broker authenticates itself, too.
pub(crate) async fn authenticate(
    connection: &Connection,
    login: &SaslSettings,
) -> Result<(), ClientError> {
    handshake(connection, login).await?;
    let SaslSettings { mechanism, user, password } = login;
    let nonce = Nonce::random().map_err(|error| refused(connection, login).because(error))?;
    let mut client = ClientExchange::new(*mechanism, user, password, nonce)
        .map_err(|error| refused(connection, login).because(error))?;
    let mut message = Bytes::copy_from_slice(client.first_message());
    for _ in 0..MESSAGES_MAX {
        let answer = exchange(connection, login, message).await?;
        match client.answer(&answer).map_err(|error| refused(connection, login).because(error))? {
            ClientStep::Done => return Ok(()),
            ClientStep::Send(next) => message = Bytes::from(next),
        }
    }
    Err(refused(connection, login)
        .because(format!("SASL authentication did not complete within {MESSAGES_MAX} messages")))
}

fn refused(connection: &Connection, login: &SaslSettings) -> ClientError {
    let address = connection.address();
    let context = format!("broker {address} rejected the SASL authentication of {login:?}");
    ClientError::new(ErrorKind::Authentication, context)
}

async fn handshake(connection: &Connection, login: &SaslSettings) -> Result<(), ClientError> {
    // Since version 1, the exchange uses `SaslAuthenticate` requests.
    const VERSION: i16 = 1;
    let mechanism = StrBytes::from_static_str(login.mechanism.name());
    let request = SaslHandshakeRequest::default().with_mechanism(mechanism);
    let response = connection.call(&request, VERSION).await?;
    let known: Vec<_> = response.mechanisms.iter().map(StrBytes::as_str).collect();
    let known = match &known[..] {
        [] => "it has no SASL mechanism enabled".to_owned(),
        known => format!("it has enabled {}", known.join(", ")),
    };
    check(response.error_code, Some(&known), "choose a SASL mechanism")
        .map_err(|error| refused(connection, login).because(error))
}

/// Sends one message of the exchange and returns the broker's.
async fn exchange(
    connection: &Connection,
    login: &SaslSettings,
    message: Bytes,
) -> Result<Bytes, ClientError> {
    let request = SaslAuthenticateRequest::default().with_auth_bytes(message);
    let version = connection.version_of::<SaslAuthenticateRequest>()?;
    let response = connection.call(&request, version).await?;
    let said = response.error_message.as_deref();
    check(response.error_code, said, "authenticate")
        .map_err(|error| refused(connection, login).because(error))?;
    Ok(response.auth_bytes)
}
