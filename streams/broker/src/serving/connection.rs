//! One connection: requests are taken in as they come, and answered in their order.
//!
//! A reader takes requests from the socket. What produce requests bring is in the log before the
//! next one is read; all else is done when its turn to be answered has come, and a produce request
//! behind it is taken in after that: requests take effect in their order. A writer sends the
//! answers. So several produce requests are in flight on a connection, and one flush serves all of
//! them.

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

/// Requests of one connection that wait for their answers; beyond it no more are read.
const IN_FLIGHT_MAX: usize = 64;

/// What an idle connection has to read into.
const IDLE_BUFFER_BYTES: usize = 4 << 10;

/// What a busy one has at least.
const BUSY_BUFFER_BYTES: usize = 256 << 10;

/// Small answers that are ready are sent together, up to this.
const SENT_TOGETHER_BYTES: usize = 64 << 10;

/// A client has so long to say who it is.
const LOGIN_TIME_MAX: Duration = Duration::from_secs(30);

/// A client that asks for nothing for so long is not there any more (Kafka's
/// `connections.max.idle.ms`).
const IDLE_TIME_MAX: Duration = Duration::from_secs(600);

/// The longest request of a client that is not known yet.
const LOGIN_REQUEST_BYTES: usize = 64 << 10;

/// A client that sends no more, or is sent away as the broker stops, has so long to take its
/// answers.
const LINGER_TIME_MAX: Duration = Duration::from_secs(1);

/// Serves a client until it goes, or sends what is no request.
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

/// Takes requests in and sends answers, side by side.
async fn exchange<S>(broker: &Arc<Broker>, client: &Client, stream: &mut S) -> Result<(), Ending>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let (mut from_client, mut to_client) = tokio::io::split(stream);
    let (queue, answers) = mpsc::channel(IN_FLIGHT_MAX);
    let reading = async {
        let read = read(broker, client, &mut from_client, &queue).await;
        // The writer sends what is left, and ends.
        drop(queue);
        read
    };
    let writing = write(broker, client, &mut to_client, answers);
    tokio::pin!(reading, writing);
    tokio::select! {
        read = &mut reading => match read {
            // It may still read. Answers that come later than that reach no reader.
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

/// Ends a connection so that the client reads what was sent: one that is closed over requests which
/// were not read takes answers on their way with it.
async fn linger(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let ending = async {
        stream.shutdown().await?;
        let mut unread = vec![0; IDLE_BUFFER_BYTES];
        while stream.read(&mut unread).await? > 0 {}
        Ok::<(), io::Error>(())
    };
    // Either the client has closed it, or it is closed over its head.
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
    // Of the request that is being read, whose length is known.
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
                // Before there is memory for it.
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
            // What came whole is answered; the rest is for the client to send again.
            _stops = stops.wait_for(|stops| *stops) => return Err(Ending::Stopping),
            read = reading => read.map_err(|_| Ending::Idle)??,
        };
        if read == 0 {
            return Ok(());
        }
        end += read;
    }
}

/// An answer, and what its request takes of the client's quota until it is sent.
struct Queued {
    answer: Answer,
    timed: Option<Timed>,
    undone: Option<Undone>,
    _in_flight: Option<BytesInFlight>,
}

/// Of a request that is done when its turn to be answered has come, until it is done.
type Undone = OwnedRwLockReadGuard<()>;

/// What became of a request.
struct Taken {
    /// `None` where the client wants none.
    answer: Option<Answer>,
    /// Whether the connection goes on.
    goes_on: bool,
    /// Of requests whose times are counted.
    timed: Option<Timed>,
}

impl Taken {
    fn answer(answer: Option<Answer>) -> Self {
        Self { answer, goes_on: true, timed: None }
    }
}

/// Counts a request as in flight, once the principal's quota has room for it.
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

/// Makes sure that `wanted` bytes from `start` on fit, and that there is room for more. The buffer
/// is small where nothing has come, and as large as the longest request else.
fn make_room(buffer: &mut Vec<u8>, start: &mut usize, end: &mut usize, wanted: usize) {
    let held = *end - *start;
    if held == 0 {
        (*start, *end) = (0, 0);
        if buffer.len() > BUSY_BUFFER_BYTES {
            *buffer = vec![0; BUSY_BUFFER_BYTES];
        }
    }
    // A full buffer is a sign of a busy client.
    let is_full = *end == buffer.len();
    if *start + wanted > buffer.len() || is_full {
        buffer.copy_within(*start..*end, 0);
        (*start, *end) = (0, held);
    }
    if wanted > buffer.len() || held == buffer.len() {
        buffer.resize(wanted.max(BUSY_BUFFER_BYTES).max(2 * held), 0);
    }
}

/// The requests of a connection, as they come.
struct Requests<'a> {
    broker: &'a Arc<Broker>,
    client: &'a Client,
    login: Login,
    /// Read by all requests that are not done yet.
    undone: Arc<RwLock<()>>,
}

impl Requests<'_> {
    /// Takes one request in. The log says whose connection ends over one that cannot be read.
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
            tracing::debug!(key = header.api_key, "unknown request");
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
                // All requests before it have taken effect.
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

    /// Remembers that the request is not done, where it is done in its turn.
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

/// The answer is about to go out.
fn answered(broker: &Broker, timed: Option<Timed>) {
    if let Some(timed) = timed {
        broker.counters.answered(timed);
    }
}

/// Waits until all that is acknowledged is stable, or writes into the answer why it is not.
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

/// Sends everything. A client that takes nothing is given up.
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
