//! `memlane run`: replaces itself with another program, and preloads the library with which the
//! program's I/O on volumes bypasses the kernel.
//!
//! The program runs in this process, with its exit code, signals and terminal.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use api::Volume;

use crate::arguments::Run;
use crate::commands::program;
use crate::failure::Failure;
use crate::output::tell;
use rest_client::{Address, Client};

const LIBRARY: &str = "libmemlane_preload.so";

/// Environment variable with the path of the library, if it is not in the installation directory.
const LIBRARY_VARIABLE: &str = "MEMLANE_PRELOAD";

const RING_VARIABLE: &str = "MEMLANE_RING";

/// Replaces this process by the program. Returns only on an error.
pub(crate) fn run(client: &Client, arguments: Run) -> Failure {
    match prepare(client, &arguments) {
        Ok(plan) => plan.become_program(&arguments),
        Err(failure) => failure,
    }
}

/// Environment of the program.
struct Plan {
    library: PathBuf,
    ring: PathBuf,
    /// Each named volume, with its paths.
    places: Vec<(String, Vec<PathBuf>)>,
    /// Reason for which the program will run without the library.
    unserved: Option<program::Unserved>,
}

fn prepare(client: &Client, arguments: &Run) -> Result<Plan, Failure> {
    let unserved = look_at_program(arguments)?;
    let ring = ring(client)?;
    let library = library()?;
    let places = arguments.volumes.iter().map(|name| {
        let places = places_of(client, &ring, name)?;
        Ok((name.clone(), places))
    });
    let places: Vec<_> = places.collect::<Result<_, Failure>>()?;
    if !places.is_empty() {
        check_ring(&ring)?;
    }
    Ok(Plan { library, ring, places, unserved })
}

/// Checks that the program can be run, and whether the library will be used.
fn look_at_program(arguments: &Run) -> Result<Option<program::Unserved>, Failure> {
    let Some(name) = arguments.command.first().map(Path::new) else {
        return Err(Failure::usage("no program given; use memlane run -- PROGRAM"));
    };
    let search_path = std::env::var_os("PATH");
    match program::find(name, search_path.as_deref()) {
        Ok(path) => Ok(program::unserved(&path)),
        Err(error) => Err(failed_to_run(name, &error)),
    }
}

/// Failure with the exit code of shells.
fn failed_to_run(name: &Path, error: &io::Error) -> Failure {
    let message = |why: &str| format!("cannot run {}: {why}", name.display());
    match error.kind() {
        io::ErrorKind::NotFound => Failure::no_program(message("no such program")),
        io::ErrorKind::PermissionDenied => {
            Failure::not_executable(message("it is not an executable file"))
        }
        _ => Failure::not_executable(message(&error.to_string())),
    }
}

/// Path of the library: from the environment, beside this program, or in the corresponding library
/// directory.
fn library() -> Result<PathBuf, Failure> {
    let named = std::env::var_os(LIBRARY_VARIABLE).map(PathBuf::from);
    let own = std::env::current_exe().unwrap_or_default();
    let folder = own.parent().unwrap_or(Path::new("/"));
    let candidates = match named {
        Some(path) => vec![path],
        None => ["", "../lib/memlane", "../lib"].map(|it| folder.join(it).join(LIBRARY)).into(),
    };
    let found = candidates.iter().find_map(|path| path.canonicalize().ok());
    let Some(path) = found else {
        let places: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        return Err(Failure::other(format!(
            "cannot find libmemlane_preload.so at {}; set {LIBRARY_VARIABLE} to its path",
            places.join(" or ")
        )));
    };
    // The dynamic linker treats both as separators.
    if path.to_string_lossy().contains([' ', ':']) {
        return Err(Failure::other(format!(
            "cannot preload {}: LD_PRELOAD cannot name a path with a space or a colon",
            path.display()
        )));
    }
    Ok(path)
}

/// Ring socket of the daemon: from the environment, or beside the API socket.
fn ring(client: &Client) -> Result<PathBuf, Failure> {
    if let Some(path) = std::env::var_os(RING_VARIABLE) {
        return Ok(path.into());
    }
    match &client.address {
        Address::Socket(socket) => Ok(socket.with_file_name("ring.sock")),
        Address::Tcp(_) | Address::Console(_) => Err(Failure::usage(format!(
            "memlane run works only on the daemon's host: give the daemon's socket with \
             --socket, or its ring socket in {RING_VARIABLE}"
        ))),
    }
}

/// Paths at which programs can open the volume.
fn places_of(client: &Client, ring: &Path, name: &str) -> Result<Vec<PathBuf>, Failure> {
    let volume: Volume = client.get(&api::path_of(api::VOLUME_PATH, name))?;
    let file = ring.with_file_name("volumes").join(name);
    let places = volume.device.map(PathBuf::from).into_iter();
    let places: Vec<_> = places.chain(file.exists().then_some(file)).collect();
    if places.is_empty() {
        return Err(Failure::other(format!(
            "volume {name:?} has no path on this host; attach it first: memlane attach {name}"
        )));
    }
    Ok(places)
}

fn check_ring(ring: &Path) -> Result<(), Failure> {
    let unreachable = |why: String| {
        let ring = ring.display();
        Failure::unreachable(format!(
            "cannot connect to the ring socket {ring}: {why}; check that memlaned runs"
        ))
    };
    let status = std::fs::metadata(ring).map_err(|error| unreachable(error.to_string()))?;
    match status.file_type().is_socket() {
        true => Ok(()),
        false => Err(unreachable("it is not a socket".to_owned())),
    }
}

impl Plan {
    fn become_program(&self, arguments: &Run) -> Failure {
        let Some((program, words)) = arguments.command.split_first() else {
            return Failure::usage("no program given; use memlane run -- PROGRAM");
        };
        if !arguments.quiet {
            self.say(Path::new(program));
        }
        let mut command = std::process::Command::new(program);
        command.args(words).env("LD_PRELOAD", preloaded(&self.library));
        command.env(RING_VARIABLE, absolute(&self.ring));
        if !self.places.is_empty() {
            let names: Vec<_> = self.places.iter().map(|(name, _)| name.as_str()).collect();
            command.env("MEMLANE_VOLUMES", names.join(","));
        }
        if arguments.direct_only {
            command.env("MEMLANE_DIRECT_ONLY", "1");
        }
        if arguments.quiet {
            command.env("MEMLANE_QUIET", "1");
        }
        if let Some(report) = &arguments.report {
            command.env("MEMLANE_REPORT", absolute(report));
        }
        failed_to_run(Path::new(program), &command.exec())
    }

    fn say(&self, program: &Path) {
        if let Some(unserved) = self.unserved {
            let program = program.display();
            tell(format_args!("{program} {}; its I/O goes through the kernel", unserved.reason()));
        }
        for (name, places) in &self.places {
            let places: Vec<_> = places.iter().map(|path| path.display().to_string()).collect();
            tell(format_args!("volume {name} is {}", places.join(" and ")));
        }
    }
}

/// Value of `LD_PRELOAD`, with this library before existing ones.
fn preloaded(library: &Path) -> OsString {
    let others = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty());
    match others {
        None => library.as_os_str().to_owned(),
        Some(others) => [library.as_os_str(), OsStr::new(":"), &others].into_iter().collect(),
    }
}

/// Makes a path absolute, because the program may change its working directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
