//! Embeds the built web page into the program, as a list of its files.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("../web/dist");
    // Cargo reruns this script as long as a watched path is missing. If the folder cannot be
    // created, there is no other effect.
    let _ = fs::create_dir_all(&folder);
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut list = String::from("&[\n");
    if folder.is_dir() {
        add(&folder, "", &mut list)?;
    }
    list.push_str("]\n");
    fs::write(Path::new(&variable("OUT_DIR")?).join("page_files.rs"), list)
}

fn add(folder: &Path, prefix: &str, list: &mut String) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let path = fs::canonicalize(entry.path())?;
        if path.is_dir() {
            add(&path, &format!("{name}/"), list)?;
        } else {
            let line = writeln!(list, "    ({name:?}, include_bytes!({path:?})),");
            line.map_err(io::Error::other)?;
        }
    }
    Ok(())
}

fn variable(name: &str) -> io::Result<String> {
    env::var(name).map_err(io::Error::other)
}
