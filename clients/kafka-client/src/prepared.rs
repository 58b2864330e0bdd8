//! Requests that are encoded once and sent repeatedly, for measurements. Sending takes no
//! allocation and no copy.
//!
//! A pipe is one socket without TLS. One thread sends and another receives, in the same order; both
//! block. The caller limits the requests in flight. Frames use fixed versions, whose fields have
//! fixed offsets. Opening a pipe fails if the broker does not support these versions.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{Buf, BufMut};
use kafka_protocol::messages::{FetchRequest, ProduceRequest};
use kafka_protocol::protocol::Request;
use record_batch::seal;

use crate::batch::first_batch;
use crate::client::Client;
use crate::error::{ClientError, ErrorKind, check};
use crate::fetch::{FetchLimits, SESSION_EPOCH_NONE};
use crate::producer::Acks;
use crate::transport::{self, LENGTH_BYTES};
use crate::versions::name_of;

/// Versions of the frames: the last ones whose fields have fixed offsets.
const PRODUCE_VERSION: i16 = 7;
const FETCH_VERSION: i16 = 11;

/// Offset of the correlation id in a frame.
const CORRELATION_ID_START: usize = LENGTH_BYTES + 4;

/// Partition to which prepared batches are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProduceTarget {
    pub topic: String,
    pub partition: i32,
    /// With `Acks::None` there are no responses to receive.
    pub acks: Acks,
}

/// A produce request with one batch.
#[derive(Clone, Debug)]
pub struct PreparedProduce {
    frame: Vec<u8>,
    batch_start: usize,
}

impl PreparedProduce {
    pub fn new(target: &ProduceTarget, batch: &[u8]) -> Result<Self, ClientError> {
        const TIME_MAX_MS: i32 = 30_000;
        let too_long = |_| ClientError::invalid("the batch exceeds the maximum request size");
        let mut frame = frame_start(ProduceRequest::KEY, PRODUCE_VERSION);
        frame.put_i16(-1);
        frame.put_i16(target.acks.number());
        frame.put_i32(TIME_MAX_MS);
        frame.put_i32(1);
        put_name(&target.topic, &mut frame)?;
        frame.put_i32(1);
        frame.put_i32(target.partition);
        frame.put_i32(i32::try_from(batch.len()).map_err(too_long)?);
        let batch_start = frame.len();
        frame.put_slice(batch);
        finish(&mut frame)?;
        Ok(Self { frame, batch_start })
    }

    /// The batch, for changes in place. Its length is fixed. Call `seal` afterwards.
    pub fn batch_mut(&mut self) -> &mut [u8] {
        &mut self.frame[self.batch_start..]
    }

    /// Updates the checksum of the batch.
    pub fn seal(&mut self) {
        seal(&mut self.frame[self.batch_start..]);
    }
}

/// Partition to fetch from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchTarget {
    pub topic: String,
    pub partition: i32,
    pub limits: FetchLimits,
}

fn frame_start(key: i16, version: i16) -> Vec<u8> {
    const CLIENT_ID: &str = "memlane";
    let mut frame = vec![0; LENGTH_BYTES];
    frame.put_i16(key);
    frame.put_i16(version);
    frame.put_i32(0);
    put_name(CLIENT_ID, &mut frame).expect("the name is short");
    frame
}

fn put_name(name: &str, frame: &mut Vec<u8>) -> Result<(), ClientError> {
    let length = i16::try_from(name.len());
    let length = length.map_err(|_| ClientError::invalid("the topic name is too long"))?;
    frame.put_i16(length);
    frame.put_slice(name.as_bytes());
    Ok(())
}

fn finish(frame: &mut [u8]) -> Result<(), ClientError> {
    let length = i32::try_from(frame.len() - LENGTH_BYTES);
    let length =
        length.map_err(|_| ClientError::invalid("the request exceeds the maximum request size"))?;
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Connection from which both ends of a pipe are made.
struct Pipe {
    address: String,
    stream: TcpStream,
    bytes_max: usize,
    time_max: Duration,
}

impl Pipe {
    async fn open<R: Request>(
        client: &Client,
        topic: &str,
        partition: i32,
        version: i16,
    ) -> Result<Self, ClientError> {
        let settings = client.settings();
        if settings.tls.is_some() || settings.sasl.is_some() {
            return Err(ClientError::invalid("prepared requests support neither TLS nor SASL"));
        }
        let leaders = client.leaders(topic).await?;
        let leader = usize::try_from(partition).ok().and_then(|at| leaders.get(at));
        let leader = leader.ok_or_else(|| {
            ClientError::invalid(format!("topic {topic:?} has no partition {partition}"))
        })?;
        if leader.version_up_to::<R>(version)? != version {
            let context = format!(
                "the broker {} does not know version {version} of {}",
                leader.address(),
                name_of(R::KEY)
            );
            return Err(ClientError::new(ErrorKind::Unsupported, context));
        }
        let address = leader.address().to_owned();
        let stream = transport::connect_tcp(&address, settings.connect_time_max).await?;
        let time_max = settings.request_time_max;
        let blocking = |stream: TcpStream| {
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(time_max))?;
            stream.set_write_timeout(Some(time_max))?;
            Ok(stream)
        };
        let stream = stream.into_std().and_then(blocking).map_err(|error| {
            let context = format!("cannot wait for the broker {address}");
            ClientError::new(ErrorKind::Unreachable, context).because(error)
        })?;
        Ok(Self { address, stream, bytes_max: settings.response_bytes_max, time_max })
    }

    fn split(self) -> Result<(Outlet, Inlet), ClientError> {
        let second = self.stream.try_clone().map_err(|error| {
            let context = format!("cannot share the connection to the broker {}", self.address);
            ClientError::new(ErrorKind::Unreachable, context).because(error)
        })?;
        let Self { address, stream, bytes_max, time_max } = self;
        let outlet = Outlet { address: address.clone(), stream, time_max, sent: 0 };
        let stream = BufReader::with_capacity(READ_AHEAD_BYTES, second);
        let inlet =
            Inlet { address, stream, response: Vec::new(), bytes_max, time_max, received: 0 };
        Ok((outlet, inlet))
    }
}

/// Size of the read buffer: enough for the responses to many appends. Longer responses bypass it.
const READ_AHEAD_BYTES: usize = 16 << 10;

fn lost(error: io::Error, context: String, time_max: Duration) -> ClientError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            let why = format!("no progress for {time_max:?}");
            ClientError::new(ErrorKind::TimedOut, context).because(why)
        }
        _ => ClientError::new(ErrorKind::Unreachable, context).because(error),
    }
}

/// Sending end of a pipe.
#[derive(Debug)]
struct Outlet {
    address: String,
    stream: TcpStream,
    time_max: Duration,
    sent: i32,
}

impl Outlet {
    fn send(&mut self, frame: &mut [u8]) -> Result<(), ClientError> {
        let id = self.sent.to_be_bytes();
        frame[CORRELATION_ID_START..CORRELATION_ID_START + id.len()].copy_from_slice(&id);
        self.sent = self.sent.wrapping_add(1);
        let failed = || format!("cannot send to the broker {}", self.address);
        self.stream.write_all(frame).map_err(|error| lost(error, failed(), self.time_max))
    }
}

/// Receiving end of a pipe. All responses share one buffer.
#[derive(Debug)]
struct Inlet {
    address: String,
    stream: BufReader<TcpStream>,
    response: Vec<u8>,
    bytes_max: usize,
    time_max: Duration,
    received: i32,
}

impl Inlet {
    /// Receives the response to the oldest request, without its correlation id.
    fn receive(&mut self) -> Result<&[u8], ClientError> {
        let mut length = [0; LENGTH_BYTES];
        self.fill(&mut length)?;
        let length =
            transport::response_bytes(i32::from_be_bytes(length), self.bytes_max, &self.address)?;
        let mut response = std::mem::take(&mut self.response);
        // The buffer grows to the longest response and is overwritten by each one.
        if response.len() < length {
            response.resize(length, 0);
        }
        let filled = self.fill(&mut response[..length]);
        self.response = response;
        filled?;
        let mut body = &self.response[..length];
        let found = body.try_get_i32().unwrap_or(-1);
        let expected = self.received;
        self.received = expected.wrapping_add(1);
        if found != expected {
            let address = &self.address;
            return Err(ClientError::protocol(format!(
                "broker {address} answered request {found} instead of {expected}"
            )));
        }
        Ok(body)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), ClientError> {
        let failed = || format!("no response from the broker {}", self.address);
        self.stream.read_exact(bytes).map_err(|error| lost(error, failed(), self.time_max))
    }
}

/// Pipe of produce requests: batches in, offsets out.
#[derive(Debug)]
pub struct ProducePipe {
    pub sender: ProduceSender,
    pub receiver: ProduceReceiver,
}

#[derive(Debug)]
pub struct ProduceSender(Outlet);

#[derive(Debug)]
pub struct ProduceReceiver {
    inlet: Inlet,
    place: String,
}

impl ProducePipe {
    /// Connects to the leader of the partition.
    pub async fn open(client: &Client, target: &ProduceTarget) -> Result<Self, ClientError> {
        let ProduceTarget { topic, partition, .. } = target;
        let pipe = Pipe::open::<ProduceRequest>(client, topic, *partition, PRODUCE_VERSION).await?;
        let (outlet, inlet) = pipe.split()?;
        let place = format!("append to {topic:?}, partition {partition}");
        Ok(Self { sender: ProduceSender(outlet), receiver: ProduceReceiver { inlet, place } })
    }
}

impl ProduceSender {
    pub fn send(&mut self, produce: &mut PreparedProduce) -> Result<(), ClientError> {
        self.0.send(&mut produce.frame)
    }
}

impl ProduceReceiver {
    /// Waits for the response to the oldest request in flight. Returns the offset of its first
    /// record.
    pub fn receive(&mut self) -> Result<i64, ClientError> {
        let body = self.inlet.receive()?;
        let broken = || ClientError::protocol("invalid response to a produce request");
        let (code, offset) = read_produce(body).ok_or_else(broken)?;
        check(code, None, &self.place)?;
        Ok(offset)
    }
}

/// Returns error code and base offset from a produce response (version 7) for one partition.
fn read_produce(mut body: &[u8]) -> Option<(i16, i64)> {
    let topics = body.try_get_i32().ok()?;
    let name = usize::try_from(body.try_get_i16().ok()?).ok()?;
    body = body.get(name..)?;
    let partitions = body.try_get_i32().ok()?;
    let _partition = body.try_get_i32().ok()?;
    let code = body.try_get_i16().ok()?;
    let offset = body.try_get_i64().ok()?;
    ((topics, partitions) == (1, 1)).then_some((code, offset))
}

/// Pipe of fetch requests: offsets in, batches out.
#[derive(Debug)]
pub struct FetchPipe {
    pub sender: FetchSender,
    pub receiver: FetchReceiver,
}

#[derive(Debug)]
pub struct FetchSender {
    outlet: Outlet,
    frame: Vec<u8>,
    offset_start: usize,
}

#[derive(Debug)]
pub struct FetchReceiver {
    inlet: Inlet,
    place: String,
}

/// A fetch response in the buffer of its pipe.
#[derive(Clone, Copy, Debug)]
pub struct RawFetch<'a> {
    pub high_watermark: i64,
    /// Batches in stored format. The last one may be incomplete.
    pub batches: RawBatches<'a>,
}

/// Iterator over undecoded batches.
#[derive(Clone, Copy, Debug)]
pub struct RawBatches<'a>(&'a [u8]);

/// A batch in stored format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawBatch<'a> {
    pub base_offset: i64,
    pub last_offset: i64,
    pub record_count: i32,
    pub bytes: &'a [u8],
}

impl<'a> RawBatches<'a> {
    pub fn len_bytes(&self) -> usize {
        self.0.len()
    }

    /// Returns the next complete batch.
    pub fn next_batch(&mut self) -> Result<Option<RawBatch<'a>>, ClientError> {
        let Some(header) = first_batch(self.0)? else { return Ok(None) };
        let (bytes, rest) = self.0.split_at(header.size_bytes);
        self.0 = rest;
        Ok(Some(RawBatch {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            record_count: header.record_count,
            bytes,
        }))
    }
}

impl FetchPipe {
    /// Connects to the leader of the partition.
    pub async fn open(client: &Client, target: &FetchTarget) -> Result<Self, ClientError> {
        let FetchTarget { topic, partition, limits } = target;
        let pipe = Pipe::open::<FetchRequest>(client, topic, *partition, FETCH_VERSION).await?;
        let mut frame = frame_start(FetchRequest::KEY, FETCH_VERSION);
        frame.put_i32(-1);
        frame.put_i32(i32::try_from(limits.wait_max.as_millis()).unwrap_or(i32::MAX));
        frame.put_i32(limits.bytes_min);
        frame.put_i32(limits.bytes_max);
        frame.put_i8(0);
        frame.put_i32(0);
        frame.put_i32(SESSION_EPOCH_NONE);
        frame.put_i32(1);
        put_name(topic, &mut frame)?;
        frame.put_i32(1);
        frame.put_i32(*partition);
        frame.put_i32(-1);
        let offset_start = frame.len();
        frame.put_i64(0);
        frame.put_i64(-1);
        frame.put_i32(limits.partition_bytes_max);
        frame.put_i32(0);
        put_name("", &mut frame)?;
        finish(&mut frame)?;
        let (outlet, inlet) = pipe.split()?;
        let place = format!("read from {topic:?}, partition {partition}");
        let sender = FetchSender { outlet, frame, offset_start };
        Ok(Self { sender, receiver: FetchReceiver { inlet, place } })
    }
}

impl FetchSender {
    /// Requests batches from `offset` on.
    pub fn send(&mut self, offset: i64) -> Result<(), ClientError> {
        let field = self.offset_start..self.offset_start + size_of::<i64>();
        self.frame[field].copy_from_slice(&offset.to_be_bytes());
        self.outlet.send(&mut self.frame)
    }
}

impl FetchReceiver {
    /// Waits for the response to the oldest request in flight. The result borrows the buffer, which
    /// the next call overwrites.
    pub fn receive(&mut self) -> Result<RawFetch<'_>, ClientError> {
        let body = self.inlet.receive()?;
        let broken = || ClientError::protocol("invalid response to a fetch request");
        let (code, fetched) = read_fetch(body).ok_or_else(broken)?;
        check(code, None, &self.place)?;
        Ok(fetched)
    }
}

/// Returns error code and batches from a fetch response (version 11) for one partition.
fn read_fetch(mut body: &[u8]) -> Option<(i16, RawFetch<'_>)> {
    const ABORTED_BYTES: usize = 16;
    let nothing = |code| (code, RawFetch { high_watermark: -1, batches: RawBatches(&[]) });
    let _throttle_time = body.try_get_i32().ok()?;
    let code = body.try_get_i16().ok()?;
    let _session = body.try_get_i32().ok()?;
    let topics = body.try_get_i32().ok()?;
    if code != 0 || topics == 0 {
        return Some(nothing(code));
    }
    let name = usize::try_from(body.try_get_i16().ok()?).ok()?;
    body = body.get(name..)?;
    let partitions = body.try_get_i32().ok()?;
    let _partition = body.try_get_i32().ok()?;
    let code = body.try_get_i16().ok()?;
    let high_watermark = body.try_get_i64().ok()?;
    let _last_stable_offset = body.try_get_i64().ok()?;
    let _log_start_offset = body.try_get_i64().ok()?;
    let aborted = usize::try_from(body.try_get_i32().ok()?).unwrap_or(0);
    body = body.get(aborted.checked_mul(ABORTED_BYTES)?..)?;
    let _preferred_replica = body.try_get_i32().ok()?;
    let length = usize::try_from(body.try_get_i32().ok()?).unwrap_or(0);
    let batches = RawBatches(body.get(..length)?);
    ((topics, partitions) == (1, 1)).then_some((code, RawFetch { high_watermark, batches }))
}
