//! A record batch of Kafka's protocol with the messages of one batch as record values.
//!
//! All batches have the same length and value offsets, so a request is built once and refilled.

use anyhow::{Result, ensure};
use kafka_client::{BatchOptions, NewRecord, PreparedProduce, ProduceTarget, encode_batch};

use super::message::{BATCH_BYTES, BATCH_MESSAGES, MESSAGE_BYTES};

/// Byte value of the template batch's values.
const MARK: u8 = 0xA5;

/// Offset of each value in a batch.
#[derive(Clone, Debug)]
pub(crate) struct BatchForm {
    starts: Vec<usize>,
    empty: Vec<u8>,
}

impl BatchForm {
    pub(crate) fn new() -> Result<Self> {
        let value = vec![MARK; MESSAGE_BYTES];
        let record = NewRecord { value: Some(value.clone().into()), ..NewRecord::default() };
        let records = vec![record; BATCH_MESSAGES];
        let empty = encode_batch(&records, &BatchOptions::default())?.to_vec();
        let mut starts = Vec::with_capacity(BATCH_MESSAGES);
        let mut at = 0;
        while let Some(found) = empty[at..].windows(MESSAGE_BYTES).position(|it| it == value) {
            starts.push(at + found);
            at += found + MESSAGE_BYTES;
        }
        ensure!(starts.len() == BATCH_MESSAGES, "a batch holds {} values", starts.len());
        Ok(Self { starts, empty })
    }

    /// Returns the length of a batch.
    pub(crate) fn len_bytes(&self) -> usize {
        self.empty.len()
    }

    pub(crate) fn request(&self, target: &ProduceTarget) -> Result<PreparedProduce> {
        Ok(PreparedProduce::new(target, &self.empty)?)
    }

    /// Copies messages into a request.
    pub(crate) fn fill(&self, request: &mut PreparedProduce, messages: &[u8]) {
        assert_eq!(messages.len(), BATCH_BYTES, "a batch is sent whole");
        let batch = request.batch_mut();
        for (start, message) in self.starts.iter().zip(messages.chunks_exact(MESSAGE_BYTES)) {
            batch[*start..start + MESSAGE_BYTES].copy_from_slice(message);
        }
        request.seal();
    }

    /// Extracts the messages from a batch.
    pub(crate) fn take(&self, batch: &[u8], messages: &mut [u8]) -> Result<()> {
        let (found, expected) = (batch.len(), self.len_bytes());
        ensure!(found == expected, "a batch of {found} bytes instead of {expected}");
        let places = self.starts.iter().zip(messages.chunks_exact_mut(MESSAGE_BYTES));
        for (start, message) in places {
            message.copy_from_slice(&batch[*start..start + MESSAGE_BYTES]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kafka_client::Acks;

    use super::super::message::{Batches, verify};
    use super::*;
    use crate::contents::Data;

    #[test]
    fn messages_come_back_from_a_request() {
        let form = BatchForm::new().expect("a form");
        let target = ProduceTarget { topic: "t".to_owned(), partition: 0, acks: Acks::All };
        let mut request = form.request(&target).expect("a short request");
        let mut batches = Batches::new(Data::Random, 7);
        for batch in 0..3 {
            form.fill(&mut request, batches.make(batch));
            let sent = request.batch_mut().to_vec();
            let mut messages = vec![0; BATCH_BYTES];
            form.take(&sent, &mut messages).expect("a whole batch");
            verify(&messages, batch).expect("as they were sent");
            form.take(&sent[1..], &mut messages).expect_err("a byte is missing");
        }
    }
}
