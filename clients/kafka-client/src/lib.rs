//! Small Kafka client for the command line, the console and the bench.
//!
//! | module | contents |
//! |---|---|
//! | `connection` | pipelined requests and responses over one socket |
//! | `client` | metadata, and a connection to each broker that is needed |
//! | `topics`, `configs`, `groups`, `offsets`, `users`, `acls` | administrative requests |
//! | `specs`, `resets` | offsets by kind, number or time, and offset resets of groups |
//! | `batch` | record batches (format version 2) |
//! | `producer` | producer, optionally idempotent |
//! | `transactions` | transactional producer: atomic writes of records and offsets |
//! | `fetch` | fetching records from partitions |
//! | `membership`, `assignor` | member of a classic consumer group |
//! | `prepared` | preallocated requests that are sent repeatedly, for measurements |
//!
//! Every wait has a time limit, and timeout errors name the address and the request. The crate
//! starts no threads and prints nothing. It also works with Apache Kafka.
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
pub use error::{ClientError, ErrorKind, POOL_IS_FULL, error_name};
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
pub use settings::{Addresses, SaslSettings, Settings, WaitNotice};
pub use specs::{Extent, OffsetSpec};
pub use tls::TlsTrust;
pub use tokio_rustls::client::TlsStream;
pub use topics::NewTopic;
pub use transactions::{TransactionSettings, TransactionalProducer};
pub use users::{ScramCredential, UserScram};
