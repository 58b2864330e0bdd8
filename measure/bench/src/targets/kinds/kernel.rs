//! RAM disks of the kernel. Only devices created here are used, and they are removed when dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use system::{Ability, Interruption, Tool, missing, wait_for};

use super::files::IN_KERNEL_MEMORY;
use crate::targets::target::{Access, Backing, Traits};

const CONTROL: &str = "/sys/class/zram-control";
const NULL_BLK_FOLDER: &str = "/sys/kernel/config/nullb";
const GONE_TIME_LIMIT: Duration = Duration::from_secs(10);

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {text:?} to {}", path.display()))
}

fn traits(device: &str, reduces: bool) -> Traits {
    Traits {
        access: Access::File { path: Path::new("/dev").join(device), direct: true },
        durability: IN_KERNEL_MEMORY,
        reduces,
        device: Some(device.to_owned()),
    }
}

/// A zram device created here.
struct Zram {
    number: u32,
}

/// Creates a zram device with LZ4, the most common choice.
pub(super) fn zram(size_bytes: u64) -> Result<(Traits, Box<dyn Backing>)> {
    let printed = fs::read_to_string(format!("{CONTROL}/hot_add")).context("cannot make a zram")?;
    let number = printed.trim().parse().with_context(|| format!("hot_add says {printed:?}"))?;
    let own = Zram { number };
    let folder = own.folder();
    write(&folder.join("comp_algorithm"), "lz4")?;
    write(&folder.join("disksize"), &size_bytes.to_string())?;
    wait_for("the device of zram", GONE_TIME_LIMIT, || Ok(own.device().exists()))?;
    Ok((traits(&format!("zram{number}"), true), Box::new(own)))
}

impl Zram {
    fn folder(&self) -> PathBuf {
        PathBuf::from(format!("/sys/block/zram{}", self.number))
    }

    fn device(&self) -> PathBuf {
        PathBuf::from(format!("/dev/zram{}", self.number))
    }

    fn remove(&self) -> Result<()> {
        write(&self.folder().join("reset"), "1")?;
        write(&Path::new(CONTROL).join("hot_remove"), &self.number.to_string())
    }
}

impl Backing for Zram {
    fn used_bytes(&self) -> Result<Option<u64>> {
        let path = self.folder().join("mm_stat");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // The third field is the total memory, including overhead.
        let field = text.split_whitespace().nth(2).context("mm_stat is too short")?;
        Ok(Some(field.parse().with_context(|| format!("mm_stat holds {field:?}"))?))
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _cleaning_up = Interruption::begin_to_clean_up();
        // Programs that probe new devices may have it open briefly.
        let removed = wait_for("zram to be let go", GONE_TIME_LIMIT, || Ok(self.remove().is_ok()));
        if removed.is_err()
            && let Err(error) = self.remove()
        {
            eprintln!("cannot remove {}: {error:#}", self.device().display());
        }
    }
}

/// Returns the reason why a device module cannot be used, or `None`.
pub(super) fn missing_module(name: &str) -> Option<String> {
    if let Some(reason) = missing(&[Ability::BlockDevices, Ability::Program("modprobe")]) {
        return Some(reason);
    }
    if Path::new("/sys/module").join(name).exists() {
        return Some(format!(
            "module {name} is in use by another program; unload it (modprobe -r {name})"
        ));
    }
    let found = Tool::new("modprobe --dry-run --quiet").arg(name).check();
    found.err().map(|_| format!("this kernel has no module {name}"))
}

/// A kernel module loaded here. Dropping it unloads the module with its devices.
struct Module {
    name: &'static str,
}

impl Module {
    fn load(name: &'static str, arguments: &[String]) -> Result<Self> {
        ensure!(!Path::new("/sys/module").join(name).exists(), "module {name} is already loaded");
        Tool::new("modprobe").arg(name).args(arguments).check()?;
        Ok(Self { name })
    }
}

impl Backing for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        let _cleaning_up = Interruption::begin_to_clean_up();
        if let Err(error) = Tool::new("modprobe --remove").arg(self.name).check() {
            eprintln!("cannot unload the module {}: {error:#}", self.name);
        }
    }
}

pub(super) fn brd(size_bytes: u64) -> Result<(Traits, Box<dyn Backing>)> {
    let arguments = ["rd_nr=1".to_owned(), format!("rd_size={}", size_bytes >> 10)];
    let module = Module::load("brd", &arguments)?;
    wait_for("the device of brd", GONE_TIME_LIMIT, || Ok(Path::new("/dev/ram0").exists()))?;
    Ok((traits("ram0", false), Box::new(module)))
}

/// A null_blk device in memory-backed mode. Fields are dropped in order.
struct NullBlk {
    folder: PathBuf,
    _module: Module,
}

pub(super) fn null_blk(size_bytes: u64) -> Result<(Traits, Box<dyn Backing>)> {
    let module = Module::load("null_blk", &["nr_devices=0".to_owned()])?;
    let name = "memlane_bench";
    let folder = Path::new(NULL_BLK_FOLDER).join(name);
    fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let own = NullBlk { folder, _module: module };
    let megabytes = (size_bytes >> 20).to_string();
    for (file, text) in
        [("memory_backed", "1"), ("blocksize", "4096"), ("size", &*megabytes), ("power", "1")]
    {
        write(&own.folder.join(file), text)?;
    }
    let index = fs::read_to_string(own.folder.join("index")).unwrap_or_default();
    let numbered = format!("nullb{}", index.trim());
    let exists = |device: &str| Path::new("/dev").join(device).exists();
    wait_for("the device of null_blk", GONE_TIME_LIMIT, || Ok(exists(name) || exists(&numbered)))?;
    let device = if exists(name) { name } else { &numbered };
    Ok((traits(device, false), Box::new(own)))
}

impl Backing for NullBlk {}

impl Drop for NullBlk {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.folder) {
            eprintln!("cannot remove {}: {error}", self.folder.display());
        }
    }
}
