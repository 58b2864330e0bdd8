//! Raw heartbeats of a group member with the KIP-848 protocol.

use std::io::{Read, Write};

use anyhow::{Context, Result, ensure};
use system::Broker;

const HEARTBEAT: i16 = 68;
const VERSION: i16 = 1;

/// Answer to a heartbeat, with the member's epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beat {
    pub(crate) error: i16,
    pub(crate) epoch: i32,
}

/// Sender of heartbeats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'a> {
    pub(crate) group: &'a str,
    pub(crate) id: &'a str,
    pub(crate) topic: &'a str,
}

impl Member<'_> {
    /// Joins the group.
    pub(crate) fn join(&self, broker: &Broker) -> Result<Beat> {
        let mut said = 60_000_i32.to_be_bytes().to_vec();
        said.push(2);
        put_text(self.topic, &mut said);
        // No pattern, no assignor, and no partitions yet.
        said.extend([0, 0, 1]);
        self.ask(broker, 0, &said)
    }

    /// Sends a heartbeat with the assigned epoch.
    pub(crate) fn beat(&self, broker: &Broker, epoch: i32) -> Result<Beat> {
        let mut said = (-1_i32).to_be_bytes().to_vec();
        said.extend([0, 0, 0, 0]);
        self.ask(broker, epoch, &said)
    }

    fn ask(&self, broker: &Broker, epoch: i32, said: &[u8]) -> Result<Beat> {
        let mut frame = HEARTBEAT.to_be_bytes().to_vec();
        frame.extend(VERSION.to_be_bytes());
        frame.extend([0; 4]);
        // A client without a name, and no tags.
        frame.extend([0xff, 0xff, 0]);
        put_text(self.group, &mut frame);
        put_text(self.id, &mut frame);
        frame.extend(epoch.to_be_bytes());
        // Neither an instance nor a rack.
        frame.extend([0, 0]);
        frame.extend(said);
        frame.push(0);
        let mut connection = broker.connect()?;
        connection.write_all(&i32::try_from(frame.len())?.to_be_bytes())?;
        connection.write_all(&frame)?;
        let mut length = [0; 4];
        connection.read_exact(&mut length)?;
        let mut answer = vec![0; usize::try_from(i32::from_be_bytes(length))?];
        connection.read_exact(&mut answer)?;
        beat_of(&answer).context("the answer to a heartbeat is cut")
    }
}

/// Parses an answer: correlation id, tags, throttle time, error, message, member, epoch, and the
/// rest.
fn beat_of(answer: &[u8]) -> Option<Beat> {
    let (error, rest) = answer.get(9..)?.split_first_chunk()?;
    let rest = skip_text(skip_text(rest)?)?;
    let epoch = i32::from_be_bytes(*rest.first_chunk()?);
    Some(Beat { error: i16::from_be_bytes(*error), epoch })
}

/// Appends a text of fewer than 127 bytes, whose length is one byte.
fn put_text(text: &str, into: &mut Vec<u8>) {
    into.push(u8::try_from(text.len() + 1).expect("names here are short"));
    into.extend(text.as_bytes());
}

fn skip_text(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first()?;
    rest.get(usize::from(length.saturating_sub(1))..)
}

/// Fails unless the group accepts the member in this epoch.
pub(crate) fn check(beat: Beat, epoch: i32) -> Result<()> {
    ensure!(beat == Beat { error: 0, epoch }, "{beat:?} instead of epoch {epoch}");
    Ok(())
}
