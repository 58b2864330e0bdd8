//! Devices of machines other than disks on volumes: terminal, display, network, CD-ROM and
//! cloud-init seed.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{Machine, MachinesCreated};
use guest::ImageContents;
use rustix::process::Signal;
use system::{Background, wait_for};

use crate::fixture::{FROM_SCRIPT, Fixture, PLAIN, TIME_LIMIT, lacks};

const CONTENTS: ImageContents = ImageContents {
    products: &[],
    programs: &[],
    modules: &["vfat", "nls_cp437", "nls_ascii", "ahci", "sr_mod", "virtio_net", "af_packet"],
};

/// Prints what the guest finds, then echoes input.
const SCRIPT: &str = r#"
mkdir -p /tmp/seed
mount -t vfat -o ro /dev/vdb /tmp/seed
cat /tmp/seed/user-data /tmp/seed/meta-data >/dev/console
echo "DISC-$(head -c 5 /dev/sr0)" >/dev/console
ip link set eth0 up
udhcpc -n -q -i eth0 >/tmp/lease 2>&1
grep -q 'lease of 10.0.2.15 obtained' /tmp/lease && echo LEASE-10.0.2.15 >/dev/console
ip address add 10.0.2.15/24 dev eth0
nc -w 5 10.0.2.2 HOST-PORT </dev/null >/tmp/heard 2>&1
grep -q secret /tmp/heard && echo HOST-REACHED >/dev/console
echo READY >/dev/console
while read -r line; do
    echo "HEARD-$line" >/dev/console
done </dev/ttyS0
"#;

const USER_DATA: &str = "#cloud-config\nhostname: it's <web> & co\n";
const DISC_BYTES: usize = 64 << 10;
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
const TYPED_COUNT_MAX: usize = 6;
const HEAD_BYTES_MAX: usize = 4096;

/// Start of error responses for an unknown path or method.
const UNSERVED: [&str; 2] = [r#""kind":"unknown_path""#, r#""kind":"method_not_allowed""#];

#[test]
fn a_machine_has_a_terminal_a_screen_a_network_a_disc_and_a_seed() -> Result<()> {
    if lacks(&["libvirtd"]) {
        return Ok(());
    }
    let fixture = Fixture::start(CONTENTS)?;
    // A service on the host's loopback interface, such as a broker without authentication.
    let host = TcpListener::bind("127.0.0.1:0")?;
    let port = host.local_addr()?.port().to_string();
    thread::spawn(move || host.incoming().flatten().try_for_each(|mut it| it.write_all(b"secret")));
    fixture.volume_with_text("golden", &SCRIPT.replace("HOST-PORT", &port))?;
    let mut disc = b"cdrom".to_vec();
    disc.resize(DISC_BYTES, 0);
    fixture.boot_file("disc.iso", &disc)?;
    let user_data = fixture.folder().join("user-data");
    fs::write(&user_data, USER_DATA)?;
    let user_data = user_data.to_str().context("the path is text")?;
    let words = ["create", "web", "--clone", "golden", "--cdrom", "disc.iso", "--start"];
    let more = ["--network", "user", "--graphics", "--user-data", user_data];
    let made: MachinesCreated = fixture.ask(&[&words[..], &more, FROM_SCRIPT].concat())?;
    let machine = &made.machines[0];
    ensure!(machine.has_serial_console && machine.has_graphical_console, "{machine:?}");
    ensure!(machine.volumes == ["web", "web-seed"] && machine.disks.len() == 3, "{machine:?}");

    fixture.wait_for_console("web", "READY", 1)?;
    for text in ["it's <web> & co", "local-hostname: web", "DISC-cdrom", "LEASE-10.0.2.15"] {
        ensure!(fixture.console("web").contains(text), "{text}: {}", fixture.console("web"));
    }
    ensure!(
        !fixture.console("web").contains("HOST-REACHED"),
        "a guest reaches the host's loopback"
    );
    terminal(&fixture)?;
    screen(&fixture)?;

    let mut last = typing(&fixture, &["console", "web"], "last")?;
    fixture.vm(&["kill", "web"]).check()?;
    wait_for("the terminal to end", TIME_LIMIT, || Ok(last.has_ended()?.is_some()))?;
    ensure!(fixture.refusal(&["console", "web"])? == "busy", "it is off");
    fixture.vm(&["delete", "web", "--with-volumes"]).check()?;
    ensure!(fixture.daemon.volumes()?.len() == 1, "the seed is gone, too");
    fixture.finish()
}

/// One client types, a second is refused, a third takes the terminal over, a fourth detaches.
fn terminal(fixture: &Fixture) -> Result<()> {
    let mut first = typing(fixture, &["console", "web"], "first")?;
    ensure!(fixture.refusal(&["console", "web"])? == "in_use", "somebody has it");
    let mut third = typing(fixture, &["console", "web", "--force"], "third")?;
    wait_for("the first one to end", TIME_LIMIT, || Ok(first.has_ended()?.is_some()))?;
    let key = fixture.folder().join("key");
    fs::write(&key, "\x1d")?;
    fixture.vm(&["console", "web", "--force"]).input(File::open(key)?).check()?;
    wait_for("the third one to end", TIME_LIMIT, || Ok(third.has_ended()?.is_some()))
}

/// Opens a terminal, types a word and waits for the guest's echo. Without an echo it retries on a
/// new terminal, because libvirt may still read for the terminal that was taken over.
fn typing(fixture: &Fixture, words: &[&str], word: &str) -> Result<Background> {
    let (typed, seen) = (fixture.folder().join("typed"), fixture.folder().join(word));
    fs::write(&typed, format!("{word}\n"))?;
    let answer = format!("HEARD-{word}");
    let mut left = TYPED_COUNT_MAX;
    loop {
        let tool = fixture.vm(words).input(File::open(&typed)?);
        let mut console = Background::start(tool.output_to(File::create(&seen)?)?)?;
        let heard = wait_for(&format!("the guest to answer {word}"), ANSWER_TIME_MAX, || {
            Ok(fs::read_to_string(&seen)?.contains(&answer))
        });
        left -= 1;
        match heard {
            Ok(()) => return Ok(console),
            Err(error) if left == 0 => return Err(error),
            Err(_) => console.end(Signal::TERM, TIME_LIMIT).map(drop)?,
        }
    }
}

/// Speaks RFB up to the negotiation of authentication.
fn screen(fixture: &Fixture) -> Result<()> {
    let mut stream = UnixStream::connect(fixture.socket())?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    let request = "GET /v1/machines/web/vnc HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n";
    stream.write_all(format!("{request}Upgrade: tcp\r\n\r\n").as_bytes())?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8(head)?;
    ensure!(head.starts_with("HTTP/1.1 101"), "{head}");
    let mut version = [0; 12];
    stream.read_exact(&mut version)?;
    ensure!(&version == b"RFB 003.008\n", "{version:?}");
    stream.write_all(&version)?;
    let mut logins = [0; 2];
    stream.read_exact(&mut logins)?;
    ensure!(logins == [1, 1], "one way to log in, which asks for nothing: {logins:?}");
    Ok(())
}

#[test]
fn what_is_no_console_is_refused() -> Result<()> {
    if lacks(&["libvirtd"]) {
        return Ok(());
    }
    let fixture = Fixture::start(CONTENTS)?;
    let words = ["create", "empty", "--size", "64MiB"];
    let made: MachinesCreated = fixture.ask(&[&words[..], FROM_SCRIPT].concat())?;
    ensure!(made.machines[0].volumes == ["empty"], "{made:?}");
    ensure!(!made.machines[0].has_graphical_console, "{made:?}");
    ensure!(fixture.refusal(&["console", "none"])? == "not_found", "there is none");
    let refused = answer(&fixture, "GET", "/v1/machines/empty/vnc")?;
    ensure!(refused.contains("invalid_request"), "{refused}");
    fixture.vm(&["delete", "empty", "--with-volumes"]).check()?;
    ensure!(fixture.ask::<Vec<Machine>>(&["list"])?.is_empty(), "it is gone");
    fixture.finish()
}

#[test]
fn every_operation_of_the_document_is_served() -> Result<()> {
    if lacks(&["libvirtd"]) {
        return Ok(());
    }
    let fixture = Fixture::start(PLAIN)?;
    let document = answer(&fixture, "GET", api::OPENAPI_PATH)?;
    ensure!(document == api::machines_openapi_json(), "{document}");
    for endpoint in api::MACHINE_ENDPOINTS {
        let path = api::path_of(endpoint.path, "none");
        let answer = answer(&fixture, endpoint.method.name(), &path)?;
        let is_served = UNSERVED.iter().all(|kind| !answer.contains(kind));
        ensure!(is_served, "{} {path}: {answer}", endpoint.method.name());
    }
    ensure!(answer(&fixture, "PUT", "/v1/machines")?.contains(UNSERVED[1]), "no such method");
    ensure!(answer(&fixture, "GET", "/v1/none")?.contains(UNSERVED[0]), "no such path");
    fixture.finish()
}

/// Returns the response body of a request without a body.
fn answer(fixture: &Fixture, method: &str, path: &str) -> Result<String> {
    let mut stream = UnixStream::connect(fixture.socket())?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("an answer has a head")?;
    Ok(body.to_owned())
}
