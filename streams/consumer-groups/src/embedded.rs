//! Kafka's embedded consumer protocol: subscriptions and assignments, which members of classic
//! groups exchange as bytes (`ConsumerProtocolSubscription` and `ConsumerProtocolAssignment`,
//! versions 0 to 3). Later versions begin with the same fields.
//!
//! The library of Kafka's messages encodes them, but this module decodes them. The library's
//! decoder allocates memory for the claimed number of elements before it checks their presence, and
//! clients send arbitrary bytes. It also rejects versions after 3.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::consumer_protocol_assignment::TopicPartition;
use kafka_protocol::messages::{ConsumerProtocolAssignment, TopicName};
use kafka_protocol::protocol::{Encodable, Message, StrBytes};

/// Protocol type of groups of Kafka's consumers.
pub(crate) const PROTOCOL_TYPE: &str = "consumer";

/// Topic names with partition indexes.
pub(crate) type NamedPartitions = Vec<(StrBytes, Vec<i32>)>;

/// Subscription of a member, as sent by its client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) version: i16,
    pub(crate) names: Vec<StrBytes>,
    /// Owned partitions at the time of the join; empty if the version lacks them.
    pub(crate) owned: NamedPartitions,
    pub(crate) rack: Option<StrBytes>,
}

/// Returns a member's subscription from the metadata of its protocols, all of which contain the
/// same one. `None` without protocols, or if any is malformed.
pub(crate) fn subscription_of<'a>(
    metadata: impl IntoIterator<Item = &'a Bytes>,
) -> Option<Subscription> {
    let mut subscriptions = metadata.into_iter().map(|it| subscription(it));
    let first = subscriptions.next()??;
    subscriptions.all(|it| it.is_some()).then_some(first)
}

fn subscription(metadata: &[u8]) -> Option<Subscription> {
    let mut fields = Fields { rest: metadata };
    let version = fields.i16().filter(|it| *it >= 0)?;
    let names = fields.list(Fields::text)?;
    fields.skip_user_data()?;
    let owned = if version >= 1 { fields.partitions()? } else { Vec::new() };
    if version >= 2 {
        let _generation = fields.i32()?;
    }
    let rack = if version >= 3 { fields.maybe_text()? } else { None };
    Some(Subscription { version, names, owned, rack: rack.filter(|it| !it.is_empty()) })
}

/// Returns the topics of a subscription and ignores the fields after them.
pub(crate) fn subscribed_names(metadata: &[u8]) -> Option<Vec<StrBytes>> {
    let mut fields = Fields { rest: metadata };
    let _version = fields.i16()?;
    fields.list(Fields::text)
}

/// Decodes the partitions of an assignment. An empty assignment may have no bytes.
pub(crate) fn assignment(bytes: &[u8]) -> Option<NamedPartitions> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let mut fields = Fields { rest: bytes };
    let _version = fields.i16().filter(|it| *it >= 0)?;
    let partitions = fields.partitions()?;
    fields.skip_user_data()?;
    Some(partitions)
}

/// Encodes an assignment in the version of the member's subscription.
pub(crate) fn encode_assignment(version: i16, topics: &[(String, Vec<i32>)]) -> Bytes {
    let version = version.min(ConsumerProtocolAssignment::VERSIONS.max);
    let assigned = topics.iter().map(|(name, indexes)| {
        TopicPartition::default()
            .with_topic(TopicName(StrBytes::from_string(name.clone())))
            .with_partitions(indexes.clone())
    });
    let assignment =
        ConsumerProtocolAssignment::default().with_assigned_partitions(assigned.collect());
    let mut bytes = BytesMut::from(&version.to_be_bytes()[..]);
    let encoded = assignment.encode(&mut bytes, version);
    encoded.expect("topics, their names and partitions are limited far below what can be written");
    bytes.freeze()
}

/// Decoder for big-endian fields. Returns `None` if the bytes are truncated or invalid.
struct Fields<'a> {
    rest: &'a [u8],
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    fn i16(&mut self) -> Option<i16> {
        self.take().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.take().map(i32::from_be_bytes)
    }

    fn text(&mut self) -> Option<StrBytes> {
        self.maybe_text()?
    }

    fn maybe_text(&mut self) -> Option<Option<StrBytes>> {
        let length = self.i16()?;
        if length == -1 {
            return Some(None);
        }
        let (text, rest) = self.rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = rest;
        Some(Some(StrBytes::from_utf8(Bytes::copy_from_slice(text)).ok()?))
    }

    /// Reads a list, without trusting its count: it ends with the bytes.
    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = u32::try_from(self.i32()?).ok()?;
        (0..count).map(|_| item(self)).collect()
    }

    fn partitions(&mut self) -> Option<NamedPartitions> {
        self.list(|fields| Some((fields.text()?, fields.list(Fields::i32)?)))
    }

    fn skip_user_data(&mut self) -> Option<()> {
        let length = self.i32()?;
        if length == -1 {
            return Some(());
        }
        self.rest = self.rest.split_at_checked(usize::try_from(length).ok()?)?.1;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::ConsumerProtocolSubscription;
    use kafka_protocol::messages::consumer_protocol_subscription::TopicPartition;
    use kafka_protocol::protocol::Decodable;
    use model::{Random, for_each_seed};

    use super::*;

    fn text(text: &str) -> StrBytes {
        StrBytes::from_string(text.to_owned())
    }

    fn encoded(version: i16) -> Vec<u8> {
        let owned = TopicPartition::default().with_topic(TopicName(text("news")));
        let message = ConsumerProtocolSubscription::default()
            .with_topics(vec![text("news"), text("more")])
            .with_user_data(Some(Bytes::from_static(b"user")))
            .with_owned_partitions(vec![owned.with_partitions(vec![3, 5])])
            .with_generation_id(7)
            .with_rack_id(Some(text("r")));
        let mut bytes = version.to_be_bytes().to_vec();
        message.encode(&mut bytes, version).expect("it is encoded");
        bytes
    }

    #[test]
    fn subscriptions_of_each_version_are_read() {
        for version in 0..=3 {
            let read = subscription(&encoded(version)).expect("it can be read");
            let owned = vec![(text("news"), vec![3, 5])];
            let expected = Subscription {
                version,
                names: vec![text("news"), text("more")],
                owned: if version >= 1 { owned } else { Vec::new() },
                rack: (version >= 3).then(|| text("r")),
            };
            assert_eq!(read, expected, "version {version}");
        }
        let mut later = encoded(3);
        later[1] = 9;
        later.extend(b"more fields");
        assert_eq!(subscription(&later).expect("it can be read").version, 9);
    }

    #[test]
    fn assignments_are_written_as_clients_read_them_and_read_again() {
        let topics = [("news".to_owned(), vec![0, 4]), ("more".to_owned(), vec![1])];
        for version in [0, 3, 9] {
            let bytes = encode_assignment(version, &topics);
            let mut rest = bytes.slice(2..);
            let read = ConsumerProtocolAssignment::decode(&mut rest, version.min(3));
            let read = read.expect("a client can read it");
            assert!(rest.is_empty());
            let partitions = read.assigned_partitions.iter();
            let read: Vec<_> =
                partitions.map(|it| (it.topic.0.to_string(), it.partitions.clone())).collect();
            assert_eq!(read, topics);
            let names = assignment(&bytes).expect("it can be read").into_iter();
            let again: Vec<_> = names.map(|(name, it)| (name.to_string(), it)).collect();
            assert_eq!(again, topics);
        }
        assert_eq!(assignment(&[]), Some(Vec::new()));
        let one = [("n".to_owned(), vec![7])];
        let written = [0, 1, 0, 0, 0, 1, 0, 1, b'n', 0, 0, 0, 1, 0, 0, 0, 7, 255, 255, 255, 255];
        assert_eq!(*encode_assignment(1, &one), written);
    }

    #[test]
    fn bytes_that_make_no_sense_are_refused_and_never_believed() {
        let whole = encoded(3);
        for length in 0..whole.len() {
            assert_eq!(subscription(&whole[..length]), None, "{length} bytes");
        }
        assert_eq!(subscription(&[0xFF; 40]), None);
        assert_eq!(assignment(&[0, 0, 0x7F, 0xFF, 0xFF, 0xFF]), None);
        for_each_seed("cargo test -p consumer-groups --lib make_no_sense", 200, |seed| {
            let mut random = Random::new(seed);
            let mut bytes = encoded(3);
            for _ in 0..1 + random.below(4) {
                let place = random.index(bytes.len());
                bytes[place] = u8::try_from(random.below(256)).expect("a byte");
            }
            if let Some(read) = subscription(&bytes) {
                let length: usize = read.names.iter().map(|it| it.len()).sum();
                assert!(length <= bytes.len());
            }
            assignment(&bytes);
        });
    }
}
