//! Many threads on one pool: writers that share leaves, pages and slabs, readers, administration
//! and maintenance.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use block_device::{BlockDevice, ByteRange, DeviceErrorKind, SectorSize, Zeroes};
use model::{
    Block, Contents, ModelVolume, Random, Request, check_same_block, for_each_seed, observe,
};
use support::{History, Pool, check_sound_when_empty, check_sums, settle};
use volumes::{Engine, Reduction, ShrinkPolicy, Volume, VolumeErrorKind, VolumeSpec};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = block_device::BLOCK_BYTES as u64;

/// Number of blocks in the volume that all share: three leaves.
const BLOCK_COUNT: u64 = 1536;

/// Distance between the blocks of temporary volumes: each block has its own leaf.
const SPARSE_BYTES: u64 = 2 * MIB;

/// Number of consecutive blocks that belong to one writer.
const RUN_BLOCKS: u64 = 4;

const WRITER_COUNT: u64 = 3;

/// Number of requests of each writer.
const REQUEST_COUNT: u64 = 2500;

fn spec(name: &str, size_bytes: u64) -> VolumeSpec {
    VolumeSpec {
        sector: SectorSize::Bytes4096,
        ..VolumeSpec::new(name.parse().expect("a good name"), size_bytes)
    }
}

/// State shared by the threads of one run.
struct Arena<'run> {
    engine: &'run Engine,
    seed: u64,
    volume: Arc<Volume>,
    histories: Vec<History>,
    /// The volume created last by the administration, for others to use until it is deleted.
    handle: Mutex<Option<Arc<Volume>>>,
    writers_left: AtomicU64,
}

impl Arena<'_> {
    fn is_over(&self) -> bool {
        self.writers_left.load(Ordering::Relaxed) == 0
    }

    fn random(&self, role: u64) -> Random {
        Random::new(self.seed.wrapping_mul(1000) + role)
    }

    fn history(&self, block: u64) -> &History {
        &self.histories[usize::try_from(block).expect("a small volume")]
    }

    /// Writes the blocks of one writer, and returns their final contents.
    fn write(&self, writer: u64) -> ModelVolume {
        let _end = Countdown(&self.writers_left);
        let model = ModelVolume::new(BLOCK_COUNT * BLOCK, SectorSize::Bytes4096);
        let mut random = self.random(writer);
        for _ in 0..REQUEST_COUNT {
            let run = random.below(BLOCK_COUNT / RUN_BLOCKS / WRITER_COUNT) * WRITER_COUNT + writer;
            let request = request_in(run, &mut random);
            self.run_request(&model, request);
            if random.one_in(8) {
                let block = run * RUN_BLOCKS + random.below(RUN_BLOCKS);
                check_same_block(&*self.volume, &model, block);
            }
        }
        model
    }

    fn run_request(&self, model: &ModelVolume, request: Request) {
        let old: Vec<Option<Block>> = request.blocks().map(|block| model.block(block)).collect();
        request.run(model).expect("the model has memory");
        for block in request.blocks() {
            self.history(block).begin(&model.block(block).unwrap_or([0; 4096]));
        }
        match request.run(&*self.volume) {
            Ok(_) => {}
            Err(DeviceErrorKind::NoSpace) => {
                for (block, old) in request.blocks().zip(old) {
                    let found = observe(&*self.volume, block);
                    let is_either = found == old || found == model.block(block);
                    assert!(is_either, "block {block} is neither old nor new");
                    model.set_block(block, found);
                    self.history(block).begin(&found.unwrap_or([0; 4096]));
                }
            }
            Err(other) => panic!("{request:?}: {other:?}"),
        }
        request.blocks().for_each(|block| self.history(block).end());
    }

    /// Reads a few blocks at a time: each must be old or new as a whole.
    fn read(&self, role: u64) {
        let mut random = self.random(role);
        while !self.is_over() {
            let first = random.below(BLOCK_COUNT - 8);
            let count = 1 + random.index(8);
            let blocks = first..first + count as u64;
            let done: Vec<u64> = blocks.clone().map(|block| self.history(block).done()).collect();
            let mut bytes = vec![0xEE; count * 4096];
            if random.one_in(2) {
                self.volume.read(first * BLOCK, &mut bytes).expect("the read succeeds");
            } else {
                self.read_in_place(first * BLOCK, &mut bytes);
            }
            let (seen, _) = bytes.as_chunks::<4096>();
            for ((block, done), contents) in blocks.zip(done).zip(seen) {
                let is_allowed = self.history(block).allows(done, contents);
                assert!(is_allowed, "block {block} is neither old nor new: {:?}", &contents[..8]);
            }
        }
    }

    fn read_in_place(&self, offset: u64, into: &mut [u8]) {
        let range = ByteRange::new(offset, into.len() as u64);
        let mut scratch = vec![0xEE; into.len()];
        let mut shown = Vec::with_capacity(into.len());
        let result = self.volume.read_in_place(range, &mut scratch, &mut |slices| {
            slices.iter().for_each(|slice| shown.extend_from_slice(slice));
        });
        result.expect("the read succeeds");
        into.copy_from_slice(&shown);
    }

    fn maintain(&self) {
        while !self.is_over() {
            if !self.engine.maintain() {
                std::thread::yield_now();
            }
            // Everything unused since the turn before last is idle.
            self.engine.begin_idle_period();
            self.engine.compress_idle();
            assert_eq!(self.engine.damaged_entries(), 0);
        }
    }

    /// Creates, fills, checks, shrinks and deletes volumes, one after the other, in the same record
    /// of the table.
    fn administrate(&self, role: u64) {
        let mut random = self.random(role);
        while !self.is_over() {
            let blocks = 1 + random.below(64);
            let volume = self.engine.create_volume(spec("other", blocks * SPARSE_BYTES));
            let volume = volume.expect("a volume can be made");
            let contents = Contents::random(&mut random);
            let is_written = (0..blocks)
                .take_while(|&block| {
                    volume.write(block * SPARSE_BYTES, &contents.block(block)).is_ok()
                })
                .count() as u64;
            for block in 0..is_written {
                let found = observe(&*volume, block * SPARSE_BYTES / BLOCK);
                assert!(found == Some(contents.block(block)), "others reach a new volume");
            }
            *self.handle.lock().expect("no thread panics with it locked") =
                Some(Arc::clone(&volume));
            let new_bytes = (1 + random.below(2 * blocks)) * MIB;
            let policy = random.pick(&[ShrinkPolicy::KeepData, ShrinkPolicy::DropData]);
            if let Err(error) = self.engine.resize_volume("other", new_bytes, policy) {
                assert_eq!(error.kind, VolumeErrorKind::DataPastNewEnd);
            }
            let reduction = random.pick(&Reduction::ALL);
            self.engine.set_reduction("hot", reduction).expect("the volume is there");
            let _usage = self.engine.usage();
            let _usage = volume.usage();
            self.engine.delete_volume("other").expect("the volume is deleted");
        }
    }

    /// Uses volumes that may be deleted at any moment.
    fn haunt(&self, role: u64) {
        let mut random = self.random(role);
        while !self.is_over() {
            let handle = self.handle.lock().expect("no thread panics with it locked").clone();
            let Some(volume) = handle else {
                std::thread::yield_now();
                continue;
            };
            let start = random.below(64) * SPARSE_BYTES;
            let range = ByteRange::new(start, random.below(64) * SPARSE_BYTES);
            let all = ByteRange::new(0, volume.geometry().size_bytes);
            let contents = Contents::random(&mut random);
            let request = match random.below(7) {
                0 => Request::Write { offset: range.start, length: 9000, contents },
                1 => Request::WriteZeroes(range, Zeroes::Unmap),
                2 => Request::WriteZeroes(ByteRange::new(range.start, 9000), Zeroes::KeepAllocated),
                3..6 => Request::Discard(all),
                _ => Request::Read { offset: range.start, length: 9000 },
            };
            if let Err(kind) = request.run(&*volume) {
                use DeviceErrorKind::{Gone, NoSpace, OutOfRange};
                assert!(matches!(kind, Gone | NoSpace | OutOfRange), "{request:?}: {kind:?}");
            }
        }
    }
}

/// Decrements the number of writers when dropped.
struct Countdown<'arena>(&'arena AtomicU64);

impl Drop for Countdown<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns a request within one run of blocks.
fn request_in(run: u64, random: &mut Random) -> Request {
    let start = random.below(RUN_BLOCKS);
    let count = 1 + random.below(RUN_BLOCKS - start);
    let offset = (run * RUN_BLOCKS + start) * BLOCK;
    let (range, length) = (ByteRange::new(offset, count * BLOCK), random.index(4096) + 1);
    let contents = Contents::random(random);
    match random.below(12) {
        0..2 => Request::Discard(range),
        2 => Request::WriteZeroes(range, Zeroes::Unmap),
        3 => Request::WriteZeroes(range, Zeroes::KeepAllocated),
        4 => Request::WriteZeroes(
            ByteRange::new(offset + random.below(BLOCK - length as u64 + 1), length as u64),
            random.pick(&[Zeroes::Unmap, Zeroes::KeepAllocated]),
        ),
        5..7 => Request::Write {
            offset: offset + random.below(BLOCK - length as u64 + 1),
            length,
            contents,
        },
        _ => {
            let length = usize::try_from(range.length).expect("a short range");
            Request::Write { offset, length, contents }
        }
    }
}

fn run(seed: u64) {
    let pool = Pool::new([6, 8, 12, 24][usize::try_from(seed % 4).expect("below four")] * MIB, 2);
    let engine = pool.open();
    let arena = Arena {
        engine: &engine,
        seed,
        volume: engine.create_volume(spec("hot", BLOCK_COUNT * BLOCK)).expect("it can be made"),
        histories: (0..BLOCK_COUNT).map(|_| History::new()).collect(),
        handle: Mutex::new(None),
        writers_left: AtomicU64::new(WRITER_COUNT),
    };
    let models = std::thread::scope(|scope| {
        let arena = &arena;
        let writers: Vec<_> =
            (0..WRITER_COUNT).map(|writer| scope.spawn(move || arena.write(writer))).collect();
        scope.spawn(|| arena.read(100));
        scope.spawn(|| arena.maintain());
        scope.spawn(|| arena.administrate(101));
        scope.spawn(|| arena.haunt(102));
        let ended = writers.into_iter().map(|writer| writer.join().expect("the writer ends"));
        ended.collect::<Vec<_>>()
    });
    drop(arena);
    check_models(&engine, &models);
    let engine = match seed % 3 {
        0 => engine,
        1 => {
            drop(engine);
            pool.open()
        }
        _ => {
            engine.close();
            pool.open()
        }
    };
    check_models(&engine, &models);
    check_sound_when_empty(&engine);
}

fn check_models(engine: &Engine, models: &[ModelVolume]) {
    settle(engine);
    check_sums(engine);
    let usage = engine.usage();
    let written_bytes: u64 = models.iter().map(ModelVolume::written_bytes).sum();
    let fill_bytes: u64 = models.iter().map(ModelVolume::fill_bytes).sum();
    assert_eq!((usage.written_bytes, usage.fill_bytes), (written_bytes, fill_bytes));
    let volume = engine.volume("hot").expect("it is there");
    for block in 0..BLOCK_COUNT {
        let owner = usize::try_from(block / RUN_BLOCKS % WRITER_COUNT).expect("few writers");
        check_same_block(&*volume, &models[owner], block);
    }
}

/// Goal: threads see each block old or new as a whole, lose nothing, and leave nothing behind.
/// Method: writers own blocks and share everything else; the contents that readers see are looked
/// up in the history of each block; at the end the pool must equal the writers' models, also after
/// it was opened again, and be empty when everything is deleted.
#[test]
fn many_threads_agree_with_their_models() {
    for_each_seed("cargo test -p volumes --test stress", 12, run);
}
