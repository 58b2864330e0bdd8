//! Start of a connection: encryption, startup message and login.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::{LoginStep, Logins, Principal, owner_of};
use bytes::{Buf, BytesMut};
use program::Seat;
use sasl::{Mechanism, Nonce, ScramHash};
use tls::ClientCertificate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;

use super::io::{Io, Stream, Unread};
use super::parameters;
use super::shared::Server;
use super::state::Connection;
use crate::engine::ON_BEHALF_OF;
use crate::error::{SqlError, SqlState};
use crate::host::Client;
use crate::wire::{Request, Startup, take_startup};

/// Time limit for the login of a client.
const LOGIN_TIME_MAX: Duration = Duration::from_secs(30);

/// Maximum size of a login message.
const LOGIN_BYTES_MAX: usize = 10_000;

/// Contents of the client's startup message.
struct Introduction {
    minor_version: u16,
    user: String,
    /// True if the client wants to receive a PostgreSQL server's log.
    is_replication: bool,
    parameters: Vec<(String, String)>,
}

impl Introduction {
    fn new(minor_version: u16, parameters: &[(String, String)]) -> Self {
        let user = parameters.iter().find(|it| it.0 == "user").map(|it| it.1.clone());
        let is_replication = parameters::is_replication(parameters);
        let parameters = parameters::named(parameters);
        Self { minor_version, user: user.unwrap_or_default(), is_replication, parameters }
    }

    /// Returns the principal that the client acts for, if not for itself.
    fn on_behalf_of(&self) -> Result<Option<Principal>, SqlError> {
        let name = self.parameters.iter().rfind(|it| it.0 == ON_BEHALF_OF);
        let principal = name.map(|it| Principal::user(&it.1)).transpose();
        principal.map_err(|error| SqlError::new(SqlState::INVALID_PARAMETER, error.to_string()))
    }
}

/// Serves a connection until it is closed.
pub(super) async fn serve(
    server: &Arc<Server>,
    stream: TcpStream,
    (address, seat): (SocketAddr, Arc<Seat>),
    stops: watch::Receiver<bool>,
) -> io::Result<()> {
    match in_time(begin(server, stream)).await? {
        Begun::Ended => Ok(()),
        Begun::Encrypted(io, introduction, certificate) => {
            let of = Of { address, seat, certificate };
            log_in(server, *io, introduction, of, stops).await
        }
        Begun::Plain(mut io, introduction) => {
            if server.host.tls().is_some() {
                let what = "connection must be encrypted with SSL: connect with sslmode=require";
                let error = SqlError::new(SqlState::AUTHENTICATION, what);
                io.out.error(&error, "FATAL");
                return io.send().await;
            }
            let of = Of { address, seat, certificate: None };
            log_in(server, *io, introduction, of, stops).await
        }
    }
}

/// Tells a client that there are too many connections. Cancel requests are executed nevertheless.
pub(super) async fn refuse(server: &Arc<Server>, stream: TcpStream) -> io::Result<()> {
    let error = SqlError::new(SqlState::TOO_MANY, "sorry, too many clients already");
    match begin(server, stream).await? {
        Begun::Ended => Ok(()),
        Begun::Encrypted(mut io, ..) => {
            io.out.error(&error, "FATAL");
            io.send().await
        }
        Begun::Plain(mut io, ..) => {
            io.out.error(&error, "FATAL");
            io.send().await
        }
    }
}

/// Reads startup messages until the client requests a session or a cancellation.
async fn begin(server: &Server, mut stream: TcpStream) -> io::Result<Begun> {
    let mut input = BytesMut::new();
    loop {
        match first_message(&mut stream, &mut input).await? {
            Startup::Tls => match server.host.tls() {
                Some(acceptor) if input.is_empty() => {
                    stream.write_all(b"S").await?;
                    return begin_encrypted(server, acceptor.accept(stream).await?).await;
                }
                // Plaintext received after the SSLRequest must not become part of the encrypted
                // stream.
                Some(_) => return Err(io::ErrorKind::InvalidData.into()),
                None => stream.write_all(b"N").await?,
            },
            Startup::Gss => stream.write_all(b"N").await?,
            Startup::Cancel { id, secret } => {
                server.registry.cancel_with(id, secret);
                return Ok(Begun::Ended);
            }
            Startup::Begin { minor_version, parameters } => {
                let introduction = Introduction::new(minor_version, &parameters);
                return Ok(Begun::Plain(Box::new(Io::new(stream, input)), introduction));
            }
        }
    }
}

async fn begin_encrypted(server: &Server, mut stream: TlsStream<TcpStream>) -> io::Result<Begun> {
    let mut input = BytesMut::new();
    let first = first_message(&mut stream, &mut input).await?;
    let certificate = ClientCertificate::of(stream.get_ref().1);
    match first {
        Startup::Begin { minor_version, parameters } => {
            let introduction = Introduction::new(minor_version, &parameters);
            let io = Box::new(Io::new(stream, input));
            Ok(Begun::Encrypted(io, introduction, certificate))
        }
        Startup::Cancel { id, secret } => {
            server.registry.cancel_with(id, secret);
            Ok(Begun::Ended)
        }
        Startup::Tls | Startup::Gss => Err(io::ErrorKind::InvalidData.into()),
    }
}

enum Begun {
    /// The connection was only a cancel request.
    Ended,
    Plain(Box<Io<TcpStream>>, Introduction),
    Encrypted(Box<Io<TlsStream<TcpStream>>>, Introduction, Option<ClientCertificate>),
}

/// Origin of a connection.
struct Of {
    address: SocketAddr,
    /// Can be given to another connection until the client is authenticated.
    seat: Arc<Seat>,
    certificate: Option<ClientCertificate>,
}

async fn in_time<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(LOGIN_TIME_MAX, work).await {
        Ok(done) => done,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn first_message(
    stream: &mut (impl Stream + ?Sized),
    input: &mut BytesMut,
) -> io::Result<Startup> {
    loop {
        match take_startup(input) {
            Ok(Some(startup)) => return Ok(startup),
            Ok(None) => {}
            Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
        if stream.read_buf(input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

async fn log_in<S: Stream>(
    server: &Arc<Server>,
    mut io: Io<S>,
    introduction: Introduction,
    of: Of,
    stops: watch::Receiver<bool>,
) -> io::Result<()> {
    if introduction.is_replication {
        io.out.error(&no_replication(), "FATAL");
        return io.send().await;
    }
    let known = in_time(async { Ok(identify(server, &mut io, &introduction, &of).await) }).await?;
    let client = match known {
        Ok(principal) => introduction.on_behalf_of().and_then(|on_behalf_of| {
            let address = of.address;
            let place = server.host.connect(&principal, address.ip())?;
            if !of.seat.hold(owner_of(&principal, address.ip())) {
                let what = "too many connections for this user: one user may not use more \
                            connections than remain free";
                return Err(SqlError::new(SqlState::TOO_MANY, what));
            }
            Ok(Arc::new(Client { principal, on_behalf_of, address, place }))
        }),
        Err(Unread::Invalid(error)) => Err(error),
        Err(Unread::Closed) => return Ok(()),
    };
    let entry = client.and_then(|client| {
        let entry = server.registry.add(Arc::clone(&client))?;
        Ok((client, entry))
    });
    let (client, entry) = match entry {
        Ok(entry) => entry,
        Err(error) => {
            tracing::info!(address = %of.address, %error, "SQL authentication failed");
            io.out.error(&error, "FATAL");
            return io.send().await;
        }
    };
    let mut connection = Connection::new(server, client, entry, stops);
    let Introduction { minor_version, parameters, .. } = introduction;
    if let Err(error) = connection.greet(&mut io.out, minor_version, &parameters) {
        io.out.error(&error, "FATAL");
        return io.send().await;
    }
    connection.serve(&mut io).await
}

fn no_replication() -> SqlError {
    let what = "replication connections are not supported: there is no write-ahead log";
    SqlError::unsupported(what)
        .with_hint("Read changes with SUBSCRIBE, or with a client of Kafka's protocol.")
}

/// Authenticates the client by its certificate or its login.
async fn identify<S: Stream>(
    server: &Server,
    io: &mut Io<S>,
    introduction: &Introduction,
    of: &Of,
) -> Result<Principal, Unread> {
    let policy = server.host.policy();
    let refused = |what: String| Unread::Invalid(SqlError::new(SqlState::INVALID_PASSWORD, what));
    let known = policy.principal(of.certificate.as_ref());
    if let Some(principal) = known.map_err(|error| refused(error.to_string()))? {
        return Ok(principal);
    }
    let name = &introduction.user;
    let mechanism = Mechanism::Scram(ScramHash::Sha256);
    if !policy.logins.mechanisms.contains(&mechanism) {
        return Err(refused(
            "SQL clients require SCRAM-SHA-256 authentication, which is disabled".to_owned(),
        ));
    }
    let mut logins = Logins::new(policy.logins.clone());
    io.out.authentication_sasl(&[mechanism.name()]);
    let mut message = login_message(io).await?;
    let (named, first) = initial_response(&mut message).map_err(Unread::Invalid)?;
    let nonce = Nonce::random().map_err(|error| refused(error.to_string()))?;
    logins
        .handshake_of(name, &named, server.host.users(), nonce)
        .map_err(|refusal| refused(refusal.message))?;
    let mut bytes = first;
    loop {
        match logins.authenticate(&bytes).map_err(|refusal| refused(refusal.message))? {
            LoginStep::Continue(answer) => {
                io.out.authentication_sasl_continue(&answer);
                bytes = login_message(io).await?.to_vec();
            }
            LoginStep::Done { bytes, session } => {
                io.out.authentication_sasl_final(&bytes);
                return Ok(session.principal);
            }
        }
    }
}

async fn login_message<S: Stream>(io: &mut Io<S>) -> Result<bytes::Bytes, Unread> {
    io.send().await.map_err(|_| Unread::Closed)?;
    match io.request(LOGIN_BYTES_MAX).await? {
        Request::Login(bytes) => Ok(bytes),
        _ => Err(Unread::Invalid(SqlError::protocol("expected SASL response"))),
    }
}

/// Parses a SASLInitialResponse: the mechanism's name and the client's first message.
fn initial_response(message: &mut bytes::Bytes) -> Result<(String, Vec<u8>), SqlError> {
    let wrong = || SqlError::protocol("malformed SASLInitialResponse message");
    let end = message.iter().position(|byte| *byte == 0).ok_or_else(wrong)?;
    let name = String::from_utf8(message.split_to(end).to_vec()).map_err(|_| wrong())?;
    message.advance(1);
    let length = message.first_chunk().map(|it| i32::from_be_bytes(*it)).ok_or_else(wrong)?;
    message.advance(4);
    match usize::try_from(length) {
        Ok(length) if length == message.len() => Ok((name, message.to_vec())),
        // -1: the client sent no initial response.
        Err(_) => Ok((name, Vec::new())),
        Ok(_) => Err(wrong()),
    }
}
