//! Command-line options of the program.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Give the pods of a Kubernetes node volumes of Memlane, by the Container Storage Interface.
#[derive(Clone, Debug, Parser)]
#[command(name = "memlane-csi", version)]
pub(crate) struct Options {
    /// Read options from this file, in TOML: keys are the names of options. Options that are given
    /// here win
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// The socket to serve at
    #[arg(
        long,
        value_name = "SOCKET",
        default_value = "/var/lib/kubelet/plugins/csi.memlane/csi.sock"
    )]
    pub(crate) socket: PathBuf,

    /// The folder in which the kubelet looks for drivers; this one is not registered there without
    #[arg(long, value_name = "FOLDER")]
    pub(crate) registry: Option<PathBuf>,

    /// The path of --socket as the kubelet sees it, where that is another
    #[arg(long, value_name = "SOCKET")]
    pub(crate) kubelet_socket: Option<PathBuf>,

    /// The name of this node in the cluster; the host's name by default
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,

    /// Where the growth of volumes is asked for: at this driver's controller, or when the node has
    /// its file system grow, which a resizer for many nodes takes
    #[arg(long, value_name = "PLACE", value_enum, default_value_t = Growth::Controller)]
    pub(crate) growth: Growth,

    /// The socket of the daemon's REST interface
    #[arg(long, value_name = "SOCKET", default_value = "/run/memlane/api.sock")]
    pub(crate) daemon_socket: PathBuf,

    /// Filter of the log: a level, or a filter such as csi=debug
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub(crate) log: String,

    /// Write a manual page to this folder, and do nothing else
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
