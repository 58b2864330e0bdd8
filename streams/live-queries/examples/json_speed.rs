//! Benchmark of finding a value in JSON, in thread CPU time.
//!
//! `cargo run --release -p live-queries --example json_speed [RUNS]`
//!
//! Reads a flat record of 300 bytes and a nested one of 1 KiB, both compact and with spaces, and
//! records whose values differ in length, as in a real topic: the branch predictor learns a record
//! that is read repeatedly, but not varying ones.
//!
//! The fastest of many short runs counts, because other load on the machine only slows runs down.

#![expect(clippy::print_stdout, reason = "a measurement for people")]

use std::hint::black_box;
use std::time::Duration;

use live_queries::{Fields, JsonStep, Paths, Step, find_json};
use random::Random;

/// Readings of one run, few enough that most runs are not interrupted.
const READINGS: u32 = 500;

/// Number of different records, beyond the capacity of branch predictors.
const VARIED: usize = 5_000;
const RUNS: usize = 400;

fn main() {
    let runs = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(RUNS);
    let spaced = flat().replace(',', ", ").replace(':', ": ");
    let (flat, nested) = (flat(), nested());
    let key = JsonStep::Key;
    let index = JsonStep::Index;
    let deep: &[JsonStep<'_>] =
        &[key("order"), key("lines"), index(2), key("product"), key("name")];
    let last_line: &[JsonStep<'_>] = &[key("order"), key("lines"), index(-1), key("product")];
    let cases: &[(&str, &str, &[JsonStep<'_>])] = &[
        ("flat, whole", &flat, &[]),
        ("flat, first key", &flat, &[key("symbol")]),
        ("flat, last key", &flat, &[key("note")]),
        ("flat, no such key", &flat, &[key("venue")]),
        ("flat with spaces, first key", &spaced, &[key("symbol")]),
        ("nested, whole", &nested, &[]),
        ("nested, first key", &nested, &[key("id")]),
        ("nested, five steps", &nested, deep),
        ("nested, from the end", &nested, last_line),
    ];
    for (name, text, path) in cases {
        report(
            name,
            text,
            fastest(runs, || {
                black_box(find_json(black_box(text), path));
            }),
        );
    }
    for (name, text, keys) in [
        ("flat, live queries of two keys", &flat, ["symbol", "price"]),
        ("nested, live queries of two keys", &nested, ["id", "order"]),
    ] {
        let mut paths = Paths::new();
        for key in keys {
            paths.take(&[Step::Key(key.to_owned())]).expect("two paths are few");
        }
        let mut fields = Fields::default();
        let read = || {
            black_box(paths.read(black_box(text.as_bytes()), &mut fields));
        };
        report(name, text, fastest(runs, read));
    }
    report_varied(runs);
}

fn report_varied(runs: usize) {
    let mut random = Random::new(7);
    let texts: Vec<String> = (0..VARIED).map(|number| varied(number, &mut random)).collect();
    let mut next = texts.iter().cycle();
    let mut text = || black_box(next.next().expect("a cycle has no end").as_str());
    let path = [JsonStep::Key("symbol")];
    let find = || {
        black_box(find_json(text(), &path));
    };
    report("varied, second key", &texts[0], fastest(runs, find));
    let mut paths = Paths::new();
    for key in ["symbol", "qty"] {
        paths.take(&[Step::Key(key.to_owned())]).expect("two paths are few");
    }
    let mut fields = Fields::default();
    let read = || {
        black_box(paths.read(text().as_bytes(), &mut fields));
    };
    report("varied, live queries of two keys", &texts[0], fastest(runs, read));
}

fn varied(number: usize, random: &mut Random) -> String {
    format!(
        "{{\"id\":{number},\"symbol\":\"S{}\",\"side\":\"{}\",\"price\":{}.{},\"qty\":{},\
         \"account\":\"acc-{}\",\"venue\":\"{}\",\"time\":\"2026-11-20T11:37:03.953893Z\",\
         \"flags\":{{\"ioc\":{},\"hidden\":{}}},\"note\":\"{}\"}}",
        random.below(1_000),
        random.pick(&["buy", "sell"]),
        random.below(1_000),
        random.below(100),
        random.below(1_000),
        random.below(100_000),
        random.pick(&["XNYS", "XNAS", "BATS", "ARCX"]),
        random.one_in(2),
        random.one_in(2),
        "a note ".repeat(5 + random.index(10)),
    )
}

fn flat() -> String {
    let note = "text of a note that somebody wrote ".repeat(6);
    format!(
        "{{\"symbol\":\"S123\",\"side\":\"buy\",\"qty\":12,\"price\":101.25,\
         \"account\":\"a-000123\",\"note\":\"{note}\"}}"
    )
}

fn nested() -> String {
    let line = |number: u32| {
        format!(
            "{{\"line\":{number},\"product\":{{\"sku\":\"P-{number:05}\",\"name\":\"\
             A \\\"thing\\\" of size {number}\",\"tags\":[\"new\",\"blue\",\"small\"]}},\
             \"qty\":{number},\"price\":19.99,\"gift\":false,\"note\":null}}"
        )
    };
    let lines: Vec<String> = (1..=6).map(line).collect();
    format!(
        "{{\"id\":123456,\"kind\":\"order\",\"order\":{{\"customer\":{{\"id\":77,\"name\":\"\
         Ren\u{e9}e Example\"}},\"lines\":[{}],\"total\":119.94}},\
         \"at\":\"2024-05-06T07:08:09Z\"}}",
        lines.join(",")
    )
}

/// Returns the time of one reading in the fastest of `runs` runs.
fn fastest(runs: usize, mut read: impl FnMut()) -> f64 {
    let times = (0..runs).map(|_| {
        let start = cpu_time();
        (0..READINGS).for_each(|_| read());
        cpu_time() - start
    });
    times.min().unwrap_or_default().as_secs_f64() * 1e9 / f64::from(READINGS)
}

/// CPU time of this thread. Other load on the machine affects only the CPU caches.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a thread has used no negative time")
}

fn report(name: &str, text: &str, ns_each: f64) {
    println!("{name}: {ns_each:.1} ns for {} bytes", text.len());
}
