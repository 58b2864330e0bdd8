//! Broker for tests of connections, without the other parts of the program.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use access::Principal;
use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;
use program::Seats;
use tempfile::TempDir;
use tokio::sync::watch;
use volumes::{Durability, Reduction};

use super::client::Client;
use super::{Buffers, Recompression, SessionCache};
use crate::access_rules::AccessRules;
use crate::broker::{Advertised, Broker, Limits, NewTopics};
use crate::broker_settings::BrokerSettings;
use crate::coordinator::{Assignable, CoordinatorOptions, start};
use crate::definitions::Definitions;
use crate::deriving::Deriving;
use crate::live::{LiveLimits, LiveQueries};
use crate::storage::{Embedded, EmbeddedPool, Storage, VolumeClass};
use crate::topics::{NewTopic, OpenTopic, Topics};

/// Creates a pool in a temporary folder, which must be kept.
pub(super) fn storage() -> (TempDir, Arc<dyn Storage>) {
    let folder = tempfile::tempdir_in("/dev/shm").expect("it is made");
    let file = Some(folder.path().join("pool"));
    let pool = Embedded::open(&EmbeddedPool { size_bytes: 64 << 20, file }).expect("it opens");
    (folder, Arc::new(pool))
}

pub(super) fn create_topic(broker: &Broker, name: &str) -> Arc<OpenTopic> {
    let (name, settings) = (name.to_owned(), BTreeMap::new());
    let owner = shares::Owner::NOBODY;
    let new = NewTopic { name, partition_count: 1, settings, is_derived: false, owner };
    broker.topics.create(&new).expect("there is room")
}

pub(super) fn broker(storage: &Arc<dyn Storage>, stops: watch::Receiver<bool>) -> Broker {
    let class = VolumeClass { durability: Durability::Ram, reduction: Reduction::None };
    let topics = Topics::open(Arc::clone(storage), BTreeMap::new());
    let topics = topics.expect("there are none");
    let rules = AccessRules::open_to_this_host();
    let definitions = Arc::new(Definitions::open(&**storage, class).expect("there are none"));
    let assignable = Assignable { topics: Arc::clone(&topics), rules: Arc::clone(&rules) };
    let options = CoordinatorOptions::default();
    // The thread ends with the broker.
    let (coordinator, _thread) = start(&**storage, class, assignable, options).expect("it starts");
    let deriving = Deriving::new(Arc::clone(&topics), Arc::clone(&definitions));
    let limits = LiveLimits { per_principal: 1 };
    let live = LiveQueries::new(Arc::clone(&topics), Arc::clone(&rules), limits);
    Broker {
        cluster_id: "cluster".to_owned(),
        address: ([127, 0, 0, 1], 1).into(),
        advertised: Advertised { host: "localhost".to_owned(), port: 1 },
        new_topics: NewTopics { are_created_on_demand: false, partition_count: 1 },
        limits: Limits { connection_count: 8, request_bytes: 1 << 20 },
        topics,
        definitions,
        deriving: Arc::new(deriving),
        live: Arc::new(live),
        coordinator,
        coordinator_options: options,
        settings: BrokerSettings::default(),
        rules,
        buffers: Buffers::default(),
        sessions: SessionCache::new(),
        recompression: Recompression::default(),
        counters: Box::default(),
        stops,
    }
}

pub(super) fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

/// Creates an anonymous client. Clients with the same address share its quotas.
pub(super) fn client(broker: &Broker, address: [u8; 4]) -> Client {
    let (seat, _end) = Seats::new(1).try_enter().expect("a seat");
    let client = Client::new(SocketAddr::from((address, 1)), seat);
    client.identify(broker, Principal::anonymous()).expect("it may connect");
    client
}
