//! Java's clients, the tools of Apache Kafka and its broker: jars of one version, and the programs
//! of `java/`, compiled against them.

use std::path::Path;

use anyhow::{Context, Result};
use system::Tool;

use crate::fetched::{Recipe, SOURCES};

/// Project with the dependencies. `sha256sum` verifies them by a list.
const POM: &str = "java/pom.xml";
const HASHES: &str = "java/jars.sha256";
const PROGRAMS: &[&str] = &["java/ToolBox.java", "java/Transactions.java", "java/WordCount.java"];

/// Little memory and fast compilation, because no program runs for long.
pub(crate) const JAVA_FLAGS: &[&str] =
    &["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"];

/// Returns the class path of all jars.
pub fn jars() -> Result<String> {
    jars_of(SOURCES)
}

fn jars_of(sources: &str) -> Result<String> {
    let recipe = Recipe { sources, name: "jars", origin: "Maven", made_of: &[POM, HASHES] };
    let folder = recipe.folder(|folder| {
        let sources = Path::new(sources);
        // Maven's own folder is used, as by other programs of its user. Strict checksums protect
        // its downloads, and the list its cached files.
        Tool::new("mvn --quiet --batch-mode --strict-checksums dependency:copy-dependencies")
            .arg("--file")
            .arg(sources.join(POM))
            .arg(format!("-DoutputDirectory={}", folder.display()))
            .check()?;
        Tool::new("sha256sum --check --strict --quiet")
            .arg(sources.join(HASHES))
            .current_dir(folder)
            .check()?;
        Ok(())
    })?;
    Ok(format!("{}/*", folder.display()))
}

/// Java programs with all jars.
pub struct JavaClient {
    class_path: String,
}

impl JavaClient {
    pub fn fetched() -> Result<Self> {
        Self::of_crate(SOURCES, PROGRAMS)
    }

    /// Creates a client with the jars of `java/` in the folder of a crate, and these programs of
    /// it.
    pub fn of_crate(sources: &str, programs: &[&str]) -> Result<Self> {
        let jars = jars_of(sources)?;
        let made_of = [&[POM], programs].concat();
        let recipe = Recipe { sources, name: "classes", origin: "this folder", made_of: &made_of };
        let programs = programs.iter().map(|program| Path::new(sources).join(program));
        let folder = recipe.folder(|folder| {
            Tool::new("javac -Xlint:all,-processing -Werror --release 17 -cp")
                .arg(&jars)
                .arg("-d")
                .arg(folder)
                .args(programs)
                .check()?;
            Ok(())
        })?;
        let folder = folder.to_str().context("the path of the project is no UTF-8")?;
        Ok(Self { class_path: format!("{folder}:{jars}") })
    }

    /// Returns the command that starts `class`.
    pub(crate) fn command(&self, class: &str) -> Vec<String> {
        let flags = JAVA_FLAGS.iter().copied().chain(["-cp", &self.class_path, class]);
        std::iter::once("java").chain(flags).map(str::to_owned).collect()
    }

    pub fn program(&self, class: &str) -> Tool {
        Tool::new("env").args(self.command(class))
    }
}
