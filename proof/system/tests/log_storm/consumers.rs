//! Group members, and a watcher of committed offsets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kafka_client::{
    Client, ClientError, CommittedOffset, FetchedPartition, Fetcher, Membership,
    MembershipSettings, NewRecord, Position, TransactionalProducer,
};
use system::Random;

use crate::books::note;
use crate::entry::Entry;
use crate::producers::{Cast, transactional};
use crate::stage::{
    Act, INPUT, OUTPUT, Patience, READERS, Stage, TRANSACTIONS, WORKERS, add, count,
    is_of_a_generation_before,
};
use crate::verifiers::{fetch, fetcher};

const MEMBERSHIP: MembershipSettings = MembershipSettings {
    // A killed broker may forget that a member has left, and then waits for this time.
    session_time_max: Duration::from_secs(6),
    heartbeat_interval: Duration::from_millis(100),
    rebalance_time_max: Duration::from_secs(10),
};

/// One in this many steps of a member is a leave and rejoin.
const LEAVE_ONE_IN: u64 = 1000;
/// One in this many transactions of a worker is aborted.
const ROLL_BACK_ONE_IN: u64 = 8;
const WATCH_INTERVAL: Duration = Duration::from_millis(20);

/// A group member, and its positions in its partitions.
struct Member {
    stage: Arc<Stage>,
    cast: Cast,
    group: &'static str,
    topics: BTreeSet<String>,
    client: Arc<Client>,
    membership: Membership,
    fetcher: Fetcher,
    positions: Vec<Position>,
}

impl Member {
    async fn join(
        stage: &Arc<Stage>,
        cast: &Cast,
        group: &'static str,
        topics: &[&str],
    ) -> Result<Self> {
        let client = stage.client(&cast.name);
        let topics: BTreeSet<_> = topics.iter().map(|topic| (*topic).to_owned()).collect();
        let membership = join(&client, group, &topics).await?;
        let mut member = Self {
            stage: Arc::clone(stage),
            cast: cast.clone(),
            group,
            topics,
            fetcher: fetcher(&client),
            client,
            membership,
            positions: Vec::new(),
        };
        member.go_to_committed().await?;
        Ok(member)
    }

    /// Moves to the committed offsets of the partitions assigned now.
    async fn go_to_committed(&mut self) -> Result<()> {
        count(&self.stage.counts.joins);
        let floor = self.stage.books.acknowledged_offsets();
        let mut patience = Patience::new("cannot learn where the group is");
        let committed = loop {
            match self.membership.committed().await {
                Ok(committed) => break committed,
                Err(error) => patience.after(error).await?,
            }
        };
        self.positions = Vec::new();
        let mut offsets = Vec::new();
        for ((topic, partition), offset) in committed {
            let offset = offset.unwrap_or(0);
            offsets.push(CommittedOffset { topic: topic.clone(), partition, offset });
            self.positions.push(Position { topic, partition, offset });
        }
        self.stage.books.check_offsets(self.group, &floor, &offsets)
    }

    /// Sends heartbeats, or rejoins and moves to the committed offsets.
    async fn keep_up(&mut self) -> Result<()> {
        if !self.membership.keep_up().await.context("cannot stay in the group")? {
            self.go_to_committed().await?;
        }
        Ok(())
    }

    async fn rejoin(&mut self) -> Result<()> {
        self.membership.rejoin().await.context("cannot join again")?;
        self.go_to_committed().await
    }

    /// Leaves, so that others take over, and rejoins.
    async fn come_back(self) -> Result<Self> {
        let Self { stage, cast, group, topics, client, membership, .. } = self;
        leave(membership).await?;
        let membership = join(&client, group, &topics).await?;
        let fetcher = fetcher(&client);
        let positions = Vec::new();
        let mut member =
            Self { stage, cast, group, topics, client, membership, fetcher, positions };
        member.go_to_committed().await?;
        Ok(member)
    }

    async fn fetch(&mut self) -> Result<Vec<FetchedPartition>> {
        if self.positions.is_empty() {
            // With fewer partitions than members, this one waits for the next heartbeat.
            tokio::time::sleep(WATCH_INTERVAL).await;
            return Ok(Vec::new());
        }
        let mut fetched = fetch(&mut self.fetcher, &self.positions).await?;
        fetched.retain(|it| {
            let is_it = |at: &&Position| at.topic == it.topic && at.partition == it.partition;
            self.positions.iter().find(is_it).is_some_and(|at| at.offset < it.next_offset)
        });
        Ok(fetched)
    }

    fn advance(&mut self, offsets: &[CommittedOffset]) {
        for position in &mut self.positions {
            let is_it = |it: &&CommittedOffset| {
                it.topic == position.topic && it.partition == position.partition
            };
            if let Some(to) = offsets.iter().find(is_it) {
                position.offset = to.offset;
            }
        }
    }
}

async fn join(client: &Arc<Client>, group: &str, topics: &BTreeSet<String>) -> Result<Membership> {
    let mut patience = Patience::new("cannot join");
    loop {
        match Membership::join(Arc::clone(client), group, topics.clone(), MEMBERSHIP).await {
            Ok(membership) => return Ok(membership),
            Err(error) => patience.after(error).await?,
        }
    }
}

/// Leaves the group. A member that is unknown to the group has left as well.
async fn leave(membership: Membership) -> Result<()> {
    match membership.leave().await {
        Err(error) if !error.is_retriable() && !is_of_a_generation_before(&error) => {
            Err(error).context("cannot leave")
        }
        _ => Ok(()),
    }
}

fn offsets_of(fetched: &[FetchedPartition]) -> Vec<CommittedOffset> {
    let offset = |it: &FetchedPartition| CommittedOffset {
        topic: it.topic.clone(),
        partition: it.partition,
        offset: it.next_offset,
    };
    fetched.iter().map(offset).collect()
}

/// Reads committed transactions, and commits its offsets.
pub(crate) async fn read_committed(stage: Arc<Stage>, cast: Cast) -> Result<()> {
    let mut random = Random::new(cast.seed);
    let mut member = Member::join(&stage, &cast, READERS, &TRANSACTIONS).await?;
    while stage.act() < Act::Verifying {
        member.keep_up().await?;
        let fetched = member.fetch().await?;
        for record in fetched.iter().flat_map(|it| &it.records) {
            Entry::read(record)?;
        }
        let offsets = offsets_of(&fetched);
        stage.books.process(READERS, &offsets);
        match member.membership.commit(&offsets).await {
            Ok(()) => {
                stage.books.acknowledge_offsets(READERS, &offsets);
                member.advance(&offsets);
            }
            Err(error) if is_of_a_generation_before(&error) => member.rejoin().await?,
            Err(error) => return Err(error).context("cannot commit offsets"),
        }
        stage.step(&cast.name).await;
        if random.one_in(LEAVE_ONE_IN) {
            member = member.come_back().await?;
        }
    }
    leave(member.membership).await
}

/// Reads records, and writes its output in one transaction with its offsets.
pub(crate) async fn work(stage: Arc<Stage>, cast: Cast) -> Result<()> {
    let mut random = Random::new(cast.seed);
    let mut member = Member::join(&stage, &cast, WORKERS, &[INPUT]).await?;
    let mut producer = transactional(&stage, &cast.name, &mut random).await?;
    while stage.act() < Act::Verifying {
        member.keep_up().await?;
        let fetched = member.fetch().await?;
        if !fetched.is_empty() {
            process(&mut member, &mut producer, &fetched, &mut random).await?;
        }
        stage.step(&cast.name).await;
        if random.one_in(LEAVE_ONE_IN) {
            member = member.come_back().await?;
        }
    }
    leave(member.membership).await
}

async fn process(
    member: &mut Member,
    producer: &mut TransactionalProducer,
    fetched: &[FetchedPartition],
    random: &mut Random,
) -> Result<()> {
    let stage = Arc::clone(&member.stage);
    let offsets = offsets_of(fetched);
    let mut outputs = Vec::new();
    for partition in fetched.iter().filter(|it| !it.records.is_empty()) {
        let copies: Result<Vec<NewRecord>> =
            partition.records.iter().map(|it| Ok(Entry::read(it)?.record())).collect();
        outputs.push((partition.partition, copies?));
    }
    let record_count: usize = outputs.iter().map(|(_, records)| records.len()).sum();
    let sent = match producer.send(OUTPUT, outputs).await {
        Ok(_) => producer.commit_offsets(&member.membership.generation(), &offsets).await,
        Err(error) => Err(error),
    };
    match sent {
        Ok(()) if !random.one_in(ROLL_BACK_ONE_IN) => {
            stage.books.process(WORKERS, &offsets);
            producer.commit().await.context("cannot commit what was processed")?;
            stage.books.acknowledge_offsets(WORKERS, &offsets);
            add(&stage.counts.processed, record_count);
            member.advance(&offsets);
        }
        Ok(()) => {
            roll_back(&stage, producer).await?;
            member.go_to_committed().await?;
        }
        Err(error) if is_of_a_generation_before(&error) => {
            roll_back(&stage, producer).await?;
            member.rejoin().await?;
        }
        Err(error) => return Err(error).context("cannot process"),
    }
    Ok(())
}

async fn roll_back(stage: &Stage, producer: &mut TransactionalProducer) -> Result<(), ClientError> {
    count(&stage.counts.rollbacks);
    producer.abort().await
}

/// Repeatedly checks the committed offsets of the groups.
pub(crate) async fn watch(stage: Arc<Stage>, cast: Cast) -> Result<()> {
    let client = stage.client(&cast.name);
    // Offsets of a transaction are visible when its end is recorded, which may follow the
    // acknowledgement. Members wait for that.
    let mut shown = stage.books.acknowledged_offsets();
    while stage.act() < Act::Verifying {
        let floor = stage.books.acknowledged_offsets();
        let offsets = committed(&client, READERS).await?;
        stage.books.check_all_offsets(READERS, &floor, &offsets)?;
        let offsets = committed(&client, WORKERS).await?;
        stage.books.check_all_offsets(WORKERS, &shown, &offsets)?;
        note(&mut shown, WORKERS, &offsets);
        count(&stage.counts.offset_checks);
        stage.step(&cast.name).await;
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
    Ok(())
}

/// Returns the offsets of a group that may not exist yet.
pub(crate) async fn committed(client: &Client, group: &str) -> Result<Vec<CommittedOffset>> {
    let mut patience = Patience::new("cannot learn what is committed");
    loop {
        match client.group_offsets(group).await {
            Ok(offsets) => return Ok(offsets),
            Err(error) => patience.after(error).await?,
        }
    }
}
