//! Fetches and builds csi-sanity before tests need it.
#![forbid(unsafe_code)]

use anyhow::Result;

fn main() -> Result<()> {
    csi_clients::sanity().map(drop)
}
