//! franz-go in the program of `go/`, built by the Go toolchain in `go/toolchain`.
//!
//! Distributions have older ones. Those can fetch the right one, which is an ordinary module, but
//! not all of them can run it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::Tool;

use crate::fetched::{Recipe, SOURCES};

const PROGRAM: &[&str] =
    &["go/go.mod", "go/go.sum", "go/main.go", "go/toolchain/go.mod", "go/toolchain/go.sum"];

/// Time limit, because the compiler builds its own libraries first.
const BUILD_TIME_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Folders of programs in a toolchain, because files of modules are not executable.
const FOLDERS_OF_PROGRAMS: &[&str] = &["bin", "pkg/tool/linux_amd64"];
/// Modules inside a module, whose own file is renamed.
const HIDDEN_MODULES: &[&str] = &["src", "src/cmd"];

/// A program that uses franz-go.
pub struct GoClient {
    program: PathBuf,
}

impl GoClient {
    pub fn fetched() -> Result<Self> {
        let recipe =
            Recipe { sources: SOURCES, name: "go", origin: "Go's module proxy", made_of: PROGRAM };
        let folder = recipe.folder(build)?;
        Ok(Self { program: folder.join("client") })
    }

    pub fn scenario(&self, name: &str) -> Tool {
        Tool::new("env").arg(&self.program).arg(name)
    }

    /// Returns the test program of franz-go.
    pub(crate) fn suite() -> Result<PathBuf> {
        let origin = "Go's module proxy";
        let recipe = Recipe { sources: SOURCES, name: "go-suite", origin, made_of: PROGRAM };
        let tests = ["test", "-c", "-trimpath", "-o", "client", "github.com/twmb/franz-go/pkg/kgo"];
        Ok(recipe.folder(|folder| run_go(&program_folder(), folder, &tests))?.join("client"))
    }
}

fn build(folder: &Path) -> Result<()> {
    run_go(&program_folder(), folder, &["build", "-trimpath", "-o", "client"])
}

fn program_folder() -> PathBuf {
    Path::new(SOURCES).join("go")
}

/// Runs the Go toolchain in `sources`, the folder of a module. Creates a program `client` in
/// `folder`.
///
/// # Errors
/// No Go is installed that can fetch the toolchain, a module is unavailable, or Go fails.
pub fn run_go(sources: &Path, folder: &Path, words: &[&str]) -> Result<()> {
    with_go(sources, folder, |go| go.run(words, BUILD_TIME_LIMIT).map(drop))
}

/// Runs `work` with the Go toolchain, and then removes the files that Go fetched and cached.
///
/// # Errors
/// Like [`run_go`].
pub fn with_go(
    sources: &Path,
    folder: &Path,
    work: impl FnOnce(&Go<'_>) -> Result<()>,
) -> Result<()> {
    let toolchain = toolchain(&program_folder().join("toolchain"), folder)?;
    work(&Go { toolchain, sources, folder })?;
    // The built program needs neither.
    for kept in ["modules", "built"] {
        fs::remove_dir_all(folder.join(kept)).with_context(|| format!("cannot remove {kept}"))?;
    }
    Ok(())
}

/// The Go toolchain, for one module.
pub struct Go<'a> {
    toolchain: PathBuf,
    sources: &'a Path,
    folder: &'a Path,
}

impl Go<'_> {
    /// Runs Go and returns its output. The word `client` is that path in the folder.
    ///
    /// # Errors
    /// A module is unavailable, or Go fails or takes longer than the limit.
    pub fn run(&self, words: &[&str], time_limit: Duration) -> Result<String> {
        let program = self.folder.join("client");
        let words = words.iter().map(|word| match *word {
            "client" => program.as_os_str(),
            word => OsStr::new(word),
        });
        Tool::new("env")
            .arg(self.toolchain.join("bin/go"))
            .args(words)
            .time_limit(time_limit)
            .current_dir(self.sources)
            .env("GOTOOLCHAIN", "local")
            .env("GOROOT", text_of(&self.toolchain)?)
            .env("GOPATH", text_of(&self.folder.join("modules"))?)
            .env("GOCACHE", text_of(&self.folder.join("built"))?)
            .env("GOFLAGS", "-mod=readonly -modcacherw -buildvcs=false")
            .env("CGO_ENABLED", "0")
            .check()
    }
}

/// Fetches the toolchain, verifies its checksum, and makes it executable.
fn toolchain(module: &Path, folder: &Path) -> Result<PathBuf> {
    let fetched = Tool::new("go mod download -json -modcacherw")
        .current_dir(module)
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "-mod=readonly")
        .env("GOPATH", text_of(&folder.join("modules"))?)
        .env("GOCACHE", text_of(&folder.join("built"))?)
        .check()?;
    let line = fetched.lines().find_map(|line| line.trim().strip_prefix("\"Dir\": \""));
    let path = line.and_then(|line| line.split('"').next());
    let toolchain = PathBuf::from(path.context("go tells no folder of the toolchain")?);
    for programs in FOLDERS_OF_PROGRAMS {
        let programs = toolchain.join(programs);
        let entries = fs::read_dir(&programs)
            .with_context(|| format!("cannot list {}", programs.display()))?;
        for program in entries {
            let path = program?.path();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
                .with_context(|| format!("cannot make a program of {}", path.display()))?;
        }
    }
    for module in HIDDEN_MODULES.iter().map(|module| toolchain.join(module)) {
        let hidden = module.join("_go.mod");
        if hidden.exists() {
            fs::rename(&hidden, module.join("go.mod")).context("cannot show a module")?;
        }
    }
    ensure!(toolchain.join("src/go.mod").exists(), "{} is no toolchain", toolchain.display());
    Ok(toolchain)
}

fn text_of(path: &Path) -> Result<&str> {
    path.to_str().context("the path of the project is no UTF-8")
}
