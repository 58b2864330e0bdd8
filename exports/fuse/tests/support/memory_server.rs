//! Server program that tests start, control and kill.
//!
//! Its volumes are files in a directory on tmpfs, so they outlive it. A file is named
//! `NAME.SECTOR`, and its inode number is the volume's id. The server prints `ready`, then reads
//! one command per line from standard input and answers each with one line.
#![forbid(unsafe_code)]

mod file_device;

use std::collections::HashMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use block_device::BlockDevice;
use fuse::{
    AttachError, Config, Export, FileEntry, FileId, FileState, Files, HelperRunner, Keep, Resume,
    run_command,
};

use file_device::FileDevice;

const HELPER_FLAG: &str = "--fuse-helper";

/// While this file exists, the kernel is not asked to resend requests.
const RESUME_FROM_MEMORY: &str = "resume-from-memory";

/// Short, because tests wait for the timeout.
const STOP_PATIENCE: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let args: Vec<OsString> = env::args_os().skip(1).collect();
    match args.first() {
        Some(first) if first == HELPER_FLAG => run_command(args.into_iter().skip(1)),
        Some(directory) => serve(Path::new(directory)),
        None => ExitCode::from(2),
    }
}

fn serve(directory: &Path) -> ExitCode {
    let volumes = Arc::new(Volumes::new(directory.join("backing")));
    let helpers = HelperRunner::same_program([HELPER_FLAG.into()]);
    let mut config = Config::new(directory.join("volumes"), directory.join("holder.sock"), helpers);
    config.stop_patience = STOP_PATIENCE;
    if directory.join(RESUME_FROM_MEMORY).exists() {
        config.resume = Resume::MemoryOnly;
    }
    let export = match Export::start(config, Arc::clone(&volumes) as Arc<dyn Files>) {
        Ok(export) => export,
        Err(error) => {
            answer(&format!("error {:?} {error}", error.kind));
            return ExitCode::FAILURE;
        }
    };
    answer("ready");
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let words: Vec<&str> = line.split(' ').collect();
        let keep = match words[..] {
            ["stop", "connection"] => Keep::Connection,
            ["stop", "nothing"] => Keep::Nothing,
            ["stop", "used"] => Keep::WhatIsUsed,
            _ => {
                answer(&obey(&export, &volumes, &words));
                continue;
            }
        };
        answer(&in_words(export.stop(keep).map(|()| String::new())));
        return ExitCode::SUCCESS;
    }
    ExitCode::SUCCESS
}

fn obey(export: &Export, volumes: &Volumes, words: &[&str]) -> String {
    in_words(match *words {
        ["attach", name] => attach(export, name, false),
        ["attach-durable", name] => attach(export, name, true),
        ["detach", name] => export.detach(id_of(volumes, name)).map(|()| String::new()),
        ["write-cache", name] => {
            export.write_cache_changed(id_of(volumes, name)).map(|()| String::new())
        }
        ["resized", name] => export.resized(name).map(|()| String::new()),
        ["attachments"] => {
            let describe = |found: fuse::Attachment| {
                let name = volumes.name_of(found.file).unwrap_or_default();
                format!("{name}={}", found.device.display())
            };
            let found: Vec<String> = export.attachments().into_iter().map(describe).collect();
            Ok(found.join(" "))
        }
        ["device", name] => Ok(export
            .device_of(id_of(volumes, name))
            .map_or_else(|| "none".to_owned(), |device| device.display().to_string())),
        ["user", name] => export.file_user(id_of(volumes, name)).map(|user| {
            user.map_or_else(|| "none".to_owned(), |user| format!("{} {}", user.writes, user.words))
        }),
        ["dead"] => Ok(export.dead_devices().len().to_string()),
        ["remove-dead"] => {
            export.remove_dead_devices();
            Ok(String::new())
        }
        ["serving"] => Ok(export.is_serving().to_string()),
        ["origin"] => Ok(format!("{:?}", export.origin())),
        ["refresh"] => export.refresh_fd_store().map(|()| String::new()),
        ["traffic"] => Ok(format!("{:?}", export.traffic())),
        _ => Ok("what?".into()),
    })
}

fn attach(export: &Export, name: &str, flush_each_write: bool) -> Result<String, AttachError> {
    export.attach(name, flush_each_write).map(|found| found.device.display().to_string())
}

fn id_of(volumes: &Volumes, name: &str) -> FileId {
    volumes.by_name(name).map_or(FileId(0), |(id, _)| id)
}

fn in_words(result: Result<String, AttachError>) -> String {
    match result {
        Ok(said) => format!("ok {said}"),
        Err(error) => {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            format!("error {:?} {error} {}", error.kind, source.unwrap_or_default())
        }
    }
}

fn answer(line: &str) {
    // The client may have stopped reading.
    let _ = writeln!(io::stdout(), "{line}");
}

/// Volumes as the files of a directory.
struct Volumes {
    directory: PathBuf,
    open: RwLock<HashMap<FileId, Arc<FileDevice>>>,
}

impl Volumes {
    fn new(directory: PathBuf) -> Self {
        let volumes = Self { directory, open: RwLock::default() };
        volumes.scan();
        volumes
    }

    /// Opens all existing volumes.
    fn scan(&self) -> Vec<(FileEntry, Arc<FileDevice>)> {
        let entries = fs::read_dir(&self.directory).expect("the tests made the directory");
        let mut open = self.open.write().expect("no thread panics with the lock");
        let describe = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.ok()?;
            let file_name = entry.file_name().into_string().ok()?;
            let (name, sector) =
                file_name.rsplit_once('.').filter(|(_, end)| end.parse::<u32>().is_ok())?;
            let id = FileId(entry.metadata().ok()?.ino());
            let device = open.entry(id).or_insert_with(|| {
                Arc::new(FileDevice::open(&entry.path(), sector).expect("a volume's file"))
            });
            Some((FileEntry { id, name: name.to_owned() }, Arc::clone(device)))
        };
        entries.filter_map(describe).collect()
    }

    fn name_of(&self, id: FileId) -> Option<String> {
        self.scan().into_iter().find(|(entry, _)| entry.id == id).map(|(entry, _)| entry.name)
    }
}

impl Files for Volumes {
    fn by_name(&self, name: &str) -> Option<(FileId, Arc<dyn BlockDevice>)> {
        let mut found = self.scan().into_iter();
        let (entry, device) = found.find(|(entry, _)| entry.name == name)?;
        Some((entry.id, device))
    }

    fn by_id(&self, id: FileId) -> Option<Arc<dyn BlockDevice>> {
        let open = self.open.read().expect("no thread panics with the lock");
        Some(Arc::clone(open.get(&id)?) as Arc<dyn BlockDevice>)
    }

    fn state(&self, _: FileId) -> FileState {
        FileState::default()
    }

    fn list(&self) -> Vec<FileEntry> {
        self.scan().into_iter().map(|(entry, _)| entry).collect()
    }
}
