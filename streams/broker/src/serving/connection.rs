//! Client connection: requests are read as they arrive, and answered in order.
//!
//! A reader reads requests from the socket. The records of a produce request are appended to the
//! log before the next request is read. All other requests are executed when it is their turn to be
//! answered, and a later produce request is processed after that, so requests take effect in order.
//! A writer sends the replies. Therefore a connection can have several produce requests in flight,
//! which share one flush.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use access::{BytesInFlight, QuotaError};
use bytes::Bytes;
use kafka::{RequestHeader, WireError};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::ApiKey;
use record_log::LogErrorKind;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedRwLockReadGuard, RwLock, mpsc};

use super::answer::{Answer, ProducedAnswer};
use super::asked::{Asked, bare_refusal};
use super::client::Client;
use super::ending::{Ending, SEND_TIME_MAX};
use super::fetch::{self, FetchJob};
use super::login::Login;
use super::session_cache::Sessions;
use super::{produce, transactional};
use crate::broker::Broker;
use crate::operation::{Counters, Timed};
use crate::requests;
use crate::topics::error_of;

/// Maximum number of unanswered requests of a connection. At the limit, reading pauses.
const IN_FLIGHT_MAX: usize = 64;

/// Size of the read buffer of an idle connection.
const IDLE_BUFFER_BYTES: usize = 4 << 10;

/// Minimum size of the read buffer of a busy connection.
const BUSY_BUFFER_BYTES: usize = 256 << 10;

/// Maximum size of small replies that are sent together.
const SENT_TOGETHER_BYTES: usize = 64 << 10;

/// Maximum time until a client has logged in.
const LOGIN_TIME_MAX: Duration = Duration::from_secs(30);

/// Maximum time without requests, after which the connection is closed (Kafka's
/// `connections.max.idle.ms`).
const IDLE_TIME_MAX: Duration = Duration::from_secs(600);

/// Maximum size of a request of a client that has not logged in.
const LOGIN_REQUEST_BYTES: usize = 64 << 10;

/// Time for a client to read its replies after it closed its side, or when the broker stops.
const LINGER_TIME_MAX: Duration = Duration::from_secs(1);

/// Serves a client until it disconnects or sends an invalid request.
pub(crate) async fn serve<S>(
    broker: Arc<Broker>,
    client: Client,
    mut stream: S,
) -> Result<(), Ending>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let served = exchange(&broker, &client, &mut stream).await;
    if matches!(served, Err(Ending::Stopping)) {
        linger(&mut stream).await;
    }
    served
}

/// Reads requests and sends replies concurrently.
async fn exchange<S>(broker: &Arc<Broker>, client: &Client, stream: &mut S) -> Result<(), Ending>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let (mut from_client, mut to_client) = tokio::io::split(stream);
    let (queue, answers) = mpsc::channel(IN_FLIGHT_MAX);
    let reading = async {
        let read = read(broker, client, &mut from_client, &queue).await;
        // The writer sends the remaining replies and ends.
        drop(queue);
        read
    };
    let writing = write(broker, client, &mut to_client, answers);
    tokio::pin!(reading, writing);
    tokio::select! {
        read = &mut reading => match read {
            // The client may still read. Later replies are dropped.
            Ok(()) => match tokio::time::timeout(LINGER_TIME_MAX, writing).await {
                Ok(written) => written,
                Err(_late) => Ok(()),
            },
            Err(ending) => {
                writing.await?;
                Err(ending)
            }
        },
        written = &mut writing => written,
    }
}

/// Closes a connection such that the client receives all replies. Closing a socket with unread data
/// resets the connection, and discards replies in transit.
async fn linger(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let ending = async {
        stream.shutdown().await?;
        let mut unread = vec![0; IDLE_BUFFER_BYTES];
        while stream.read(&mut unread).await? > 0 {}
        Ok::<(), io::Error>(())
    };
    // Either the client has closed the connection, or the timeout closes it.
    let _either = tokio::time::timeout(LINGER_TIME_MAX, ending).await;
}

async fn read(
    broker: &Arc<Broker>,
    client: &Client,
    from: &mut (impl AsyncRead + Unpin),
    queue: &mpsc::Sender<Queued>,
) -> Result<(), Ending> {
    let mut requests =
        Requests { broker, client, login: Login::new(broker), undone: Arc::default() };
    let mut stops = broker.stops.clone();
    let mut buffer = vec![0; IDLE_BUFFER_BYTES];
    let (mut start, mut end) = (0, 0);
    // Quota of the request that is being read, once its length is known.
    let mut in_flight = None;
    loop {
        if let Some(until) = client.muted_until() {
            tokio::select! {
                _stops = stops.wait_for(|stops| *stops) => return Err(Ending::Stopping),
                () = tokio::time::sleep_until(until.into()) => {}
            }
        }
        let (bytes_max, time_max) = match client.is_known() {
            true => (broker.limits.request_bytes, IDLE_TIME_MAX),
            false => (LOGIN_REQUEST_BYTES.min(broker.limits.request_bytes), LOGIN_TIME_MAX),
        };
        let wanted = match requests.login.frame_bytes(&buffer[start..end], bytes_max)? {
            Some(length) if length <= end - start => {
                let in_flight = match in_flight.take() {
                    Some(in_flight) => in_flight,
                    None => admit(broker, client, length).await?,
                };
                let frame = &mut buffer[start + kafka::LENGTH_BYTES..start + length];
                let Taken { answer, goes_on, timed } = requests.take(frame).await?;
                if let Some(answer) = answer {
                    let undone = requests.note(&answer);
                    let queued = Queued { answer, timed, undone, _in_flight: in_flight };
                    if queue.send(queued).await.is_err() {
                        return Ok(());
                    }
                }
                if !goes_on {
                    return Err(Ending::Refused);
                }
                start += length;
                continue;
            }
            Some(length) => {
                // Checked before memory is allocated for the request.
                if in_flight.is_none() {
                    in_flight = Some(admit(broker, client, length).await?);
                }
                length
            }
            None => kafka::LENGTH_BYTES,
        };
        make_room(&mut buffer, &mut start, &mut end, wanted);
        let reading = tokio::time::timeout(time_max, from.read(&mut buffer[end..]));
        let read = tokio::select! {
            biased;
            // Complete requests are answered. The client must resend an incomplete one.
            _stops = stops.wait_for(|stops| *stops) => return Err(Ending::Stopping),
            read = reading => read.map_err(|_| Ending::Idle)??,
        };
        if read == 0 {
            return Ok(());
        }
        end += read;
    }
}

/// A reply, and the quota of its request until it is sent.
struct Queued {
    answer: Answer,
    timed: Option<Timed>,
    undone: Option<Undone>,
    _in_flight: Option<BytesInFlight>,
}

/// Guard of a request that is executed in its turn, until it is complete.
type Undone = OwnedRwLockReadGuard<()>;

/// Result of reading a request.
struct Taken {
    /// `None` if the client wants no reply.
    answer: Option<Answer>,
    /// True if the connection remains open.
    goes_on: bool,
    /// Set for requests whose latency is measured.
    timed: Option<Timed>,
}

impl Taken {
    fn answer(answer: Option<Answer>) -> Self {
        Self { answer, goes_on: true, timed: None }
    }
}

/// Counts a request as in flight. Waits until the principal's quota has room for it.
async fn admit(
    broker: &Broker,
    client: &Client,
    length: usize,
) -> Result<Option<BytesInFlight>, Ending> {
    let Some(place) = client.place() else { return Ok(None) };
    let note_refusal = |error| {
        Counters::count(match error {
            QuotaError::BytesOfAll => &broker.counters.memory_throttles,
            _ => &broker.counters.throttles,
        });
    };
    Ok(Some(place.admit_in_turn(length as u64, note_refusal).await?))
}

/// Ensures that `wanted` bytes from `start` on fit, and that there is room to read more. The buffer
/// is small while it is empty, and grows to the size of the longest request otherwise.
fn make_room(buffer: &mut Vec<u8>, start: &mut usize, end: &mut usize, wanted: usize) {
    let held = *end - *start;
    if held == 0 {
        (*start, *end) = (0, 0);
        if buffer.len() > BUSY_BUFFER_BYTES {
            *buffer = vec![0; BUSY_BUFFER_BYTES];
        }
    }
    // A full buffer indicates a busy client.
    let is_full = *end == buffer.len();
    if *start + wanted > buffer.len() || is_full {
        buffer.copy_within(*start..*end, 0);
        (*start, *end) = (0, held);
    }
    if wanted > buffer.len() || held == buffer.len() {
        buffer.resize(wanted.max(BUSY_BUFFER_BYTES).max(2 * held), 0);
    }
}

/// Requests of a connection in order of arrival.
struct Requests<'a> {
    broker: &'a Arc<Broker>,
    client: &'a Client,
    login: Login,
    /// Read-locked by each request that waits for its turn, until it is complete.
    undone: Arc<RwLock<()>>,
}

impl Requests<'_> {
    /// Processes one request. A request that cannot be decoded is logged with its client.
    async fn take(&mut self, frame: &mut [u8]) -> Result<Taken, Ending> {
        let has_header = !self.login.is_bare();
        let taken = self.take_known(frame).await;
        if let Err(Ending::Wire(error)) = &taken
            && has_header
            && let Ok(header) = RequestHeader::read(frame)
            && let Some(key) = header.key()
        {
            let (version, correlation_id) = (header.api_version, header.correlation_id);
            let asked = Asked { key, version, correlation_id };
            self.client.note_unreadable(asked, header.client_id, error);
        }
        taken
    }

    async fn take_known(&mut self, frame: &mut [u8]) -> Result<Taken, Ending> {
        let Self { broker, client, login, undone } = self;
        let (broker, client) = (*broker, *client);
        if login.is_bare() {
            broker.counters.request(ApiKey::SaslAuthenticate);
            let answer = login.take_bare(broker, client, frame);
            return Ok(Taken {
                goes_on: answer.is_some(),
                answer: answer.map(Answer::Ready),
                timed: None,
            });
        }
        let header = RequestHeader::read(frame)?;
        let (version, correlation_id) = (header.api_version, header.correlation_id);
        let Some(key) = header.key() else {
            tracing::debug!(key = header.api_key, "unknown API key");
            let error = ResponseError::UnsupportedVersion.code();
            return Ok(Taken::answer(Some(Answer::Ready(bare_refusal(correlation_id, error)))));
        };
        let asked = Asked { key, version, correlation_id };
        broker.counters.request(key);
        tracing::debug!(
            address = %client.address, principal = client.principal(), client = header.client_id,
            request = ?key, version, correlation_id, "a request"
        );
        if !kafka::is_served(key, version) {
            broker.counters.error(key, ResponseError::UnsupportedVersion.code());
            return Ok(Taken::answer(Some(Answer::Ready(requests::not_served(asked)))));
        }
        let body_at = header.body_at;
        if matches!(key, ApiKey::SaslHandshake | ApiKey::SaslAuthenticate) {
            let mut body = Bytes::copy_from_slice(&frame[body_at..]);
            let request = requests::decode(asked, &mut body).map_err(|_| WireError::Length)?;
            let answered = login.take(broker, client, asked, &request).ok_or(WireError::Length)?;
            let answer = Some(Answer::Ready(asked.frame(&answered.response)));
            return Ok(Taken { answer, goes_on: answered.goes_on, timed: None });
        }
        if key != ApiKey::ApiVersions && (!client.is_known() || login.has_expired()) {
            return Err(Ending::NotLoggedIn);
        }
        let timed = Some(Timed::begin(key));
        let answer = match key {
            ApiKey::Produce => {
                // Wait until all earlier requests have taken effect.
                drop(undone.write().await);
                let body = &mut frame[body_at..];
                let (taken, _place) = transactional::check(broker, client, asked, body).await?;
                produce::serve(broker, client, asked, body, &taken)?
            }
            ApiKey::Fetch => Some(Answer::Fetch(Box::new(FetchJob::new(asked, frame, body_at)))),
            _ => {
                let context = requests::Context {
                    broker: Arc::clone(broker),
                    client: client.clone(),
                    client_id: header.client_id.to_owned(),
                    asked,
                };
                let body = Bytes::copy_from_slice(&frame[body_at..]);
                Some(Answer::Later(Box::pin(requests::serve(context, body))))
            }
        };
        Ok(Taken { answer, goes_on: true, timed })
    }

    /// Registers a request that is executed in its turn as incomplete.
    fn note(&self, answer: &Answer) -> Option<Undone> {
        let is_done = matches!(answer, Answer::Ready(_) | Answer::Produced(_));
        let undone = || Arc::clone(&self.undone).try_read_owned();
        (!is_done).then(|| undone().expect("this task alone writes, and has ended that"))
    }
}

async fn write(
    broker: &Arc<Broker>,
    client: &Client,
    to: &mut (impl AsyncWrite + Unpin),
    mut answers: mpsc::Receiver<Queued>,
) -> Result<(), Ending> {
    let sessions = Sessions::new(&broker.sessions);
    let mut held = None;
    loop {
        let Queued { answer, timed, undone, _in_flight } = match held.take() {
            Some(queued) => queued,
            None => match answers.recv().await {
                Some(queued) => queued,
                None => return Ok(()),
            },
        };
        match answer {
            Answer::Ready(mut frame) => {
                answered(broker, timed);
                while frame.len() < SENT_TOGETHER_BYTES {
                    match answers.try_recv() {
                        Ok(Queued { answer: Answer::Ready(more), timed, .. }) => {
                            answered(broker, timed);
                            frame.extend_from_slice(&more);
                        }
                        Ok(other) => {
                            held = Some(other);
                            break;
                        }
                        Err(_) => break,
                    }
                }
                send(to, &mut [IoSlice::new(&frame)]).await?;
            }
            Answer::Produced(answer) => {
                let frame = settle(broker, answer).await;
                answered(broker, timed);
                send(to, &mut [IoSlice::new(&frame)]).await?;
            }
            Answer::Later(answering) => {
                let frame = answering.await.ok_or(Ending::Unreadable)?;
                drop(undone);
                send(to, &mut [IoSlice::new(&frame)]).await?;
            }
            Answer::Fetch(job) => {
                let frame = fetch::serve(broker, client, &sessions, *job).await?;
                drop(undone);
                answered(broker, timed);
                send(to, &mut frame.slices()).await?;
                frame.recycle(broker);
            }
        }
    }
}

/// Records the latency of a reply that is about to be sent.
fn answered(broker: &Broker, timed: Option<Timed>) {
    if let Some(timed) = timed {
        broker.counters.answered(timed);
    }
}

/// Waits until all acknowledged records are stable, or puts the error into the reply.
async fn settle(broker: &Broker, answer: ProducedAnswer) -> Vec<u8> {
    let ProducedAnswer { mut frame, waits, timeout_ms } = answer;
    let time = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    let deadline = tokio::time::Instant::now() + time;
    for wait in waits {
        let stable = tokio::time::timeout_at(deadline, wait.pending.stable()).await;
        let error = match stable {
            Ok(Ok(())) => continue,
            Ok(Err(kind)) => {
                if kind == LogErrorKind::NoSpace {
                    broker.counters.refused_by_full_pool();
                }
                error_of(kind)
            }
            Err(_) => ResponseError::RequestTimedOut,
        };
        broker.counters.error(ApiKey::Produce, error.code());
        produce::set_error(&mut frame, wait.error_at, error);
    }
    frame
}

/// Sends all bytes. Fails if the client does not read for too long.
async fn send(
    to: &mut (impl AsyncWrite + Unpin),
    mut slices: &mut [IoSlice<'_>],
) -> Result<(), Ending> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let sent = tokio::time::timeout(SEND_TIME_MAX, to.write_vectored(slices)).await;
        let sent = sent.map_err(|_| Ending::Stalled)??;
        if sent == 0 {
            return Err(io::Error::from(io::ErrorKind::WriteZero).into());
        }
        IoSlice::advance_slices(&mut slices, sent);
    }
    let flushed = tokio::time::timeout(SEND_TIME_MAX, to.flush()).await;
    Ok(flushed.map_err(|_| Ending::Stalled)??)
}
