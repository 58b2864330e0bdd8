//! Missing objects of the image store: temporarily and permanently.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::{Daemon, NBD_IO_ERROR, NbdClient, NbdFailure, Random, Request, wait_for};

const TIME_LIMIT: Duration = Duration::from_secs(120);
const BLOCKS: u64 = 200;

/// A daemon with two volumes of class `image`, and the pack that contains the contents of `db` but
/// not its map.
struct Fixture {
    daemon: Daemon,
    pack: PathBuf,
}

impl Fixture {
    fn new() -> Result<Self> {
        let flags = "--no-fuse --images-keep 1".to_owned();
        let daemon = Daemon::start_flagged("96MiB".to_owned(), flags)?;
        let fixture = Self { daemon, pack: PathBuf::new() };
        for name in ["db", "other"] {
            fixture.memlane(&format!("volume create {name} --size 64MiB --durability image"))?;
        }
        fixture.write("db", 0..BLOCKS, 0)?;
        fixture.daemon.save_image()?;
        let packs = fixture.packs()?;
        ensure!(packs.len() == 1, "{packs:?}");
        // The next image refers to that pack, and has the maps in its own.
        fixture.write("db", BLOCKS..BLOCKS + 1, 0)?;
        fixture.write("other", 0..BLOCKS, 5000)?;
        fixture.daemon.save_image()?;
        Ok(Self { pack: packs[0].clone(), ..fixture })
    }

    fn memlane(&self, words: &str) -> Result<String> {
        self.daemon.memlane(words)
    }

    fn packs(&self) -> Result<Vec<PathBuf>> {
        let folder = self.daemon.folder().join("state").join("images").join("packs");
        let files = fs::read_dir(&folder).context("cannot list the packs")?;
        files.map(|file| Ok(file?.path())).collect()
    }

    fn aside(&self) -> PathBuf {
        self.daemon.folder().join("aside")
    }

    fn take_pack_away(&self) -> Result<()> {
        fs::rename(&self.pack, self.aside()).context("cannot move the pack away")
    }

    fn bring_pack_back(&self) -> Result<()> {
        fs::rename(self.aside(), &self.pack).context("cannot move the pack back")
    }

    fn client(&self, volume: &str) -> Result<NbdClient> {
        Ok(NbdClient::connect(&self.daemon.nbd_socket(), volume)?)
    }

    fn write(&self, volume: &str, blocks: std::ops::Range<u64>, seed: u64) -> Result<()> {
        let mut client = self.client(volume)?;
        for block in blocks {
            let data = noise(seed + block);
            client.ask(&Request::Write { offset: block * 4096, data })?;
        }
        Ok(())
    }

    /// Returns the blocks of a volume that have the contents of this seed. All others must be
    /// unreadable.
    fn readable(&self, volume: &str, seed: u64) -> Result<Vec<u64>> {
        let mut client = self.client(volume)?;
        let mut readable = Vec::new();
        for block in 0..BLOCKS {
            match client.ask(&Request::Read { offset: block * 4096, length: 4096 }) {
                Ok(found) => {
                    ensure!(found == noise(seed + block), "block {block} of {volume} is another");
                    readable.push(block);
                }
                Err(NbdFailure::Refused(NBD_IO_ERROR)) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Ok(readable)
    }

    fn images(&self) -> Result<api::ImagesStatus> {
        self.daemon.status()?.durability.images.context("the daemon has a store")
    }

    fn has_warning(&self, kind: &str) -> Result<bool> {
        Ok(self.daemon.status()?.warnings.iter().any(|warning| warning.kind == kind))
    }
}

fn noise(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    Random::new(seed).fill(&mut bytes);
    bytes
}

/// Checks that only overwritten blocks are readable, and that everything else works.
fn check_missing(fixture: &Fixture) -> Result<()> {
    ensure!(fixture.readable("db", 0)? == [0, 1], "the others are in the pack that is away");
    ensure!(fixture.readable("other", 5000)?.len() as u64 == BLOCKS, "the pack has nothing of it");
    wait_for("the missing pack to be told of", TIME_LIMIT, || {
        let images = fixture.images()?;
        let is_named = images.unfetched.iter().any(|object| {
            let of_db = object.volumes.iter().find(|volume| volume.name == "db");
            of_db.is_some_and(|volume| volume.bytes == (BLOCKS - 2) * 4096)
                && fixture.pack.ends_with(&object.object)
        });
        Ok(is_named && images.unfetched_bytes == (BLOCKS - 2) * 4096)
    })?;
    ensure!(fixture.has_warning("image_object_missing")?, "status warns");
    Ok(())
}

#[test]
fn a_pack_that_is_away_costs_reads_of_what_is_in_it_until_it_is_back() -> Result<()> {
    let mut fixture = Fixture::new()?;
    fixture.take_pack_away()?;
    fixture.daemon.lose_memory()?;
    fixture.daemon.start_again()?;
    fixture.write("db", 0..2, 0)?;
    check_missing(&fixture)?;
    // Saving and removal of images continue, and remove nothing that is needed.
    for _ in 0..3 {
        fixture.write("other", BLOCKS..BLOCKS + 9, 7000)?;
        fixture.daemon.save_image()?;
    }
    fixture.daemon.kill()?;
    fixture.daemon.start_again()?;
    check_missing(&fixture)?;
    fixture.daemon.lose_memory()?;
    fixture.daemon.start_again()?;
    check_missing(&fixture)?;
    fixture.bring_pack_back()?;
    wait_for("all contents to be fetched", TIME_LIMIT, || {
        Ok(fixture.images()?.to_fetch_bytes == 0)
    })?;
    ensure!(fixture.readable("db", 0)?.len() as u64 == BLOCKS, "all is there again");
    wait_for(
        "the warning to go",
        TIME_LIMIT,
        || Ok(!fixture.has_warning("image_object_missing")?),
    )?;
    fixture.memlane("image verify")?;
    fixture.daemon.finish()
}

#[test]
fn a_loss_is_only_what_the_owner_declares() -> Result<()> {
    let mut fixture = Fixture::new()?;
    fixture.take_pack_away()?;
    fixture.daemon.lose_memory()?;
    fixture.daemon.start_again()?;
    let told = fixture.memlane("image accept-loss db")?;
    ensure!(told.contains("the loss of 800 KiB of db"), "{told}");
    fixture.bring_pack_back()?;
    ensure!(fixture.readable("db", 0)?.is_empty(), "it was given up");
    let lost = fixture.daemon.status()?.damage.lost;
    ensure!(lost.len() == 1 && lost[0].name == "db", "{lost:?}");
    ensure!(lost[0].bytes == BLOCKS * 4096, "{lost:?}");
    ensure!(fixture.has_warning("blocks_lost")?, "status warns");
    fixture.daemon.save_image()?;
    let verified = fixture.daemon.try_memlane("image verify")?;
    ensure!(verified.stderr.contains("were lost before the image was saved"), "{verified:?}");
    // The earlier image lacks nothing, and stays.
    let images = fixture.memlane("image list")?;
    ensure!(images.contains("800 KiB lost") && images.lines().count() == 3, "{images}");
    fixture.write("db", 0..BLOCKS, 0)?;
    ensure!(fixture.daemon.status()?.damage.lost.is_empty(), "all was overwritten");
    fixture.daemon.finish()
}
