//! Synthetic pages that resemble real data, generated from a seed: database pages, text, program
//! code, logs.
//!
//! No file is read, so every machine has the same data. The pages imitate the structure that
//! determines how well LZ4 compresses them: headers, increasing counters, recurring words, skewed
//! opcode frequencies. This module neither compresses nor measures.

mod code;
mod database;
mod log;
mod page;
mod pages;
mod text;
mod words;

pub(crate) use pages::{Corpus, Kind};
pub(crate) use words::Vocabulary;
