//! Logins of clients that only support SaslHandshake version 0, whose messages have no headers.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};
use sasl::{ClientExchange, ClientStep, Mechanism, Nonce};
use system::{Broker, product};
use tempfile::TempDir;

const SECRET: &str = "a secret of alice";

/// Starts a broker to which `alice` may log in, by each mechanism.
fn broker(folder: &TempDir) -> Result<Broker> {
    let users = folder.path().join("users");
    let users = users.to_str().context("a name in UTF-8")?;
    let mut secret = tempfile::tempfile()?;
    writeln!(secret, "{SECRET}")?;
    secret.rewind()?;
    set_user(users, secret)?;
    let names: Vec<_> = Mechanism::ALL.iter().map(|it| it.name()).collect();
    Broker::start(&format!("--embedded 128M --user-file {users} --mechanisms {}", names.join(",")))
}

fn set_user(users: &str, secret: File) -> Result<()> {
    let words = ["user", "set", "alice", "--user-file", users];
    product("memlane-broker").args(words).input(secret).check().map(drop)
}

fn send(stream: &mut TcpStream, message: &[u8]) -> Result<()> {
    let length = u32::try_from(message.len())?.to_be_bytes();
    Ok(stream.write_all(&[&length[..], message].concat())?)
}

fn receive(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; usize::try_from(u32::from_be_bytes(length))?];
    stream.read_exact(&mut message)?;
    Ok(message)
}

/// Sends a request with the oldest header version, and returns its answer after the correlation id.
fn ask(stream: &mut TcpStream, key: u8, body: &[u8]) -> Result<Vec<u8>> {
    let header = [0, key, 0, 0, 0, 0, 0, 9, 0, 1, b'x'];
    send(stream, &[&header[..], body].concat())?;
    let answer = receive(stream)?;
    ensure!(answer.starts_with(&[0, 0, 0, 9]), "{answer:?}");
    Ok(answer[4..].to_vec())
}

/// Logs in, up to the end of the exchange.
fn log_in(stream: &mut TcpStream, mechanism: Mechanism, secret: &str) -> Result<()> {
    let name = mechanism.name();
    let body = [&u16::try_from(name.len())?.to_be_bytes()[..], name.as_bytes()].concat();
    let answer = ask(stream, 17, &body)?;
    ensure!(answer.starts_with(&[0, 0]), "{mechanism:?}: {answer:?}");
    let mut exchange = ClientExchange::new(mechanism, "alice", secret, Nonce::random()?)?;
    let mut message = exchange.first_message().to_vec();
    loop {
        send(stream, &message)?;
        match exchange.answer(&receive(stream)?)? {
            ClientStep::Done => return Ok(()),
            ClientStep::Send(next) => message = next,
        }
    }
}

#[test]
fn clients_of_the_first_handshake_log_in_by_each_mechanism() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut broker = broker(&folder)?;
    for mechanism in Mechanism::ALL {
        let mut stream = broker.connect()?;
        for _again in 0..2 {
            log_in(&mut stream, mechanism, SECRET).with_context(|| format!("{mechanism:?}"))?;
            // Later requests have headers again: a list of groups, which is empty.
            let listed = ask(&mut stream, 16, &[])?;
            ensure!(listed == [0; 6], "{mechanism:?}: {listed:?}");
        }
        let mut stream = broker.connect()?;
        ensure!(log_in(&mut stream, mechanism, "a guess").is_err(), "{mechanism:?}");
        ensure!(stream.read(&mut [0])? == 0, "{mechanism:?}: a refused client is sent away");
    }
    broker.stop()
}
