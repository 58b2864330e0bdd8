//! Arguments and output of the command.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use system::Interruption;

use super::advice::{Advice, Parts, advise};
use super::counters::{Counted, count};
use super::sample::{Sampled, sample};
use super::server::Server;
use crate::output::{self, Form, bytes_text};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Data directory of a running server
    #[arg(
        value_name = "PGDATA",
        required_unless_present = "connection",
        conflicts_with = "connection"
    )]
    data: Option<PathBuf>,
    /// Connection string of a server; its files are sampled if they are on this host
    #[arg(long, value_name = "STRING")]
    connection: Option<String>,
    /// User to connect as, with PGDATA
    #[arg(long, default_value = "postgres", conflicts_with = "connection")]
    user: String,
    /// Amount of files to read, of tables and of the log each, in MiB
    #[arg(long, default_value_t = 256, value_name = "MIB",
        value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    sample_mib: u64,
    /// Seed of the choice of samples
    #[arg(long, default_value_t = 42, value_name = "N")]
    seed: u64,
}

/// Complete output of the command.
#[derive(Debug, Serialize)]
struct Findings {
    server_version: u32,
    /// Age of the server's statistics.
    counted_s: f64,
    sampled_bytes: u64,
    parts: Parts,
    advice: Vec<Advice>,
    notes: Vec<String>,
}

/// Queries the server, reads a sample and prints the results. Changes nothing.
pub(crate) fn run(arguments: &Arguments, form: Form) -> Result<()> {
    Interruption::listen()?;
    let server = match (&arguments.data, &arguments.connection) {
        (Some(folder), _) => Server::of_folder(folder, &arguments.user)?,
        (None, words) => Server::of_words(words.as_deref().unwrap_or_default())?,
    };
    let Counted { mut parts, since_s, mut notes } = count(&server)?;
    let sampled = match &arguments.data {
        Some(folder) => reduce(&mut parts, folder, arguments)?,
        None => {
            let found = server.folder().and_then(|it| reduce(&mut parts, &it, arguments));
            found.unwrap_or_else(|error| {
                notes.push(format!(
                    "memory is shown before reduction, because no file could be read: {error:#}"
                ));
                0
            })
        }
    };
    let findings = Findings {
        server_version: server.version,
        counted_s: since_s,
        sampled_bytes: sampled,
        advice: advise(&parts),
        parts,
        notes,
    };
    match form {
        Form::Json => output::json(&findings),
        Form::Text => output::note(&text(&findings)),
    }
    Ok(())
}

/// Estimates the reduction of each part. Returns the number of bytes read.
fn reduce(parts: &mut Parts, folder: &Path, arguments: &Arguments) -> Result<u64> {
    let bytes_max = arguments.sample_mib << 20;
    let of = |names: &[&str]| {
        let folders: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
        sample(&folders, bytes_max, arguments.seed)
            .with_context(|| format!("cannot sample {}", folder.display()))
    };
    let tables: Sampled = of(&["base", "global", "pg_tblspc"])?;
    let logs: Sampled = of(&["pg_wal"])?;
    parts.data.reduction = tables.reduction;
    parts.temporary.reduction = tables.reduction;
    parts.logs.reduction = logs.reduction;
    Ok(tables.read_bytes + logs.read_bytes)
}

fn text(findings: &Findings) -> String {
    let names = "on fast storage | memory | of it | on disk | reads | writes | syncs";
    let mut table = output::heading(names);
    let dash = || "-".to_owned();
    let percent =
        |share: Option<f64>| share.map_or_else(dash, |share| format!("{:.1} %", share * 100.0));
    for advice in &findings.advice {
        table.push(vec![
            advice.placement.to_owned(),
            advice.memory_bytes.map_or_else(dash, size_text),
            percent(advice.memory_share),
            size_text(advice.bytes),
            percent(advice.read_share),
            percent(advice.write_share),
            percent(advice.sync_share),
        ]);
    }
    let hours = findings.counted_s / 3_600.0;
    let mut parts = vec![
        format!(
            "PostgreSQL {}, by its statistics of {hours:.1} hours and {} of its files. Nothing was \
             moved.",
            findings.server_version / 10_000,
            bytes_text(findings.sampled_bytes)
        ),
        output::left_table(&table),
    ];
    parts.extend(findings.advice.iter().skip(1).map(Advice::sentence));
    parts.extend(findings.notes.iter().map(|note| format!("note: {note}")));
    parts.push("measure it: memlane bench placement".to_owned());
    parts.join("\n")
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are positive")]
fn size_text(bytes: f64) -> String {
    bytes_text(bytes.round() as u64)
}
