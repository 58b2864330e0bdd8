//! Formats of earlier releases: the current programs open them and find all contents.
//! Each set is a folder beside this file, created once by the programs of its release. README.md
//! there describes the contents and the creation of a set.

mod blocks;
mod make;
mod member;
mod place;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kafka_client::{
    Acks, Client, FetchLimits, FetchPipe, FetchTarget, PreparedProduce, ProducePipe, ProduceTarget,
    Settings,
};
use member::Member;
use place::{Place, answered, check_same};
use system::Tool;

/// Folder for a new set, if one is wanted.
const OUT_VARIABLE: &str = "MEMLANE_GOLDEN_OUT";

const ARCHIVE: &str = "left-behind.tar.gz";

/// A member of the KIP-848 protocol that never left, and its epoch.
const MEMBER: Member<'_> =
    Member { group: "next", id: "b4b6a2f0-5a55-4f0e-8d6e-6d656d626572", topic: "journaled" };
const MEMBER_EPOCH: i32 = 1;

/// Memory that outlived the programs.
#[test]
fn all_that_was_left_behind_in_set_1_is_found() -> Result<()> {
    check_all(&set("set-1"), Place::unpack(&set("set-1").join(ARCHIVE))?)
}

#[test]
fn what_was_durable_in_set_1_is_found_when_memory_is_gone() -> Result<()> {
    check_durable(&set("set-1"), Place::unpack(&set("set-1").join(ARCHIVE))?)
}

/// Checks that the current programs find the contents left by the current programs, which become a
/// set on request.
#[test]
fn all_that_todays_programs_leave_behind_is_found() -> Result<()> {
    let place = make::leave_behind()?;
    let folder = tempfile::tempdir()?;
    let out = std::env::var_os(OUT_VARIABLE).map(PathBuf::from);
    let archive = out.as_deref().unwrap_or(folder.path()).join(ARCHIVE);
    place.pack(&archive)?;
    drop(place);
    check_all(&set("set-1"), Place::unpack(&archive)?)?;
    check_durable(&set("set-1"), Place::unpack(&archive)?)
}

fn set(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upgrades").join(name)
}

fn check_all(set: &Path, mut place: Place) -> Result<()> {
    place.daemon.start_again()?;
    check_blocks(set, "blocks.txt", &place)?;
    let mut served = place.open_broker()?;
    member::check(MEMBER.beat(&served.broker, MEMBER_EPOCH)?, MEMBER_EPOCH)?;
    check_answers(set, "answers.txt", |words| served.shell(words))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = Arc::new(Client::new(served.broker.address(), Settings::default()));
    // A new producer ends the open transaction of the previous one.
    runtime.block_on(make::transactional(&client))?;
    check_answers(set, "answers-without-transaction.txt", |words| served.shell(words))?;
    runtime.block_on(check_producers(&client))?;
    let taken = "FromCheckpoint { follow_from: 6, serve_from: 6, key_count: 3 }";
    let log = served.broker.log();
    ensure!(log.contains(taken), "no checkpoint of current values was taken:\n{log}");
    served.broker.stop()?;
    let mut served = place.guarded_broker()?;
    check_answers(set, "answers-of-users.txt", |words| served.shell(words))?;
    served.broker.stop()?;
    drop(served);
    place.daemon.stop()
}

fn check_durable(set: &Path, mut place: Place) -> Result<()> {
    place.lose_memory()?;
    place.daemon.start_again()?;
    check_blocks(set, "blocks-without-memory.txt", &place)?;
    let mut served = place.open_broker()?;
    check_answers(set, "answers-without-memory.txt", |words| served.shell(words))?;
    served.broker.stop()?;
    drop(served);
    place.daemon.stop()
}

fn check_blocks(set: &Path, name: &str, place: &Place) -> Result<()> {
    let text = std::fs::read_to_string(set.join(name)).with_context(|| format!("no {name}"))?;
    blocks::check(place, &text).with_context(|| format!("against {name}"))
}

/// Repeats the commands of a file of the set, and compares the answers.
fn check_answers(set: &Path, name: &str, shell: impl Fn(&str) -> Tool) -> Result<()> {
    let expected = std::fs::read_to_string(set.join(name)).with_context(|| format!("no {name}"))?;
    let found = answered(&expected, shell)?;
    match std::env::var_os(OUT_VARIABLE) {
        Some(out) => std::fs::write(Path::new(&out).join(name), &found)?,
        None => check_same(name, &found, &expected),
    }
    Ok(())
}

/// Resends each batch of an idempotent producer: the log must accept none of them twice.
async fn check_producers(client: &Client) -> Result<()> {
    let (topic, partition) = ("idempotent".to_owned(), 0);
    let to = ProduceTarget { topic: topic.clone(), partition, acks: Acks::All };
    let from = FetchTarget { topic, partition, limits: FetchLimits::default() };
    let mut fetch = FetchPipe::open(client, &from).await?;
    let mut produce = ProducePipe::open(client, &to).await?;
    fetch.sender.send(0)?;
    let fetched = fetch.receiver.receive()?;
    let (mut batches, mut count) = (fetched.batches, 0);
    while let Some(batch) = batches.next_batch()? {
        // A producer's batches begin at offset 0, which the checksum does not cover.
        let mut bytes = batch.bytes.to_vec();
        bytes[..8].fill(0);
        produce.sender.send(&mut PreparedProduce::new(&to, &bytes)?)?;
        let offset = produce.receiver.receive()?;
        ensure!(offset == batch.base_offset, "{offset} instead of {}", batch.base_offset);
        count += 1;
    }
    fetch.sender.send(0)?;
    let end = fetch.receiver.receive()?.high_watermark;
    ensure!((count, end) == (2, 2), "{count} batches, and {end} records now");
    Ok(())
}

/// The broker's own logs, and those of topics, on their volumes.
#[test]
fn logs_of_a_later_version_are_refused_by_the_name_of_their_volume() -> Result<()> {
    let mut place = Place::unpack(&set("set-1").join(ARCHIVE))?;
    place.daemon.start_again()?;
    for name in ["broker-state", "broker-definitions"] {
        set_version(&place, name, b'2')?;
        let error = place.open_broker().err().with_context(|| format!("{name} was read"))?;
        let told = format!("{error:#}");
        ensure!(told.contains(name) && told.contains("later version"), "{told}");
        set_version(&place, name, b'1')?;
    }
    let topic = place.daemon.volumes()?.into_iter().find(|it| it.name.starts_with("topic"));
    let topic = topic.context("there are topics")?.name;
    set_version(&place, &topic, b'2')?;
    let mut served = place.open_broker()?;
    let log = served.broker.log();
    let told = log.lines().find(|line| line.contains("cannot open the topic"));
    let told = told.with_context(|| format!("nothing was told of {topic}:\n{log}"))?;
    ensure!(told.contains(&topic) && told.contains("later version"), "{told}");
    served.broker.stop()?;
    drop(served);
    place.daemon.stop()
}

/// Writes the version to the first block of a log.
fn set_version(place: &Place, volume: &str, version: u8) -> Result<()> {
    const VERSION_BYTE: usize = 7;
    let device = place.volume(volume)?;
    let mut block = vec![0; system::BLOCK_BYTES];
    device.read(0, &mut block)?;
    ensure!(block.starts_with(b"MLNtopi"), "{volume} holds no log");
    block[VERSION_BYTE] = version;
    device.write(0, &block)?;
    Ok(())
}
