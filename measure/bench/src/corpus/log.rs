//! Synthetic log lines: one JSON object per line, with constant keys and partly constant values.

use std::fmt::Write as _;

use crate::clock::Random;

use super::page::{Mark, Page};
use super::words::{Vocabulary, happens, pick};

const PAGE_BYTES: usize = 4096;

const LEVELS: [&str; 8] = ["info", "info", "info", "info", "info", "debug", "warn", "error"];
const METHODS: [&str; 5] = ["GET", "GET", "GET", "POST", "PUT"];
const STATUSES: [&str; 8] = ["200", "200", "200", "200", "201", "304", "404", "500"];

/// Creates lines of one service.
pub(super) fn page(words: &Vocabulary, random: &mut Random) -> Page {
    let services = [words.noun(random), words.noun(random), words.noun(random)];
    let hosts = [words.noun(random), words.noun(random)];
    let paths: Vec<String> =
        (0..6).map(|_| format!("/v1/{}/{}", words.noun(random), words.noun(random))).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let mut milliseconds = random.below(60_000_000);
    let mut text = String::with_capacity(PAGE_BYTES + 400);
    let mut mark = 0;
    while text.len() < PAGE_BYTES {
        milliseconds += random.below(400);
        let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
        let (minutes, hours) = (seconds / 60 % 60, seconds / 3600 % 24);
        let level = pick(random, &LEVELS);
        write_to(&mut text, format_args!("{{\"ts\":\"2026-03-14T{hours:02}:{minutes:02}:"));
        write_to(
            &mut text,
            format_args!("{:02}.{rest:03}Z\",\"level\":\"{level}\",", seconds % 60),
        );
        let (service, host) = (pick(random, &services), pick(random, &hosts));
        write_to(&mut text, format_args!("\"service\":\"{service}\",\"host\":\"{host}-"));
        write_to(&mut text, format_args!("{:02}\",\"request\":\"", random.below(12)));
        if mark == 0 {
            mark = text.len();
        }
        write_to(&mut text, format_args!("{:012x}\",", random.next() >> 16));
        write_request(&mut text, pick(random, &paths), random);
        if happens(random, 40) {
            let (what, whose) = (words.noun(random), words.noun(random));
            write_to(&mut text, format_args!(",\"message\":\"{what} of {whose} completed\""));
        }
        text.push_str("}\n");
    }
    Page::new(text.as_bytes(), Mark::Letters(mark))
}

fn write_request(text: &mut String, path: &str, random: &mut Random) {
    let (method, status) = (pick(random, &METHODS), pick(random, &STATUSES));
    let id = random.below(1_000_000);
    write_to(text, format_args!("\"method\":\"{method}\",\"path\":\"{path}/{id}\","));
    let (whole, part) = (random.below(200), random.below(1000));
    write_to(text, format_args!("\"status\":{status},\"duration_ms\":{whole}.{part:03},"));
    write_to(text, format_args!("\"bytes\":{}", random.below(90_000)));
}

fn write_to(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a string takes everything");
}
