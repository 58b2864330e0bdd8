//! Container images of local programs, without a registry.
//!
//! Each is an archive in the format of `docker save`, with one layer.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use system::{Tool, product_path};

use crate::parts::Parts;

/// Image of the container that holds a pod's namespaces.
pub(crate) const PAUSE: &str = "registry.k8s.io/pause:3.10";

/// Image of a small system for commands.
pub(crate) const SHELL: &str = "docker.io/library/busybox:1.35";

/// Same, with fio.
pub(crate) const FIO: &str = "localhost/fio:3";

/// Image of the driver, with the name in its manifest.
const DRIVER: &str = "docker.io/library/memlane-csi:0.2.0";

/// Image of the snapshot controller.
pub(crate) const SNAPSHOT_CONTROLLER: &str =
    "registry.k8s.io/sig-storage/snapshot-controller:v8.7.0";

/// Images of one static program each, with the names in the manifests.
const SINGLE: &[(&str, &str)] = &[
    ("registry.k8s.io/sig-storage/csi-provisioner:v6.4.0", "csi-provisioner"),
    ("registry.k8s.io/sig-storage/csi-snapshotter:v8.7.0", "csi-snapshotter"),
    ("registry.k8s.io/sig-storage/csi-resizer:v2.3.0", "csi-resizer"),
    (SNAPSHOT_CONTROLLER, "snapshot-controller"),
];

/// Debian packages in the driver's image: those that its recipe installs, and those in every Debian
/// image.
const DRIVER_PACKAGES: &[&str] = &["e2fsprogs", "xfsprogs", "mount", "util-linux", "dash"];

const BUSYBOX: &str = "/bin/busybox";
const FOLDERS_OF_PROGRAMS: &[&str] = &["/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/"];

/// Writes an archive of each image to the folder.
pub(crate) fn write_all(parts: &Parts, folder: &Path) -> Result<()> {
    Image::new(PAUSE, folder)?.with_shell()?.finish(&["/bin/sleep", "2147483647"])?;
    Image::new(SHELL, folder)?.with_shell()?.finish(&["/bin/sh"])?;
    let fio = Tool::new("sh -c").arg("command -v fio").check()?;
    let fio = PathBuf::from(fio.trim());
    let image = Image::new(FIO, folder)?.with_shell()?;
    image.with_program(&fio, &fio)?.finish(&["/bin/sh"])?;
    for (name, program) in SINGLE {
        let inside = Path::new("/").join(program);
        let image = Image::new(name, folder)?;
        let image = image.with_program(&parts.programs.join(program), &inside)?;
        image.finish(&[&inside.to_string_lossy()])?;
    }
    let mut image = Image::new(DRIVER, folder)?;
    let installed = Path::new("/usr/bin/memlane-csi");
    image = image.with_program(&product_path("memlane-csi"), installed)?;
    for package in DRIVER_PACKAGES {
        for program in programs_of(package)? {
            image = image.with_program(&program, &program)?;
        }
    }
    image.finish(&[&installed.to_string_lossy()])
}

/// Returns the programs in an installed Debian package.
fn programs_of(package: &str) -> Result<Vec<PathBuf>> {
    let listed = Tool::new("dpkg-query --listfiles").arg(package).check()?;
    let is_program = |path: &&str| {
        FOLDERS_OF_PROGRAMS.iter().any(|folder| path.starts_with(folder))
            && Path::new(path).is_file()
    };
    let found: Vec<_> = listed.lines().filter(is_program).map(PathBuf::from).collect();
    ensure!(!found.is_empty(), "package {package} has no programs here");
    Ok(found)
}

/// An image under construction.
struct Image {
    name: String,
    archive: PathBuf,
    folder: PathBuf,
    root: PathBuf,
}

impl Image {
    fn new(name: &str, folder: &Path) -> Result<Self> {
        let short = name.rsplit('/').next().unwrap_or(name).replace(':', "-");
        let archive = folder.join(format!("{short}.tar"));
        let folder = folder.join(short);
        let root = folder.join("root");
        for inside in ["dev", "etc", "proc", "sys", "run", "tmp", "var", "usr/bin", "usr/sbin"] {
            make_folder(&root.join(inside))?;
        }
        // As in Debian, so that programs have the paths of their packages.
        for (name, place) in [("bin", "usr/bin"), ("sbin", "usr/sbin")] {
            symlink(place, root.join(name)).context("cannot link a folder of an image")?;
        }
        for name in ["lib", "lib64"] {
            make_folder(&root.join("usr").join(name))?;
            let linked = symlink(Path::new("usr").join(name), root.join(name));
            linked.context("cannot link a folder of an image")?;
        }
        Ok(Self { name: name.to_owned(), archive, folder, root })
    }

    /// Adds busybox under each of its names.
    fn with_shell(self) -> Result<Self> {
        let place = self.place(Path::new(BUSYBOX));
        copy(Path::new(BUSYBOX), &place)?;
        let names = Tool::new(BUSYBOX).arg("--list").check()?;
        for name in names.lines().filter(|name| *name != "busybox") {
            let linked = symlink("busybox", place.with_file_name(name));
            linked.with_context(|| format!("cannot link {name}"))?;
        }
        Ok(self)
    }

    /// Adds a program of this host at a path of the image, with its libraries.
    fn with_program(self, program: &Path, inside: &Path) -> Result<Self> {
        copy(program, &self.place(inside))?;
        // ldd fails for a static program.
        let needed = Tool::new("ldd").arg(program).run()?;
        for word in needed.stdout.split_whitespace().filter(|word| word.starts_with('/')) {
            let library = Path::new(word.trim_end_matches(':'));
            let place = self.place(library);
            if library.is_file() && library != program && !place.exists() {
                copy(library, &place)?;
            }
        }
        Ok(self)
    }

    fn place(&self, inside: &Path) -> PathBuf {
        self.root.join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Writes the archive. `entry` is the entrypoint of containers.
    fn finish(self, entry: &[&str]) -> Result<()> {
        let layer = self.folder.join("layer.tar");
        Tool::new("tar --create --file")
            .arg(&layer)
            .arg("--directory")
            .arg(&self.root)
            .arg(".")
            .check()?;
        let sum = Tool::new("sha256sum").arg(&layer).check()?;
        let sum = sum.split_whitespace().next().context("sha256sum prints a sum")?;
        let settings = json!({
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Entrypoint": entry,
            },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{sum}")] },
        });
        let contents = json!([{
            "Config": "config.json", "RepoTags": [self.name], "Layers": ["layer.tar"]
        }]);
        fs::write(self.folder.join("config.json"), settings.to_string())
            .context("cannot write the settings of an image")?;
        fs::write(self.folder.join("manifest.json"), contents.to_string())
            .context("cannot write the contents of an image")?;
        Tool::new("tar --create --file")
            .arg(&self.archive)
            .arg("--directory")
            .arg(&self.folder)
            .args(["manifest.json", "config.json", "layer.tar"])
            .check()?;
        fs::remove_dir_all(&self.folder).context("cannot remove what an image was made of")
    }
}

fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))
}

/// Copies a file as an executable.
fn copy(from: &Path, to: &Path) -> Result<()> {
    make_folder(to.parent().context("a file lies in a folder")?)?;
    let permissions = fs::metadata(from).map(|it| it.permissions());
    let doing = || format!("cannot copy {} to {}", from.display(), to.display());
    let mut source = File::open(from).with_context(doing)?;
    let mut target = File::create(to).with_context(doing)?;
    std::io::copy(&mut source, &mut target).with_context(doing)?;
    target.set_permissions(permissions.with_context(doing)?).with_context(doing)
}
