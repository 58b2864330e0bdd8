//! Types shared by the two phases of a session: limits, negotiated settings, and the next action.

use block_device::IO_BYTES_MAX;

use crate::contexts::Context;

/// Maximum length of a read or write, as announced to clients.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

const _: () = assert!(PAYLOAD_BYTES_MAX as usize <= IO_BYTES_MAX);

/// Settings negotiated in the handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreement {
    pub(crate) replies: Replies,
    /// Metadata contexts selected for this export.
    pub(crate) contexts: Vec<GrantedContext>,
}

/// A selected metadata context and its id on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrantedContext {
    pub(crate) id: u32,
    pub(crate) context: Context,
}

/// Style of replies to requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    #[default]
    Simple,
    Structured,
}

/// TLS requirement of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPolicy {
    Absent,
    /// On a plain connection, only STARTTLS is accepted.
    Required,
}

/// Next action that a session needs from its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Receive more input. Replies in the output should be sent first.
    ReceiveInput,
    /// Send the output.
    SendOutput,
    /// Send the output, perform a TLS handshake, then call `Session::tls_started`.
    StartTls,
    /// Send the output, then close the connection.
    Close,
}
