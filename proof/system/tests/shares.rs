//! Places of a broker that one client takes many of, and those that are left for others.

use std::io::{Read, Seek, Write};
use std::net::TcpStream;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use kafka_client::{Client, SaslSettings, Settings};
use sasl::{Mechanism, ScramHash};
use system::{Broker, free_address, product};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const SECRET: &str = "a secret of each";

/// A broker that these users log in to.
fn broker_of(folder: &TempDir, names: &[&str], flags: &str) -> Result<Broker> {
    let users = folder.path().join("users");
    let users = users.to_str().context("a name in UTF-8")?;
    for name in names {
        let mut secret = tempfile::tempfile()?;
        writeln!(secret, "{SECRET}")?;
        secret.rewind()?;
        let words = ["user", "set", name, "--user-file", users];
        product("memlane-broker").args(words).input(secret).check()?;
    }
    Broker::start(&format!("--embedded 128M --user-file {users} {flags}"))
}

/// A client of a user, which is answered.
async fn log_in(broker: &Broker, user: &str) -> Result<Arc<Client>> {
    let sasl = SaslSettings {
        mechanism: Mechanism::Scram(ScramHash::Sha256),
        user: user.to_owned(),
        password: SECRET.to_owned(),
    };
    let settings = Settings { sasl: Some(sasl), ..Settings::default() };
    let client = Arc::new(Client::new(broker.address(), settings));
    client.cluster().await.with_context(|| format!("a connection of {user}"))?;
    Ok(client)
}

#[test]
fn connections_that_say_nothing_and_users_with_many_leave_room_for_others() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut broker = broker_of(&folder, &["alice", "bob"], "--connections 8")?;
    let silent = (0..40).map(|_| broker.connect()).collect::<Result<Vec<_>>>()?;
    Runtime::new()?.block_on(async {
        let mut of_alice = Vec::new();
        let refused = loop {
            ensure!(of_alice.len() < 8, "one user takes all connections");
            match log_in(&broker, "alice").await {
                Ok(client) => of_alice.push(client),
                Err(error) => break error,
            }
        };
        ensure!(of_alice.len() == 4, "{} of 8: {refused:#}", of_alice.len());
        ensure!(format!("{refused:#}").contains("as many connections"), "{refused:#}");
        log_in(&broker, "bob").await?;
        // Those who were there are served as before.
        for client in &of_alice {
            client.cluster().await?;
        }
        anyhow::Ok(())
    })?;
    let mut ended = 0;
    for mut stream in silent {
        stream.set_nonblocking(true)?;
        ended += usize::from(matches!(stream.read(&mut [0]), Ok(0)));
    }
    ensure!(ended >= 32, "{ended} silent connections gave their places away");
    ensure!(broker.log().contains("ended before its client was known"), "{}", broker.log());
    broker.stop()
}

#[test]
fn a_broker_says_that_it_is_ready_beside_connections_that_ask_for_nothing() -> Result<()> {
    let address = free_address()?;
    let mut broker = Broker::start(&format!("--embedded 128M --http {address}"))?;
    let request = |head: &str| format!("{head} /readyz HTTP/1.1\r\nHost: a\r\n");
    let unread = request("GET") + "\r\n";
    let without_body = request("POST") + "Content-Length: 1000\r\n\r\n";
    for sent in [String::new(), request("GET"), unread, without_body] {
        let mut silent = Vec::new();
        // More than the places and the queue of the system together.
        for _ in 0..250 {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(sent.as_bytes())?;
            silent.push(stream);
        }
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20)))?;
        stream.write_all(request("GET").as_bytes())?;
        stream.write_all(b"Connection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).with_context(|| format!("beside {sent:?}"))?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "beside {sent:?}: {answer}");
    }
    broker.stop()
}
