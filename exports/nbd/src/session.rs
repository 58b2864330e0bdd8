//! Server side of one connection, without I/O: first the handshake in [`crate::handshake`], then
//! the transmission phase.
//!
//! A state machine over two buffers. Requests are served in order. Only flushes that may block on a
//! disk can be passed to another thread, which answers them later. A request longer than the
//! buffers is served in pieces: a write takes effect while its payload arrives, and a read is
//! answered in several chunks. So a connection's memory does not depend on the length of its
//! requests.
//!
//! An invalid request fails alone. Only a wrong magic number ends the connection.

use std::sync::Arc;

use block_device::{Action, BLOCK_BYTES, BlockDevice, ByteRange, WriteCache, Zeroes};
use export_kit::{Counters, Traffic};

use crate::agreement::{Agreement, PAYLOAD_BYTES_MAX, Progress, Replies, TlsPolicy};
use crate::buffer::{Input, OUTPUT_STEP_BYTES_MAX, Output};
use crate::contexts::CONTEXT_COUNT_MAX;
use crate::exports::{Client, Export, Exports};
use crate::failure::{Failure, past_the_end};
use crate::flushing::{FLUSH_COUNT_MAX, FlushOrder, FlushQueue};
use crate::handshake::{Handshake, Next};
use crate::reading::{LongRead, READ_STAGED_BYTES_MAX, Step};
use crate::replies::{self, Place};
use crate::transport::MessageEnd;
use crate::wire::{Errno, REQUEST_BYTES, Request, command, command_flag};

// A step starts when the output is not due, and so has room for any reply.
const _: () = assert!(CONTEXT_COUNT_MAX * replies::STATUS_CHUNK_BYTES_MAX <= OUTPUT_STEP_BYTES_MAX);
const _: () = assert!(replies::ERROR_CHUNK_BYTES_MAX <= OUTPUT_STEP_BYTES_MAX);

/// NBD protocol of one connection: turns a client's bytes into device calls and replies.
///
/// A session does no I/O and reads no clock. Its owner moves bytes in and out of the two buffers
/// and does what [`Session::advance`] asks. After [`Progress::Close`] the session has ended. No
/// input makes it panic, grow, or loop forever.
pub struct Session {
    phase: Phase,
    flushes: Option<Arc<FlushQueue>>,
    counters: Arc<Counters>,
}

enum Phase {
    Handshake(Box<Handshake>),
    Transmission(Box<Transmission>),
}

/// State of the transmission phase.
struct Transmission {
    export_name: String,
    device: Arc<dyn BlockDevice>,
    is_read_only: bool,
    agreement: Agreement,
    work: Work,
    /// Queue for flushes that may block on a disk. Without it, the session flushes itself.
    flushes: Option<Arc<FlushQueue>>,
    left_flushes: bool,
    is_broken: bool,
    counters: Arc<Counters>,
}

/// Remaining work of the current request.
enum Work {
    None,
    Write(LongWrite),
    Read(LongRead),
}

/// A write whose payload is still arriving.
struct LongWrite {
    request: Request,
    next: u64,
    left: u32,
    /// Result so far. Once a piece has failed, the rest of the payload is dropped.
    outcome: Result<(), Failure>,
}

impl Session {
    /// Creates a session that flushes devices itself and waits for them.
    pub fn new(exports: Arc<dyn Exports>, client: Client, tls: TlsPolicy) -> Self {
        let handshake = Handshake::new(exports, client, tls);
        let phase = Phase::Handshake(Box::new(handshake));
        Self { phase, flushes: None, counters: Arc::default() }
    }

    /// Passes flushes that may block on a disk to the thread that serves `queue`.
    pub(crate) fn leaving_flushes_to(self, queue: Arc<FlushQueue>) -> Self {
        Self { flushes: Some(queue), ..self }
    }

    /// Counts requests in `counters`.
    pub(crate) fn counted_by(self, counters: Arc<Counters>) -> Self {
        Self { counters, ..self }
    }

    /// Processes input as far as the buffers allow. Blocks only as long as calls of the device do.
    pub fn advance(&mut self, input: &mut Input, output: &mut Output) -> Progress {
        loop {
            let handshake = match &mut self.phase {
                Phase::Transmission(transmission) => return transmission.advance(input, output),
                Phase::Handshake(handshake) => handshake,
            };
            match handshake.step(input, output) {
                Next::Go => {}
                Next::Wait(progress) => return progress,
                Next::Enter(export, agreement) => {
                    self.enter(export, agreement);
                    // The owner must know the export before the first request is served.
                    return Progress::SendOutput;
                }
            }
        }
    }

    fn enter(&mut self, export: Export, agreement: Agreement) {
        self.phase = Phase::Transmission(Box::new(Transmission {
            export_name: export.name,
            is_read_only: export.device.is_read_only(),
            device: export.device,
            agreement,
            work: Work::None,
            flushes: self.flushes.clone(),
            left_flushes: false,
            is_broken: false,
            counters: Arc::clone(&self.counters),
        }));
    }

    /// Continues over TLS after [`Progress::StartTls`], with the client that the TLS handshake
    /// identified.
    pub fn tls_started(&mut self, client: Client) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            panic!("TLS is started during the handshake");
        };
        handshake.tls_started(client);
    }

    /// Canonical name of the export, once the client has selected one.
    pub fn export_name(&self) -> Option<&str> {
        self.transmission().map(|transmission| transmission.export_name.as_str())
    }

    /// Returns what a flush thread needs, once a flush was queued for it.
    pub(crate) fn flush_order(&self) -> Option<FlushOrder> {
        let order = |it: &Transmission| FlushOrder {
            device: Arc::clone(&it.device),
            replies: it.agreement.replies,
        };
        self.transmission().filter(|it| it.left_flushes).map(order)
    }

    /// Position in the stream of replies at the end of the output. Only chunks of different replies
    /// may interleave.
    pub(crate) fn message_end(&self) -> MessageEnd {
        match self.transmission() {
            Some(Transmission { is_broken: true, .. }) => MessageEnd::InsideReply,
            Some(Transmission { work: Work::Read(read), .. }) => read.message_end(),
            _ => MessageEnd::BetweenReplies,
        }
    }

    pub fn traffic(&self) -> Traffic {
        self.counters.traffic()
    }

    fn transmission(&self) -> Option<&Transmission> {
        match &self.phase {
            Phase::Transmission(transmission) => Some(transmission),
            Phase::Handshake(_) => None,
        }
    }
}

impl Transmission {
    /// Serves as many requests as the buffers allow.
    fn advance(&mut self, input: &mut Input, output: &mut Output) -> Progress {
        loop {
            if output.is_due() {
                return Progress::SendOutput;
            }
            let next = match std::mem::replace(&mut self.work, Work::None) {
                Work::None => self.begin(input, output),
                Work::Write(write) => self.continue_write(write, input, output),
                Work::Read(read) => self.continue_read(read, output),
            };
            match next {
                NextStep::Done => {}
                NextStep::Work(work) => self.work = work,
                NextStep::Wait(work, progress) => {
                    self.work = work;
                    return progress;
                }
            }
        }
    }

    fn begin(&mut self, input: &mut Input, output: &mut Output) -> NextStep {
        let Some(header) = input.data().first_chunk::<REQUEST_BYTES>() else {
            return NextStep::Wait(Work::None, Progress::ReceiveInput);
        };
        let Some(request) = Request::parse(header) else {
            return NextStep::Wait(Work::None, Progress::Close);
        };
        input.consume(REQUEST_BYTES);
        match request.command {
            command::READ => self.read(request, output),
            command::WRITE => self.begin_write(request),
            command::DISCONNECT => NextStep::Wait(Work::None, Progress::Close),
            command::BLOCK_STATUS => match self.block_status(request, output) {
                Ok(()) => NextStep::Done,
                Err(failure) => self.finish(request, Err(failure), output),
            },
            _ => {
                let outcome = self.execute(request);
                self.finish(request, outcome, output)
            }
        }
    }

    /// Executes a request without payload whose successful reply has no data.
    fn execute(&mut self, request: Request) -> Result<Answer, Failure> {
        match request.command {
            command::FLUSH => self.flush(request),
            command::TRIM => self.trim(request),
            command::CACHE => self.cache(request),
            command::WRITE_ZEROES => self.write_zeroes(request),
            unknown => Err(Failure::invalid(format!("unknown command {unknown}"))),
        }
    }

    fn flush(&mut self, request: Request) -> Result<Answer, Failure> {
        self.counters.flushes.add(1);
        check_flags(request, command_flag::FUA)?;
        if request.offset != 0 || request.length != 0 {
            return Err(Failure::invalid("a flush must not have an offset or a length"));
        }
        self.flush_device(request)
    }

    fn trim(&mut self, request: Request) -> Result<Answer, Failure> {
        self.counters.discards.add(1);
        check_flags(request, command_flag::FUA)?;
        self.check_change()?;
        let range = self.range(request, Action::Discard)?;
        self.device.discard(range)?;
        self.flush_if_fua(request)
    }

    /// `CACHE` is a no-op, because all data are in memory.
    fn cache(&mut self, request: Request) -> Result<Answer, Failure> {
        check_flags(request, command_flag::FUA)?;
        self.range(request, Action::Read).map(|_| Answer::Now)
    }

    fn write_zeroes(&mut self, request: Request) -> Result<Answer, Failure> {
        self.counters.zeroes.add(1);
        // Zeroing never writes zeros, so it always satisfies `FAST_ZERO`.
        let flags = command_flag::FUA | command_flag::NO_HOLE | command_flag::FAST_ZERO;
        check_flags(request, flags)?;
        self.check_change()?;
        let range = self.range(request, Action::WriteZeroes)?;
        let zeroes = match request.flags & command_flag::NO_HOLE {
            0 => Zeroes::Unmap,
            _ => Zeroes::KeepAllocated,
        };
        self.device.write_zeroes(range, zeroes)?;
        self.flush_if_fua(request)
    }

    fn block_status(&mut self, request: Request, output: &mut Output) -> Result<(), Failure> {
        self.counters.block_statuses.add(1);
        check_flags(request, command_flag::FUA | command_flag::REQ_ONE)?;
        if self.agreement.contexts.is_empty() {
            return Err(Failure::invalid("no metadata context was negotiated"));
        }
        if request.length == 0 {
            return Err(Failure::invalid("block status of length 0 is invalid"));
        }
        let range = self.range(request, Action::ListExtents)?;
        let count_max = match request.flags & command_flag::REQ_ONE {
            0 => replies::EXTENT_COUNT_MAX,
            _ => 1,
        };
        let device = self.device.as_ref();
        let contexts = self.agreement.contexts.iter();
        let told = contexts.map(|granted| {
            let states = granted.context.states(device, range, count_max)?;
            Ok((granted.id, states))
        });
        let told: Vec<_> = told.collect::<Result<_, Failure>>()?;
        let last = told.len() - 1;
        for (index, (id, states)) in told.iter().enumerate() {
            let place = if index == last { Place::Last } else { Place::Inner };
            replies::put_status_chunk(request.cookie, place, *id, states, output);
        }
        Ok(())
    }

    fn begin_write(&mut self, request: Request) -> NextStep {
        self.counters.writes.add(1);
        NextStep::Work(Work::Write(LongWrite {
            outcome: self.check_write(request),
            next: request.offset,
            left: request.length,
            request,
        }))
    }

    fn check_write(&self, request: Request) -> Result<(), Failure> {
        check_flags(request, command_flag::FUA)?;
        self.check_change()?;
        if request.length > PAYLOAD_BYTES_MAX {
            return Err(too_long(Errno::Invalid));
        }
        self.range(request, Action::Write).map(|_| ())
    }

    fn continue_write(
        &mut self,
        mut write: LongWrite,
        input: &mut Input,
        output: &mut Output,
    ) -> NextStep {
        let count = write.piece_bytes(input);
        if count > 0 && write.outcome.is_ok() {
            let piece = &input.data()[..count];
            write.outcome = self.device.write(write.next, piece).map_err(Failure::from);
            if write.outcome.is_ok() {
                self.counters.written_bytes.add(piece.len() as u64);
            }
        }
        input.consume(count);
        write.advance_by(count);
        if write.left > 0 {
            return NextStep::Wait(Work::Write(write), Progress::ReceiveInput);
        }
        let LongWrite { request, outcome, .. } = write;
        let outcome = outcome.and_then(|()| self.flush_if_fua(request));
        self.finish(request, outcome, output)
    }

    fn read(&mut self, request: Request, output: &mut Output) -> NextStep {
        self.counters.reads.add(1);
        let step = match self.check_read(request) {
            Ok(range) => {
                let read = LongRead::new(request, range, self.agreement.replies);
                read.step(&*self.device, output)
            }
            Err(failure) => Step::Failed(failure),
        };
        self.finish_read_step(request, step, output)
    }

    fn check_read(&self, request: Request) -> Result<ByteRange, Failure> {
        let (allowed, too_long_errno) = match self.agreement.replies {
            Replies::Simple => (command_flag::FUA, Errno::Invalid),
            Replies::Structured => (command_flag::FUA | command_flag::DF, Errno::Overflow),
        };
        check_flags(request, allowed)?;
        if request.length > PAYLOAD_BYTES_MAX {
            return Err(too_long(too_long_errno));
        }
        let unfragmented = request.flags & command_flag::DF != 0;
        if unfragmented && request.length > READ_STAGED_BYTES_MAX {
            let message =
                format!("the maximum length with NBD_CMD_FLAG_DF is {READ_STAGED_BYTES_MAX} bytes");
            return Err(Failure::new(Errno::Overflow, message));
        }
        self.range(request, Action::Read)
    }

    fn continue_read(&mut self, read: LongRead, output: &mut Output) -> NextStep {
        let request = read.request();
        let step = read.step(&*self.device, output);
        self.finish_read_step(request, step, output)
    }

    fn finish_read_step(&mut self, request: Request, step: Step, output: &mut Output) -> NextStep {
        match step {
            Step::More(read) => NextStep::Work(Work::Read(read)),
            Step::Done => {
                self.counters.read_bytes.add(u64::from(request.length));
                NextStep::Done
            }
            Step::Failed(failure) => self.finish(request, Err(failure), output),
            Step::Broken => {
                self.counters.count_error();
                self.is_broken = true;
                NextStep::Wait(Work::None, Progress::Close)
            }
        }
    }

    /// Writes the reply to a request that returns no data, or that failed.
    fn finish(
        &mut self,
        request: Request,
        outcome: Result<Answer, Failure>,
        output: &mut Output,
    ) -> NextStep {
        let failure = match outcome {
            Ok(Answer::Later) => return NextStep::Done,
            Ok(Answer::Now) => None,
            Err(failure) => {
                self.counters.count_error();
                Some(failure)
            }
        };
        replies::put_outcome(request.cookie, self.agreement.replies, failure.as_ref(), output);
        NextStep::Done
    }

    /// Returns the range of a request, if it lies inside the device.
    fn range(&self, request: Request, action: Action) -> Result<ByteRange, Failure> {
        let range = ByteRange::new(request.offset, u64::from(request.length));
        let size_bytes = self.device.geometry().size_bytes;
        if range.fits(size_bytes) {
            return Ok(range);
        }
        let message = format!("cannot {action} {range}: the export has {size_bytes} bytes");
        Err(Failure::new(past_the_end(action), message))
    }

    fn check_change(&self) -> Result<(), Failure> {
        if self.is_read_only {
            return Err(Failure::new(Errno::NotPermitted, "the export is read-only"));
        }
        Ok(())
    }

    fn flush_if_fua(&mut self, request: Request) -> Result<Answer, Failure> {
        if request.flags & command_flag::FUA == 0 {
            return Ok(Answer::Now);
        }
        self.flush_device(request)
    }

    /// Flushes a device without write cache at once, because that does not block.
    fn flush_device(&mut self, request: Request) -> Result<Answer, Failure> {
        match (&self.flushes, self.device.write_cache()) {
            (Some(queue), WriteCache::Volatile) => {
                queue.push_bounded(request.cookie, FLUSH_COUNT_MAX).map_err(|_| {
                    let message = format!(
                        "too many pending flushes on this connection; the limit is \
                                 {FLUSH_COUNT_MAX}"
                    );
                    Failure::new(Errno::NoMemory, message)
                })?;
                self.left_flushes = true;
                Ok(Answer::Later)
            }
            _ => {
                self.device.flush()?;
                Ok(Answer::Now)
            }
        }
    }
}

impl LongWrite {
    /// Returns how much of the received payload to write now. Pieces end at block boundaries, so
    /// that each block is written whole.
    fn piece_bytes(&self, input: &Input) -> usize {
        let arrived = input.len();
        let left = bytes_in_memory(self.left);
        if arrived >= left {
            return left;
        }
        if arrived < input.limits().write_piece_bytes_min {
            return 0;
        }
        let cut_bytes = self.next.wrapping_add(arrived as u64) % BLOCK_BYTES as u64;
        arrived - usize::try_from(cut_bytes).expect("a rest is smaller than a block")
    }

    fn advance_by(&mut self, count: usize) {
        // A write outside the device may have any offset. Its payload is dropped.
        self.next = self.next.wrapping_add(count as u64);
        self.left -= u32::try_from(count).expect("a piece is not longer than what is left");
    }
}

/// Thread that answers an executed request.
enum Answer {
    Now,
    /// The flush thread, which has the request in its queue.
    Later,
}

/// Continuation after a step of the state machine.
enum NextStep {
    Done,
    Work(Work),
    Wait(Work, Progress),
}

fn check_flags(request: Request, allowed: u16) -> Result<(), Failure> {
    let wrong = request.flags & !allowed;
    if wrong == 0 {
        return Ok(());
    }
    let command = request.command;
    Err(Failure::invalid(format!("command {command} does not support the flags {wrong:#06x}")))
}

/// Converts a length on the wire to `usize`.
fn bytes_in_memory(length: u32) -> usize {
    usize::try_from(length).expect("this server runs on 64-bit machines")
}

fn too_long(errno: Errno) -> Failure {
    Failure::new(
        errno,
        format!("the request is too long; the maximum is {PAYLOAD_BYTES_MAX} bytes"),
    )
}
