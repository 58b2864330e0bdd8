//! Measures images in a folder: `measure FOLDER GIBIBYTES [sealed]`. Saves and restores a volume of
//! incompressible data, from and to a pool in `/dev/shm`, and prints figures to compare with `dd`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for people")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use block_device::BlockDevice;
use image::{
    ClaimedStore, CopiedVolume, EngineSource, EngineTarget, FolderStore, ImageStore, ImageVolume,
    JournalPosition, OpenImage, SaveOptions, Saved, SealedStore, Unwatched, rehearse,
};
use region::{Region, RegionSpec};
use sealing::{DataKey, SetKey, WrappingKey};
use volumes::{Engine, EngineOptions, ImageBase, SavedVolume, Settles, Volume, VolumeSpec};

const MIB: u64 = 1 << 20;

/// Random bytes per write.
const PIECE_BYTES: usize = 1 << 20;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let (folder, gibibytes, is_sealed) = match &arguments[1..] {
        [folder, gibibytes] => (folder, gibibytes, false),
        [folder, gibibytes, sealed] if sealed == "sealed" => (folder, gibibytes, true),
        _ => return Err("usage: measure FOLDER GIBIBYTES [sealed]".into()),
    };
    let size_bytes = gibibytes.parse::<u64>()? << 30;
    let mut store: Arc<dyn ImageStore> = Arc::new(FolderStore::open_alone(Path::new(folder))?);
    if is_sealed {
        let key = SetKey::wrap(DataKey::draw()?, &WrappingKey::new([1; 32]))?;
        store = Arc::new(SealedStore::new(store, Arc::new(key)));
    }
    let mut claimed = ClaimedStore::claim(Arc::clone(&store), u128::from(std::process::id()))?;
    let rehearsed = rehearse(&*store, 99, &Unwatched)?;
    println!("rehearsal          {:6} MiB/s", rehearsed.bytes_a_second() / MIB);
    {
        let pool = tempfile::tempdir_in("/dev/shm")?;
        let engine = open_pool(pool.path(), size_bytes)?;
        let volume = fill(&engine, size_bytes)?;
        report("full save", &save(&engine, &volume, &mut claimed)?);
        change(&volume, size_bytes)?;
        report("save after 1 %", &save(&engine, &volume, &mut claimed)?);
        report("save of nothing", &save(&engine, &volume, &mut claimed)?);
    }
    bring_back(&store, size_bytes)
}

fn open_pool(folder: &Path, size_bytes: u64) -> Outcome<Engine> {
    let size_bytes = size_bytes + size_bytes / 8 + (64 << 20);
    let spec = RegionSpec { path: folder.join("region"), size_bytes };
    let options = EngineOptions { lane_count: 2, fresh_secret: [7; 32] };
    Ok(Engine::open(Region::open(&spec)?, options)?)
}

/// Fills `into` with bytes that differ from piece to piece.
fn noise(seed: u64, into: &mut [u8]) {
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(into);
}

fn fill(engine: &Engine, size_bytes: u64) -> Outcome<Arc<Volume>> {
    let volume = engine.create_volume(VolumeSpec::new("data".parse()?, size_bytes))?;
    let mut piece = vec![0; PIECE_BYTES];
    for at in (0..size_bytes).step_by(PIECE_BYTES) {
        noise(at, &mut piece);
        volume.write(at, &piece)?;
    }
    while engine.maintain() {}
    Ok(volume)
}

/// Writes to every hundredth block, in a pseudorandom order and at pseudorandom positions.
fn change(volume: &Volume, size_bytes: u64) -> Outcome<()> {
    let block_count = size_bytes / 4096;
    let mut block = [0; 4096];
    for number in 0..block_count / 100 {
        noise(u64::MAX - number, &mut block);
        volume.write(number * 7_919 * 101 % block_count * 4096, &block)?;
    }
    Ok(())
}

fn save(engine: &Engine, volume: &Arc<Volume>, claimed: &mut ClaimedStore) -> Outcome<Saved> {
    // The volume is not written meanwhile, so it serves as its own copy.
    let copied = CopiedVolume { record: ImageVolume::of(volume), copy: Arc::clone(volume) };
    let source = EngineSource::new(vec![copied], engine.absent_image(), None);
    let options = SaveOptions {
        set_id: [1; 16],
        created_seconds: 0,
        journal: JournalPosition::default(),
        label: String::new(),
        bytes_a_second_max: None,
    };
    let saved = claimed.save(&source, &options, &Unwatched)?;
    let base = ImageBase { image: saved.id.word(), volume_id: volume.id() };
    volume.map().set_image_base(Some(base));
    let (volume, copy) = (Arc::clone(volume), Arc::clone(volume));
    engine.note_saved(&[SavedVolume { volume, copy, settles: Settles::Image }]);
    Ok(saved)
}

fn report(what: &str, saved: &Saved) {
    println!(
        "{what:18} {:6} MiB/s  {:9.3} MiB in {:.3} s, {} chunks",
        saved.bytes_a_second() / MIB,
        saved.bytes_written as f64 / MIB as f64,
        saved.took.as_secs_f64(),
        saved.chunks_new,
    );
}

fn bring_back(store: &Arc<dyn ImageStore>, size_bytes: u64) -> Outcome<()> {
    let pool = tempfile::tempdir_in("/dev/shm")?;
    let engine = open_pool(pool.path(), size_bytes)?;
    let begun = Instant::now();
    let image = OpenImage::open_newest(Arc::clone(store), &mut |_, _| {})?;
    let image = Arc::new(image.ok_or("an image was saved")?);
    engine.set_page_source(Some((image.id().word(), Arc::clone(&image) as _)));
    let record = &image.volumes()[0];
    let volume = engine.begin_filling(record.spec()?, Some(record.id))?;
    image.fill(0, &volume)?;
    engine.end_filling(&volume)?;
    let mut block = [0; 4096];
    volume.read(size_bytes / 2 + 4096, &mut block)?;
    println!("first read after   {:9.3} ms", begun.elapsed().as_secs_f64() * 1000.0);
    let begun = Instant::now();
    let volumes = [Some(volume)];
    let restored = image.restore(&mut EngineTarget::new(&volumes), &Unwatched)?;
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "restore            {:6.0} MiB/s  {} pages in {seconds:.3} s",
        restored.bytes_read as f64 / MIB as f64 / seconds,
        restored.pages_placed,
    );
    let begun = Instant::now();
    let verified = image.verify(&Unwatched)?;
    let seconds = begun.elapsed().as_secs_f64();
    let rate = verified.bytes_read as f64 / MIB as f64 / seconds;
    println!("verify             {rate:6.0} MiB/s  {} damaged", verified.chunks_damaged);
    Ok(())
}
