//! Validation of requests. Everything is checked before anything is created.

use std::path::{Path, PathBuf};

use api::{ByteSize, DiskProtocol, MachineCreate, MachineNetwork, Problem, ProblemKind};

use super::cloud_init::{check_network_config, check_user_data};
use crate::template::Boot;

const NAME_BYTES_MAX: usize = 63;
const COUNT_MAX: u32 = 64;
const CPU_COUNT_MAX: u32 = 255;
const MEMORY_BYTES_MIN: u64 = 32 << 20;
const MEMORY_BYTES_MAX: u64 = 4 << 40;
const KERNEL_ARGS_BYTES_MAX: usize = 1024;
const NETWORK_COUNT_MAX: usize = 8;
/// Maximum length of a bridge name, as in the kernel.
const BRIDGE_BYTES_MAX: usize = 15;
/// Limit on the total length of cloud-init texts.
const SEED_TEXT_BYTES_MAX: usize = 128 << 10;

/// Suffix that makes a machine's name the name of its seed volume.
pub(super) const SEED_SUFFIX: &str = "-seed";

fn invalid(field: &str, detail: impl Into<String>) -> Problem {
    Problem::new(ProblemKind::InvalidField, detail).in_field(field)
}

/// Checks a name: letters, digits and `._-`, starting with a letter or digit. It becomes part of
/// paths.
pub(super) fn check_name(field: &str, name: &str) -> Result<(), Problem> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_good = name.len() <= NAME_BYTES_MAX
        && name.bytes().all(is_plain)
        && name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    match is_good {
        true => Ok(()),
        false => Err(invalid(
            field,
            format!(
                "invalid name {name:?}: use 1 to {NAME_BYTES_MAX} letters, digits and ._-, \
                 starting with a letter or digit"
            ),
        )),
    }
}

/// Returns the names of all requested machines.
pub(super) fn names(request: &MachineCreate) -> Result<Vec<String>, Problem> {
    let names: Vec<String> = match request.count {
        None => vec![request.name.clone()],
        Some(count) if !(1..=COUNT_MAX).contains(&count) => {
            return Err(invalid(
                "count",
                format!("invalid count; 1 to {COUNT_MAX} machines can be created at once"),
            ));
        }
        Some(count) => (1..=count).map(|number| format!("{}-{number}", request.name)).collect(),
    };
    names.iter().try_for_each(|name| check_name("name", name))?;
    Ok(names)
}

pub(super) fn check_sizes(request: &MachineCreate) -> Result<(), Problem> {
    if !(1..=CPU_COUNT_MAX).contains(&request.cpus) {
        return Err(invalid("cpus", format!("invalid number of CPUs; use 1 to {CPU_COUNT_MAX}")));
    }
    if !(MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX).contains(&request.memory.0) {
        return Err(invalid("memory", "invalid memory size; use 32 MiB to 4 TiB"));
    }
    match disk(request)? {
        DiskSource::Volume(_) if request.count.is_some() => Err(invalid(
            "count",
            "several machines cannot use one volume; give each a clone (clone instead of \
                 volume)",
        )),
        DiskSource::Volume(volume) => check_name("volume", volume),
        DiskSource::CloneOf(source) => check_source("clone_of", source),
        // The daemon validates it.
        DiskSource::Empty(_) => Ok(()),
    }
}

/// Source of a machine's boot disk.
#[derive(Clone, Copy, Debug)]
pub(super) enum DiskSource<'a> {
    Volume(&'a str),
    CloneOf(&'a str),
    Empty(ByteSize),
}

pub(super) fn disk(request: &MachineCreate) -> Result<DiskSource<'_>, Problem> {
    match (&request.volume, &request.clone_of, request.size) {
        (Some(volume), None, None) => Ok(DiskSource::Volume(volume)),
        (None, Some(source), None) => Ok(DiskSource::CloneOf(source)),
        (None, None, Some(size)) => Ok(DiskSource::Empty(size)),
        (None, None, None) => Err(invalid(
            "volume",
            "no disk source given; give a volume, a volume to clone, or the size of an \
                 empty disk",
        )),
        _ => Err(invalid("volume", "volume, clone and size exclude each other; give one of them")),
    }
}

/// Checks a source: `VOLUME` or `VOLUME@SNAPSHOT`.
fn check_source(field: &str, source: &str) -> Result<(), Problem> {
    let (volume, snapshot) = source.split_once('@').unwrap_or((source, "none"));
    check_name(field, volume)?;
    check_name(field, snapshot)
}

pub(super) fn check_attached(volume: &str, protocol: DiskProtocol) -> Result<(), Problem> {
    match protocol {
        DiskProtocol::VhostUser => check_source("volume", volume),
        DiskProtocol::Nbd => check_name("volume", volume),
    }
}

pub(super) fn check_networks(request: &MachineCreate) -> Result<(), Problem> {
    if request.networks.len() > NETWORK_COUNT_MAX {
        let detail = format!("too many networks; a machine can have at most {NETWORK_COUNT_MAX}");
        return Err(invalid("networks", detail));
    }
    request.networks.iter().try_for_each(|network| match network {
        MachineNetwork::User => Ok(()),
        MachineNetwork::Network(name) => check_name("networks", name),
        MachineNetwork::Bridge(name) if name.len() > BRIDGE_BYTES_MAX => {
            let detail = format!("the bridge name is longer than {BRIDGE_BYTES_MAX} characters");
            Err(invalid("networks", detail))
        }
        MachineNetwork::Bridge(name) => check_name("networks", name),
    })
}

/// Validates cloud-init data and the names of the seed volumes.
pub(super) fn check_seed(request: &MachineCreate, names: &[String]) -> Result<(), Problem> {
    let Some(user_data) = &request.user_data else {
        return match request.network_config {
            Some(_) => Err(invalid("network_config", "only valid together with user_data")),
            None => Ok(()),
        };
    };
    let network_bytes = request.network_config.as_ref().map_or(0, String::len);
    if user_data.len() + network_bytes > SEED_TEXT_BYTES_MAX {
        let detail = format!("cloud-init data is longer than {SEED_TEXT_BYTES_MAX} bytes");
        return Err(invalid("user_data", detail));
    }
    check_user_data(user_data).map_err(|why| invalid("user_data", why))?;
    let network = request.network_config.as_deref();
    network.map(check_network_config).transpose().map_err(|why| invalid("network_config", why))?;
    names.iter().try_for_each(|name| check_name("name", &format!("{name}{SEED_SUFFIX}")))
}

/// Returns the path of the CD-ROM image, if one is requested.
pub(super) fn cdrom(folder: &Path, request: &MachineCreate) -> Result<Option<PathBuf>, Problem> {
    let name = request.cdrom.as_ref();
    name.map(|name| boot_file(folder, "cdrom", name)).transpose()
}

/// Returns the kernel to boot, if one is requested. Only names in `folder` are accepted, because
/// libvirt would open any file of the host.
pub(super) fn boot(folder: &Path, request: &MachineCreate) -> Result<Option<Boot>, Problem> {
    let Some(kernel) = &request.kernel else {
        return match request.initrd.is_some() || request.kernel_args.is_some() {
            true => Err(invalid("kernel", "an initrd and kernel arguments need a kernel")),
            false => Ok(None),
        };
    };
    let arguments = request.kernel_args.clone().unwrap_or_default();
    let is_printable = arguments.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if arguments.len() > KERNEL_ARGS_BYTES_MAX || !is_printable {
        let detail = format!("use at most {KERNEL_ARGS_BYTES_MAX} printable ASCII characters");
        return Err(invalid("kernel_args", detail));
    }
    let kernel = boot_file(folder, "kernel", kernel)?;
    let initrd = request.initrd.as_ref();
    let initrd = initrd.map(|name| boot_file(folder, "initrd", name)).transpose()?;
    Ok(Some(Boot { kernel, initrd, arguments }))
}

fn boot_file(folder: &Path, field: &str, name: &str) -> Result<PathBuf, Problem> {
    check_name(field, name)?;
    let path = folder.join(name);
    let is_file = path.symlink_metadata().is_ok_and(|it| it.is_file());
    match is_file {
        true => Ok(path),
        false => Err(invalid(field, format!("{} is not a regular file", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use api::ByteSize;

    use super::*;

    fn request() -> MachineCreate {
        MachineCreate {
            name: "web".to_owned(),
            count: None,
            cpus: 1,
            memory: ByteSize(1 << 30),
            volume: None,
            clone_of: Some("golden@v1".to_owned()),
            size: None,
            protocol: DiskProtocol::VhostUser,
            cdrom: None,
            networks: Vec::new(),
            graphics: false,
            user_data: None,
            network_config: None,
            kernel: None,
            initrd: None,
            kernel_args: None,
            start: false,
        }
    }

    #[track_caller]
    fn check(folder: &Path, request: &MachineCreate, field: &str) {
        let checked = names(request)
            .and_then(|names| check_seed(request, &names))
            .and_then(|()| check_sizes(request))
            .and_then(|()| check_networks(request))
            .and_then(|()| cdrom(folder, request))
            .and_then(|_| boot(folder, request).map(drop));
        let problem = checked.expect_err(field);
        assert_eq!(problem.field.as_deref(), Some(field), "{problem}");
    }

    #[test]
    fn several_machines_are_numbered() {
        let all = names(&MachineCreate { count: Some(3), ..request() }).expect("good names");
        assert_eq!(all, ["web-1", "web-2", "web-3"]);
        assert_eq!(names(&request()).expect("a good name"), ["web"]);
    }

    #[test]
    fn what_cannot_be_is_refused_by_field() {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let folder = folder.path();
        std::fs::write(folder.join("vmlinuz"), "").expect("the folder is there");
        std::os::unix::fs::symlink("/etc/shadow", folder.join("link")).expect("it is new");
        let text = |text: &str| Some(text.to_owned());
        for name in ["", ".a", "-a", "a/b", "a b", "a'b", "ä", &"a".repeat(64)] {
            check(folder, &MachineCreate { name: name.to_owned(), ..request() }, "name");
        }
        check(folder, &MachineCreate { count: Some(0), ..request() }, "count");
        check(folder, &MachineCreate { count: Some(65), ..request() }, "count");
        check(folder, &MachineCreate { cpus: 0, ..request() }, "cpus");
        check(folder, &MachineCreate { memory: ByteSize(1), ..request() }, "memory");
        check(folder, &MachineCreate { volume: text("a"), ..request() }, "volume");
        check(folder, &MachineCreate { clone_of: None, ..request() }, "volume");
        check(folder, &MachineCreate { clone_of: text("a@b@c"), ..request() }, "clone_of");
        check(folder, &MachineCreate { size: Some(ByteSize(1 << 20)), ..request() }, "volume");
        check(folder, &MachineCreate { network_config: text("a"), ..request() }, "network_config");
        let user_data = text(&"a".repeat(SEED_TEXT_BYTES_MAX + 1));
        check(folder, &MachineCreate { user_data, ..request() }, "user_data");
        for user_data in ["hostname: web\n", "#cloud-config\na: [b\n"] {
            check(folder, &MachineCreate { user_data: text(user_data), ..request() }, "user_data");
        }
        let (user_data, network_config) = (text("#cloud-config\n"), text("ethernets: {}\n"));
        let odd_network = MachineCreate { user_data, network_config, ..request() };
        check(folder, &odd_network, "network_config");
        let (name, user_data) = ("a".repeat(NAME_BYTES_MAX), text("#cloud-config"));
        check(folder, &MachineCreate { name, user_data, ..request() }, "name");
        let networks = vec![MachineNetwork::User; NETWORK_COUNT_MAX + 1];
        check(folder, &MachineCreate { networks, ..request() }, "networks");
        for name in ["a/b", "a'b", "", &"a".repeat(BRIDGE_BYTES_MAX + 1)] {
            let networks = vec![MachineNetwork::Bridge(name.to_owned())];
            check(folder, &MachineCreate { networks, ..request() }, "networks");
        }
        for name in ["../vmlinuz", "/etc/shadow", "link", "none", "."] {
            check(folder, &MachineCreate { kernel: text(name), ..request() }, "kernel");
            check(folder, &MachineCreate { cdrom: text(name), ..request() }, "cdrom");
            let kernel = text("vmlinuz");
            check(folder, &MachineCreate { kernel, initrd: text(name), ..request() }, "initrd");
        }
        check(folder, &MachineCreate { initrd: text("vmlinuz"), ..request() }, "kernel");
        let (kernel, kernel_args) = (text("vmlinuz"), text("a\nb"));
        check(folder, &MachineCreate { kernel, kernel_args, ..request() }, "kernel_args");
    }
}
