//! The server's side of one connection, without the connection.

use std::sync::Arc;

use crate::agreement::{Progress, TlsPolicy};
use crate::buffer::{Input, Output};
use crate::exports::{Client, Exports};
use crate::flushing::{FlushOrder, FlushQueue, Flushes};
use crate::handshake::{Handshake, Next};
use crate::traffic::Traffic;
use crate::transmission::Transmission;
use crate::transport::MessageEnd;

/// Turns what a client sends into calls of a device and replies.
///
/// It does no I/O and reads no clock: whoever drives it moves bytes in and out of the two buffers
/// and does what [`Session::advance`] asks; after [`Progress::Close`] it is done. No input makes
/// it fail, grow, or loop without end.
pub struct Session {
    phase: Phase,
}

enum Phase {
    Handshake(Box<Handshake>),
    Transmission(Box<Transmission>),
}

impl Session {
    /// A session that flushes devices itself, and waits for them.
    pub fn new(exports: Arc<dyn Exports>, client: Client, tls: TlsPolicy) -> Self {
        let handshake = Handshake::new(exports, client, tls, Flushes::Awaited);
        Self { phase: Phase::Handshake(Box::new(handshake)) }
    }

    /// A session that leaves flushes which may wait for a disk to others, who answer them.
    pub(crate) fn leaving_flushes_to(
        queue: Arc<FlushQueue>,
        exports: Arc<dyn Exports>,
        client: Client,
        tls: TlsPolicy,
    ) -> Self {
        let handshake = Handshake::new(exports, client, tls, Flushes::LeftTo(queue));
        Self { phase: Phase::Handshake(Box::new(handshake)) }
    }

    /// Does as much as the buffers allow. Blocks only as long as calls of the device do.
    pub fn advance(&mut self, input: &mut Input, output: &mut Output) -> Progress {
        loop {
            let handshake = match &mut self.phase {
                Phase::Transmission(transmission) => return transmission.advance(input, output),
                Phase::Handshake(handshake) => handshake,
            };
            match handshake.step(input, output) {
                Next::Go => {}
                Next::Wait(progress) => return progress,
                Next::Enter(transmission) => self.phase = Phase::Transmission(transmission),
            }
        }
    }

    /// Goes on over TLS, after [`Progress::StartTls`], with whom that has shown to be there.
    pub fn tls_started(&mut self, client: Client) {
        let Phase::Handshake(handshake) = &mut self.phase else {
            panic!("TLS is started during the handshake");
        };
        handshake.tls_started(client);
    }

    /// The canonical name of the export, once the client has chosen one.
    pub fn export_name(&self) -> Option<&str> {
        match &self.phase {
            Phase::Transmission(transmission) => Some(transmission.export_name()),
            Phase::Handshake(_) => None,
        }
    }

    /// How to do the flushes that are left to others, once there has been one.
    pub(crate) fn flush_order(&self) -> Option<FlushOrder> {
        match &self.phase {
            Phase::Transmission(transmission) => transmission.flush_order(),
            Phase::Handshake(_) => None,
        }
    }

    /// Where in the stream of replies the output ends.
    pub(crate) fn message_end(&self) -> MessageEnd {
        match &self.phase {
            Phase::Transmission(transmission) => transmission.message_end(),
            Phase::Handshake(_) => MessageEnd::BetweenReplies,
        }
    }

    pub fn traffic(&self) -> Traffic {
        match &self.phase {
            Phase::Transmission(transmission) => transmission.traffic(),
            Phase::Handshake(_) => Traffic::default(),
        }
    }
}
