//! Sequential requests through the ring, and the same requests on a file in memory.
//!
//! `cargo run --release -p ring-pair --example speed [SECONDS [MEBIBYTES [BYTES]]]`. The server
//! runs in this process, on a volume of a real pool. The measured path is nevertheless between two
//! threads.
#![expect(clippy::print_stdout, reason = "it is for people")]

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use model::Random;
use region::{Region, RegionSpec};
use ring_pair::Running;
use sdk::Device;
use volumes::{Engine, EngineOptions, VolumeSpec};

/// Target of a measurement.
trait Target {
    fn read(&self, offset: u64, into: &mut [u8]);
    fn write(&self, offset: u64, from: &[u8]);
}

impl Target for Device {
    fn read(&self, offset: u64, into: &mut [u8]) {
        Device::read(self, offset, into).expect("it is inside");
    }

    fn write(&self, offset: u64, from: &[u8]) {
        Device::write(self, offset, from).expect("it is inside");
    }
}

impl Target for File {
    fn read(&self, offset: u64, into: &mut [u8]) {
        self.read_exact_at(into, offset).expect("it is inside");
    }

    fn write(&self, offset: u64, from: &[u8]) {
        self.write_all_at(from, offset).expect("it is inside");
    }
}

fn main() {
    let arguments: Vec<u64> =
        std::env::args().skip(1).map(|it| it.parse().expect("a number")).collect();
    let time = Duration::from_secs(arguments.first().copied().unwrap_or(1));
    let size = arguments.get(1).copied().unwrap_or(1024) << 20;
    let folder = tempfile::tempdir_in("/dev/shm").expect("tmpfs takes a folder");
    let spec = RegionSpec { path: folder.path().join("region"), size_bytes: size + (size >> 1) };
    let region = Region::open(&spec).expect("there is memory for a pool");
    let options = EngineOptions { lane_count: 2, fresh_secret: [7; 32] };
    let engine = Engine::open(region, options).expect("the pool opens");
    let spec = VolumeSpec::new("db".parse().expect("a good name"), size);
    let running = Running::new(engine.create_volume(spec).expect("a volume can be made"));
    let device = running.open();
    let path = folder.path().join("file");
    let file = File::options().read(true).write(true).create_new(true).open(path);
    let file = file.expect("tmpfs takes a file");
    let mut random = Random::new(1);
    let mut data = vec![0; 1 << 20];
    for offset in (0..size).step_by(data.len()) {
        random.fill(&mut data);
        Target::write(&device, offset, &data);
        Target::write(&file, offset, &data);
    }
    let head = ["bytes", "", "ring", "tmpfs", "ratio", "bells"];
    let [bytes, word, ring, tmpfs, ratio, bells] = head;
    println!("{bytes:>8} {word:>6} {ring:>12} {tmpfs:>12} {ratio:>7} {bells:>8}");
    let lengths = [4096, 128 << 10];
    let only = arguments.get(2).and_then(|&it| usize::try_from(it).ok());
    for length in lengths.into_iter().filter(|&length| only.is_none_or(|only| only == length)) {
        for is_write in [false, true] {
            let mut measure =
                |target: &dyn Target| mean(target, &mut random, (size, length), is_write, time / 5);
            let before = running.status().traffic;
            let (mut ring, mut tmpfs) = (Vec::new(), Vec::new());
            for _ in 0..5 {
                ring.push(measure(&device));
                tmpfs.push(measure(&file));
            }
            let (ring, tmpfs) = (median(ring), median(tmpfs));
            let bells = running.status().traffic.doorbells - before.doorbells;
            let word = if is_write { "write" } else { "read" };
            let ratio = ring / tmpfs;
            println!(
                "{length:>8} {word:>6} {ring:>9.0} ns {tmpfs:>9.0} ns {ratio:>7.2} {bells:>8}"
            );
        }
    }
}

/// Returns the mean duration of one request in nanoseconds.
fn mean(
    target: &dyn Target,
    random: &mut Random,
    (size, length): (u64, usize),
    is_write: bool,
    time: Duration,
) -> f64 {
    let mut data = vec![0; length];
    let (mut count, mut spent) = (0_u64, Duration::ZERO);
    while spent < time {
        let offset = random.number() % (size / length as u64) * length as u64;
        if is_write {
            random.fill(&mut data);
        }
        let start = Instant::now();
        match is_write {
            true => target.write(offset, black_box(&data)),
            false => target.read(offset, black_box(&mut data)),
        }
        spent += start.elapsed();
        count += 1;
    }
    spent.as_secs_f64() * 1e9 / count as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
