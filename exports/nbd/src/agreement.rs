//! Terms that both parts of a session use: limits, what was agreed upon, and what comes next.

use block_device::IO_BYTES_MAX;

use crate::contexts::Context;

/// The longest read or write, as announced to clients.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

const _: () = assert!(PAYLOAD_BYTES_MAX as usize <= IO_BYTES_MAX);

/// Result of the handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreement {
    pub(crate) replies: Replies,
    /// The contexts that were chosen for this export.
    pub(crate) contexts: Vec<GrantedContext>,
}

/// A context that a client chose, and the number that stands for it from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrantedContext {
    pub(crate) id: u32,
    pub(crate) context: Context,
}

/// Form of replies to requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    #[default]
    Simple,
    Structured,
}

/// Requirement of TLS for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPolicy {
    Absent,
    /// Only the start of TLS is accepted on a plain connection.
    Required,
}

/// Condition under which a session can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More bytes in the input. Replies in the output should be sent first.
    ReceiveInput,
    /// An empty output.
    SendOutput,
    /// The output sent, then a TLS handshake, then a call of `Session::tls_started`.
    StartTls,
    /// The output sent, then nothing more.
    Close,
}
