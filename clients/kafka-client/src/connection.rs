//! One connection to a broker. Requests are sent in the order in which they are submitted, and
//! responses arrive in that order.
//!
//! ```text
//! caller ──queue──▶ writer ──socket──▶ broker
//!                     │ in flight, bounded
//! caller ◀─response── reader ◀─socket── broker
//! ```
//!
//! The writer registers each request as in flight before it sends it, and pauses at the limit of
//! requests in flight. The reader passes each response to the oldest request in flight; a different
//! correlation id ends the connection. After an error, all pending requests fail with it.

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::error::{ClientError, ErrorKind};
use crate::settings::Settings;
use crate::transport::{self, LENGTH_BYTES, Stream, Transport};
use crate::versions::{self, Announcement, VERSION_FIRST, Versions};

/// Maximum number of requests queued for sending.
const QUEUE_REQUESTS_MAX: usize = 16;

/// Offset of the correlation id in a frame: after the length, API key and version.
const CORRELATION_ID_START: usize = LENGTH_BYTES + 4;

/// Connection with negotiated API versions.
#[derive(Debug)]
pub(crate) struct Connection {
    address: Arc<str>,
    queue: mpsc::Sender<Outgoing>,
    versions: Versions,
    settings: Arc<Settings>,
    broken: Arc<OnceLock<ClientError>>,
    tasks: [JoinHandle<()>; 2],
}

/// Event that completes a request.
#[derive(Debug)]
enum Answer {
    Response(oneshot::Sender<Bytes>),
    /// The request has no response and completes when it is sent.
    Sent(oneshot::Sender<Bytes>),
}

#[derive(Debug)]
struct Outgoing {
    frame: BytesMut,
    answer: Answer,
}

/// A request in flight.
#[derive(Debug)]
struct Pending {
    correlation_id: i32,
    answer: oneshot::Sender<Bytes>,
}

/// Handle of a pending response.
pub(crate) struct Waiting<'a, R: Request> {
    connection: &'a Connection,
    response: oneshot::Receiver<Bytes>,
    version: i16,
    /// Deadline, and the timeout that it was computed from.
    deadline: Instant,
    time_max: Duration,
    request: PhantomData<R>,
}

impl Connection {
    pub(crate) async fn open(address: &str, settings: Arc<Settings>) -> Result<Self, ClientError> {
        let connecting =
            transport::connect(address, settings.tls.as_ref(), settings.connect_time_max);
        let waits = || {
            let context = format!("broker {address} has not accepted the connection yet");
            ClientError::new(ErrorKind::TimedOut, context)
        };
        let transport = settings.noticing(waits, connecting).await?;
        let mut connection = Self::over(transport, address, settings);
        connection.versions = connection.announced_versions().await?;
        Ok(connection)
    }

    fn over(transport: Transport, address: &str, settings: Arc<Settings>) -> Self {
        let (queue, requests) = mpsc::channel(QUEUE_REQUESTS_MAX);
        let (in_flight, pending) = mpsc::channel(settings.in_flight_max.max(1));
        let address: Arc<str> = address.into();
        let broken = Arc::new(OnceLock::new());
        let reader = Reader {
            stream: transport.reader,
            pending,
            address: Arc::clone(&address),
            bytes_max: settings.response_bytes_max,
        };
        let tasks = [
            tokio::spawn(write_requests(transport.writer, requests, in_flight)),
            tokio::spawn(read_responses(reader, Arc::clone(&broken))),
        ];
        let versions = Versions::before_announcement();
        Self { address, queue, versions, settings, broken, tasks }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns whether the connection has failed and must be replaced.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.get().is_some() || self.queue.is_closed()
    }

    /// Returns the version to use for `R`.
    pub(crate) fn version_of<R: Request>(&self) -> Result<i16, ClientError> {
        self.version_up_to::<R>(i16::MAX)
    }

    pub(crate) fn version_up_to<R: Request>(&self, version_max: i16) -> Result<i16, ClientError> {
        self.versions.highest::<R>(&self.address, version_max)
    }

    /// Sends a request and waits for its response.
    pub(crate) async fn call<R: Request>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<R::Response, ClientError> {
        self.submit(request, version).await?.response().await
    }

    /// Sends a request as `call` does. The timeout is extended by `held_back`, for which the broker
    /// may delay its response.
    pub(crate) async fn call_held<R: Request>(
        &self,
        request: &R,
        version: i16,
        held_back: Duration,
    ) -> Result<R::Response, ClientError> {
        let time_max = self.settings.request_time_max + held_back;
        self.submit_within(request, version, time_max).await?.response().await
    }

    /// Sends a request without waiting for its response, so that several can be in flight.
    pub(crate) async fn submit<R: Request>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<Waiting<'_, R>, ClientError> {
        self.submit_within(request, version, self.settings.request_time_max).await
    }

    async fn submit_within<R: Request>(
        &self,
        request: &R,
        version: i16,
        time_max: Duration,
    ) -> Result<Waiting<'_, R>, ClientError> {
        let (answer, response) = oneshot::channel();
        let frame = self.encode(request, version)?;
        let waiting = Waiting {
            connection: self,
            response,
            version,
            deadline: Instant::now() + time_max,
            time_max,
            request: PhantomData,
        };
        let outgoing = Outgoing { frame, answer: Answer::Response(answer) };
        match timeout_at(waiting.deadline, self.queue.send(outgoing)).await {
            Ok(Ok(())) => Ok(waiting),
            Ok(Err(_)) => Err(self.failure()),
            Err(_) => Err(waiting.late("cannot send it")),
        }
    }

    /// Sends a request that has no response, and waits until it is written.
    pub(crate) async fn send_only<R: Request>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<(), ClientError> {
        let (answer, response) = oneshot::channel();
        let frame = self.encode(request, version)?;
        let time_max = self.settings.request_time_max;
        let waiting = Waiting::<R> {
            connection: self,
            response,
            version,
            deadline: Instant::now() + time_max,
            time_max,
            request: PhantomData,
        };
        let outgoing = Outgoing { frame, answer: Answer::Sent(answer) };
        match timeout_at(waiting.deadline, self.queue.send(outgoing)).await {
            Ok(Ok(())) => waiting.body().await.map(|_| ()),
            Ok(Err(_)) => Err(self.failure()),
            Err(_) => Err(waiting.late("cannot send it")),
        }
    }

    fn encode<R: Request>(&self, request: &R, version: i16) -> Result<BytesMut, ClientError> {
        let invalid = || {
            let name = versions::name_of(R::KEY);
            ClientError::invalid(format!("cannot send {name} in version {version}"))
        };
        let client_id = StrBytes::from_string(self.settings.client_id.clone());
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_client_id(Some(client_id));
        let mut frame = BytesMut::from(&[0; LENGTH_BYTES][..]);
        header
            .encode(&mut frame, R::header_version(version))
            .and_then(|()| request.encode(&mut frame, version))
            .map_err(|error| invalid().because(error))?;
        let length = i32::try_from(frame.len() - LENGTH_BYTES);
        let length = length.map_err(|error| invalid().because(error))?;
        frame[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        Ok(frame)
    }

    async fn announced_versions(&self) -> Result<Versions, ClientError> {
        let mut version = VERSION_FIRST;
        loop {
            let mut waiting = self.submit(&versions::request(), version).await?;
            waiting.time_max = waiting.time_max.min(self.settings.connect_time_max);
            waiting.deadline = waiting.deadline.min(Instant::now() + waiting.time_max);
            let mut body = waiting.body().await?;
            ResponseHeader::decode(&mut body, 0).map_err(|error| {
                let context = format!("invalid ApiVersions response from {}", self.address);
                ClientError::protocol(context).because(error)
            })?;
            match versions::read(&mut body, version, &self.address)? {
                Announcement::Versions(versions) => return Ok(versions),
                // The version decreases each time, so the loop terminates.
                Announcement::AskAgain(older) => version = older,
            }
        }
    }

    /// Returns the error that ended the connection.
    fn failure(&self) -> ClientError {
        self.broken.get().cloned().unwrap_or_else(|| {
            let context = format!("the connection to broker {} was closed", self.address);
            ClientError::new(ErrorKind::Unreachable, context)
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl<R: Request> Waiting<'_, R> {
    pub(crate) async fn response(self) -> Result<R::Response, ClientError> {
        let version = self.version;
        let address = Arc::clone(&self.connection.address);
        let mut body = self.body().await?;
        let broken = || {
            let name = versions::name_of(R::KEY);
            let context =
                format!("invalid response from broker {address} to {name}, version {version}");
            ClientError::protocol(context)
        };
        ResponseHeader::decode(&mut body, R::Response::header_version(version))
            .map_err(|error| broken().because(error))?;
        let response = R::Response::decode(&mut body, version);
        let response = response.map_err(|error| broken().because(error))?;
        if !body.is_empty() {
            return Err(broken().because(format!("{} bytes too many", body.len())));
        }
        Ok(response)
    }

    /// Waits for the response. Returns its bytes, including the correlation id.
    async fn body(mut self) -> Result<Bytes, ClientError> {
        let connection = self.connection;
        let waits = || {
            let (address, name) = (&connection.address, versions::name_of(R::KEY));
            let context = format!("broker {address} has not answered {name} yet");
            ClientError::new(ErrorKind::TimedOut, context)
        };
        let answered = timeout_at(self.deadline, &mut self.response);
        match connection.settings.noticing(waits, answered).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(_)) => Err(self.connection.failure()),
            Err(_) => Err(self.late("timed out waiting for the response")),
        }
    }

    fn late(&self, what: &str) -> ClientError {
        let name = versions::name_of(R::KEY);
        let address = &self.connection.address;
        let context =
            format!("timed out: broker {address} did not answer {name} within {:?}", self.time_max);
        ClientError::new(ErrorKind::TimedOut, context).because(what)
    }
}

async fn write_requests(
    mut stream: WriteHalf<Box<dyn Stream>>,
    mut requests: mpsc::Receiver<Outgoing>,
    in_flight: mpsc::Sender<Pending>,
) {
    let mut correlation_id = 0_i32;
    while let Some(Outgoing { mut frame, answer }) = requests.recv().await {
        let id = correlation_id.to_be_bytes();
        frame[CORRELATION_ID_START..CORRELATION_ID_START + id.len()].copy_from_slice(&id);
        let sent = match answer {
            Answer::Response(answer) => {
                // If the reader has ended, it has recorded the reason.
                if in_flight.send(Pending { correlation_id, answer }).await.is_err() {
                    return;
                }
                None
            }
            Answer::Sent(sent) => Some(sent),
        };
        // The reader notices the end of the connection as well, and records the reason.
        if stream.write_all(&frame).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        if let Some(sent) = sent {
            // The caller may have timed out.
            let _ = sent.send(Bytes::new());
        }
        correlation_id = correlation_id.wrapping_add(1);
    }
}

struct Reader {
    stream: ReadHalf<Box<dyn Stream>>,
    pending: mpsc::Receiver<Pending>,
    address: Arc<str>,
    bytes_max: usize,
}

/// Reads responses until the connection fails. The reason is recorded before pending requests fail.
async fn read_responses(mut reader: Reader, broken: Arc<OnceLock<ClientError>>) {
    let reason = loop {
        if let Err(error) = reader.read_one().await {
            break error;
        }
    };
    broken.get_or_init(|| reason);
}

impl Reader {
    async fn read_one(&mut self) -> Result<(), ClientError> {
        let mut frame = BytesMut::new();
        transport::read_frame(&mut self.stream, &mut frame, &self.address, self.bytes_max).await?;
        let found = frame.first_chunk().map(|&id| i32::from_be_bytes(id));
        let Ok(Pending { correlation_id, answer }) = self.pending.try_recv() else {
            let context = format!("unexpected response from broker {}", self.address);
            return Err(ClientError::protocol(context));
        };
        if found != Some(correlation_id) {
            let found = found.unwrap_or(-1);
            return Err(ClientError::protocol(format!(
                "broker {} answered request {found} instead of {correlation_id}",
                self.address
            )));
        }
        // The caller may have timed out.
        let _ = answer.send(frame.freeze());
        Ok(())
    }
}
