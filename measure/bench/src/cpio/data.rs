//! Generators of the applications' data. The same seed gives the same data.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

use crate::clock::Random;
use crate::corpus::Vocabulary;

const LINE_BYTES: u64 = 64;
const FASTA_LINE_LETTERS: usize = 80;
const NUCLEOTIDES: [u8; 4] = *b"ACGT";

/// Writes lines of 64 bytes with random keys.
pub(super) fn lines(path: &Path, seed: u64, bytes: u64) -> Result<()> {
    let mut random = Random::new(seed);
    let count = bytes / LINE_BYTES;
    written(path, |file| {
        for _ in 0..count {
            let words = [random.next(), random.next(), random.next()];
            writeln!(file, "{:020} {:020} {:021}", words[0], words[1], words[2])?;
        }
        Ok(())
    })
}

/// Writes an incompressible file.
pub(super) fn noise(path: &Path, seed: u64, bytes: u64) -> Result<()> {
    let mut random = Random::new(seed);
    written(path, |file| {
        for _ in 0..bytes / 8 {
            file.write_all(&random.next().to_le_bytes())?;
        }
        Ok(())
    })
}

/// Writes random nucleotide sequences of 10,000, and prefixes of some of them as queries.
pub(super) fn sequences(subjects: &Path, queries: &Path, seed: u64, bytes: u64) -> Result<()> {
    const SEQUENCE_LETTERS: usize = 10_000;
    const QUERY_EACH: u64 = 50;
    const QUERY_LETTERS: usize = 400;
    let mut random = Random::new(seed);
    let count = (bytes / SEQUENCE_LETTERS as u64).max(QUERY_EACH);
    let mut query_text = String::new();
    written(subjects, |file| {
        for index in 0..count {
            let letter =
                |_| char::from(NUCLEOTIDES[usize::from(random.next().to_le_bytes()[7] & 3)]);
            let letters: String = (0..SEQUENCE_LETTERS).map(letter).collect();
            writeln!(file, ">s{index}")?;
            for line in letters.as_bytes().chunks(FASTA_LINE_LETTERS) {
                file.write_all(line)?;
                file.write_all(b"\n")?;
            }
            if index % QUERY_EACH == 0 {
                query_text += &format!(">q{index}\n{}\n", &letters[..QUERY_LETTERS]);
            }
        }
        Ok(())
    })?;
    fs::write(queries, query_text).with_context(|| format!("cannot write {}", queries.display()))
}

/// Writes documents of words with prose frequencies. The first word of each is its unique name.
/// `place` returns its path in the folder.
pub(super) fn documents(
    folder: &Path,
    (seed, count): (u64, u64),
    document_bytes: usize,
    place: fn(u64) -> String,
) -> Result<()> {
    let mut random = Random::new(seed);
    let vocabulary = Vocabulary::new(&mut random);
    for number in 0..count {
        let name = document_name(number);
        let inside = folder.join(place(number));
        fs::create_dir_all(&inside).with_context(|| format!("cannot make {}", inside.display()))?;
        let mut text = name.clone();
        while text.len() < document_bytes {
            text.push(if random.below(12) == 0 { '\n' } else { ' ' });
            text += vocabulary.word(vocabulary.draw(&mut random));
        }
        let path = inside.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

pub(super) fn document_name(number: u64) -> String {
    format!("doc{number}")
}

fn written(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<()> {
    let file = File::create(path);
    let mut file = BufWriter::new(file.with_context(|| format!("cannot make {}", path.display()))?);
    write(&mut file)
        .and_then(|()| file.flush())
        .with_context(|| format!("cannot write {}", path.display()))
}
