//! Keys of state records. The first byte is the version of key and value.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use crate::effect::Record;
use crate::fields::{Reader, Writer};

/// Version of state records that this code writes and reads.
pub(crate) const VERSION: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// A group; a classic one includes its members.
    Group(StrBytes),
    /// Highest generation of a classic group.
    Generation(StrBytes),
    /// A member of a consumer group.
    Member(StrBytes, StrBytes),
    /// Target assignment of a member of a consumer group.
    Target(StrBytes, StrBytes),
    Offset(StrBytes, StrBytes, i32),
    /// Pending offset of an open transaction, with the producer id.
    Pending(StrBytes, i64, StrBytes, i32),
}

impl Key {
    pub(crate) fn encode(&self) -> Bytes {
        let mut key = Writer::default();
        key.u8(VERSION);
        match self {
            Self::Group(group) => key.u8(0).text(group),
            Self::Generation(group) => key.u8(1).text(group),
            Self::Member(group, member) => key.u8(2).text(group).text(member),
            Self::Target(group, member) => key.u8(3).text(group).text(member),
            Self::Offset(group, topic, partition) => {
                key.u8(4).text(group).text(topic).i32(*partition)
            }
            Self::Pending(group, producer_id, topic, partition) => {
                key.u8(5).text(group).i64(*producer_id).text(topic).i32(*partition)
            }
        };
        key.done()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut key = Reader::new(bytes);
        if key.u8()? != VERSION {
            return None;
        }
        let kind = key.u8()?;
        let group = key.text()?;
        let key_read = match kind {
            0 => Self::Group(group),
            1 => Self::Generation(group),
            2 => Self::Member(group, key.text()?),
            3 => Self::Target(group, key.text()?),
            4 => Self::Offset(group, key.text()?, key.i32()?),
            5 => Self::Pending(group, key.i64()?, key.text()?, key.i32()?),
            _ => return None,
        };
        key.is_done().then_some(key_read)
    }

    pub(crate) fn with(&self, value: Writer) -> Record {
        Record { key: self.encode(), value: Some(value.done()) }
    }

    pub(crate) fn gone(&self) -> Record {
        Record { key: self.encode(), value: None }
    }
}
