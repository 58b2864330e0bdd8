//! Places of a broker that one client takes many of, and those that are left for others.

use std::io::{Read, Seek, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_client::{Client, SaslSettings, Settings};
use sasl::{Mechanism, ScramHash};
use system::{Broker, free_address, product, wait_for};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;

const SECRET: &str = "a secret of each";
const TIME_LIMIT: Duration = Duration::from_secs(60);

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
        ensure!(format!("{refused:#}").contains("its share of the connections"), "{refused:#}");
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
    ensure!(broker.log().contains("connection closed before authentication"), "{}", broker.log());
    broker.stop()
}

/// Says how long a request is, and sends none of it.
async fn announce(broker: &Broker, from: [u8; 4], bytes: i32) -> Result<tokio::net::TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let mut stream = socket.connect(broker.address().parse()?).await?;
    stream.write_all(&bytes.to_be_bytes()).await?;
    Ok(stream)
}

fn metric(broker: &Broker, name: &str) -> Result<u64> {
    let metrics = broker.ask("/metrics")?;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.with_context(|| format!("there is no {name}"))?.parse()?)
}

#[test]
fn requests_in_flight_of_one_client_leave_memory_for_those_of_others() -> Result<()> {
    const IN_FLIGHT: &str = "memlane_broker_requests_in_flight_bytes";
    const WAITED: &str = "memlane_broker_memory_throttles_total";
    let flags = "--embedded 128M --request-size 1M --request-memory 2M";
    let mut broker = Broker::start(flags)?;
    Runtime::new()?.block_on(async {
        let is = |name, wanted| wait_for(name, TIME_LIMIT, || Ok(metric(&broker, name)? == wanted));
        // As long as all that it may have: its next request waits.
        let length = (1 << 20) - 4;
        let first = announce(&broker, [127, 0, 0, 2], length).await?;
        is(IN_FLIGHT, 1 << 20)?;
        let _second = announce(&broker, [127, 0, 0, 2], (768 << 10) - 4).await?;
        is(WAITED, 1)?;
        ensure!(metric(&broker, IN_FLIGHT)? == 1 << 20, "it takes what is for others");
        // Whoever comes from elsewhere is answered.
        Client::new(broker.address(), Settings::default()).cluster().await?;
        let _third = announce(&broker, [127, 0, 0, 3], (512 << 10) - 4).await?;
        is(IN_FLIGHT, 3 << 19)?;
        drop(first);
        // The second one finds room.
        is(IN_FLIGHT, (512 + 768) << 10)?;
        anyhow::Ok(())
    })?;
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
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(request("GET").as_bytes())?;
        stream.write_all(b"Connection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).with_context(|| format!("beside {sent:?}"))?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "beside {sent:?}: {answer}");
    }
    broker.stop()
}
