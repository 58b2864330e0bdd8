//! Settings files of the programs: unknown options are rejected, with their names.

use std::time::Duration;

use anyhow::{Result, ensure};
use system::product;

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Goal: each program reports a misspelled option.
/// Method: a file with one such key for each program.
#[test]
fn a_key_that_is_no_option_is_refused_by_each_program() -> Result<()> {
    for (program, key, value) in [
        ("memlane-broker", "partitons", "4"),
        ("memlane-console", "lissten", "\"127.0.0.1:0\""),
        ("memlane-csi", "nod", "\"node-1\""),
        ("memlane-machines", "daemonn", "\"/nowhere\""),
        ("memlaned", "pool-syze", "\"64MiB\""),
    ] {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), format!("{key} = {value}\n"))?;
        let started = product(program).arg("--config").arg(file.path()).time_limit(TIME_LIMIT);
        let ended = started.run()?;
        ensure!(ended.exit_code.is_some_and(|it| it != 0), "{program}: {ended:?}");
        let said = ended.stderr;
        ensure!(said.contains(&format!("`{key}`")), "{program} does not name {key}: {said}");
        ensure!(said.contains(&*file.path().to_string_lossy()), "{program} names no file: {said}");
    }
    Ok(())
}
