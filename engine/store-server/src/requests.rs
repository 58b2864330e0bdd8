//! Execution of requests on the served store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use hyper::header::HeaderValue;
use hyper::{Method, Request, Response, StatusCode};
use image::{Arrival, FolderStore, ImageError, ImageErrorKind, ImageStore, ObjectName};
use program::ArrivingBody;
use storage::AlignedBuffer;
use tokio::time::{Instant, timeout_at};

use crate::clients::Visit;
use crate::quota::Quota;
use crate::wire::{
    ALIGNMENT_BYTES, ERROR_HEADER, FREE, Kind, READ_BYTES_MAX, REMOVED_BYTES_MAX,
    REMOVED_COUNT_MAX, TAKEN, Target, VERSION, VERSION_HEADER, WireError, body_bytes_max,
    extracts_in, image_name, parameter, transfer_seconds_max,
};
use crate::work::{Busy, Work};

/// Size of the pieces in which a body is received and written.
const PIECE_BYTES: usize = 1 << 20;

/// Maximum time to receive a body, in addition to the time for its bytes at the minimum rate.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

pub(crate) type Answer = Response<Full<Bytes>>;

/// A store and its limits.
pub(crate) struct Served {
    pub(crate) store: Arc<FolderStore>,
    pub(crate) quota: Arc<Quota>,
    pub(crate) work: Work,
}

/// Error response.
struct Refusal {
    kind: WireError,
    why: String,
}

impl From<Busy> for Refusal {
    fn from(_: Busy) -> Self {
        let why = "the server's disk does not respond, or it has too many requests";
        Self { kind: WireError::Busy, why: why.to_owned() }
    }
}

impl From<ImageError> for Refusal {
    fn from(error: ImageError) -> Self {
        // The client names the operation and the kind itself.
        let causes = std::iter::successors(std::error::Error::source(&error), |it| it.source());
        let causes: Vec<_> = causes.map(ToString::to_string).collect();
        let why = match causes.is_empty() {
            true => error.to_string(),
            false => causes.join(": "),
        };
        Self { kind: WireError::Image(error.kind), why }
    }
}

fn invalid(why: impl Into<String>) -> Refusal {
    Refusal { kind: WireError::Image(ImageErrorKind::Invalid), why: why.into() }
}

/// Parsed target and parameters of a request.
struct Asked {
    target: Target,
    offset: Option<u64>,
    length: Option<u64>,
    /// Number of a manifest to look for after an extract is stored.
    look: Option<u32>,
}

impl Served {
    pub(crate) async fn answer(&self, request: Request<ArrivingBody>, visit: &Visit) -> Answer {
        visit.begin_request();
        let answered = self.try_answer(request, visit).await;
        let answer = answered.unwrap_or_else(|refusal| refuse(refusal.kind, refusal.why));
        visit.sent(answer.body().size_hint().lower());
        answer
    }

    async fn try_answer(
        &self,
        request: Request<ArrivingBody>,
        visit: &Visit,
    ) -> Result<Answer, Refusal> {
        let asked = parse(&request)?;
        match (request.method(), asked.target) {
            (&Method::GET, Target::All(kind)) => self.list(kind).await,
            (&Method::GET, Target::One(object)) => self.read(object, &asked).await,
            (&Method::PUT, Target::One(object)) => {
                self.receive(object, &asked, request.into_body(), visit).await
            }
            (&Method::POST, Target::One(ObjectName::Image(number))) => {
                let store = Arc::clone(&self.store);
                self.work.run(move || store.confirm_image(number)).await??;
                Ok(done())
            }
            (&Method::DELETE, Target::One(object)) => {
                let store = Arc::clone(&self.store);
                self.work.run(move || store.remove(object)).await??;
                self.quota.forget();
                Ok(done())
            }
            (&Method::DELETE, Target::All(Kind::Journal)) => {
                self.remove_extracts(request.into_body(), visit).await
            }
            (method, _) => Err(invalid(format!("{method} is not possible here"))),
        }
    }

    async fn list(&self, kind: Kind) -> Result<Answer, Refusal> {
        let store = Arc::clone(&self.store);
        let text = self.work.run(move || list(&store, kind)).await??;
        Ok(answer(StatusCode::OK, text.into()))
    }

    async fn read(&self, object: ObjectName, asked: &Asked) -> Result<Answer, Refusal> {
        let (Some(offset), Some(length)) = (asked.offset, asked.length) else {
            return Err(invalid("a read needs offset and length"));
        };
        let length = usize::try_from(length).ok().filter(|it| (1..=READ_BYTES_MAX).contains(it));
        let Some(length) = length else {
            return Err(invalid(format!("a read has 1 to {READ_BYTES_MAX} bytes")));
        };
        let store = Arc::clone(&self.store);
        let read = move || {
            let mut bytes = AlignedBuffer::zeroed(length);
            store.read(object, offset, &mut bytes).map(|()| Bytes::from_owner(Sent(bytes)))
        };
        Ok(answer(StatusCode::OK, self.work.run(read).await??))
    }

    /// Removes the extracts that a body names: none, unless it is valid as a whole.
    async fn remove_extracts(
        &self,
        mut body: ArrivingBody,
        visit: &Visit,
    ) -> Result<Answer, Refusal> {
        let total = length_of(&body)?;
        if total > REMOVED_BYTES_MAX {
            let why = format!("a removal names at most {REMOVED_COUNT_MAX} extracts");
            return Err(invalid(why));
        }
        let mut rest = Bytes::new();
        let arriving = next_piece((&mut body, &mut rest), total);
        let names = timeout_at(deadline_of(total), arriving).await.map_err(|_| too_slow())??;
        visit.received(total);
        let names = extracts_in(&names);
        let names = names.ok_or_else(|| invalid("a removal has a line for each extract"))?;
        if names.is_empty() {
            return Ok(done());
        }
        let store = Arc::clone(&self.store);
        let removed = self.work.run(move || store.remove_extracts(&names)).await;
        // After a failure, some may be removed.
        self.quota.forget();
        removed??;
        Ok(done())
    }

    /// Receives an object or a part. Each piece is written as soon as it is there.
    async fn receive(
        &self,
        object: ObjectName,
        asked: &Asked,
        mut body: ArrivingBody,
        visit: &Visit,
    ) -> Result<Answer, Refusal> {
        let total = length_of(&body)?;
        let offset = asked.offset.unwrap_or(0);
        if total > body_bytes_max(object) || !(total | offset).is_multiple_of(ALIGNMENT_BYTES) {
            return Err(invalid(format!("{total} bytes at {offset} cannot be stored here")));
        }
        let deadline = deadline_of(total);
        let mut receiving = Receiving { arrival: None };
        let (mut left, mut rest) = (total, Bytes::new());
        loop {
            let piece = timeout_at(deadline, next_piece((&mut body, &mut rest), left)).await;
            let piece = piece.map_err(|_| too_slow())??;
            left -= piece.len() as u64;
            visit.received(piece.len() as u64);
            let (arrival, store) = (receiving.arrival.take(), Arc::clone(&self.store));
            let (is_first, is_last) = (left + piece.len() as u64 == total, left == 0);
            if is_first {
                self.accept(object, total).await?;
            }
            let length = asked.length;
            let write = move || -> Result<Option<Arrival>, ImageError> {
                let mut arrival = match (arrival, object) {
                    (Some(arrival), _) => arrival,
                    (None, ObjectName::Extract(name)) if is_last && !piece.is_empty() => {
                        return store.put_extract(name, &piece).map(|()| None);
                    }
                    (None, _) => store.receive(object, offset)?,
                };
                if !piece.is_empty() {
                    arrival.append(&piece)?;
                }
                match is_last {
                    true => arrival.finish(length).map(|()| None),
                    false => Ok(Some(arrival)),
                }
            };
            if !is_last {
                receiving.arrival = self.work.run(write).await??;
                continue;
            }
            let (store, look) = (Arc::clone(&self.store), asked.look);
            let finish = move || -> Result<Answer, ImageError> {
                write()?;
                let Some(number) = look else { return Ok(done()) };
                let found = if store.has_image(number)? { TAKEN } else { FREE };
                Ok(answer(StatusCode::OK, found.into()))
            };
            return Ok(match look {
                // Flushes wait for it.
                Some(_) => self.work.run_here(finish).await??,
                None => self.work.run(finish).await??,
            });
        }
    }

    /// Checks the limit of the store, if it has one, and counts the bytes towards it.
    async fn accept(&self, object: ObjectName, more: u64) -> Result<(), Refusal> {
        if self.quota.bytes_max().is_none() {
            return Ok(());
        }
        let (quota, store) = (Arc::clone(&self.quota), Arc::clone(&self.store));
        Ok(self.work.run(move || quota.take(&store, object, more)).await??)
    }
}

/// Upload between two pieces. If its request is cancelled, it is dropped on a blocking thread.
struct Receiving {
    arrival: Option<Arrival>,
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if let Some(arrival) = self.arrival.take() {
            tokio::task::spawn_blocking(move || drop(arrival));
        }
    }
}

/// Response body that is sent from the buffer into which it was read.
struct Sent(AlignedBuffer);

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn parse(request: &Request<ArrivingBody>) -> Result<Asked, Refusal> {
    let uri = request.uri();
    let unknown = || invalid(format!("there is no {:?}; this is version {VERSION}", uri.path()));
    let target = Target::parse(uri.path()).ok_or_else(unknown)?;
    let query = uri.query().unwrap_or_default();
    let number = |name| {
        parameter(query, name).map_err(|()| invalid(format!("{name} is not a whole number")))
    };
    let look = number("look")?.map(u32::try_from).transpose();
    let look = look.map_err(|_| invalid("look is not the number of an image"))?;
    Ok(Asked { target, offset: number("offset")?, length: number("length")?, look })
}

fn length_of(body: &ArrivingBody) -> Result<u64, Refusal> {
    let missing = || invalid("the length of the body is missing (Content-Length)");
    body.size_hint().exact().ok_or_else(missing)
}

/// Returns the time until which a body must have arrived.
fn deadline_of(length_bytes: u64) -> Instant {
    Instant::now() + BODY_TIME_MAX + Duration::from_secs(transfer_seconds_max(length_bytes))
}

fn too_slow() -> Refusal {
    invalid("the body arrives too slowly")
}

/// Reads the next piece of a body: [`PIECE_BYTES`], or all that is left.
async fn next_piece(
    (body, rest): (&mut ArrivingBody, &mut Bytes),
    left: u64,
) -> Result<AlignedBuffer, Refusal> {
    let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
    let mut piece = AlignedBuffer::with_capacity(wanted);
    while piece.len() < wanted {
        if rest.is_empty() {
            let frame = body.frame().await.ok_or_else(|| invalid("the body is too short"))?;
            let frame = frame.map_err(|error| invalid(format!("cannot read the body: {error}")))?;
            *rest = frame.into_data().unwrap_or_default();
        }
        let taken = rest.split_to(rest.len().min(wanted - piece.len()));
        piece.extend_from_slice(&taken);
    }
    Ok(piece)
}

fn list(store: &FolderStore, kind: Kind) -> Result<String, ImageError> {
    let lines: Vec<(String, u64)> = match kind {
        Kind::Images => {
            store.images()?.into_iter().map(|(it, bytes)| (image_name(it), bytes)).collect()
        }
        Kind::Packs => {
            store.packs()?.into_iter().map(|(it, bytes)| (it.to_string(), bytes)).collect()
        }
        Kind::Journal => {
            store.extracts()?.into_iter().map(|(it, bytes)| (it.to_string(), bytes)).collect()
        }
    };
    Ok(lines.into_iter().map(|(name, bytes)| format!("{name} {bytes}\n")).collect())
}

fn done() -> Answer {
    answer(StatusCode::NO_CONTENT, Bytes::new())
}

pub(crate) fn refuse(kind: WireError, why: String) -> Answer {
    let (name, status) = kind.name();
    let mut answer = answer(status, why.into());
    answer.headers_mut().insert(ERROR_HEADER, HeaderValue::from_static(name));
    answer
}

fn answer(status: StatusCode, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(VERSION_HEADER, HeaderValue::from_static(VERSION));
    answer
}
