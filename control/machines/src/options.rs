//! Command-line options of the program.

use std::path::PathBuf;

use clap::Parser;

/// Create and run libvirt virtual machines whose disks are volumes.
#[derive(Clone, Debug, Parser)]
#[command(name = "memlane-machines", version)]
pub(crate) struct Options {
    /// Configuration file in TOML; its keys are the names of options. Options on the command line
    /// override it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Socket to listen on
    #[arg(long, value_name = "SOCKET", default_value = "/run/memlane-machines/api.sock")]
    pub(crate) socket: PathBuf,

    /// Group, by name or number, whose members may use the socket besides root
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,

    /// Socket of the daemon's REST interface; the sockets of its volumes are in the same directory
    #[arg(long, value_name = "SOCKET", default_value = "/run/memlane/api.sock")]
    pub(crate) daemon_socket: PathBuf,

    /// Socket of libvirt
    #[arg(long, value_name = "SOCKET", default_value = "/run/libvirt/libvirt-sock")]
    pub(crate) libvirt_socket: PathBuf,

    /// User as which libvirt runs QEMU; it becomes the owner of the disks' sockets
    #[arg(long, value_name = "USER", default_value = "libvirt-qemu")]
    pub(crate) machine_user: String,

    /// Directory of kernels, initial RAM disks and CD-ROM images for machines
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/memlane-machines/boot")]
    pub(crate) boot_dir: PathBuf,

    /// Directory in which libvirt logs the serial output of guests
    #[arg(long, value_name = "FOLDER", default_value = "/var/log/libvirt/qemu")]
    pub(crate) console_dir: PathBuf,

    /// Log level or filter, for example info or machines=debug
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub(crate) log: String,

    /// Write the manual page to man8 in this folder, and do nothing else
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) man: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_reference_has_every_option() {
        program::check_reference::<Options>(concat!(env!("CARGO_MANIFEST_DIR"), "/../..").as_ref());
    }

    #[test]
    fn every_key_is_in_the_sample_file_and_every_line_of_it_can_be_used() {
        Options::command().debug_assert();
        let sample = include_str!("../memlane-machines.toml");
        let lines = option_file::sample_lines(Options::command(), sample).expect("all keys");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(&file, lines.join("\n")).expect("it is written");
        let words = ["memlane-machines".into(), "--config".into(), file.path().into()];
        let words = option_file::with_file(Options::command(), words.into());
        let options = Options::try_parse_from(words.expect("all keys are known"));
        assert_eq!(options.expect("the sample, uncommented").log, "info");
    }
}
