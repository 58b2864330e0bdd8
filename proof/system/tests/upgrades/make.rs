//! Creates a set with the current programs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_client::{
    Client, CommittedOffset, Compression, GroupGeneration, Membership, MembershipSettings,
    NewRecord, Settings, TransactionSettings, TransactionalProducer,
};
use system::wait_for;

use crate::blocks;
use crate::member;
use crate::place::{Place, Served};
use crate::{MEMBER, MEMBER_EPOCH};

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Maximum session timeout of the broker, so that no member expires before the check.
const SESSION_TIME_MAX: Duration = Duration::from_secs(1_800);
const TRANSACTION_TIME_MAX: Duration = Duration::from_secs(900);

const VOLUMES: &str = "
memlane volume create alpha --size 8MiB --sector 512
memlane volume create beta --size 8MiB --sector 4096 --durability journal --reduction compress
memlane volume create gamma --size 8MiB --durability image --reduction dedup
memlane volume create delta --size 8MiB --reduction none --capacity guaranteed
memlane volume create gone --size 8MiB --durability journal
memlane volume set alpha users=65534";

const FIRST_BLOCKS: &str = "
alpha 0 noise 1
alpha 1 text 2
alpha 2 fill 3
alpha 511 text 4
alpha 512 text 5
beta 0 noise 1
beta 1 text 6
beta 2 fill 7
beta 2047 text 8
gamma 0 text 2
gamma 1 text 4
gamma 2 text 9
gone 0 text 10
delta 7 text 11";

const SNAPSHOTS: &str = "
memlane snapshot create alpha@first beta@first gamma@first
memlane clone alpha@first copy
memlane volume delete gone";

const SECOND_BLOCKS: &str = "
alpha 1 nothing
alpha 2 text 12
copy 0 text 13
copy 2 nothing
beta 2 text 14
gamma 1 fill 15
delta 8 noise 1";

/// After the image, in the journal or only in memory.
const LAST_BLOCKS: &str = "
beta 0 text 16
beta 1 nothing
beta 1024 noise 17
gamma 3 text 18";

const TOPICS: &str = r#"
new() { memlane topic create "$@" --config retention.ms=-1; }
put() { memlane produce "$@" --json; }
new codecs --partitions 2 --config max.message.bytes=2000000
begin='{"partition":%d,"timestamp_ms":170000000000%d,"key":"key %d","value":"%s %s %s %s",'
end='"headers":[{"name":"codec","value":"%s"},{"name":"nothing"}]}\n'
for codec in none gzip snappy lz4 zstd; do
    for part in 0 1; do
        for number in 1 2 3; do
            printf "$begin$end" $part $number $number $codec $codec $codec $codec $codec
        done | put codecs --compression $codec
    done
done
echo '{"partition":1,"timestamp_ms":5,"key_base64":"AP8=","value_base64":"/wA="}' | put codecs
echo '{"partition":1,"timestamp_ms":6,"key":null,"value":null}' | put codecs
new journaled --durability journal
seq 1 20 | sed 's/.*/{"timestamp_ms":&,"value":"line &"}/' | put journaled --compression zstd
new cut
seq 0 9 | sed 's/.*/{"timestamp_ms":&,"value":"line &"}/' | put cut
new idempotent
echo '{"timestamp_ms":1,"value":"once"}' | put idempotent
echo '{"timestamp_ms":2,"value":"and again"}' | put idempotent
new transactions
new compacted --config cleanup.policy=compact --config delete.retention.ms=3153600000000 \
    --config segment.bytes=16384 --config min.cleanable.dirty.ratio=0
long=$(printf %016400d 0)
keyed() { echo '{"timestamp_ms":'$1',"key":"'$2'","value":'$3'}'; }
{ keyed 1 a '"first '$long'"'; keyed 2 b '"first"'; } | put compacted
{ keyed 3 a '"last"'; keyed 4 b null; } | put compacted
keyed 5 c '"new '$long'"' | put compacted
new orders --config memlane.values=latest
order() { keyed $1 $2 '"{\"symbol\":\"'$3'\",\"qty\":'$4'}"'; }
{ order 1 a ACME 5; order 2 b ACME 10; order 3 c INIT 20; order 4 a ACME 7; } | put orders
keyed 5 c null | put orders
order 6 d INIT 30 | put orders
new merged --config memlane.values=merge
{ keyed 1 a '"{\"x\":1,\"y\":2}"'; keyed 2 a '"{\"y\":null,\"z\":3}"'; } | put merged
"#;

const DEFINITIONS: [&str; 4] = [
    "CREATE TOPIC big AS SELECT * FROM orders WHERE (value->>'qty')::bigint >= 10",
    "CREATE MATERIALIZED VIEW positions AS SELECT value->>'symbol' AS symbol, \
     sum((value->>'qty')::bigint) AS qty, count(*) AS n FROM \"orders$current\" GROUP BY 1",
    "CREATE TABLE trades (symbol text, qty bigint, twice bigint PATH '$.qty') \
     WITH (topic = 'orders', format = 'json', key = 'symbol')",
    "CREATE TOPIC enriched AS SELECT o.value->>'qty' AS qty, b.value->>'x' AS x \
     FROM orders o LEFT JOIN \"merged$current\" b ON o.key = b.key",
];

const USERS: &str = "
echo 'of admin' | memlane-broker user set admin --user-file users.toml
echo 'of reader' | memlane-broker user set reader --user-file users.toml
printf '\\n[users.reader.quota]\\nrequest-bytes = 2000\\n' >>users.toml";

const RIGHTS: &str = "
export MEMLANE_BROKER_USER=admin MEMLANE_BROKER_PASSWORD='of admin'
memlane acl add reader read --topic codecs
memlane acl add reader read write --topic jour --prefix
memlane acl add reader read --group readers";

/// Creates a complete set. Its daemon is killed at the end.
pub(crate) fn leave_behind() -> Result<Place> {
    let mut place = Place::new()?;
    place.daemon.start_again()?;
    place.shell(VOLUMES).check()?;
    blocks::write(&place, FIRST_BLOCKS)?;
    place.shell(SNAPSHOTS).check()?;
    blocks::write(&place, SECOND_BLOCKS)?;
    place.daemon.save_image()?;

    let mut served = place.open_broker()?;
    served.shell(TOPICS).check()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(use_broker(&served))?;
    // Before it is used in a join.
    wait_until_printed(&served, "memlane consume merged.values", "{\"x\":1,\"z\":3}")?;
    for definition in DEFINITIONS {
        served.shell("memlane sql -c \"$1\"").args(["sh", definition]).check()?;
    }
    served.shell("memlane consume orders --group readers --count 6").check()?;
    let count = "memlane sql --json -c 'SELECT sum(n)::bigint AS n FROM positions'";
    wait_until_printed(&served, count, "\"n\":3")?;
    wait_until_printed(&served, "memlane consume big --json | wc -l", "3")?;
    wait_until_printed(&served, "memlane consume enriched --json | wc -l", "6")?;
    // Compacted.
    wait_until_printed(&served, "memlane consume compacted --json | wc -l", "3")?;
    let join = || MEMBER.join(&served.broker);
    let (first, second) = (join()?, join()?);
    ensure!(first == second, "{first:?}, then {second:?}");
    member::check(first, MEMBER_EPOCH)?;
    served.broker.stop()?;

    place.shell(USERS).check()?;
    let mut served = place.guarded_broker()?;
    served.shell(RIGHTS).check()?;
    served.broker.stop()?;
    drop(served);
    // After the last image: the first topic of class `journal` causes the saving of one.
    blocks::write(&place, LAST_BLOCKS)?;
    place.daemon.kill()?;
    Ok(place)
}

/// Performs operations that the command line does not support.
async fn use_broker(served: &Served<'_>) -> Result<()> {
    let client = Arc::new(Client::new(served.broker.address(), Settings::default()));
    client.delete_records("cut", 0, 4).await?;
    let at = |topic: &str, partition, offset| CommittedOffset {
        topic: topic.to_owned(),
        partition,
        offset,
    };
    client.set_group_offsets("simple", &[at("codecs", 0, 3), at("codecs", 1, 4)]).await?;
    client.set_group_offsets(MEMBER.group, &[at(MEMBER.topic, 0, 5)]).await?;
    let settings = MembershipSettings { session_time_max: SESSION_TIME_MAX, ..Default::default() };
    let topics = BTreeSet::from(["codecs".to_owned()]);
    let member = Membership::join(Arc::clone(&client), "members", topics, settings).await?;
    member.commit(&[at("codecs", 0, 7)]).await?;

    let mut producer = transactional(&client).await?;
    producer.send("transactions", record("committed")).await?;
    producer.commit().await?;
    producer.send("transactions", record("aborted")).await?;
    producer.abort().await?;
    producer.send("transactions", record("with an offset")).await?;
    let group =
        GroupGeneration { group: "processed".into(), generation: -1, member_id: String::new() };
    producer.commit_offsets(&group, &[at("codecs", 1, 9)]).await?;
    producer.commit().await?;
    producer.send("transactions", record("open")).await?;
    producer.commit_offsets(&group, &[at("codecs", 1, 10)]).await?;
    let behind = "echo '{\"timestamp_ms\":2,\"value\":\"behind\"}' | memlane produce transactions";
    served.shell(&format!("{behind} --json")).check()?;
    Ok(())
}

/// Creates the transactional producer of the set. A new one ends the open transaction of the
/// previous one.
pub(crate) async fn transactional(client: &Arc<Client>) -> Result<TransactionalProducer> {
    let settings =
        TransactionSettings { compression: Compression::None, time_max: TRANSACTION_TIME_MAX };
    let made = TransactionalProducer::new(Arc::clone(client), "golden", settings).await;
    made.context("no transactional producer")
}

fn record(value: &'static str) -> Vec<(i32, Vec<NewRecord>)> {
    let value = Some(value.into());
    vec![(0, vec![NewRecord { key: None, value, headers: Vec::new(), timestamp_ms: 1 }])]
}

/// Waits for background work of the broker.
fn wait_until_printed(served: &Served<'_>, command: &str, expected: &str) -> Result<()> {
    wait_for(command, TIME_LIMIT, || Ok(served.shell(command).run()?.stdout.contains(expected)))
}
