//! Interoperability with common NBD clients. Clients that are not installed are skipped with a
//! message.

#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/faulty.rs"]
mod faulty;
#[path = "support/running.rs"]
mod running;
mod support;
#[path = "support/talk.rs"]
mod talk;

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use block_device::{Action, BlockDevice, DeviceErrorKind};
use certificates::Authority;
use faulty::{Fault, FaultyDevice};
use nbd::{Config, TcpAccess};
use running::Running;
use serde_json::Value;
use support::{ExportTable, SparseDevice};

const SIZE: u64 = 64 << 20;

/// A served device of one test.
struct Served {
    device: Arc<SparseDevice>,
    running: Running,
}

impl Served {
    fn new() -> Self {
        Self::with(|config| config)
    }

    fn with(change: impl FnOnce(Config) -> Config) -> Self {
        let device = Arc::new(SparseDevice::new(SIZE));
        let export = Arc::clone(&device);
        let other = Arc::new(SparseDevice::new(4096).read_only());
        let exports = ExportTable::new().with("disk", export).with("other", other);
        Self { device, running: Running::with(Arc::new(exports), change) }
    }

    fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.running.socket().display())
    }

    fn path(&self, name: &str) -> String {
        let path = self.running.directory.path().join(name);
        path.to_str().expect("temporary directories have readable names").to_owned()
    }

    /// Creates an image file with data, zeros and holes.
    fn image(&self, name: &str) -> String {
        let path = self.path(name);
        let mut bytes = vec![0; 64 << 20];
        for (index, byte) in (0_u32..).zip(&mut bytes[5_000_000..25_000_000]) {
            *byte = (index.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0];
        }
        bytes[40_000_000..40_000_100].fill(7);
        fs::write(&path, bytes).expect("there is space for temporary files");
        path
    }

    fn contents(&self) -> Vec<u8> {
        let mut contents = vec![0; 64 << 20];
        self.device.read(0, &mut contents).expect("all of it can be read");
        contents
    }
}

/// Runs a tool with a time limit. Returns `None` if it is not installed.
#[track_caller]
fn run(tool: &str, arguments: &[&str]) -> Option<Output> {
    let inherited = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("timeout")
        .args(["100", tool])
        .args(arguments)
        // The system's Python has the libnbd module.
        .env("PATH", format!("/usr/bin:{inherited}"))
        .output()
        .expect("timeout is part of every Linux");
    if output.status.code() == Some(127) {
        // Bypasses the test harness, which hides the output of passing tests.
        writeln!(io::stderr(), "skipped: this machine has no {tool}").expect("stderr is open");
        return None;
    }
    Some(output)
}

/// Runs a tool as [`run`] does. Fails if the tool fails.
#[track_caller]
fn succeed(tool: &str, arguments: &[&str]) -> Option<String> {
    let output = run(tool, arguments)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{tool} {arguments:?}: {said}{complained}");
    Some(said)
}

#[track_caller]
fn json(tool: &str, arguments: &[&str]) -> Option<Value> {
    Some(serde_json::from_str(&succeed(tool, arguments)?).expect("the tool prints JSON"))
}

#[test]
fn nbdinfo_sees_what_the_export_can_do() {
    let served = Served::new();
    let Some(info) = json("nbdinfo", &["--json", &served.uri("disk")]) else { return };
    assert_eq!(info["protocol"], "newstyle-fixed");
    assert_eq!(info["structured"], true);
    let export = &info["exports"][0];
    assert_eq!(export["export-name"], "disk");
    assert_eq!(export["export-size"], SIZE);
    assert_eq!(export["description"], "test device disk");
    assert_eq!(export["block_size_minimum"], 1);
    assert_eq!(export["block_size_preferred"], 4096);
    assert_eq!(export["block_size_maximum"], 32 << 20);
    assert_eq!(export["contexts"][0], "base:allocation");
    assert_eq!(export["is_read_only"], false);
    for able in ["cache", "df", "fast_zero", "flush", "fua", "multi_conn", "trim", "zero"] {
        assert_eq!(export[format!("can_{able}")], true, "{able}");
    }
}

#[test]
fn nbdinfo_lists_the_exports() {
    let served = Served::new();
    let Some(list) = json("nbdinfo", &["--list", "--json", &served.uri("")]) else { return };
    let exports = list["exports"].as_array().expect("a list");
    let names: Vec<_> = exports.iter().map(|export| &export["export-name"]).collect();
    assert_eq!(names, ["disk", "other"]);
    assert_eq!(exports[1]["is_read_only"], true);
}

#[test]
fn nbdinfo_lists_many_exports() {
    let device: Arc<SparseDevice> = Arc::new(SparseDevice::new(SIZE));
    let names = (0..600).map(|index| format!("volume-{index}"));
    let table =
        names.fold(ExportTable::new(), |table, name| table.with(&name, Arc::clone(&device) as _));
    let running = Running::new(Arc::new(table));
    let uri = format!("nbd+unix:///?socket={}", running.socket().display());
    let Some(list) = json("nbdinfo", &["--list", "--json", &uri]) else { return };
    assert_eq!(list["exports"].as_array().map(Vec::len), Some(600));
}

#[test]
fn nbdinfo_maps_data_and_holes() {
    let served = Served::new();
    served.device.write(1 << 20, &[1; 8192]).expect("there is space");
    let uri = served.uri("disk");
    let Some(map) = json("nbdinfo", &["--map", "--json", &uri]) else { return };
    let extents = map.as_array().expect("a list").iter();
    let extents: Vec<_> = extents
        .map(|extent| (extent["offset"].as_u64(), extent["length"].as_u64(), &extent["type"]))
        .collect();
    let [hole, data] = [Value::from(3), Value::from(0)];
    let after = (1 << 20) + 8192;
    assert_eq!(
        extents,
        [
            (Some(0), Some(1 << 20), &hole),
            (Some(1 << 20), Some(8192), &data),
            (Some(after), Some(SIZE - after), &hole),
        ]
    );
}

/// Serves a device with changes after its snapshot, in the second mebibyte.
fn served_with_changes() -> Served {
    let served = Served::new();
    served.device.write(0, &[1; 8192]).expect("there is space");
    served.device.take_snapshot(7, "monday");
    served.device.write(1 << 20, &[2; 8192]).expect("there is space");
    served
}

#[test]
fn nbdinfo_lists_and_maps_what_changed() {
    let served = served_with_changes();
    let uri = served.uri("disk");
    let Some(info) = json("nbdinfo", &["--json", &uri]) else { return };
    let contexts = &info["exports"][0]["contexts"];
    assert_eq!(contexts, &serde_json::json!(["base:allocation", "memlane:changed:monday"]));
    let map = json("nbdinfo", &["--map=memlane:changed:monday", "--json", &uri]);
    let map = map.expect("it is here");
    let extents = map.as_array().expect("a list").iter();
    let extents: Vec<_> = extents
        .map(|extent| [&extent["offset"], &extent["length"], &extent["type"]].map(Value::as_u64))
        .collect();
    let after = (1 << 20) + 8192;
    let expected = [[0, 1 << 20, 0], [1 << 20, 8192, 1], [after, SIZE - after, 0]];
    assert_eq!(extents, expected.map(|extent| extent.map(Some)));
}

#[test]
fn qemu_img_maps_what_changed_as_it_does_dirty_bitmaps() {
    let served = served_with_changes();
    let socket = served.running.socket();
    let image = format!(
        "driver=nbd,export=disk,server.type=unix,server.path={},\
         x-dirty-bitmap=memlane:changed:monday",
        socket.display()
    );
    let Some(map) = json("qemu-img", &["map", "--image-opts", "--output=json", &image]) else {
        return;
    };
    let parts = map.as_array().expect("a list").iter();
    // QEMU reports extents with bit 0 set as `"data": false`.
    let changed = parts.filter(|part| part["data"] == false);
    let changed: Vec<_> = changed.map(|part| (&part["start"], &part["length"])).collect();
    assert_eq!(changed, [(&Value::from(1 << 20), &Value::from(8192))]);
}

#[test]
fn nbdsh_asks_for_allocation_and_changes_at_once() {
    let script = r#"
h.add_meta_context("base:allocation")
h.add_meta_context("memlane:changed:monday")
h.add_meta_context("memlane:changed:sunday")
h.connect_uri(uri)
assert h.can_meta_context("memlane:changed:monday")
assert not h.can_meta_context("memlane:changed:sunday")
told = {}
h.block_status(2 << 20, 0, lambda context, offset, states, error: told.update({context: states}))
m = 1 << 20
assert told["base:allocation"] == [8192, 0, m - 8192, 3, 8192, 0, m - 8192, 3], told
assert told["memlane:changed:monday"] == [m, 0, 8192, 1, m - 8192, 0], told
"#;
    let served = served_with_changes();
    succeed("nbdsh", &["-c", &format!("uri = {:?}\n{script}", served.uri("disk"))]);
}

/// Invalid requests, which well-behaved clients do not send, and the expected errors.
const ERRORS: &str = r#"
import errno
def refused(expected, request, *arguments):
    try:
        request(*arguments)
    except nbd.Error as error:
        assert error.errnum == expected, (request, arguments, error.errnum, expected)
        return
    raise AssertionError(("not refused", request, arguments))

def suite(structured):
    h = nbd.NBD()
    h.add_meta_context("base:allocation")
    h.set_request_structured_replies(structured)
    h.connect_uri(uri)
    h.set_strict_mode(0)
    size = h.get_size()
    h.pwrite(b"abc", 511)
    assert h.pread(5, 510) == b"\0abc\0"
    refused(errno.EINVAL, h.pread, 1, size)
    refused(errno.EINVAL, h.pread, 4096, size - 1)
    refused(errno.EINVAL, h.pread, 1, 2**63)
    refused(errno.ENOSPC, h.pwrite, b"x", size)
    refused(errno.ENOSPC, h.pwrite, b"x" * 4096, size - 1)
    refused(errno.ENOSPC, h.zero, 2, size - 1)
    refused(errno.EINVAL, h.trim, 2, size - 1)
    refused(errno.EINVAL, h.cache, 2, size - 1)
    refused(errno.EINVAL, h.pread, 1, 0, 1 << 14)
    refused(errno.EINVAL, h.pwrite, b"x", 0, nbd.CMD_FLAG_DF)
    refused(errno.EINVAL, h.flush, nbd.CMD_FLAG_REQ_ONE)
    refused(errno.EINVAL, h.trim, 1, 0, nbd.CMD_FLAG_NO_HOLE)
    h.zero(0, 0)
    h.trim(0, 0)
    h.cache(0, 0)
    h.zero(4096, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
    h.trim(size, 0)
    extents = []
    status = lambda context, offset, found, error: extents.extend(found)
    if structured:
        assert h.pread(1, 0, nbd.CMD_FLAG_DF) == b"\0"
        refused(errno.EOVERFLOW, h.pread, 2 << 20, 0, nbd.CMD_FLAG_DF)
        refused(errno.EINVAL, h.block_status, 0, 0, status)
        refused(errno.EINVAL, h.block_status, 2, size - 1, status)
        h.block_status(size, 0, status, nbd.CMD_FLAG_REQ_ONE)
        assert extents == [size, 3], extents
    else:
        refused(errno.EINVAL, h.pread, 1, 0, nbd.CMD_FLAG_DF)
        refused(errno.EINVAL, h.block_status, 1, 0, status)
    h.flush()
    h.shutdown()

suite(True)
suite(False)
"#;

#[test]
fn nbdsh_is_refused_what_makes_no_sense() {
    let served = Served::new();
    let script = format!("uri = {:?}\n{ERRORS}", served.uri("disk"));
    succeed("nbdsh", &["-c", &script]);
}

#[test]
fn nbdsh_writes_and_reads_in_any_size() {
    let script = r#"
h.connect_uri(uri)
for count in (1, 511, 4095, 65536, 65537, 131072, 262145, 1 << 20, (32 << 20) - 1, 32 << 20):
    data = bytes(range(1, 252)) * (count // 251 + 1)
    h.pwrite(data[:count], 3, nbd.CMD_FLAG_FUA)
    assert h.pread(count, 3) == data[:count], count
"#;
    let served = Served::new();
    for replies in ["h.set_request_structured_replies(False)", ""] {
        let script = format!("uri = {:?}\n{replies}\n{script}", served.uri("disk"));
        succeed("nbdsh", &["-c", &script]);
    }
}

#[test]
fn nbdsh_has_many_requests_in_flight() {
    let script = r#"
h.connect_uri(uri)
buffers = [nbd.Buffer.from_bytearray(bytearray([i % 256]) * 4096) for i in range(1000)]
writes = [h.aio_pwrite(buffer, i * 4096) for i, buffer in enumerate(buffers)]
while h.aio_in_flight() > 0:
    h.poll(-1)
assert all(h.aio_command_completed(write) for write in writes)
assert all(h.pread(4096, i * 4096) == bytes([i % 256]) * 4096 for i in range(1000))
"#;
    let served = Served::new();
    succeed("nbdsh", &["-c", &format!("uri = {:?}\n{script}", served.uri("disk"))]);
}

/// Concurrent FUA writes, flushes and reads. Every byte is compared.
const FLUSHES: &str = r#"
h.connect_uri(uri)
h.set_strict_mode(0)
def settle(cookies):
    while h.aio_in_flight() > 0:
        h.poll(-1)
    assert all(h.aio_command_completed(cookie) for cookie in cookies)
fill = lambda i: bytearray([i % 256]) * 4096
buffers = [nbd.Buffer.from_bytearray(fill(i)) for i in range(200)]
cookies = []
for i, buffer in enumerate(buffers):
    cookies.append(h.aio_pwrite(buffer, i * 4096, flags=nbd.CMD_FLAG_FUA))
    if i % 3 == 0:
        cookies.append(h.aio_flush())
settle(cookies)
long = nbd.Buffer(8 << 20)
read = [nbd.Buffer(4096) for i in range(200)]
cookies = []
for i, buffer in enumerate(read):
    cookies.append(h.aio_pread(buffer, i * 4096))
    if i % 20 == 0:
        cookies.append(h.aio_pread(long, 0))
        cookies.append(h.aio_flush())
settle(cookies)
assert all(buffer.to_bytearray() == fill(i) for i, buffer in enumerate(read))
assert long.to_bytearray()[:200 * 4096] == b"".join(map(fill, range(200)))
h.shutdown()
"#;

#[test]
fn nbdsh_has_flushes_in_flight_among_other_requests() {
    let served = Served::new();
    for replies in ["h.set_request_structured_replies(False)", ""] {
        let script = format!("uri = {:?}\n{replies}\n{FLUSHES}", served.uri("disk"));
        succeed("nbdsh", &["-c", &script]);
    }
}

#[test]
fn nbdcopy_copies_both_ways() {
    let served = Served::new();
    let image = served.image("image");
    let copy = served.path("copy");
    if succeed("nbdcopy", &[&image, &served.uri("disk")]).is_none() {
        return;
    }
    let expected = fs::read(&image).expect("it was written");
    assert!(served.contents() == expected, "the device holds the image");
    succeed("nbdcopy", &[&served.uri("disk"), &copy]);
    assert!(fs::read(&copy).expect("it was copied") == expected, "the copy is the image");
}

#[test]
fn qemu_img_converts_compares_and_maps() {
    let served = Served::new();
    let image = served.image("image");
    let uri = served.uri("disk");
    let convert = ["convert", "-n", "-f", "raw", "-O", "raw", &image, &uri];
    if succeed("qemu-img", &convert).is_none() {
        return;
    }
    succeed("qemu-img", &["compare", "-f", "raw", "-F", "raw", &image, &uri]);
    let map = json("qemu-img", &["map", "-f", "raw", "--output=json", &uri]).expect("it is here");
    let kinds: Vec<_> = map.as_array().expect("a list").iter().map(|part| &part["data"]).collect();
    assert_eq!(kinds, [false, true, false, true, false]);
    let back = served.path("back");
    succeed("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, &back]);
    succeed("qemu-img", &["compare", "-f", "qcow2", "-F", "raw", &back, &uri]);
}

#[test]
fn qemu_io_reads_what_it_writes_zeroes_and_discards() {
    let served = Served::new();
    let commands = [
        "write -P 0x5a 0 3M",
        "write -f -P 0xa5 1000 512",
        "read -P 0xa5 1000 512",
        "read -P 0x5a 1512 100000",
        "write -z 64k 64k",
        "write -z -u 128k 64k",
        "read -P 0 64k 128k",
        "discard 1M 1M",
        "read -P 0 1M 1M",
        "aio_write -P 0x11 4M 1M",
        "aio_write -P 0x22 5M 1M",
        "aio_flush",
        "read -P 0x11 4M 1M",
        "read -P 0x22 5M 1M",
        "flush",
    ];
    let uri = served.uri("disk");
    let mut arguments = vec!["-f", "raw", "-t", "none"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
    arguments.push(&uri);
    let Some(said) = succeed("qemu-io", &arguments) else { return };
    assert!(!said.contains("failed"), "{said}");
}

#[test]
fn qemu_io_may_read_a_read_only_export_and_not_write_it() {
    let served = Served::new();
    let uri = served.uri("other");
    let Some(said) = succeed("qemu-io", &["-r", "-f", "raw", "-c", "read -P 0 0 4k", &uri]) else {
        return;
    };
    assert!(!said.contains("failed"), "{said}");
    let output = run("qemu-io", &["-f", "raw", "-c", "write 0 4k", &uri]).expect("it is here");
    assert!(!output.status.success(), "it does not even open it for writing");
}

#[test]
fn nbdsh_is_not_permitted_to_change_a_read_only_export() {
    let script = r#"
import errno
h.connect_uri(uri)
assert h.is_read_only()
h.set_strict_mode(0)
for change in (lambda: h.pwrite(b"x", 0), lambda: h.trim(4096, 0), lambda: h.zero(4096, 0)):
    try:
        change()
    except nbd.Error as error:
        assert error.errnum == errno.EPERM, error
    else:
        raise AssertionError("not refused")
h.flush()
"#;
    let served = Served::new();
    succeed("nbdsh", &["-c", &format!("uri = {:?}\n{script}", served.uri("other"))]);
}

#[test]
fn qemu_io_is_told_of_a_flush_that_failed() {
    let device = Arc::new(FaultyDevice::new(SIZE));
    let export = Arc::clone(&device);
    let running = Running::new(Arc::new(ExportTable::new().with("disk", export)));
    let uri = format!("nbd+unix:///disk?socket={}", running.socket().display());
    device.set_fault(Fault { action: Action::Flush, at: 0, kind: DeviceErrorKind::NotDurable });
    let qemu_io = |commands: &[&str]| {
        let commands = commands.iter().flat_map(|command| ["-c", command]);
        let arguments: Vec<_> = ["-f", "raw", "-t", "none"].into_iter().chain(commands).collect();
        Some(run("qemu-io", &[&arguments[..], &[&uri]].concat())?.status.success())
    };
    // QEMU sends no flush if nothing was written.
    let Some(flushed) = qemu_io(&["write -P 7 0 4k", "flush"]) else { return };
    assert!(!flushed);
    assert_eq!(qemu_io(&["write -f -P 7 0 4k"]), Some(false));
    device.clear_fault();
    assert_eq!(qemu_io(&["write -f -P 8 0 4k", "flush", "read -P 8 0 4k"]), Some(true));
}

#[test]
fn fio_verifies_what_it_wrote() {
    for (block_bytes, depth) in [("4k", "16"), ("512-256k", "4"), ("1m", "2")] {
        let served = Served::new();
        let uri = format!("--uri={}", served.uri("disk"));
        let block = format!("--bsrange={block_bytes}");
        let block = if block_bytes.contains('-') { block } else { format!("--bs={block_bytes}") };
        let depth = format!("--iodepth={depth}");
        let arguments = ["--name=verify", "--ioengine=nbd", &uri, "--rw=randrw", &block, &depth];
        let checks = ["--size=32m", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"];
        if succeed("fio", &[&arguments[..], &checks].concat()).is_none() {
            return;
        }
    }
}

#[test]
fn nbdkit_serves_what_it_takes_from_here() {
    let served = Served::new();
    served.device.write(4096, b"through two servers").expect("there is space");
    let uri = format!("uri={}", served.uri("disk"));
    let check = "nbdsh -u $uri -c 'assert h.pread(19, 4096) == b\"through two servers\"'";
    succeed("nbdkit", &["-U", "-", "nbd", &uri, "--run", check]);
}

/// A TLS server, and the authority of its certificate.
struct Guarded {
    served: Served,
    authority: Authority,
}

impl Guarded {
    fn new(client_authority: Option<&Authority>) -> Self {
        let authority = Authority::new();
        let loopback = "127.0.0.1:0".parse().expect("an address");
        let served = Served::with(|config| {
            let directory = config.unix_path.parent().expect("it is in a directory");
            let mut files = authority.issue(directory, "server");
            files.client_authorities = client_authority
                .map(|authority| authority.publish(directory, "client-authority.pem"));
            let tcp_access = match client_authority {
                Some(_) => TcpAccess::Certified,
                None => TcpAccess::Anybody,
            };
            Config { tcp: Some(loopback), tcp_access, tls: Some(files), ..config }
        });
        Self { served, authority }
    }

    /// Runs `nbdinfo` on the server, with the certificate files in `directory`.
    fn nbdinfo(&self, directory: &Path) -> Option<Output> {
        let port = self.served.running.server.tcp_address().expect("TCP was asked for").port();
        let directory = directory.display();
        let uri = format!("nbds://localhost:{port}/disk?tls-certificates={directory}");
        run("nbdinfo", &["--json", &uri])
    }
}

/// Creates a folder as libnbd expects it: a trusted CA certificate and, if any, a client
/// certificate.
fn client_files(trusted: &Authority, own: Option<&Authority>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("there is space for temporary files");
    trusted.publish(directory.path(), "ca-cert.pem");
    if let Some(authority) = own {
        authority.issue(directory.path(), "client");
    }
    directory
}

#[test]
fn nbdinfo_comes_in_over_tls() {
    let guarded = Guarded::new(None);
    let files = client_files(&guarded.authority, None);
    let Some(output) = guarded.nbdinfo(files.path()) else { return };
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let info: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    assert_eq!(info["TLS"], true);
    assert_eq!(info["exports"][0]["export-size"], SIZE);
}

#[test]
fn nbdinfo_does_not_trust_a_stranger() {
    let guarded = Guarded::new(None);
    let files = client_files(&Authority::new(), None);
    let Some(output) = guarded.nbdinfo(files.path()) else { return };
    assert!(!output.status.success());
}

#[test]
fn nbdinfo_shows_its_certificate_where_one_is_wanted() {
    let clients = Authority::new();
    let guarded = Guarded::new(Some(&clients));
    for (own, welcome) in [(Some(&clients), true), (Some(&Authority::new()), false), (None, false)]
    {
        let files = client_files(&guarded.authority, own);
        let Some(output) = guarded.nbdinfo(files.path()) else { return };
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), welcome, "{complaint}");
    }
}

#[test]
fn nbdsh_has_flushes_in_flight_over_tls() {
    let guarded = Guarded::new(None);
    let files = client_files(&guarded.authority, None);
    let port = guarded.served.running.server.tcp_address().expect("TCP was asked for").port();
    let uri = format!("nbds://localhost:{port}/disk?tls-certificates={}", files.path().display());
    for replies in ["h.set_request_structured_replies(False)", ""] {
        let script =
            format!("uri = {uri:?}\nh.set_uri_allow_local_file(True)\n{replies}\n{FLUSHES}");
        succeed("nbdsh", &["-c", &script]);
    }
}

#[test]
fn nbdcopy_copies_over_tls() {
    let guarded = Guarded::new(None);
    let files = client_files(&guarded.authority, None);
    let image = guarded.served.image("image");
    let port = guarded.served.running.server.tcp_address().expect("TCP was asked for").port();
    let directory = files.path().display();
    let uri = format!("nbds://localhost:{port}/disk?tls-certificates={directory}");
    if succeed("nbdcopy", &[&image, &uri]).is_none() {
        return;
    }
    let expected = fs::read(&image).expect("it was written");
    assert!(guarded.served.contents() == expected, "the device holds the image");
}
