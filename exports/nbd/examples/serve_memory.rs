//! Serves one sparse in-memory device, named `memory`, on a Unix socket until standard input
//! closes.
//!
//! ```text
//! cargo run -p nbd --example serve_memory -- /tmp/nbd.sock 1073741824
//! nbdinfo 'nbd+unix:///memory?socket=/tmp/nbd.sock'
//! ```

#[path = "../tests/support/mod.rs"]
mod support;

use std::error::Error;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use adaptive_polling::{SPIN_MAX_DEFAULT, SpinPermits};
use nbd::{Config, Quota, Server, TcpAccess};
use support::{ExportTable, SparseDevice};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(size), None) = (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: serve_memory SOCKET_PATH SIZE_IN_BYTES".into());
    };
    let device = Arc::new(SparseDevice::new(size.parse()?));
    let config = Config {
        unix_path: path.into(),
        tcp: None,
        tcp_access: TcpAccess::Certified,
        tls: None,
        quota: Quota { total: 64, per_user: 64, reserved: 0 },
        handshake_time_max: Duration::from_secs(10),
        spin_permits: Arc::new(SpinPermits::for_this_machine()),
        spin_max: SPIN_MAX_DEFAULT,
        thread_start: || {},
    };
    let exports = ExportTable::new().with("memory", device);
    let server = Server::start(config, Arc::new(exports))?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.stop(Duration::from_secs(5));
    Ok(())
}
