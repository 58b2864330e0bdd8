//! Pages such as stores really hold, made from a seed: database pages, text, program code, logs.
//!
//! No file is read, so every machine has the same data. What the pages imitate is the structure
//! that decides how well LZ4 shrinks them: headers, counters that grow, words that come again,
//! opcodes of very different frequency. Nothing here compresses or measures.

mod code;
mod database;
mod log;
mod page;
mod pages;
mod text;
mod words;

pub(crate) use pages::{Corpus, Kind};
pub(crate) use words::Vocabulary;
