//! The server's I/O statistics since their reset, by part.
//!
//! Since version 16, `pg_stat_io` counts reads, writes and syncs. Before that, the statistics of
//! the background writer and checkpoints are used. They lack syncs of data files, so each
//! checkpoint counts as one. Temporary files are read at least once, and that is counted.

use anyhow::{Result, ensure};

use super::advice::{Part, Parts};
use super::server::Server;

const DATABASES: &str = "SELECT coalesce(sum(blks_read), 0)::float8, \
     coalesce(sum(temp_bytes), 0)::float8, coalesce(sum(temp_files), 0)::float8, \
     coalesce(sum(numbackends), 0)::float8, \
     extract(epoch FROM now() - coalesce(min(stats_reset), pg_postmaster_start_time()))::float8 \
     FROM pg_stat_database";

const SIZES: &str = "SELECT sum(pg_database_size(oid))::float8, \
     (SELECT coalesce(sum(size), 0)::float8 FROM pg_ls_waldir()), \
     (SELECT coalesce(sum(size), 0)::float8 FROM pg_tablespace AS space, \
         pg_ls_tmpdir(space.oid) WHERE spcname <> 'pg_global'), \
     current_setting('block_size')::float8 FROM pg_database";

const WRITER: &str = "SELECT (buffers_checkpoint + buffers_clean + buffers_backend)::float8, \
     (buffers_backend_fsync + checkpoints_timed + checkpoints_req)::float8 FROM pg_stat_bgwriter";

const LOGS: &str = "SELECT wal_bytes::float8, wal_sync::float8 FROM pg_stat_wal";

/// Statistics, with remarks on their accuracy.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) parts: Parts,
    pub(super) since_s: f64,
    /// Remarks on approximate figures.
    pub(super) notes: Vec<String>,
}

pub(super) fn count(server: &Server) -> Result<Counted> {
    let [data_bytes, log_bytes, temporary_bytes_now, block_bytes] = server.numbers(SIZES)?;
    let [blocks_read, temporary_bytes, temporary_files, sessions, since_s] =
        server.numbers(DATABASES)?;
    let mut notes = Vec::new();
    let (data, tables) = match server.version {
        160_000.. => relations(server)?,
        _ => {
            notes.push(
                "before version 16, syncs of data files are not counted (each checkpoint counts \
                 as one), nor are pages of temporary tables"
                    .to_owned(),
            );
            let [buffers, syncs] = server.numbers(WRITER)?;
            let written_bytes = buffers * block_bytes;
            let read_bytes = blocks_read * block_bytes;
            (Part { read_bytes, written_bytes, syncs, ..Part::default() }, Part::default())
        }
    };
    let (log_written_bytes, log_syncs) = logs(server)?;
    if log_syncs == 0.0 && log_written_bytes > 0.0 {
        notes.push(
            "no sync of the log is counted: wal_sync_method syncs with each write, or fsync is off"
                .to_owned(),
        );
    }
    let file_bytes = if temporary_files > 0.0 { temporary_bytes / temporary_files } else { 0.0 };
    notes.push(
        "temporary files: their current size, or one of mean size per session; their reduction is \
         that of tables"
            .to_owned(),
    );
    let all_bytes = data.read_bytes + data.written_bytes + log_written_bytes + temporary_bytes;
    ensure!(all_bytes > 0.0, "the server's statistics are empty: let its workload run first");
    Ok(Counted {
        parts: Parts {
            data: Part { bytes: data_bytes, ..data },
            logs: Part {
                bytes: log_bytes,
                written_bytes: log_written_bytes,
                syncs: log_syncs,
                ..Part::default()
            },
            temporary: Part {
                bytes: temporary_bytes_now.max(file_bytes * sessions),
                read_bytes: tables.read_bytes + temporary_bytes,
                written_bytes: tables.written_bytes + temporary_bytes,
                ..Part::default()
            },
        },
        since_s,
        notes,
    })
}

/// Returns the I/O of permanent and temporary tables from `pg_stat_io`.
fn relations(server: &Server) -> Result<(Part, Part)> {
    let bytes = match server.version {
        180_000.. => "sum(read_bytes), sum(coalesce(write_bytes, 0) + coalesce(extend_bytes, 0))",
        _ => {
            "sum(reads * op_bytes), \
             sum((coalesce(writes, 0) + coalesce(extends, 0)) * op_bytes)"
        }
    };
    let of = |object: &str| {
        let query = format!(
            "SELECT a::float8, b::float8, c::float8 FROM (SELECT {bytes}, sum(fsyncs) \
             FROM pg_stat_io WHERE object = '{object}') AS sums (a, b, c)"
        );
        let [read_bytes, written_bytes, syncs] = server.numbers(&query)?;
        anyhow::Ok(Part { read_bytes, written_bytes, syncs, ..Part::default() })
    };
    Ok((of("relation")?, of("temp relation")?))
}

/// Returns the bytes written to the log, and its syncs.
fn logs(server: &Server) -> Result<(f64, f64)> {
    let [bytes, syncs] = match server.version {
        180_000.. => server.numbers(
            "SELECT (SELECT wal_bytes::float8 FROM pg_stat_wal), \
             (SELECT sum(fsyncs)::float8 FROM pg_stat_io WHERE object = 'wal')",
        )?,
        _ => server.numbers(LOGS)?,
    };
    Ok((bytes, syncs))
}
