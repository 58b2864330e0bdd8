//! Handshake: fixed newstyle negotiation, which selects an export and its options.
//!
//! ```text
//! greeting ─▶ client flags ─▶ option, option, … ─▶ EXPORT_NAME or GO ─▶ transmission
//!                               │      ▲
//!                               └▶ STARTTLS: discards everything negotiated so far
//! ```
//!
//! A state machine over two buffers, without I/O. Unknown, malformed and overlong options are
//! answered with an error; their payload is skipped, whatever length it announces.

use std::sync::Arc;
use std::vec;

use crate::agreement::{Agreement, GrantedContext, PAYLOAD_BYTES_MAX, Replies};
use crate::agreement::{Progress, TlsPolicy};
use crate::buffer::{Input, Output};
use crate::contexts::{self, Offer};
use crate::exports::{Client, Export, ExportInfo, Exports};
use crate::options::{self, ContextQuery, ExportQuery, Wants};
use crate::wire::{
    self, CLIENT_FLAGS_BYTES, EXPORT_NAME_ZEROES, GREETING_MAGIC, OPTION_HEADER_BYTES,
    OPTION_MAGIC, OptionHeader, STRING_BYTES_MAX, cut, handshake_flag, info, option, reply,
    transmission_flag,
};

/// Maximum length of an option's payload. Allows for a name and several queries of full length.
const OPTION_BYTES_MAX: u32 = 64 << 10;

/// Maximum number of options in a handshake. A client that sends more is not expected to finish.
const OPTION_COUNT_MAX: usize = 1024;

/// Additional options for each listed export, because clients query information and contexts of
/// each.
const OPTIONS_PER_EXPORT: usize = 8;

const BLOCK_BYTES_MIN: u32 = 1;
const BLOCK_BYTES_PREFERRED: u32 = 4096;

pub(crate) struct Handshake {
    exports: Arc<dyn Exports>,
    client: Client,
    channel: Channel,
    state: State,
    option_count: usize,
    option_count_max: usize,
    no_zeroes: bool,
    replies: Replies,
    chosen: Option<ChosenContexts>,
}

/// Contexts that a client selected, with the export name that it used.
struct ChosenContexts {
    export_name: String,
    contexts: Vec<GrantedContext>,
}

/// Security of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Plain,
    /// STARTTLS must come before any other option.
    PlainUntilTls,
    Tls,
}

enum State {
    Greeting,
    ClientFlags,
    Option,
    /// Skips the rest of a payload, then rejects the option as too long.
    Skip {
        option: u32,
        left: u32,
    },
    List(vec::IntoIter<ExportInfo>),
    Contexts {
        option: u32,
        replies: vec::IntoIter<(u32, String)>,
    },
}

/// Next step of the state machine.
pub(crate) enum Next {
    Go,
    Wait(Progress),
    /// The client has selected this export.
    Enter(Export, Agreement),
}

impl Handshake {
    pub(crate) fn new(exports: Arc<dyn Exports>, client: Client, tls: TlsPolicy) -> Self {
        let channel = match tls {
            TlsPolicy::Absent => Channel::Plain,
            TlsPolicy::Required => Channel::PlainUntilTls,
        };
        Self {
            exports,
            client,
            channel,
            state: State::Greeting,
            option_count: 0,
            option_count_max: OPTION_COUNT_MAX,
            no_zeroes: false,
            replies: Replies::Simple,
            chosen: None,
        }
    }

    /// Switches to TLS and discards everything that was negotiated on the plain connection.
    pub(crate) fn tls_started(&mut self, client: Client) {
        assert_eq!(self.channel, Channel::PlainUntilTls, "TLS is started once, and if required");
        self.channel = Channel::Tls;
        self.client = client;
        self.replies = Replies::Simple;
        self.chosen = None;
    }

    pub(crate) fn step(&mut self, input: &mut Input, output: &mut Output) -> Next {
        if output.is_due() {
            return Next::Wait(Progress::SendOutput);
        }
        match std::mem::replace(&mut self.state, State::Option) {
            State::Greeting => self.greet(output),
            State::ClientFlags => self.take_client_flags(input),
            State::Option => self.take_option(input, output),
            State::Skip { option, left } => self.skip(option, left, input, output),
            State::List(exports) => self.continue_list(exports, output),
            State::Contexts { option, replies } => self.put_contexts(option, replies, output),
        }
    }

    fn greet(&mut self, output: &mut Output) -> Next {
        output.put(&GREETING_MAGIC.to_be_bytes());
        output.put(&OPTION_MAGIC.to_be_bytes());
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        output.put(&flags.to_be_bytes());
        self.state = State::ClientFlags;
        Next::Go
    }

    fn take_client_flags(&mut self, input: &mut Input) -> Next {
        let Some(bytes) = input.data().first_chunk::<CLIENT_FLAGS_BYTES>() else {
            self.state = State::ClientFlags;
            return Next::Wait(Progress::ReceiveInput);
        };
        let flags = u32::from_be_bytes(*bytes);
        let known = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        if flags & !u32::from(known) != 0 {
            return Next::Wait(Progress::Close);
        }
        self.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
        input.consume(CLIENT_FLAGS_BYTES);
        Next::Go
    }

    fn take_option(&mut self, input: &mut Input, output: &mut Output) -> Next {
        let Some((bytes, rest)) = input.data().split_first_chunk::<OPTION_HEADER_BYTES>() else {
            return Next::Wait(Progress::ReceiveInput);
        };
        let Some(header) = OptionHeader::parse(bytes) else {
            return Next::Wait(Progress::Close);
        };
        if header.payload_bytes > OPTION_BYTES_MAX {
            input.consume(OPTION_HEADER_BYTES);
            self.state = State::Skip { option: header.option, left: header.payload_bytes };
            return Next::Go;
        }
        let payload_bytes = usize::try_from(header.payload_bytes).expect("checked above");
        let Some(payload) = rest.get(..payload_bytes) else {
            return Next::Wait(Progress::ReceiveInput);
        };
        self.option_count += 1;
        let next = if self.option_count > self.option_count_max {
            Next::Wait(Progress::Close)
        } else {
            self.answer(header.option, payload, output)
        };
        input.consume(OPTION_HEADER_BYTES + payload_bytes);
        match next {
            // Input after STARTTLS was sent without encryption and must not be trusted.
            Next::Wait(Progress::StartTls) if !input.is_empty() => Next::Wait(Progress::Close),
            next => next,
        }
    }

    fn answer(&mut self, option: u32, payload: &[u8], output: &mut Output) -> Next {
        if self.channel == Channel::PlainUntilTls {
            match option {
                option::STARTTLS | option::ABORT => {}
                option::EXPORT_NAME => return Next::Wait(Progress::Close),
                _ => return refuse(option, reply::ERR_TLS_REQD, "start TLS first", output),
            }
        }
        match option {
            option::EXPORT_NAME => self.export_name(payload, output),
            option::ABORT => {
                acknowledge(option, output);
                Next::Wait(Progress::Close)
            }
            option::LIST => self.list(payload, output),
            option::STARTTLS => self.start_tls(payload, output),
            option::INFO | option::GO => self.info(option, payload, output),
            option::STRUCTURED_REPLY => self.structured_reply(payload, output),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.meta_context(option, payload, output)
            }
            _ => refuse(option, reply::ERR_UNSUP, "unsupported option", output),
        }
    }

    /// Handles `EXPORT_NAME`, the deprecated option to select an export. It can report an error
    /// only by disconnecting.
    fn export_name(&mut self, payload: &[u8], output: &mut Output) -> Next {
        let found = wire::text(payload)
            .and_then(|name| Some((name, self.exports.find(name, &self.client)?)));
        let Some((name, export)) = found else {
            return Next::Wait(Progress::Close);
        };
        output.put(&export.device.geometry().size_bytes.to_be_bytes());
        output.put(&self.transmission_flags(&export).to_be_bytes());
        if !self.no_zeroes {
            output.put(&[0; EXPORT_NAME_ZEROES]);
        }
        self.enter(name, export)
    }

    fn list(&mut self, payload: &[u8], output: &mut Output) -> Next {
        if !payload.is_empty() {
            return refuse(option::LIST, reply::ERR_INVALID, "NBD_OPT_LIST takes no data", output);
        }
        let exports = self.exports.list(&self.client);
        self.option_count_max = OPTION_COUNT_MAX + exports.len() * OPTIONS_PER_EXPORT;
        self.state = State::List(exports.into_iter());
        Next::Go
    }

    fn continue_list(&mut self, exports: vec::IntoIter<ExportInfo>, output: &mut Output) -> Next {
        let mut exports = exports;
        while let Some(export) = exports.next() {
            options::put_list_entry(option::LIST, &export, output);
            if output.is_due() {
                self.state = State::List(exports);
                return Next::Go;
            }
        }
        acknowledge(option::LIST, output);
        Next::Go
    }

    fn start_tls(&mut self, payload: &[u8], output: &mut Output) -> Next {
        let mut refuse = |kind, message| refuse(option::STARTTLS, kind, message, output);
        match self.channel {
            Channel::Plain => refuse(reply::ERR_POLICY, "TLS is not configured"),
            Channel::Tls => refuse(reply::ERR_INVALID, "TLS is already active"),
            Channel::PlainUntilTls if !payload.is_empty() => {
                refuse(reply::ERR_INVALID, "NBD_OPT_STARTTLS takes no data")
            }
            Channel::PlainUntilTls => {
                acknowledge(option::STARTTLS, output);
                Next::Wait(Progress::StartTls)
            }
        }
    }

    fn info(&mut self, option: u32, payload: &[u8], output: &mut Output) -> Next {
        let Some(query) = ExportQuery::parse(payload) else {
            return refuse(option, reply::ERR_INVALID, "malformed option", output);
        };
        let Some(export) = self.exports.find(query.name, &self.client) else {
            return refuse(option, reply::ERR_UNKNOWN, "no such export", output);
        };
        self.put_info(option, &export, query.wants, output);
        acknowledge(option, output);
        if option == option::GO { self.enter(query.name, export) } else { Next::Go }
    }

    fn put_info(&self, option: u32, export: &Export, wants: Wants, output: &mut Output) {
        let mut put = |kind: u16, parts: [&[u8]; 3]| {
            let [first, second, third] = parts;
            let parts = [&kind.to_be_bytes()[..], first, second, third];
            options::put_reply(option, reply::INFO, &parts, output);
        };
        let size = export.device.geometry().size_bytes.to_be_bytes();
        let flags = self.transmission_flags(export).to_be_bytes();
        put(info::EXPORT, [&size, &flags, &[]]);
        if wants.name {
            put(info::NAME, [cut(&export.name, STRING_BYTES_MAX).as_bytes(), &[], &[]]);
        }
        if wants.description {
            put(
                info::DESCRIPTION,
                [cut(&export.description, STRING_BYTES_MAX).as_bytes(), &[], &[]],
            );
        }
        if wants.block_size {
            let sizes = [BLOCK_BYTES_MIN, BLOCK_BYTES_PREFERRED, PAYLOAD_BYTES_MAX];
            let [min, preferred, max] = sizes.map(u32::to_be_bytes);
            put(info::BLOCK_SIZE, [&min, &preferred, &max]);
        }
    }

    fn structured_reply(&mut self, payload: &[u8], output: &mut Output) -> Next {
        let option = option::STRUCTURED_REPLY;
        if !payload.is_empty() {
            return refuse(option, reply::ERR_INVALID, "the option takes no data", output);
        }
        self.replies = Replies::Structured;
        acknowledge(option, output);
        Next::Go
    }

    fn meta_context(&mut self, option: u32, payload: &[u8], output: &mut Output) -> Next {
        let sets = option == option::SET_META_CONTEXT;
        if sets {
            self.chosen = None;
        }
        if self.replies == Replies::Simple {
            let message = "metadata contexts require structured replies";
            return refuse(option, reply::ERR_INVALID, message, output);
        }
        let Some(query) = ContextQuery::parse(payload) else {
            return refuse(option, reply::ERR_INVALID, "malformed option", output);
        };
        let Some(export) = self.exports.find(query.export_name, &self.client) else {
            return refuse(option, reply::ERR_UNKNOWN, "no such export", output);
        };
        let device = export.device.as_ref();
        let replies: Vec<(u32, String)> = match sets {
            true => self.choose(&query, contexts::chosen(&query.queries, device)),
            false => {
                let listed = contexts::listed(&query.queries, device).into_iter();
                listed.map(|offer| (0, offer.name)).collect()
            }
        };
        self.put_contexts(option, replies.into_iter(), output)
    }

    /// Grants contexts and returns their ids and names.
    fn choose(&mut self, query: &ContextQuery<'_>, offers: Vec<Offer>) -> Vec<(u32, String)> {
        let granted = (1..).zip(&offers);
        let contexts = granted.map(|(id, offer)| GrantedContext { id, context: offer.context });
        let export_name = query.export_name.to_owned();
        self.chosen = Some(ChosenContexts { export_name, contexts: contexts.collect() });
        (1..).zip(offers.into_iter().map(|offer| offer.name)).collect()
    }

    /// Writes context replies as long as there is room. Names that exceed the protocol's limit
    /// cannot be queried and are left out.
    fn put_contexts(
        &mut self,
        option: u32,
        mut replies: vec::IntoIter<(u32, String)>,
        output: &mut Output,
    ) -> Next {
        for (id, name) in replies.by_ref().filter(|(_, name)| name.len() <= STRING_BYTES_MAX) {
            let parts = [&id.to_be_bytes()[..], name.as_bytes()];
            options::put_reply(option, reply::META_CONTEXT, &parts, output);
            if output.is_due() {
                self.state = State::Contexts { option, replies };
                return Next::Go;
            }
        }
        acknowledge(option, output);
        Next::Go
    }

    fn transmission_flags(&self, export: &Export) -> u16 {
        use transmission_flag as flag;
        let mut flags = flag::HAS_FLAGS
            | flag::SEND_FLUSH
            | flag::SEND_FUA
            | flag::SEND_TRIM
            | flag::SEND_WRITE_ZEROES
            | flag::CAN_MULTI_CONN
            | flag::SEND_CACHE
            | flag::SEND_FAST_ZERO;
        if export.device.is_read_only() {
            flags |= flag::READ_ONLY;
        }
        if self.replies == Replies::Structured {
            flags |= flag::SEND_DF;
        }
        flags
    }

    fn enter(&mut self, asked_name: &str, export: Export) -> Next {
        let chosen = self.chosen.take().filter(|chosen| chosen.export_name == asked_name);
        let contexts = chosen.map_or(Vec::new(), |chosen| chosen.contexts);
        Next::Enter(export, Agreement { replies: self.replies, contexts })
    }

    fn skip(&mut self, option: u32, left: u32, input: &mut Input, output: &mut Output) -> Next {
        let arrived = u32::try_from(input.len()).unwrap_or(u32::MAX).min(left);
        input.consume(usize::try_from(arrived).expect("it is in memory"));
        if arrived == left {
            return refuse(option, reply::ERR_TOO_BIG, "the option is too long", output);
        }
        self.state = State::Skip { option, left: left - arrived };
        Next::Wait(Progress::ReceiveInput)
    }
}

fn acknowledge(option: u32, output: &mut Output) {
    options::put_reply(option, reply::ACK, &[], output);
}

fn refuse(option: u32, kind: u32, message: &str, output: &mut Output) -> Next {
    options::put_reply(option, kind, &[message.as_bytes()], output);
    Next::Go
}
