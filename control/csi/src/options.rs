//! Command-line options of the program.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// CSI driver that provides volumes of this node's memlaned to Kubernetes pods.
#[derive(Clone, Debug, Parser)]
#[command(name = "memlane-csi", version)]
pub(crate) struct Options {
    /// Configuration file in TOML; its keys are the names of options. Options on the command line
    /// override it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Socket to listen on
    #[arg(
        long,
        value_name = "SOCKET",
        default_value = "/var/lib/kubelet/plugins/csi.memlane/csi.sock"
    )]
    pub(crate) socket: PathBuf,

    /// Plugin registry directory of the kubelet; without it the driver does not register itself
    #[arg(long, value_name = "FOLDER")]
    pub(crate) registry: Option<PathBuf>,

    /// Path of --socket as the kubelet sees it, if it differs
    #[arg(long, value_name = "SOCKET")]
    pub(crate) kubelet_socket: Option<PathBuf>,

    /// Name of this node in the cluster [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,

    /// Component that resizes volumes: the controller, or the node when it grows the file system,
    /// which one resizer for several nodes requires
    #[arg(long, value_name = "PLACE", value_enum, default_value_t = Growth::Controller)]
    pub(crate) growth: Growth,

    /// Socket of the daemon's REST interface
    #[arg(long, value_name = "SOCKET", default_value = "/run/memlane/api.sock")]
    pub(crate) daemon_socket: PathBuf,

    /// Log level or filter, for example info or csi=debug
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub(crate) log: String,

    /// Write the manual page to man8 in this folder, and do nothing else
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) man: Option<PathBuf>,
}

/// Service that is asked to let volumes grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Growth {
    Controller,
    Node,
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
        let sample = include_str!("../memlane-csi.toml");
        let lines = option_file::sample_lines(Options::command(), sample).expect("all keys");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(&file, lines.join("\n")).expect("it is written");
        let words = ["memlane-csi".into(), "--config".into(), file.path().into()];
        let words = option_file::with_file(Options::command(), words.into());
        let options = Options::try_parse_from(words.expect("all keys are known"));
        assert_eq!(options.expect("the sample, uncommented").log, "info");
    }
}
