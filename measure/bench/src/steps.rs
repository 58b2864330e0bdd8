//! Each step of the write and read path in isolation, compared with copying a cached block.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use block_device::{BlockDevice, SectorSize};
use codec::{BLOCK_BYTES, Block, Encoder};
use page_store::{Fingerprint, PageStore, StoreOptions};
use results::Suite;
use serde::Serialize;
use system::Interruption;
use volumes::{Engine, EngineOptions, VolumeSpec};

use crate::clock::{Random, nanoseconds};
use crate::contents::{Contents, Data};
use crate::output::{self, Form};
use crate::pool::Place;
use crate::run::{Cost, Plan, Session, Step};

/// Number of repetitions per clock reading.
const BATCH: u32 = 256;

const POOL_BYTES: u64 = 256 << 20;

#[derive(Clone, Debug, clap::Args, Serialize)]
pub(crate) struct Arguments {
    /// Seconds for each step
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct Row {
    step: &'static str,
    ns_mean: f64,
}

/// Number of steps in the codec, the page store and the volume, for the estimate of the duration.
const STEP_COUNT: f64 = 18.0;

pub(crate) fn run(arguments: &Arguments, form: Form) -> Result<()> {
    let (rows, has_huge_pages) = measure(arguments)?;
    if form == Form::Json {
        output::json(&rows);
        return Ok(());
    }
    output::note(&table(rows.iter().map(|row| (row.step, row.ns_mean))));
    let pages = if has_huge_pages { "huge pages" } else { "small pages" };
    output::note(&format!("pool in {pages}; a block is 4 KiB"));
    Ok(())
}

/// Plans a step per repeat, which measures every step of the path.
pub(crate) fn plan<'plan>(arguments: &'plan Arguments, session: &Session) -> Result<Plan<'plan>> {
    ensure!(arguments.seconds > 0.0, "--seconds must be more than 0");
    let step = |repeat| Step {
        suite: Suite::Steps,
        case: "steps".to_owned(),
        target: "engine".to_owned(),
        repeat,
        cost: Cost {
            seconds: arguments.seconds * 1.1 * STEP_COUNT,
            written_bytes: 0,
            memory_bytes: 3 * POOL_BYTES,
        },
        measure: Box::new(move || Ok(recorded(&measure(arguments)?.0, repeat))),
    };
    let steps = (0..session.profile.repeats()).map(step).collect();
    Ok(Plan { steps, skipped: Vec::new() })
}

fn recorded(rows: &[Row], repeat: u32) -> Vec<results::Row> {
    let record = |row: &Row| {
        let mut recorded = results::Row::new(Suite::Steps, row.step, "engine");
        recorded.repeat = repeat;
        recorded.figures.insert("ns_mean".to_owned(), row.ns_mean);
        recorded
    };
    rows.iter().map(record).collect()
}

pub(crate) fn describe(rows: &[&results::Row]) -> String {
    let first = rows.iter().filter(|row| row.repeat == 0 && row.is_valid());
    table(first.map(|row| (&*row.case, row.figures.get("ns_mean").copied().unwrap_or(f64::NAN))))
}

fn table<'row>(rows: impl Iterator<Item = (&'row str, f64)>) -> String {
    let mut table = vec![vec!["step".to_owned(), "ns".to_owned()]];
    table.extend(rows.map(|(step, ns)| vec![step.to_owned(), format!("{ns:.1}")]));
    output::table(&table)
}

/// Returns the row of each step, and whether the pool had huge pages.
fn measure(arguments: &Arguments) -> Result<(Vec<Row>, bool)> {
    ensure!(arguments.seconds > 0.0, "--seconds must be more than 0");
    let mut rows = Rows { time: Duration::from_secs_f64(arguments.seconds), list: Vec::new() };
    let place = Place::new()?;
    measure_codec(&mut rows);
    measure_store(&mut rows, &place)?;
    measure_volume(&mut rows, &place)?;
    ensure!(!Interruption::is_asked_for(), "interrupted between steps");
    Ok((rows.list, place.has_huge_pages()))
}

struct Rows {
    time: Duration,
    list: Vec<Row>,
}

impl Rows {
    /// Repeats `work` for the given time, after a warm-up of a tenth of it.
    fn measure(&mut self, step: &'static str, mut work: impl FnMut()) {
        let mut repeat = |time: Duration| {
            let end = Instant::now() + time;
            let (mut ns, mut count) = (0_u64, 0_u64);
            while Instant::now() < end && !Interruption::is_asked_for() {
                ns += nanoseconds(|| (0..BATCH).for_each(|_| work()));
                count += u64::from(BATCH);
            }
            ns as f64 / count.max(1) as f64
        };
        repeat(self.time / 10);
        let ns_mean = repeat(self.time);
        self.list.push(Row { step, ns_mean });
    }
}

fn measure_codec(rows: &mut Rows) {
    let mut random = Contents::new(Data::Random, BLOCK_BYTES, 1);
    let mut rows_of_text = Contents::new(Data::Compressible, BLOCK_BYTES, 1);
    let noise = block(random.next());
    let text = block(rows_of_text.next());
    let mut into = [0; BLOCK_BYTES];
    let mut encoder = Encoder::new();
    rows.measure("copy of a block in the cache", || black_box(&mut into).copy_from_slice(&noise));
    rows.measure("fill check, zeros", || {
        black_box(codec::fill_pattern(black_box(&[0; BLOCK_BYTES])));
    });
    rows.measure("fill check, other", || {
        black_box(codec::fill_pattern(black_box(&noise)));
    });
    rows.measure("incompressibility gate", || {
        black_box(codec::is_worth_encoding(black_box(&noise)));
    });
    rows.measure("LZ4 encode, random", || {
        black_box(encoder.encode(black_box(&noise), BLOCK_BYTES));
    });
    rows.measure("LZ4 encode, rows of text", || {
        black_box(encoder.encode(black_box(&text), BLOCK_BYTES));
    });
    let encoded = encoder.encode(&text, BLOCK_BYTES).map(<[u8]>::to_vec).unwrap_or_default();
    rows.measure("LZ4 decode, rows of text", || {
        black_box(codec::decode(black_box(&encoded), &mut into).is_ok());
    });
}

fn measure_store(rows: &mut Rows, place: &Place) -> Result<()> {
    let region = place.region("steps", POOL_BYTES)?;
    let options = StoreOptions { lane_count: 1, fresh_secret: [0x5A; 32] };
    let (store, _) = PageStore::open(region, options)?;
    let noise = block(Contents::new(Data::Random, BLOCK_BYTES, 1).next());
    let mut random = Random::new(1);
    rows.measure("pin and unpin", || drop(black_box(store.pin())));
    rows.measure("take and leave a lane", || drop(black_box(store.lane())));
    rows.measure("fingerprint (XXH3-128)", || {
        black_box(store.step_fingerprint(black_box(&noise)));
    });
    let pinned = store.pin();
    rows.measure("dedup index probe", || {
        let bits = u32::try_from(random.next() >> 32).expect("32 bits are left");
        let fingerprint = Fingerprint::from_bits(bits);
        black_box(store.step_probe(&pinned, fingerprint));
    });
    drop(pinned);
    let mut lane = store.lane();
    rows.measure("reserve a slot", || lane.step_reserve().expect("the pool has room"));
    rows.measure("store, publish and free a page", || {
        lane.step_store(black_box(&noise)).expect("the pool has room");
    });
    Ok(())
}

fn measure_volume(rows: &mut Rows, place: &Place) -> Result<()> {
    let region = place.region("volume", POOL_BYTES)?;
    let options = EngineOptions { lane_count: 1, fresh_secret: [0x5A; 32] };
    let engine = Engine::open(region, options)?;
    let volume = engine.create_volume(VolumeSpec {
        sector: SectorSize::Bytes4096,
        ..VolumeSpec::new("steps".parse()?, 64 << 20)
    })?;
    let mut random = Contents::new(Data::Random, BLOCK_BYTES, 1);
    volume.write(0, random.next())?;
    let mut into = [0; BLOCK_BYTES];
    rows.measure("read of a hole: pin, walk, zeros", || {
        volume.read(1 << 20, &mut into).expect("the volume is there");
    });
    rows.measure("read of a page in the cache", || {
        volume.read(0, &mut into).expect("the volume is there");
    });
    rows.measure("write of a fill: lane, pin, publish", || {
        volume.write(8 << 20, black_box(&[7; BLOCK_BYTES])).expect("the pool has room");
    });
    rows.measure("overwrite with a fresh random block", || {
        volume.write(0, random.next()).expect("the pool has room");
    });
    Ok(())
}

fn block(bytes: &[u8]) -> Block {
    bytes.try_into().expect("one block was asked for")
}
