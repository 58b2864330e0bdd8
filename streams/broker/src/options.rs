//! The command line.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Parser;

/// Serves topics on Memlane volumes to Kafka's clients.
#[derive(Clone, Debug, Parser)]
#[command(name = "memlane-broker", version)]
pub(crate) struct Options {
    /// Keep topics in a pool of the broker's own of this size, as 512M or 4G.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) embedded: u64,

    /// Keep the pool in this file on tmpfs, so that it outlives the broker.
    #[arg(long, value_name = "FILE", requires = "embedded")]
    pub(crate) pool_file: Option<PathBuf>,

    /// Serve clients at this address and port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9092")]
    pub(crate) listen: String,

    /// Tell clients to connect to this host and port, where it is not the address that is served.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise: Option<String>,

    /// Make topics that clients ask for.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub(crate) auto_create_topics: bool,

    /// Partitions of topics that do not say how many they have.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub(crate) partitions: u32,

    /// A setting of topics that do not say, as retention.ms=3600000; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    pub(crate) topic_default: Vec<(String, String)>,

    /// Milliseconds that a new group waits for more members before the first assignment.
    #[arg(long, value_name = "MS", default_value_t = 3_000)]
    pub(crate) group_initial_rebalance_delay: i32,

    /// Connections that are served at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    pub(crate) connections: usize,

    /// The longest request.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "32M")]
    pub(crate) request_size: u64,

    /// What is logged, as info or broker=debug.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub(crate) log: String,
}

/// Host and port; an IPv6 address is in brackets.
pub(crate) fn host_and_port(text: &str) -> anyhow::Result<(String, u16)> {
    let (host, port) =
        text.rsplit_once(':').with_context(|| format!("{text:?} is not HOST:PORT"))?;
    let port = port.parse().with_context(|| format!("{text:?} does not end with a port"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        bail!("{text:?} names no host");
    }
    Ok((host.to_owned(), port))
}

fn size(text: &str) -> Result<u64, String> {
    let size: api::ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    Ok(size.0)
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it is not NAME=VALUE")?;
    let setting = crate::topics::find_setting(name)
        .ok_or_else(|| format!("there is no setting {name:?} of topics"))?;
    setting.check(value)?;
    Ok((name.to_owned(), value.to_owned()))
}
