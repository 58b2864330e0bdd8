//! Settings of memory, images and names, observed from outside.

#[expect(dead_code, reason = "what goes wrong with the server is for the tests of the store")]
#[path = "../../../engine/object-images/tests/server/mod.rs"]
mod server;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::{SeekFrom, seek};
use rustix::process::geteuid;
use sdk::{Client, Target};
use system::{
    Ability, Daemon, NBD_IO_ERROR, NbdClient, NbdFailure, Random, Request, Tool, missing,
    product_path, wait_for,
};

const TIME_LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;
const BLOCK: u64 = block_device::BLOCK_BYTES as u64;

fn daemon(flags: &str) -> Result<Daemon> {
    Daemon::start_flagged(
        "96MiB".to_owned(),
        format!("--no-fuse --journal-max-bytes 16MiB {flags}"),
    )
}

fn client(daemon: &Daemon, volume: &str) -> Result<NbdClient> {
    Ok(NbdClient::connect(&daemon.nbd_socket(), volume)?)
}

/// Returns incompressible bytes.
fn noise(seed: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(length).expect("it is short")];
    Random::new(seed).fill(&mut bytes);
    bytes
}

fn write(daemon: &Daemon, volume: &str, block: u64, seed: u64) -> Result<()> {
    let data = noise(seed, BLOCK);
    client(daemon, volume)?.ask(&Request::Write { offset: block * BLOCK, data })?;
    Ok(())
}

fn read(daemon: &Daemon, volume: &str, block: u64) -> Result<Vec<u8>, NbdFailure> {
    let mut client = NbdClient::connect(&daemon.nbd_socket(), volume)?;
    client.ask(&Request::Read { offset: block * BLOCK, length: 4096 })
}

#[track_caller]
fn check_block(daemon: &Daemon, volume: &str, block: u64, seed: u64) {
    let found = read(daemon, volume, block).expect("it can be read");
    assert!(found == noise(seed, BLOCK), "block {block} of {volume} is another");
}

#[track_caller]
fn check_unreadable(daemon: &Daemon, volume: &str, block: u64) {
    let found = read(daemon, volume, block).map(|_| "damaged data");
    let is_refused = matches!(found, Err(NbdFailure::Refused(NBD_IO_ERROR)));
    assert!(is_refused, "block {block} of {volume}: {found:?}");
}

fn events(daemon: &Daemon) -> Result<Vec<api::Event>> {
    Ok(serde_json::from_str(&daemon.memlane("--json events")?)?)
}

fn has_event(daemon: &Daemon, kind: &str) -> Result<bool> {
    Ok(events(daemon)?.iter().any(|event| event.kind == kind))
}

fn last_image(daemon: &Daemon) -> Result<Option<u64>> {
    let images = daemon.status()?.durability.images.context("there is a store")?;
    Ok(images.last_image)
}

fn is_root() -> bool {
    geteuid().is_root()
}

#[test]
fn a_pool_gets_its_memory_after_a_start_with_a_wrong_size() -> Result<()> {
    // The unit is missing.
    let mut daemon = Daemon::prepare("128".to_owned(), "--no-fuse".to_owned())?;
    daemon.launch()?;
    ensure!(daemon.wait_until_ready().is_err(), "a pool has 128 bytes");
    let folder = daemon.run_dir().join("pool");
    if is_root() {
        // As a start is killed before it has created the pool.
        Tool::new("mount -t tmpfs -o size=1m,mode=0700 memlane").arg(&folder).check()?;
    }
    daemon.set_pool_size("64MiB");
    daemon.start_again()?;
    daemon.memlane("volume create db --size 16MiB")?;
    daemon.finish()
}

#[test]
fn a_misspelt_log_level_is_refused() -> Result<()> {
    let mut daemon = Daemon::prepare("64MiB".to_owned(), "--no-fuse --log dbug".to_owned())?;
    daemon.launch()?;
    ensure!(daemon.wait_until_ready().is_err(), "nothing would be logged");
    let log = daemon.log_end();
    ensure!(log.contains("invalid log filter \"dbug\""), "{log}");
    Ok(())
}

#[test]
fn a_start_goes_back_to_an_older_image_only_when_the_loss_is_accepted() -> Result<()> {
    let mut daemon = daemon("--images-save-at-stop false")?;
    daemon.memlane("volume create db --size 16MiB --durability image")?;
    write(&daemon, "db", 0, 1)?;
    daemon.save_image()?;
    let older = last_image(&daemon)?.context("an image was saved")?;
    write(&daemon, "db", 0, 2)?;
    daemon.save_image()?;
    let newer = last_image(&daemon)?.context("an image was saved")?;
    daemon.lose_memory()?;
    let manifest = daemon.folder().join(format!("state/images/images/{newer:010}"));
    let manifest = File::options().write(true).open(manifest)?;
    manifest.write_all_at(&[0xff; 64], 128)?;
    drop(manifest);
    let refusal = daemon.start_again().expect_err("something would be lost").to_string();
    ensure!(refusal.contains("--accept-loss"), "{refusal}");
    let flags = daemon.flags().to_owned();
    daemon.set_flags(&format!("{flags} --accept-loss {older}"));
    daemon.start_again()?;
    check_block(&daemon, "db", 0, 1);
    ensure!(has_event(&daemon, "loss_accepted")?, "{:?}", events(&daemon)?);
    // For one start only.
    daemon.set_flags(&flags);
    daemon.stop()?;
    daemon.start_again()?;
    check_block(&daemon, "db", 0, 1);
    daemon.finish()
}

/// Pages reserved for hugetlbfs. Their number is restored on drop.
struct HugePages {
    before: String,
}

impl HugePages {
    const COUNT: &'static str = "/proc/sys/vm/nr_hugepages";

    /// Returns `None` if the host has too few.
    fn more(count: u64) -> Result<Option<Self>> {
        let before = fs::read_to_string(Self::COUNT)?.trim().to_owned();
        let wanted = before.parse::<u64>()? + count;
        let pages = Self { before };
        fs::write(Self::COUNT, wanted.to_string())?;
        let given: u64 = fs::read_to_string(Self::COUNT)?.trim().parse()?;
        Ok((given >= wanted).then_some(pages))
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Err(error) = fs::write(Self::COUNT, &self.before) {
            eprintln!("cannot give huge pages back: {error}");
        }
    }
}

#[test]
fn a_pool_of_huge_pages_survives_a_kill() -> Result<()> {
    if !is_root() || !Path::new(HugePages::COUNT).exists() {
        eprintln!("skipped: huge pages take root and a kernel that has them");
        return Ok(());
    }
    let Some(pages) = HugePages::more(64)? else {
        eprintln!("skipped: this host has no 64 huge pages to give");
        return Ok(());
    };
    let mut daemon =
        Daemon::start_flagged("64MiB".to_owned(), "--no-fuse --pool-hugetlb".to_owned())?;
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let pool = daemon.run_dir().join("pool");
    let is_huge =
        |line: &str| line.contains(&*pool.to_string_lossy()) && line.contains("hugetlbfs");
    ensure!(mounts.lines().any(is_huge), "{mounts}");
    daemon.memlane("volume create v --size 16MiB")?;
    write(&daemon, "v", 7, 7)?;
    daemon.kill()?;
    daemon.start_again()?;
    check_block(&daemon, "v", 7, 7);
    daemon.finish()?;
    drop(pages);
    Ok(())
}

#[test]
fn a_pool_grows_to_the_size_that_it_was_made_for_and_no_further() -> Result<()> {
    let daemon = daemon("--pool-size-max 128MiB")?;
    let pool: api::Pool = serde_json::from_str(&daemon.memlane("--json pool show")?)?;
    ensure!(pool.capacity_bytes == 128 * MIB, "{pool:?}");
    let refused = daemon.try_memlane("pool set max-memory=192MiB")?;
    ensure!(refused.exit_code == Some(4), "{refused:?}");
    daemon.memlane("pool set max-memory=128MiB")?;
    let pool: api::Pool = serde_json::from_str(&daemon.memlane("--json pool show")?)?;
    ensure!(pool.max_memory_bytes == 128 * MIB, "{pool:?}");
    daemon.finish()
}

#[test]
fn images_are_saved_by_themselves_as_often_as_was_said() -> Result<()> {
    let mut daemon = daemon("--images-every 1s --images-save-at-stop false")?;
    daemon.memlane("volume create db --size 16MiB --durability image")?;
    write(&daemon, "db", 3, 3)?;
    wait_for("an image with the block", TIME_LIMIT, || {
        let at_risk = daemon.status()?.durability.at_risk;
        Ok(last_image(&daemon)?.is_some() && at_risk.image_bytes == 0)
    })?;
    daemon.lose_memory()?;
    daemon.start_again()?;
    check_block(&daemon, "db", 3, 3);
    daemon.finish()
}

#[test]
fn images_in_an_object_store_bring_volumes_back() -> Result<()> {
    let server = server::Server::start();
    let flags = "--no-fuse --images-store s3://bucket/one/two".to_owned();
    let mut daemon = Daemon::prepare("96MiB".to_owned(), flags)?;
    daemon.set_object_store(server.address);
    daemon.start_again()?;
    daemon.memlane("volume create db --size 16MiB --durability image")?;
    write(&daemon, "db", 5, 5)?;
    daemon.save_image()?;
    ensure!(!server.bucket().objects.is_empty(), "nothing was stored");
    daemon.lose_memory()?;
    daemon.start_again()?;
    check_block(&daemon, "db", 5, 5);
    let verified = daemon.memlane("image verify")?;
    ensure!(!verified.contains("damaged"), "{verified}");
    daemon.finish()
}

/// Flips one bit of a page in the pool's memory, like failing memory.
fn flip_a_bit(daemon: &Daemon, contents: &[u8]) -> Result<()> {
    let region = File::options().read(true).write(true).open(daemon.pool_file())?;
    let mut found = Vec::new();
    let mut page = vec![0; contents.len()];
    let mut offset = 0;
    // The file has the pool's maximum size, with holes.
    while let Ok(data) = seek(&region, SeekFrom::Data(offset)) {
        let end = seek(&region, SeekFrom::Hole(data))?;
        for start in (data..end).step_by(contents.len()) {
            region.read_exact_at(&mut page, start)?;
            if page == contents {
                found.push(start);
            }
        }
        offset = end;
    }
    ensure!(found.len() == 1, "the page is there {} times", found.len());
    region.write_all_at(&[contents[100] ^ 1], found[0] + 100)?;
    Ok(())
}

#[test]
fn the_scrub_finds_damage_in_the_background_and_heals_what_the_journal_has() -> Result<()> {
    let daemon = daemon("--scrub-rate 1GiB")?;
    daemon.memlane("volume create lost --size 16MiB --reduction none")?;
    write(&daemon, "lost", 1, 11)?;
    daemon.memlane("volume create healed --size 16MiB --reduction none --durability journal")?;
    write(&daemon, "healed", 2, 12)?;
    client(&daemon, "healed")?.ask(&Request::Flush)?;
    flip_a_bit(&daemon, &noise(11, BLOCK))?;
    flip_a_bit(&daemon, &noise(12, BLOCK))?;
    // A scrub that has passed the pages starts again with a new daemon.
    let mut daemon = daemon;
    daemon.kill()?;
    daemon.start_again()?;
    wait_for("the scrub to find both", TIME_LIMIT, || {
        Ok(has_event(&daemon, "memory_damaged")? && has_event(&daemon, "memory_healed")?)
    })?;
    check_block(&daemon, "healed", 2, 12);
    check_unreadable(&daemon, "lost", 1);
    daemon.finish()
}

#[test]
fn damage_is_found_by_readers_where_reads_are_verified() -> Result<()> {
    let daemon = daemon("--scrub-rate 0 --scrub-verify-on-read true")?;
    daemon.memlane("volume create v --size 16MiB --reduction none")?;
    write(&daemon, "v", 1, 21)?;
    check_block(&daemon, "v", 1, 21);
    flip_a_bit(&daemon, &noise(21, BLOCK))?;
    check_unreadable(&daemon, "v", 1);
    wait_for("the damage to be told of", TIME_LIMIT, || has_event(&daemon, "memory_damaged"))?;
    daemon.finish()
}

#[test]
fn warnings_come_at_the_thresholds_that_were_set() -> Result<()> {
    let daemon = daemon("--capacity-thresholds 20,40")?;
    daemon.memlane("volume create v --size 64MiB")?;
    let pool: api::Pool = serde_json::from_str(&daemon.memlane("--json pool show")?)?;
    ensure!(pool.thresholds_percent == [20, 40] && pool.passed_percent.is_none(), "{pool:?}");
    let mut client = client(&daemon, "v")?;
    for piece in 0..40 {
        client.ask(&Request::Write { offset: piece * MIB, data: noise(piece, MIB) })?;
    }
    wait_for("the warning", TIME_LIMIT, || {
        let warned = daemon.status()?.warnings.iter().any(|it| it.kind == "pool_filling");
        Ok(warned && has_event(&daemon, "pool_filling")?)
    })?;
    drop(client);
    daemon.finish()
}

#[test]
fn a_renamed_snapshot_has_what_it_had() -> Result<()> {
    let daemon = daemon("")?;
    daemon.memlane("volume create v --size 16MiB")?;
    write(&daemon, "v", 1, 1)?;
    daemon.memlane("snapshot create v monday")?;
    write(&daemon, "v", 1, 2)?;
    daemon.memlane("snapshot rename v@monday tuesday")?;
    check_block(&daemon, "v@tuesday", 1, 1);
    check_block(&daemon, "v", 1, 2);
    let gone = daemon.try_memlane("snapshot delete v@monday")?;
    ensure!(gone.exit_code == Some(3), "{gone:?}");
    daemon.memlane("snapshot delete v@tuesday")?;
    daemon.finish()
}

#[test]
fn what_changed_since_a_snapshot_is_told_over_nbd() -> Result<()> {
    if let Some(reason) = missing(&[Ability::Program("nbdinfo")]) {
        eprintln!("skipped: {reason}");
        return Ok(());
    }
    let daemon = daemon("")?;
    daemon.memlane("volume create v --size 1MiB")?;
    write(&daemon, "v", 1, 1)?;
    daemon.memlane("snapshot create v before")?;
    write(&daemon, "v", 3, 3)?;
    daemon.memlane("snapshot create v after")?;
    write(&daemon, "v", 5, 5)?;
    for (name, blocks) in [("v", &[3, 5][..]), ("v@after", &[3])] {
        let map = Tool::new("nbdinfo --json --map=memlane:changed:before")
            .arg(daemon.nbd_uri(name))
            .check()?;
        let extents: Vec<serde_json::Value> = serde_json::from_str(&map)?;
        let changed: Vec<_> = extents
            .iter()
            .filter(|extent| extent["type"] != 0)
            .map(|extent| (extent["offset"].as_u64(), extent["length"].as_u64()))
            .collect();
        let expected: Vec<_> =
            blocks.iter().map(|block| (Some(block * BLOCK), Some(BLOCK))).collect();
        ensure!(changed == expected, "{name}: {map}");
    }
    daemon.finish()
}

#[test]
fn a_guarantee_that_does_not_fit_any_more_is_told_of() -> Result<()> {
    let mut daemon = daemon("")?;
    daemon.memlane("volume create db --size 32MiB --capacity guaranteed --durability image")?;
    write(&daemon, "db", 1, 1)?;
    daemon.save_image()?;
    daemon.lose_memory()?;
    daemon.set_pool_size("32MiB");
    daemon.start_again()?;
    check_block(&daemon, "db", 1, 1);
    ensure!(has_event(&daemon, "guarantee_lost")?, "{:?}", events(&daemon)?);
    ensure!(daemon.volume("db")?.capacity == api::Capacity::Thin, "{:?}", daemon.volume("db")?);
    daemon.finish()
}

/// Set for a run of this program as another user: the socket for opening a volume.
const RING_VARIABLE: &str = "MEMLANE_TEST_RING";

const OTHER_USER_TEST: &str = "another_user_opens_a_volume_only_when_it_is_one_of_its_users";

#[test]
fn another_user_opens_a_volume_only_when_it_is_one_of_its_users() -> Result<()> {
    if let Some(socket) = std::env::var_os(RING_VARIABLE) {
        let device = Client::connect(Path::new(&socket))?.open(&Target::Name("v".to_owned()))?;
        return Ok(device.write(0, &noise(7, BLOCK))?);
    }
    if !is_root() {
        eprintln!("skipped: only root can be somebody else");
        return Ok(());
    }
    let daemon = daemon("")?;
    fs::set_permissions(daemon.folder(), fs::Permissions::from_mode(0o755))?;
    daemon.memlane("volume create v --size 16MiB")?;
    let user = |uid: &str| {
        Tool::new("setpriv --clear-groups")
            .args([format!("--reuid={uid}"), format!("--regid={uid}")])
            .arg(std::env::current_exe().unwrap_or_default())
            .args(["--exact", OTHER_USER_TEST, "--nocapture"])
            .env(RING_VARIABLE, &daemon.run_dir().join("ring.sock").to_string_lossy())
            .run()
    };
    let check_refused = |uid: &str| {
        let refused = user(uid)?;
        let is_told = refused.stderr.contains(&format!("user {uid} may not use any volume"));
        ensure!(refused.exit_code == Some(101) && is_told, "{refused:?}");
        Ok(())
    };
    check_refused("65534")?;
    daemon.memlane("volume set v users=65534")?;
    let admitted = user("65534")?;
    ensure!(admitted.exit_code == Some(0), "{admitted:?}");
    check_block(&daemon, "v", 0, 7);
    check_refused("65533")?;
    daemon.memlane("volume set v users=")?;
    check_refused("65534")?;
    daemon.finish()
}

/// Returns the path of a script for a UPS daemon.
fn hook(name: &str) -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    own.join("../../control/daemon/ups").join(name)
}

#[test]
fn an_image_is_saved_when_a_ups_says_that_power_has_failed() -> Result<()> {
    let mut daemon = daemon("--images-save-at-stop false")?;
    daemon.memlane("volume create db --size 16MiB --durability image")?;
    let program = product_path("memlane");
    let folder = program.parent().context("it lies in a folder")?.to_string_lossy().into_owned();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let call = |daemon: &Daemon, name: &str, event: &[&str]| {
        Tool::new("sh")
            .arg(hook(name))
            .args(event)
            .env("PATH", &path)
            .env("MEMLANE_SOCKET", &daemon.api_socket().to_string_lossy())
            .run()
    };
    for (block, (name, event)) in [
        ("onbattery", &[][..]),
        ("upssched-cmd", &["onbattery"]),
        ("upssched-cmd", &["lowbattery"]),
    ]
    .into_iter()
    .enumerate()
    {
        write(&daemon, "db", block as u64, 100 + block as u64)?;
        let before = last_image(&daemon)?;
        let called = call(&daemon, name, event)?;
        ensure!(called.exit_code == Some(0), "{name} {event:?}: {called:?}");
        ensure!(last_image(&daemon)? > before, "{name} {event:?} saved no image");
    }
    daemon.lose_memory()?;
    let called = call(&daemon, "upssched-cmd", &["onbattery"])?;
    ensure!(called.exit_code == Some(1), "without a daemon: {called:?}");
    daemon.start_again()?;
    (0..3).for_each(|block| check_block(&daemon, "db", block, 100 + block));
    daemon.finish()
}
