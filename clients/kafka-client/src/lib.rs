//! A small client of Kafka's protocol, for the command line, the console and the bench.
//!
//! | module | what it does |
//! |---|---|
//! | `connection` | requests and responses in order over one socket, several in flight |
//! | `client` | metadata, and a connection to each broker that is needed |
//! | `topics`, `configs`, `groups`, `offsets`, `users`, `acls` | one request each |
//! | `specs`, `resets` | offsets by kind, number or time, and groups that are moved there |
//! | `batch` | record batches of version 2 |
//! | `producer` | records in, offsets out; idempotent where that is asked for |
//! | `transactions` | records and offsets that are seen together or not at all |
//! | `fetch` | records of partitions from an offset on |
//! | `membership`, `assignor` | a member of a classic consumer group |
//! | `prepared` | requests that are sent again and again without allocation, for measurements |
//!
//! Every wait has a limit, and an error of it names the address and the request. Nothing here
//! starts a thread or prints. It speaks to Apache Kafka as well.
#![forbid(unsafe_code)]

mod acls;
mod assignor;
mod batch;
mod client;
mod configs;
mod connection;
mod error;
mod fetch;
mod groups;
mod login;
mod membership;
mod offsets;
mod prepared;
mod producer;
mod resets;
mod retry;
mod settings;
mod specs;
mod tls;
mod topics;
mod transactions;
mod transport;
mod users;
mod versions;

pub use acls::{AclBinding, AclFilter, AclOperation, PatternType, Permission, ResourceType};
pub use batch::Record;
pub use client::{Broker, Client, Cluster, Partition, Topic};
pub use configs::{ConfigChange, ConfigEntry};
pub use error::{ClientError, ErrorKind, error_name};
pub use fetch::{FetchLimits, FetchedPartition, Fetcher, Isolation, Position};
pub use groups::{CommittedOffset, Group, GroupDetails, GroupMember};
pub use kafka_protocol::ResponseError;
pub use membership::{GroupGeneration, Membership, MembershipSettings};
pub use offsets::{OffsetAt, PartitionOffset};
pub use prepared::{
    FetchPipe, FetchReceiver, FetchSender, FetchTarget, PreparedProduce, ProducePipe,
    ProduceReceiver, ProduceSender, ProduceTarget, RawBatch, RawBatches, RawFetch,
};
pub use producer::{Acks, Producer, ProducerSettings, partition_of_key};
pub use record_batch::{
    BatchOptions, BatchProducer, Codec as Compression, Header, NewRecord, Unencodable, encode_batch,
};
pub use resets::OffsetMove;
pub use sasl::{Mechanism, ScramHash};
pub use settings::{Addresses, SaslSettings, Settings};
pub use specs::{Extent, OffsetSpec};
pub use tls::TlsTrust;
pub use tokio_rustls::client::TlsStream;
pub use topics::NewTopic;
pub use transactions::{TransactionSettings, TransactionalProducer};
pub use users::{ScramCredential, UserScram};
