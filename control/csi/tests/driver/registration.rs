//! Registration with the kubelet, byte by byte as the kubelet sends it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail, ensure};
use prost::Message;
use system::DaemonOptions;

use crate::fixture::{Fixture, TIME_LIMIT};
use crate::wire::{Nothing, Registration, RegistrationStatus};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// HTTP/2 frame types.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_OF_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOING_AWAY: u8 = 7;

const FLAG_END_STREAM: u8 = 1;
const FLAG_END_HEADERS: u8 = 4;

const SERVICE: &str = "/pluginregistration.Registration/";

/// Socket path in the place of a host name, as the kubelet sends it.
const AUTHORITY: &str = "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fcsi.memlane-reg.sock";

#[test]
fn the_kubelet_registers_the_driver_although_its_requests_have_no_valid_authority() -> Result<()> {
    let options = DaemonOptions { pool_size: "64MiB", flags: "" };
    let Some(fixture) = Fixture::start(options)? else { return Ok(()) };
    let registry = fixture.path("registry");
    let visible = fs::read_dir(&registry)?.collect::<Result<Vec<_>, _>>()?;
    ensure!(visible.len() == 1, "the kubelet would look at {visible:?}");
    ensure!(visible[0].file_type()?.is_socket(), "{visible:?} is no socket");
    let mut kubelet = Kubelet::connect(&fixture)?;
    let told: Registration = kubelet.ask(1, "GetInfo", &Nothing {})?;
    ensure!(told.name == "csi.memlane" && told.kind == "CSIPlugin", "{told:?}");
    ensure!(told.supported_versions == ["1.0.0"], "{told:?}");
    // The second request refers to the authority by its index in the dynamic table.
    let status = RegistrationStatus { plugin_registered: true, error: String::new() };
    let _: Nothing = kubelet.ask(3, "NotifyRegistrationStatus", &status)?;
    drop(kubelet);
    fixture.finish()
}

struct Kubelet {
    stream: UnixStream,
}

impl Kubelet {
    fn connect(fixture: &Fixture) -> Result<Self> {
        let socket = fixture.path("registry").join("csi.memlane-reg.sock");
        let mut stream = UnixStream::connect(socket).context("nobody listens")?;
        stream.set_read_timeout(Some(TIME_LIMIT))?;
        stream.write_all(PREFACE)?;
        stream.write_all(&frame(SETTINGS, 0, 0, &[])?)?;
        Ok(Self { stream })
    }

    fn ask<A: Message + Default>(
        &mut self,
        stream: u8,
        name: &str,
        request: &impl Message,
    ) -> Result<A> {
        let fields = fields(&format!("{SERVICE}{name}"), stream)?;
        self.stream.write_all(&frame(HEADERS, FLAG_END_HEADERS, stream, &fields)?)?;
        let message = request.encode_to_vec();
        let length = u32::try_from(message.len())?.to_be_bytes();
        let body = [&[0][..], &length, &message].concat();
        self.stream.write_all(&frame(DATA, FLAG_END_STREAM, stream, &body)?)?;
        let mut answer = Vec::new();
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).context("no answer")?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length)?];
            self.stream.read_exact(&mut payload)?;
            match head[3] {
                END_OF_STREAM | GOING_AWAY => bail!("{name} is refused: {head:?} {payload:?}"),
                DATA => answer.extend(payload),
                HEADERS if head[4] & FLAG_END_STREAM != 0 => break,
                _ => {}
            }
        }
        A::decode(answer.get(5..).context("the answer has no message")?).context("another answer")
    }
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Result<Vec<u8>> {
    let length = u32::try_from(payload.len())?.to_be_bytes();
    Ok([&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat())
}

/// Encodes request fields as Go's HPACK encoder does: fields with values are added to the dynamic
/// table, newest first, and later referred to by index.
fn fields(path: &str, stream: u8) -> Result<Vec<u8>> {
    // `:method` POST, `:scheme` http, and `:path`, which is not indexed.
    let mut fields = vec![0x83, 0x86, 0x04];
    add_text(&mut fields, path)?;
    if stream == 1 {
        fields.push(0x41);
        add_text(&mut fields, AUTHORITY)?;
        fields.push(0x5f);
        add_text(&mut fields, "application/grpc")?;
        fields.push(0x40);
        add_text(&mut fields, "te")?;
        add_text(&mut fields, "trailers")?;
    } else {
        fields.extend([0xc0, 0xbf, 0xbe]);
    }
    Ok(fields)
}

/// Appends a string without Huffman coding.
fn add_text(fields: &mut Vec<u8>, text: &str) -> Result<()> {
    ensure!(text.len() < 0x7f, "{text} is long");
    fields.push(u8::try_from(text.len())?);
    fields.extend(text.as_bytes());
    Ok(())
}
